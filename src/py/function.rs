//! Functions whose gradient the user writes (`autograd.Function`): their nodes are Python objects.

use super::error::carried;
use super::graph::{PyNode, optional};
use super::object::{PyTensor, tensor_ref};
use crate::Result;
use crate::layers::autograd::{anomaly, views};
use crate::tensor::{Backward, Grads, Link, Mark, Meta, Node};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use smallvec::SmallVec;
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

    fn apply(&self, _: &Arc<Link>, grads: &mut Grads) -> Result<Grads> {
        Python::attach(|py| self.call(py, std::mem::take(grads))).map_err(carried)
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

/// Gives a function's outputs their history: `ctx` becomes the node, between `inputs` and `outputs`. `written`: the only
/// output is an input that the function wrote.
///
/// Views among the outputs must not be written through: that would pass by the function's gradient.
#[pyfunction]
fn _set_history(
    ctx: &Bound<'_, PyNode>,
    inputs: Vec<Bound<'_, PyAny>>,
    outputs: &Bound<'_, PyList>,
    written: bool,
) -> PyResult<()> {
    let edges = inputs.iter().map(|o| tensor_ref(o).and_then(|t| t.edge()));
    let edges = edges.collect();
    let body = Box::new(Custom {
        name: ctx.get_type().name()?.to_string(),
        ctx: ctx.clone().into_any().unbind(),
    });
    if written {
        let only = outputs.get_item(0)?;
        let holder = PyTensor::of(&only)?;
        let t = holder.get().clone();
        views::check_write(&t)?;
        let (made, link) = views::wrote(&t, t.clone(), body, edges)?;
        ctx.get().place(&link);
        holder.become_(made);
        return Ok(());
    }
    let mut outs = SmallVec::new();
    let mut version = 0;
    for o in outputs {
        let t = PyTensor::of(&o)?.get();
        outs.push(Meta::of(t));
        if t.is_view() {
            version = t.storage().version();
        }
    }
    let link = Link::of_node(Node::new(body, edges, outs).at_version(version));
    ctx.get().place(&link);
    anomaly::made(&link);
    let mark = if outputs.len() > 1 {
        Mark::OneOfSeveral
    } else {
        Mark::InFunction
    };
    for (nr, o) in outputs.iter().enumerate() {
        let holder = PyTensor::of(&o)?;
        let mut t = holder.get().clone().tracked(link.clone(), nr as u16);
        if t.is_view() {
            t = t.marked(mark);
        }
        holder.set(t);
    }
    Ok(())
}

/// Says how often a tensor's memory was written: it has its old values again.
#[pyfunction]
fn _set_version(t: &Bound<'_, PyTensor>, version: u32) {
    t.get().get().storage().set_version(version);
}

/// Counts a change of a tensor's memory that nobody else counts.
#[pyfunction]
fn _increment_version(t: &Bound<'_, PyTensor>) {
    t.get().get().storage().bump();
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_set_version, m)?)?;
    m.add_function(wrap_pyfunction!(_increment_version, m)?)?;
    m.add_function(wrap_pyfunction!(_set_history, m)?)
}
