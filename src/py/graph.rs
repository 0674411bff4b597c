//! The graph as Python sees it: nodes, their hooks, and the walk back.

use super::class;
use super::dispatch::carried;
use super::object::{PyTensor, is_tensor, tensor_ref, wrap};
use super::results;
use crate::layers::autograd::anomaly::{self, Witness};
use crate::layers::autograd::engine::{self, Options};
use crate::layers::autograd::eval::Val;
use crate::layers::autograd::recorded::Recorded;
use crate::layers::autograd::views;
use crate::ops::Arg;
use crate::tensor::link::{Kind, lock};
use crate::tensor::{Edge, Grads, Hook, Leaf, Link, Meta, When};
use crate::{Result, Tensor};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference};
use std::any::Any;
use std::sync::{Arc, Weak};

/// `torchlike.autograd.graph.Node`: a place in the graph. Instances are of classes named as the place is.
#[pyclass(
    name = "Node",
    module = "torchlike.autograd.graph",
    subclass,
    weakref,
    dict,
    frozen
)]
pub struct PyNode {
    place: Place,
}

enum Place {
    /// The object keeps its place alive.
    Held(Arc<Link>),
    /// The place keeps the object alive: that of a function of the user's. Nothing before it was called.
    Owner(std::sync::OnceLock<Weak<Link>>),
}

/// What a place keeps of its object.
struct Face {
    object: Py<PyAny>,
    metadata: Option<Py<PyDict>>,
}

fn face_of<R>(link: &Link, f: impl FnOnce(&mut Option<Face>) -> R) -> R {
    // Taken out while it is used, as that may run Python.
    let rare = link.make_rare();
    let taken = lock(&rare.face).take();
    let mut face = taken.and_then(|b| b.downcast::<Face>().ok()).map(|b| *b);
    let result = f(&mut face);
    if let Some(face) = face {
        *lock(&rare.face) = Some(Box::new(face));
    }
    result
}

/// The name of a place.
fn name_of(link: &Link) -> String {
    match &link.kind {
        Kind::Leaf(_) => "AccumulateGrad".to_owned(),
        Kind::Node(node) => node.body().name().into_owned(),
    }
}

/// The class of nodes of a name, made when it is first asked for.
fn class_of<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let classes = CLASSES
        .get_or_init(py, || PyDict::new(py).unbind())
        .bind(py);
    if let Some(class) = classes.get_item(name)? {
        return Ok(class);
    }
    let dict = PyDict::new(py);
    dict.set_item("__slots__", PyTuple::empty(py))?;
    dict.set_item("__module__", "builtins")?;
    let bases = PyTuple::new(py, [py.get_type::<PyNode>()])?;
    let class = py.get_type::<PyType>().call1((name, bases, dict))?;
    classes.set_item(name, &class)?;
    Ok(class)
}

/// The object of a place: the same one as long as it lives.
pub fn object<'py>(py: Python<'py>, link: &Arc<Link>) -> PyResult<Bound<'py, PyAny>> {
    if let Some(owner) = link
        .node()
        .and_then(|n| super::function::owner(py, n.body()))
    {
        return Ok(owner);
    }
    let known = face_of(link, |face| {
        let weak = face.as_ref()?.object.bind(py).clone();
        weak.cast_into::<PyWeakrefReference>().ok()?.upgrade()
    });
    if let Some(object) = known {
        return Ok(object);
    }
    let seed = PyNode {
        place: Place::Held(link.clone()),
    };
    let made = class_of(py, &name_of(link))?.call1((Bound::new(py, seed)?,))?;
    let weak = PyWeakrefReference::new(&made)?.into_any().unbind();
    face_of(link, |face| {
        let metadata = face.take().and_then(|f| f.metadata);
        *face = Some(Face {
            object: weak,
            metadata,
        });
    });
    Ok(made)
}

impl PyNode {
    pub(super) fn link(&self) -> PyResult<Arc<Link>> {
        match &self.place {
            Place::Held(link) => Ok(link.clone()),
            Place::Owner(weak) => weak
                .get()
                .and_then(Weak::upgrade)
                .ok_or_else(|| PyRuntimeError::new_err("the graph of this node is gone")),
        }
    }

