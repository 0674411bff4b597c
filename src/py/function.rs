//! Functions whose gradient the user writes (`autograd.Function`): their nodes are Python objects.

use super::error::carried;
use super::graph::{PyNode, optional};
use super::object::{PyTensor, tensor_ref, wrap};
use crate::layers::autograd::saved::{self, Packed, Packer, Saved};
use crate::tensor::{Backward, Grads, Link, Meta, Node};
use crate::{Result, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// The node of a function of the user's.
pub struct Custom {
    name: String,
    /// The object that is `ctx` in the function's code.
    pub ctx: Py<PyAny>,
}

impl Backward for Custom {
    fn name(&self) -> Cow<'static, str> {
        Cow::Owned(self.name.clone())
    }

    fn apply(&self, _: &Arc<Link>, grads: Grads) -> Result<Grads> {
        Python::attach(|py| self.call(py, grads)).map_err(carried)
    }

    fn release(&self) {
        Python::attach(|py| {
            if let Err(e) = self.ctx.bind(py).call_method0("_release") {
                e.write_unraisable(py, None);
            }
        });
    }
}

impl Custom {
    fn call(&self, py: Python<'_>, grads: Grads) -> PyResult<Grads> {
        let items = grads.into_iter().map(|g| optional(py, g));
        let given = PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?;
        let made = self.ctx.bind(py).call_method1("_run", (given,))?;
        let each = |o: PyResult<Bound<'_, PyAny>>| {
            let o = o?;
            if o.is_none() {
                return Ok(None);
            }
            match tensor_ref(&o) {
                Some(t) => Ok(Some(t.clone())),
                None => Err(PyTypeError::new_err(format!(
                    "expected Variable or None (got {})",
                    super::types::type_name(&o)
                ))),
            }
        };
        made.try_iter()?.map(each).collect()
    }
}

/// The Python object that is a node itself.
pub fn owner<'py>(py: Python<'py>, body: &dyn Backward) -> Option<Bound<'py, PyAny>> {
    let body: &dyn Any = body;
    let custom = body.downcast_ref::<Custom>()?;
    Some(custom.ctx.bind(py).clone())
}

/// Gives a function's outputs their history: `ctx` becomes the node, between `inputs` and `outputs`.
#[pyfunction]
fn _set_history(
    ctx: &Bound<'_, PyNode>,
    inputs: Vec<Bound<'_, PyAny>>,
    outputs: &Bound<'_, PyList>,
) -> PyResult<()> {
    let edges = inputs.iter().map(|o| tensor_ref(o).and_then(|t| t.edge()));
    let outs = outputs
        .iter()
        .map(|o| Ok(Meta::of(PyTensor::of(&o)?.get())))
        .collect::<PyResult<_>>()?;
    let body = Custom {
        name: ctx.get_type().name()?.to_string(),
        ctx: ctx.clone().into_any().unbind(),
    };
    let link = Link::of_node(Node::new(Box::new(body), edges.collect(), outs));
    ctx.get().place(&link);
    for (nr, o) in outputs.iter().enumerate() {
        let holder = PyTensor::of(&o)?;
        let tracked = holder.get().clone().tracked(link.clone(), nr as u16);
        holder.set(tracked);
    }
    Ok(())
}

/// A tensor that a node keeps for later, apart from its history.
#[pyclass(name = "SavedTensor", module = "torchlike.autograd", frozen)]
pub struct PySaved(Saved);

#[pymethods]
impl PySaved {
    /// The tensor with its history.
    ///
    /// Raises: RuntimeError if it was written since.
    fn unpack<'py>(&self, py: Python<'py>, node: &PyNode) -> PyResult<Bound<'py, PyAny>> {
        let link = node.link()?;
        let name = link
            .node()
            .map_or_else(String::new, |n| n.body().name().into_owned());
        wrap(py, self.0.unpack(&link, &name, true)?)
    }
}

/// Saves a tensor for a node; `output`: it is this result of the node itself.
#[pyfunction]
#[pyo3(signature = (t, output=None))]
fn _save_tensor(t: &Bound<'_, PyTensor>, output: Option<u16>) -> PyResult<PySaved> {
    Ok(PySaved(Saved::alone(t.get().get(), output)?))
}

/// Two functions of Python that keep something in place of saved tensors.
struct Hooks {
    pack: Py<PyAny>,
    unpack: Arc<Py<PyAny>>,
}

/// What such a function gave.
struct Kept {
    value: Py<PyAny>,
    unpack: Arc<Py<PyAny>>,
}

impl Packer for Hooks {
    fn pack(&self, t: Tensor) -> Result<Arc<dyn Packed>> {
        Python::attach(|py| {
            let value = self.pack.bind(py).call1((wrap(py, t)?,))?.unbind();
            let unpack = self.unpack.clone();
            PyResult::Ok(Arc::new(Kept { value, unpack }) as Arc<dyn Packed>)
        })
        .map_err(carried)
    }
}

impl Packed for Kept {
    fn unpack(&self) -> Result<Tensor> {
        Python::attach(|py| {
            let made = self.unpack.bind(py).call1((self.value.bind(py),))?;
            match tensor_ref(&made) {
                Some(t) => Ok(t.clone()),
                None => Err(PyTypeError::new_err(format!(
                    "Output of saved tensor unpack_hook expected to be a Tensor but got result of type {}",
                    super::types::type_name(&made)
                ))),
            }
        })
        .map_err(carried)
    }
}

/// From now on `pack` says what is kept of tensors that are saved on this thread, and `unpack` makes them again.
#[pyfunction]
fn _push_saved_hooks(pack: Py<PyAny>, unpack: Py<PyAny>) {
    let unpack = Arc::new(unpack);
    saved::push(Arc::new(Hooks { pack, unpack }));
}

/// Ends the newest pair of hooks.
#[pyfunction]
fn _pop_saved_hooks() {
    saved::pop();
}

/// Counts a change of a tensor's memory that nobody else counts.
#[pyfunction]
fn _increment_version(t: &Bound<'_, PyTensor>) {
    t.get().get().storage().bump();
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySaved>()?;
    m.add_function(wrap_pyfunction!(_push_saved_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_pop_saved_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_increment_version, m)?)?;
    m.add_function(wrap_pyfunction!(_set_history, m)?)?;
    m.add_function(wrap_pyfunction!(_save_tensor, m)?)
}
