//! The walk back, as Python starts it, and what it can ask while one goes on.

use super::error::heard;
use super::graph::{PyNode, object, optional};
use super::object::{PyTensor, is_tensor, tensor_ref};
use crate::layers::autograd::anomaly::{self, Witness};
use crate::layers::autograd::engine::{self, Options};
use crate::layers::autograd::{gather, saved, views};
use crate::layers::batch;
use crate::tensor::{Edge, Place};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::{Cell, RefCell};

/// Where the gradient of a tensor, or of a `GradientEdge`, goes.
fn edge_of(o: &Bound<'_, PyAny>) -> PyResult<Option<Edge>> {
    if let Some(t) = tensor_ref(o) {
        let whole = (!t.batch().is_empty()).then(|| t.whole());
        return Ok(views::current(whole.as_ref().unwrap_or(t))?.edge());
    }
    let Ok(node) = o.getattr("node") else {
        let found = super::types::type_name(o);
        return Err(PyRuntimeError::new_err(format!(
            "all inputs have to be Tensors or GradientEdges, but got {found}"
        )));
    };
    let nr: u16 = o.getattr("output_nr")?.extract()?;
    let to = node.cast::<PyNode>()?.get().link()?;
    Ok(Some(Edge { to, nr }))
}

/// The walk that asked for it, and what is called when that is done.
type Waiting = (Option<u32>, Vec<Py<PyAny>>);

thread_local! {
    /// What is called when a pass is done, for each pass that goes on on this thread; the innermost last.
    static WHEN_DONE: RefCell<Vec<Waiting>> = const { RefCell::new(Vec::new()) };
    /// The walk that is done, while what waits for it is called.
    static ENDING: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A backward pass that goes on.
struct Pass(usize);

impl Pass {
    fn begin() -> Self {
        WHEN_DONE.with_borrow_mut(|passes| {
            passes.push((None, Vec::new()));
            Self(passes.len() - 1)
        })
    }

    /// Calls what waits for its end, and what these calls add.
    fn end(self, py: Python<'_>) -> PyResult<()> {
        loop {
            let waiting = WHEN_DONE.with_borrow_mut(|p| p.get_mut(self.0).map(std::mem::take));
            let Some((walk, calls)) = waiting.filter(|(_, calls)| !calls.is_empty()) else {
                return Ok(());
            };
            let _ending = Ending(ENDING.replace(walk));
            for f in calls {
                f.bind(py).call0()?;
            }
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        drop(WHEN_DONE.with_borrow_mut(|passes| passes.split_off(self.0.min(passes.len()))));
    }
}

/// Restores which walk's end it is.
struct Ending(Option<u32>);

impl Drop for Ending {
    fn drop(&mut self) {
        ENDING.set(self.0);
    }
}

/// The walk that goes on on this thread, or whose end it is.
fn walk() -> Option<u32> {
    engine::current().or(ENDING.get())
}

/// Has a function called once the backward pass that goes on on this thread is done.
///
/// Raises: RuntimeError outside of a pass.
#[pyfunction]
fn _queue_callback(f: Py<PyAny>) -> PyResult<()> {
    let left = WHEN_DONE.with_borrow_mut(|passes| match (passes.last_mut(), walk()) {
        (Some((of, calls)), Some(walk)) => {
            *of = Some(walk);
            calls.push(f);
            None
        }
        _ => Some(f),
    });
    match left {
        None => Ok(()),
        Some(_) => Err(PyRuntimeError::new_err(
            "Final callbacks can only be installed during backward pass.",
        )),
    }
}

/// Walks back from `tensors`, whose gradients are `grads`; see `torchlike.autograd.backward` and `grad`.
#[pyfunction]
#[pyo3(signature = (tensors, grads, keep_graph, create_graph, inputs, allow_unreachable, gather))]
#[allow(clippy::too_many_arguments, reason = "those of PyTorch's function")]
fn _run_backward<'py>(
    py: Python<'py>,
    tensors: Vec<Bound<'py, PyAny>>,
    grads: Vec<Option<Bound<'py, PyAny>>>,
    keep_graph: bool,
    create_graph: bool,
    inputs: Vec<Bound<'py, PyAny>>,
    allow_unreachable: bool,
    gather: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    if gather && create_graph {
        crate::warn_once!(
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can \
             cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use this \
             function, make sure to reset the .grad fields of your parameters to None after use to break the cycle and avoid the leak."
        );
        heard(Ok(()))?;
    }
    let mut roots = Vec::with_capacity(tensors.len());
    for (i, (t, g)) in tensors.iter().zip(&grads).enumerate() {
        let Some(edge) = edge_of(t)? else {
            return Err(PyRuntimeError::new_err(format!(
                "element {i} of tensors does not require grad and does not have a grad_fn"
            )));
        };
        let Some(g) = g.as_ref().and_then(|g| tensor_ref(g)) else {
            return Err(PyRuntimeError::new_err(format!(
                "element {i} of gradients tuple is None, but the corresponding Tensor requires grad"
            )));
        };
        let g = match tensor_ref(t) {
            Some(of) => batch::whole_as(g, of)?,
            None => g.clone(),
        };
        roots.push((edge, g));
    }
    let mut edges = Vec::with_capacity(inputs.len());
    for input in &inputs {
        let Some(edge) = edge_of(input)? else {
            return Err(PyRuntimeError::new_err(if gather {
                "can't retain_grad on Tensor that has requires_grad=False"
            } else {
                "One of the differentiated Tensors does not require grad"
            }));
        };
        if gather && is_tensor(input) && edge.to.node().is_some() {
            edge.to.make_rare().retain(edge.nr);
        }
        edges.push(edge);
    }
    let options = Options {
        keep_graph,
        create_graph,
        inputs: edges,
        gather,
    };
    let pass = Pass::begin();
    let made = heard(
        py.detach(|| engine::run(roots, &options))
            .map_err(Into::into),
    )?;
    pass.end(py)?;
    if !allow_unreachable && let Some(i) = made.iter().position(Option::is_none) {
        return Err(PyRuntimeError::new_err(format!(
            "The differentiated Tensor at index {i} appears to not have been used in the graph. Set allow_unused=True if this \
             is the desired behavior."
        )));
    }
    let items = made.into_iter().zip(&inputs).map(|(g, input)| {
        let g = match (g, tensor_ref(input)) {
            (Some(g), Some(t)) => Some(batch::example_like(&g, t)?),
            (g, _) => g,
        };
        optional(py, g)
    });
    PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// Whether a gradient looks as that of an output should: both are tensors of one shape, and of real or of complex numbers.
#[pyfunction]
fn _looks_alike(output: &Bound<'_, PyAny>, grad: &Bound<'_, PyAny>) -> bool {
    let (Some(output), Some(grad)) = (tensor_ref(output), tensor_ref(grad)) else {
        return false;
    };
    output.shape() == grad.shape() && output.dtype().is_complex() == grad.dtype().is_complex()
}

/// The object of the place whose gradient edge a tensor has: its node, or the gathering of a leaf.
#[pyfunction]
fn _gradient_node<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    match views::current(t.get().get())?.edge() {
        Some(edge) => object(t.py(), &edge.to),
        None => Ok(t.py().None().into_bound(t.py())),
    }
}

/// The number of the walk that goes on on this thread, or -1.
#[pyfunction]
fn _current_graph_task_id() -> i64 {
    walk().map_or(-1, i64::from)
}

/// Whether no walk that goes on on this thread asks for the gradients of some inputs alone.
#[pyfunction]
fn _is_checkpoint_valid() -> bool {
    engine::is_whole()
}

/// Whether the walk that goes on on this thread runs a node.
///
/// Raises: RuntimeError outside of a walk.
#[pyfunction]
fn _will_engine_execute_node(node: &Bound<'_, PyAny>) -> PyResult<bool> {
    let node = node.cast::<PyNode>().ok();
    if engine::current().is_none() {
        return Err(PyRuntimeError::new_err(
            "_get_should_execute_nodes should only be called during the backward pass",
        ));
    }
    let Some(node) = node else {
        return Err(PyRuntimeError::new_err(
            "_will_engine_execute_node expects an grad_fn",
        ));
    };
    Ok(engine::will_run(&*node.get().link()?))
}

/// The text of a saved tensor that was freed.
#[pyfunction]
fn _freed_text() -> &'static str {
    saved::FREED
}