    /// Of a function of the user's, once it has a place.
    pub(super) fn place(&self, link: &Arc<Link>) {
        if let Place::Owner(weak) = &self.place {
            let _ = weak.set(Arc::downgrade(link));
        }
    }
}

#[pymethods]
impl PyNode {
    #[new]
    #[pyo3(signature = (seed=None))]
    fn new(seed: Option<&Bound<'_, PyNode>>) -> PyResult<Self> {
        let place = match seed {
            Some(seed) => Place::Held(seed.get().link()?),
            None => Place::Owner(std::sync::OnceLock::new()),
        };
        Ok(Self { place })
    }

    /// The name: `MulBackward0`.
    fn name(slf: &Bound<'_, Self>) -> PyResult<String> {
        let name = match &slf.get().place {
            Place::Held(link) => name_of(link),
            Place::Owner(_) => return Ok(slf.get_type().name()?.to_string()),
        };
        Ok(match name.as_str() {
            "AccumulateGrad" | "CopySlices" | "CopyBackwards" | "NotImplemented" => {
                format!("torch::autograd::{name}")
            }
            _ => name,
        })
    }

    /// Where gradients go from here: `(node, which of its results)`, one an input.
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let link = self.link()?;
        let edges = link.node().map_or(&[][..], |n| n.edges());
        let each = edges.iter().map(|e| match e {
            Some(e) => Ok((Some(object(py, &e.to)?), e.nr)),
            None => Ok((None, 0)),
        });
        PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    /// A dictionary for whoever wants to note something.
    #[getter]
    fn metadata<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let link = slf.get().link()?;
        let found = face_of(&link, |f| {
            Some(f.as_ref()?.metadata.as_ref()?.clone_ref(py))
        });
        if let Some(found) = found {
            return Ok(found.into_bound(py));
        }
        let made = PyDict::new(py);
        face_of(&link, |face| match face {
            Some(face) => face.metadata = Some(made.clone().unbind()),
            None => {
                *face = Some(Face {
                    object: py.None(),
                    metadata: Some(made.clone().unbind()),
                });
            }
        });
        Ok(made)
    }

    /// The tensor whose gradient gathers here.
    #[getter]
    fn variable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let link = self.link()?;
        match &link.kind {
            Kind::Leaf(leaf) => wrap(py, leaf.variable().tracked(link.clone(), 0)),
            Kind::Node(_) => Err(PyAttributeError::new_err(format!(
                "'{}' object has no attribute 'variable'",
                name_of(&link)
            ))),
        }
    }

    /// Its number: nodes made later have larger ones.
    fn _sequence_nr(&self) -> PyResult<u64> {
        Ok(self.link()?.node().map_or(u64::MAX, |n| n.seq()))
    }

    #[getter]
    fn _input_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let link = self.link()?;
        let one: Vec<Meta>;
        let metas = match &link.kind {
            Kind::Node(n) => n.outs(),
            Kind::Leaf(leaf) => {
                one = vec![Meta::of(&leaf.variable())];
                &one
            }
        };
        let class = py.import("types")?.getattr("SimpleNamespace")?;
        let list = PyList::empty(py);
        for m in metas {
            let kwargs = PyDict::new(py);
            kwargs.set_item("shape", super::sizes::size(py, &m.shape)?)?;
            kwargs.set_item("dtype", super::types::dtype(py, m.dtype)?)?;
            kwargs.set_item("device", super::types::device(py, m.device)?)?;
            list.append(class.call((), Some(&kwargs))?)?;
        }
        Ok(list)
    }

    /// The table of the hooks of a moment: before it runs, or after.
    fn _hooks<'py>(&self, py: Python<'py>, before: bool) -> PyResult<Bound<'py, PyAny>> {
        let when = if before { When::Before } else { When::After };
        table(py, &self.link()?, when)
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let missing = || {
            PyAttributeError::new_err(format!(
                "'{}' object has no attribute '{name}'",
                slf.get_type()
                    .name()
                    .map_or_else(|_| String::new(), |n| n.to_string())
            ))
        };
        let Some(wanted) = name.strip_prefix("_saved_") else {
            return Err(missing());
        };
        let link = slf.get().link()?;
        let recorded = link.node().and_then(|n| {
            let body: &dyn Any = n.body();
            body.downcast_ref::<Recorded>()
        });
        let recorded = recorded.ok_or_else(missing)?;
        if !recorded.names().any(|n| n == wanted) {
            return Err(missing());
        }
        let mut saved = recorded.saved(&link)?;
        let at = saved.iter().position(|(n, _)| n == wanted);
        let at = at.ok_or_else(missing)?;
        of_val(slf.py(), saved.swap_remove(at).1)
    }

    fn __dir__(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let py = slf.py();
        let mut names: Vec<String> = py
            .get_type::<pyo3::PyAny>()
            .call_method1("__dir__", (slf,))?
            .extract()?;
        if let Ok(link) = slf.get().link()
            && let Some(node) = link.node()
        {
            let body: &dyn Any = node.body();
            if let Some(recorded) = body.downcast_ref::<Recorded>() {
                names.extend(recorded.names().map(|n| format!("_saved_{n}")));
            }
        }
        Ok(names)
    }
}

