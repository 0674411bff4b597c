//! Tensors that nodes keep for their way back, as Python sees them, and its hooks that keep something else in their place.

use super::error::carried;
use super::graph::{PyNode, object_of};
use super::object::{PyTensor, tensor_ref};
use crate::layers::autograd::kept::{HOOK_FREED, Raw};
use crate::layers::autograd::recorded;
use crate::layers::autograd::saved::{self, At, FREED, Packed, Packer, Saved};
use crate::tensor::Place;
use crate::tensor::link::lock;
use crate::{Result, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex};

/// A tensor that a node keeps for its way back, apart from its history.
#[pyclass(name = "SavedTensor", module = "torchlike._C._autograd", frozen)]
pub struct PySaved(Spot);

/// Where such a tensor is.
enum Spot {
    /// Here: it is one of a function of the user's. Nothing once it was freed.
    Here(Mutex<Option<Own>>),
    /// With the node of a call, under a name, and in a list at a position.
    Node(Place, String, Option<usize>),
}

/// What a function of the user's saved.
struct Own {
    saved: Saved,
    /// The object that was given, which may be of a class and have attributes of its own; not in place of what hooks
    /// keep, and not for results, whose nodes would keep themselves.
    object: Option<Py<PyAny>>,
}

/// What a node of a call keeps under a name.
pub fn of_node<'py>(
    py: Python<'py>,
    link: &Place,
    name: &str,
    kind: Raw,
) -> PyResult<Bound<'py, PyAny>> {
    let one = |k: Option<usize>| {
        let place = Spot::Node(link.clone(), name.to_owned(), k);
        Ok(Bound::new(py, PySaved(place))?.into_any())
    };
    match kind {
        Raw::One => one(None),
        Raw::Several(n) => {
            let items = (0..n).map(|k| one(Some(k)));
            Ok(PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
    }
}

#[pymethods]
impl PySaved {
    /// The tensor with its history; `node` is that of a function of the user's.
    ///
    /// Raises: RuntimeError if it was written since, or freed.
    #[pyo3(signature = (node=None))]
    fn unpack<'py>(&self, py: Python<'py>, node: Option<&PyNode>) -> PyResult<Bound<'py, PyAny>> {
        match &self.0 {
            Spot::Here(saved) => {
                // Hooks that run below may look here again.
                let own = lock(saved).as_ref().map(|o| {
                    let object = o.object.as_ref().map(|o| o.bind(py).clone());
                    (o.saved.clone(), object)
                });
                let (Some((saved, object)), Some(node)) = (own, node) else {
                    return Err(PyRuntimeError::new_err(FREED));
                };
                let link = node.link()?;
                let name = link
                    .node()
                    .map_or_else(String::new, |n| n.body().name().into_owned());
                let at = At {
                    this: &link,
                    own: &link,
                    name: &name,
                    whole: true,
                };
                let whole = saved.look(&at)?;
                match object {
                    Some(object) => Ok(object),
                    None => object_of(py, whole.into_owned()),
                }
            }
            Spot::Node(link, name, k) => {
                let recorded = link.node().and_then(recorded::of);
                let value = match recorded {
                    Some(recorded) => recorded.saved(link, name)?,
                    None => None,
                };
                let value = value.map(|v| super::graph::of_val(py, v)).transpose()?;
                match (value, k) {
                    (Some(value), Some(k)) => value.get_item(k),
                    (Some(value), None) => Ok(value),
                    (None, _) => Ok(py.None().into_bound(py)),
                }
            }
        }
    }

    /// The tensor with its history; nothing once it was freed.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.unpack(py, None) {
            Err(e) if e.is_instance_of::<PyRuntimeError>(py) => Ok(py.None().into_bound(py)),
            other => other,
        }
    }

    /// From now on `pack_hook(tensor)` is kept in place of the tensor, and `unpack_hook` makes it again.
    ///
    /// Raises: RuntimeError if there are hooks already, or nothing is saved.
    fn register_hooks(&self, pack_hook: Py<PyAny>, unpack_hook: Py<PyAny>) -> PyResult<()> {
        let packer = Hooks {
            pack: pack_hook,
            unpack: Arc::new(unpack_hook),
        };
        match &self.0 {
            Spot::Here(saved) => {
                let Some(now) = lock(saved).as_ref().map(|o| o.saved.clone()) else {
                    return Err(PyRuntimeError::new_err(HOOK_FREED));
                };
                let saved_by_hooks = Own {
                    saved: now.hooked(&packer)?,
                    object: None,
                };
                let old = lock(saved).replace(saved_by_hooks);
                drop(old);
            }
            Spot::Node(link, name, k) => {
                if let Some(recorded) = link.node().and_then(recorded::of) {
                    recorded.hook(name, *k, &packer)?;
                }
            }
        }
        Ok(())
    }

    /// Gives the tensor up.
    fn _free(&self) {
        if let Spot::Here(saved) = &self.0 {
            let old = lock(saved).take();
            drop(old);
        }
    }
}

/// Saves a tensor for a node; `output`: it is this result of the node itself.
#[pyfunction]
#[pyo3(signature = (t, output=None))]
fn _save_tensor(t: &Bound<'_, PyTensor>, output: Option<u16>) -> PyResult<PySaved> {
    let saved = Saved::alone(t.get().get(), output)?;
    let same = output.is_none() && !saved::packing();
    let object = same.then(|| t.clone().into_any().unbind());
    let own = Own { saved, object };
    Ok(PySaved(Spot::Here(Mutex::new(Some(own)))))
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
            let value = self.pack.bind(py).call1((object_of(py, t)?,))?.unbind();
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

/// Whether hooks keep what is saved on this thread.
#[pyfunction]
fn _packing() -> bool {
    saved::packing()
}

/// Ends the newest pair of hooks.
#[pyfunction]
fn _pop_saved_hooks() {
    saved::pop();
}

/// Adds the class and the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySaved>()?;
    m.add_function(wrap_pyfunction!(_push_saved_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_pop_saved_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(_packing, m)?)?;
    m.add_function(wrap_pyfunction!(_save_tensor, m)?)
}