/// Notes where calls were made, in Python.
struct Stacks;

impl Stacks {
    fn tell(link: &Place, what: &str, within: Option<Place>) {
        Python::attach(|py| {
            let told = object(py, link).and_then(|node| {
                let within = within.map(|w| object(py, &w)).transpose()?;
                py.import("torchlike.autograd.anomaly_mode")?
                    .call_method1(what, (node, within))
            });
            if let Err(e) = told {
                e.write_unraisable(py, None);
            }
        });
    }
}

impl Witness for Stacks {
    fn made(&self, link: &Place, within: Option<Place>) {
        Self::tell(link, "_made", within);
    }
    fn failed(&self, link: &Place) {
        Self::tell(link, "_failed", None);
    }
}

/// Switches watching for what goes wrong, and gives what it was.
#[pyfunction]
fn _set_anomaly(on: bool, numbers: bool) -> (bool, bool) {
    anomaly::set_witness(Box::new(Stacks));
    let before = anomaly::get();
    anomaly::set(on, numbers);
    before
}

/// Whether nodes are watched, and whether gradients are searched for what is no number.
#[pyfunction]
fn _anomaly() -> (bool, bool) {
    anomaly::get()
}

/// Whether first gradients lie as their leaves do.
#[pyfunction]
fn _is_grad_layout_enforcement_enabled() -> bool {
    gather::layout_enforced()
}

/// Says whether first gradients lie as their leaves do.
#[pyfunction]
fn _set_grad_layout_enforcement_enabled(on: bool) {
    gather::enforce_layout(on);
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_run_backward _looks_alike _queue_callback _gradient_node _is_checkpoint_valid _current_graph_task_id _will_engine_execute_node _freed_text _set_anomaly _anomaly
        _is_grad_layout_enforcement_enabled _set_grad_layout_enforcement_enabled);
    Ok(())
}