/// The tensor whose gradient gathers at a leaf: the object that it is, if that lives.
fn variable_of<'py>(py: Python<'py>, link: &Arc<Link>, leaf: &Leaf) -> PyResult<Bound<'py, PyAny>> {
    match class::leaf_object(py, leaf) {
        Some(object) => Ok(object),
        None => wrap(py, leaf.variable().tracked(link.clone(), 0)),
    }
}

/// A value of a formula as a Python object.
fn of_val(py: Python<'_>, v: Val) -> PyResult<Bound<'_, PyAny>> {
    Ok(match v {
        Val::None | Val::Undefined(_) => py.None().into_bound(py),
        Val::Tensor(t) => match t.link().and_then(|l| l.as_leaf()) {
            Some(leaf) => match class::leaf_object(py, leaf) {
                Some(object) => object,
                None => wrap(py, t)?,
            },
            None => wrap(py, t)?,
        },
        Val::Tensors(list) => {
            let items = list.into_iter().map(|t| optional(py, t));
            PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Val::Number(s) => results::scalar(py, s)?,
        Val::Ints(d) => PyTuple::new(py, d.iter())?.into_any(),
        Val::Lists(lists) => {
            let items = lists.iter().map(|d| PyTuple::new(py, d.iter()));
            PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Val::Bools(b) => PyTuple::new(py, b)?.into_any(),
        Val::Word(w) => w.into_pyobject(py)?.into_any(),
        Val::Plain(Arg::DType(d)) => super::types::dtype(py, d)?.into_bound(py).into_any(),
        Val::Plain(Arg::Device(d)) => super::types::device(py, d)?.into_bound(py).into_any(),
        Val::Plain(_) => py.None().into_bound(py),
    })
}

pub(super) fn optional(py: Python<'_>, t: Option<Tensor>) -> PyResult<Bound<'_, PyAny>> {
    match t {
        Some(t) => wrap(py, t),
        None => Ok(py.None().into_bound(py)),
    }
}

/// The Python hooks of one moment of one place: a dictionary, in order, that handles take them out of.
struct Table {
    hooks: Py<PyAny>,
    when: When,
}

/// The table of the hooks of a moment, made when it is first asked for.
fn table<'py>(py: Python<'py>, link: &Arc<Link>, when: When) -> PyResult<Bound<'py, PyAny>> {
    let rare = link.make_rare();
    for (_, hook) in rare.hooks(|w| w == when) {
        let hook: &dyn Any = &*hook;
        if let Some(table) = hook.downcast_ref::<Table>() {
            return Ok(table.hooks.bind(py).clone());
        }
    }
    let hooks = py.import("collections")?.getattr("OrderedDict")?.call0()?;
    let made = Table {
        hooks: hooks.clone().unbind(),
        when,
    };
    rare.hook(when, Arc::new(made));
    Ok(hooks)
}

impl Hook for Table {
    fn run(&self, link: &Arc<Link>, grads: &mut Grads, others: Option<&Grads>) -> Result<()> {
        Python::attach(|py| self.call(py, link, grads, others)).map_err(carried)
    }
}

impl Table {
    fn call(
        &self,
        py: Python<'_>,
        link: &Arc<Link>,
        grads: &mut Grads,
        others: Option<&Grads>,
    ) -> PyResult<()> {
        let hooks = self.hooks.bind(py).call_method0("values")?;
        let hooks = PyList::type_object(py).call1((hooks,))?;
        for hook in hooks.try_iter()? {
            let hook = hook?;
            match self.when {
                When::Result(_) => {
                    let given = optional(py, grads[0].clone())?;
                    let made = hook.call1((&given,))?;
                    if !made.is_none() {
                        grads[0] = Some(checked(&hook, grads[0].as_ref(), &made)?);
                    }
                }
                When::Before => {
                    let made = hook.call1((all(py, grads)?,))?;
                    replace(&hook, grads, &made)?;
                }
                When::After => {
                    let others = all(py, others.unwrap_or(&Grads::new()))?;
                    let made = hook.call1((all(py, grads)?, others))?;
                    replace(&hook, grads, &made)?;
                }
                When::Gathered => {
                    let Some(leaf) = link.as_leaf() else { continue };
                    let leaf = variable_of(py, link, leaf)?;
                    let made = hook.call1((leaf,))?;
                    if !made.is_none() {
                        return Err(PyRuntimeError::new_err(
                            "Tensor post accumulate grad hooks should return None.",
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn all<'py>(py: Python<'py>, grads: &Grads) -> PyResult<Bound<'py, PyTuple>> {
    let items = grads.iter().map(|g| optional(py, g.clone()));
    PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

fn hook_name(hook: &Bound<'_, PyAny>) -> String {
    hook.getattr("__name__")
        .map_or_else(|_| "<unknown>".to_owned(), |n| n.to_string())
}

/// What a hook gave in place of a gradient.
fn checked(
    hook: &Bound<'_, PyAny>,
    old: Option<&Tensor>,
    made: &Bound<'_, PyAny>,
) -> PyResult<Tensor> {
    let Some(new) = tensor_ref(made) else {
        return Err(PyTypeError::new_err(format!(
            "expected Variable, but hook returned '{}'",
            super::types::type_name(made)
        )));
    };
    let name = || hook_name(hook);
    let Some(old) = old else {
        return Ok(new.clone());
    };
    if old.dtype() != new.dtype() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has changed the type of value (was torch.{} got torch.{})",
            name(),
            crate::ops::view::shape::type_name(old).trim_start_matches("torch."),
            crate::ops::view::shape::type_name(new).trim_start_matches("torch."),
        )));
    }
    if old.device() != new.device() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has changed the device of value",
            name()
        )));
    }
    if old.shape() != new.shape() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has changed the size of value",
            name()
        )));
    }
    Ok(new.clone())
}

