//! Tensors whose class handles its calls: which Python object a storage's tensor is, and what another object for it needs
//! to know once that one is gone.
//!
//! Graphs hold tensors, not their objects. The class and the attributes of an object therefore stay as long as the storage.

use super::object::instance;
use crate::storage::Witness;
use crate::{Storage, Tensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType, PyWeakrefReference};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

struct Wrapper {
    living: Py<PyWeakrefReference>,
    class: Py<PyType>,
    attributes: Option<Py<PyDict>>,
}

#[derive(Default)]
struct Wrappers(Mutex<HashMap<usize, Wrapper>>);

static WRAPPERS: LazyLock<Arc<Wrappers>> = LazyLock::new(Arc::default);

impl Wrappers {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, Wrapper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Witness for Wrappers {
    fn gone(&self, id: usize) {
        // What it holds goes after the lock does, as that may let go other storages.
        let gone = self.all().remove(&id);
        drop(gone);
    }

    fn resized(&self, _: usize, _: usize) {}
}

fn noted(o: &Bound<'_, PyAny>, attributes: Option<Py<PyDict>>) -> PyResult<Wrapper> {
    Ok(Wrapper {
        living: PyWeakrefReference::new(o)?.unbind(),
        class: o.get_type().unbind(),
        attributes,
    })
}

/// Notes the object of a storage's tensor, whose class has a `__torch_dispatch__` of its own.
pub fn register(o: &Bound<'_, PyAny>, storage: &Storage) -> PyResult<()> {
    let attributes = o.getattr_opt(intern!(o.py(), "__dict__"))?;
    let attributes = attributes.and_then(|d| d.cast_into::<PyDict>().ok());
    let wrapper = noted(o, attributes.map(Bound::unbind))?;
    let before = WRAPPERS.all().insert(storage.id(), wrapper);
    if before.is_none() {
        storage.tell(Arc::downgrade(&WRAPPERS) as _);
    }
    Ok(())
}

/// The object of a tensor on such a storage: the one that was registered, or another with its class and attributes.
pub fn registered<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    let id = t.storage().id();
    let (living, class, attributes) = {
        let all = WRAPPERS.all();
        let Some(found) = all.get(&id) else {
            return Ok(None);
        };
        (
            found.living.clone_ref(py),
            found.class.clone_ref(py),
            found.attributes.as_ref().map(|d| d.clone_ref(py)),
        )
    };
    let living = living.bind(py).call0()?;
    if !living.is_none() {
        return Ok(Some(living));
    }
    let made = instance(class.bind(py), t.clone())?;
    if let Some(attributes) = &attributes {
        made.setattr(intern!(py, "__dict__"), attributes)?;
    }
    let wrapper = noted(&made, attributes)?;
    WRAPPERS.all().insert(id, wrapper);
    Ok(Some(made))
}
