//! Tensors whose class handles its calls: which Python object a storage's tensor is, and what another object for it needs
//! to know once that one is gone.
//!
//! Graphs hold tensors, not their objects. The class and the attributes of an object therefore stay as long as the storage.
//! What a trace makes (`again/`) has no object until somebody asks for it.

use super::object::{instance, wrap};
use crate::mixed::Map;
use crate::storage::{Witness, watch};
use crate::{Storage, Tensor};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType, PyWeakrefReference};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// How tensors on a mesh lie, with a number of that, and their class.
pub struct Kind {
    pub class: Py<PyType>,
    pub spec: Py<PyAny>,
    pub number: u64,
}

/// What a tensor on a mesh is: its kind, and the pieces of the ranks that are played.
pub struct Pieces {
    pub kind: Arc<Kind>,
    pub locals: Vec<Tensor>,
}

#[derive(Default)]
struct Wrapper {
    living: Option<Py<PyWeakrefReference>>,
    /// That of its pieces, if nothing stands here.
    class: Option<Py<PyType>>,
    attributes: Option<Py<PyDict>>,
    pieces: Option<Arc<Pieces>>,
}

#[derive(Default)]
struct Wrappers(Mutex<Map<usize, Wrapper>>);

static WRAPPERS: LazyLock<Arc<Wrappers>> = LazyLock::new(|| {
    let all = Arc::<Wrappers>::default();
    watch::add(Arc::downgrade(&all) as _);
    all
});

impl Wrappers {
    fn all(&self) -> MutexGuard<'_, Map<usize, Wrapper>> {
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

fn insert(storage: &Storage, wrapper: Wrapper) {
    let before = WRAPPERS.all().insert(storage.id(), wrapper);
    if before.is_none() {
        storage.tell_all();
    }
}

/// Notes the object of a storage's tensor, whose class has a `__torch_dispatch__` of its own, and what it is on its mesh; gives its
/// attributes.
pub fn register<'py>(
    o: &Bound<'py, PyAny>,
    storage: &Storage,
    pieces: Option<Arc<Pieces>>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let attributes = o.getattr_opt(intern!(o.py(), "__dict__"))?;
    let attributes = attributes.and_then(|d| d.cast_into::<PyDict>().ok());
    let wrapper = Wrapper {
        living: Some(PyWeakrefReference::new(o)?.unbind()),
        class: Some(o.get_type().unbind()),
        attributes: attributes.clone().map(Bound::unbind),
        pieces,
    };
    insert(storage, wrapper);
    Ok(attributes)
}

/// Whether an object is the one that is registered for its tensor's storage.
pub fn is_registered(o: &Bound<'_, PyAny>, storage: &Storage) -> PyResult<bool> {
    let py = o.py();
    let living = {
        let all = WRAPPERS.all();
        let found = all.get(&storage.id()).and_then(|w| w.living.as_ref());
        found.map(|l| l.clone_ref(py))
    };
    living.map_or(Ok(false), |l| Ok(l.bind(py).call0()?.is(o)))
}

/// Notes that a registered tensor has another object now; nothing for others.
pub fn exchanged(o: &Bound<'_, PyAny>, storage: &Storage) -> PyResult<()> {
    let living = PyWeakrefReference::new(o)?.unbind();
    let attributes = o.getattr_opt(intern!(o.py(), "__dict__"))?;
    let attributes = attributes.and_then(|d| d.cast_into::<PyDict>().ok());
    let before = WRAPPERS.all().get_mut(&storage.id()).map(|found| {
        let attributes = attributes.map(Bound::unbind);
        (
            found.living.replace(living),
            std::mem::replace(&mut found.attributes, attributes),
        )
    });
    drop(before);
    Ok(())
}

/// Notes a tensor on a mesh that has no object yet.
pub fn register_pieces(storage: &Storage, pieces: Arc<Pieces>) {
    let wrapper = Wrapper {
        pieces: Some(pieces),
        ..Wrapper::default()
    };
    insert(storage, wrapper);
}

/// What is known of a tensor on a mesh.
pub fn pieces(storage: &Storage) -> Option<Arc<Pieces>> {
    WRAPPERS.all().get(&storage.id())?.pieces.clone()
}

/// The attributes of a tensor on a mesh.
fn attributes_of(py: Python<'_>, pieces: &Pieces) -> PyResult<Py<PyDict>> {
    let made = PyDict::new(py);
    made.set_item(intern!(py, "_spec"), &pieces.kind.spec)?;
    let locals: Vec<_> = pieces
        .locals
        .iter()
        .map(|t| wrap(py, t.clone()))
        .collect::<PyResult<_>>()?;
    made.set_item(intern!(py, "_locals"), PyList::new(py, locals)?)?;
    Ok(made.unbind())
}

/// The object of a tensor on such a storage: the one that was registered, or another with its class and attributes.
pub fn registered<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
    let id = t.storage().id();
    let (living, class, attributes, pieces) = {
        let all = WRAPPERS.all();
        let Some(found) = all.get(&id) else {
            return Ok(None);
        };
        (
            found.living.as_ref().map(|l| l.clone_ref(py)),
            found.class.as_ref().map(|c| c.clone_ref(py)),
            found.attributes.as_ref().map(|d| d.clone_ref(py)),
            found.pieces.clone(),
        )
    };
    if let Some(living) = living {
        let living = living.bind(py).call0()?;
        if !living.is_none() {
            return Ok(Some(living));
        }
    }
    let attributes = match (attributes, &pieces) {
        (None, Some(pieces)) => Some(attributes_of(py, pieces)?),
        (attributes, _) => attributes,
    };
    let Some(class) = class.or_else(|| Some(pieces.as_ref()?.kind.class.clone_ref(py))) else {
        return Ok(None);
    };
    let made = instance(class.bind(py), t.clone())?;
    if let Some(attributes) = &attributes {
        made.setattr(intern!(py, "__dict__"), attributes)?;
    }
    let wrapper = Wrapper {
        living: Some(PyWeakrefReference::new(&made)?.unbind()),
        class: Some(class),
        attributes,
        pieces,
    };
    WRAPPERS.all().insert(id, wrapper);
    Ok(Some(made))
}