/// Puts what a hook gave in the place of all gradients.
fn replace(hook: &Bound<'_, PyAny>, grads: &mut Grads, made: &Bound<'_, PyAny>) -> PyResult<()> {
    if made.is_none() {
        return Ok(());
    }
    let items: Vec<Bound<'_, PyAny>> = match made.cast::<PyTuple>() {
        Ok(t) => t.iter().collect(),
        Err(_) => vec![made.clone()],
    };
    if items.len() != grads.len() {
        return Err(PyRuntimeError::new_err(format!(
            "hook '{}' has returned an incorrect number of values (got {}, but expected {})",
            hook_name(hook),
            items.len(),
            grads.len()
        )));
    }
    for (place, item) in grads.iter_mut().zip(items) {
        *place = if item.is_none() {
            None
        } else {
            Some(checked(hook, place.as_ref(), &item)?)
        };
    }
    Ok(())
}

/// The table of a tensor's hooks: of its gradient, or (`gathered`) of what follows once its leaf has gathered it.
#[pyfunction]
fn _tensor_hooks<'py>(t: &Bound<'py, PyTensor>, gathered: bool) -> PyResult<Bound<'py, PyAny>> {
    let tensor = views::current(t.get().get());
    let Some(link) = tensor.link() else {
        return Err(PyRuntimeError::new_err(
            "cannot register a hook on a tensor that doesn't require gradient",
        ));
    };
    let when = if gathered {
        When::Gathered
    } else {
        When::Result(tensor.output_nr())
    };
    table(t.py(), link, when)
}

/// Where the gradient of a tensor, or of a `GradientEdge`, goes.
fn edge_of(o: &Bound<'_, PyAny>) -> PyResult<Option<Edge>> {
    if let Some(t) = tensor_ref(o) {
        return Ok(views::current(t).edge());
    }
    let node = o.getattr("node")?;
    let nr: u16 = o.getattr("output_nr")?.extract()?;
    let to = node.cast::<PyNode>()?.get().link()?;
    Ok(Some(Edge { to, nr }))
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
        roots.push((edge, g.clone()));
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
    let made = py.detach(|| engine::run(roots, &options))?;
    if !allow_unreachable && made.iter().any(Option::is_none) {
        return Err(PyRuntimeError::new_err(
            "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is \
             the desired behavior.",
        ));
    }
    let items = made.into_iter().map(|g| optional(py, g));
    PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)
}

/// The object of the place whose gradient edge a tensor has: its node, or the gathering of a leaf.
#[pyfunction]
fn _gradient_node<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    match views::current(t.get().get()).edge() {
        Some(edge) => object(t.py(), &edge.to),
        None => Ok(t.py().None().into_bound(t.py())),
    }
}

/// The number of the walk that goes on on this thread, or -1.
#[pyfunction]
fn _current_graph_task_id() -> i64 {
    engine::current().map_or(-1, i64::from)
}

/// Whether the walk that goes on on this thread runs a node.
///
/// Raises: RuntimeError outside of a walk.
#[pyfunction]
fn _will_engine_execute_node(node: &PyNode) -> PyResult<bool> {
    if engine::current().is_none() {
        return Err(PyRuntimeError::new_err(
            "_get_should_execute_nodes should only be called during the backward pass",
        ));
    }
    Ok(engine::will_run(&*node.link()?))
}

/// The text of a saved tensor that was freed.
#[pyfunction]
fn _freed_text() -> &'static str {
    crate::layers::autograd::saved::FREED
}

/// Notes where calls were made, in Python.
struct Stacks;

impl Stacks {
    fn tell(link: &Arc<Link>, what: &str) {
        Python::attach(|py| {
            let told = object(py, link).and_then(|node| {
                py.import("torchlike.autograd.anomaly_mode")?
                    .call_method1(what, (node,))
            });
            if let Err(e) = told {
                e.write_unraisable(py, None);
            }
        });
    }
}

impl Witness for Stacks {
    fn made(&self, link: &Arc<Link>) {
        Self::tell(link, "_made");
    }
    fn failed(&self, link: &Arc<Link>) {
        Self::tell(link, "_failed");
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

/// Shows the garbage collector what a place holds that nobody else does.
pub(super) fn visit(link: &Link, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
    if let Some(node) = link.node() {
        let body: &dyn Any = node.body();
        if let Some(custom) = body.downcast_ref::<super::function::Custom>() {
            visit.call(&custom.ctx)?;
        }
    }
    let Some(rare) = link.rare() else {
        return Ok(());
    };
    for (_, hook) in rare.hooks(|_| true) {
        let hook: &dyn Any = &*hook;
        if let Some(table) = hook.downcast_ref::<Table>() {
            visit.call(&table.hooks)?;
        }
    }
    Ok(())
}

/// Adds the class and functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyNode>()?;
    m.add_function(wrap_pyfunction!(_tensor_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_gradient_node, m)?)?;
    m.add_function(wrap_pyfunction!(_set_anomaly, m)?)?;
    m.add_function(wrap_pyfunction!(_anomaly, m)?)?;
    m.add_function(wrap_pyfunction!(_current_graph_task_id, m)?)?;
    m.add_function(wrap_pyfunction!(_will_engine_execute_node, m)?)?;
    m.add_function(wrap_pyfunction!(_freed_text, m)?)?;
    m.add_function(wrap_pyfunction!(_run_backward, m)?)
}
