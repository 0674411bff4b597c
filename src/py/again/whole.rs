//! Tensors on meshes that Python makes of their pieces.

use super::LIMIT;
use crate::mixed::Map;
use crate::parts::located;
use crate::py::dispatch::handler;
use crate::py::gradient::require_grad;
use crate::py::object::{PyTensor, instance, tensor_ref};
use crate::py::types::PyDType;
use crate::py::wrappers::{self, Kind, Pieces};
use crate::{DType, Device, Dims, Storage, Tensor, dims};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What wholes of a number look like, and the kind of the last one.
struct Look {
    shape: Dims,
    strides: Dims,
    dtype: DType,
    nbytes: usize,
    kind: Arc<Kind>,
}

static LOOKS: LazyLock<Mutex<Map<u64, Arc<Look>>>> = LazyLock::new(Mutex::default);

fn looks() -> MutexGuard<'static, Map<u64, Arc<Look>>> {
    LOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets how wholes look.
pub fn forget() {
    let gone = std::mem::take(&mut *looks());
    drop(gone);
}

impl Look {
    fn of(class: &Bound<'_, PyType>, spec: &Bound<'_, PyAny>) -> PyResult<Arc<Self>> {
        let py = class.py();
        let mut number: u64 = spec.getattr(intern!(py, "_number"))?.extract()?;
        if number == 0 {
            number = spec.getattr(intern!(py, "number"))?.extract()?;
        }
        let known = looks().get(&number).cloned();
        // Specs that are equal may carry other masks.
        let same = |l: &Arc<Self>| l.kind.spec.is(spec) && l.kind.class.is(class);
        if let Some(known) = known.filter(same) {
            return Ok(known);
        }
        if handler(class)?.is_none() {
            let text = format!("{} must define __torch_dispatch__", class.name()?);
            return Err(PyTypeError::new_err(text));
        }
        let meta = spec.getattr(intern!(py, "tensor_meta"))?;
        let meta: (Vec<i64>, Vec<i64>, PyRef<'_, PyDType>) = meta.extract()?;
        let (shape, strides, dtype) = (Dims::new(&meta.0), Dims::new(&meta.1), meta.2.0);
        let nbytes = dims::storage_bytes(&shape, &strides, 0, dtype.size())?;
        let made = Arc::new(Self {
            shape,
            strides,
            dtype,
            nbytes,
            kind: Arc::new(Kind {
                class: class.clone().unbind(),
                spec: spec.clone().unbind(),
                number,
            }),
        });
        let mut looks = looks();
        let gone = (looks.len() >= LIMIT).then(|| std::mem::take(&mut *looks));
        let before = looks.insert(number, made.clone());
        drop(looks);
        drop((gone, before));
        Ok(made)
    }
}

/// Plain pieces of a kind; nothing if some have a class that handles their calls.
fn pieces(kind: Arc<Kind>, locals: &Bound<'_, PyList>) -> PyResult<Option<Arc<Pieces>>> {
    let found = locals.iter().map(|o| tensor_ref(&o).cloned());
    let Some(locals) = found.collect::<Option<Vec<Tensor>>>() else {
        return Err(PyTypeError::new_err("expected pieces that are Tensors"));
    };
    let plain = !locals.iter().any(Tensor::is_python);
    Ok(plain.then(|| Arc::new(Pieces { kind, locals })))
}

/// Where a tensor on a mesh is: as its first piece, or on a device of the mesh's type if this process has none.
fn device_of(spec: &Bound<'_, PyAny>, locals: &Bound<'_, PyList>) -> PyResult<Device> {
    if let Ok(first) = locals.get_item(0)
        && let Some(t) = tensor_ref(&first)
    {
        return Ok(located(t));
    }
    let py = spec.py();
    let mesh = spec.getattr(intern!(py, "mesh"))?;
    let kind: String = mesh.getattr(intern!(py, "device_type"))?.extract()?;
    Ok(Device::parse(&kind)?)
}

/// A new tensor on a mesh, of a class that handles its calls: how it lies, and its pieces.
#[pyfunction]
pub fn _on_mesh<'py>(
    class: &Bound<'py, PyType>,
    spec: &Bound<'py, PyAny>,
    locals: &Bound<'py, PyList>,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let look = Look::of(class, spec)?;
    let pieces = pieces(look.kind.clone(), locals)?;
    let storage = Storage::hollow(look.nbytes, device_of(spec, locals)?);
    let (shape, strides) = (look.shape.clone(), look.strides.clone());
    let mut t = Tensor::checked(storage.clone(), shape, strides, 0, look.dtype)?;
    if requires_grad {
        t = require_grad(t)?;
    }
    let made = instance(class, t.with_python(true))?;
    if let Some(attributes) = wrappers::register(&made, &storage, pieces)? {
        attributes.set_item(intern!(py, "_spec"), spec)?;
        attributes.set_item(intern!(py, "_locals"), locals)?;
    }
    Ok(made)
}

/// Says what a tensor on a mesh is: how it lies, with a number of that, and its pieces.
#[pyfunction]
pub fn _pieces(
    t: &Bound<'_, PyTensor>,
    spec: Py<PyAny>,
    number: u64,
    locals: &Bound<'_, PyList>,
) -> PyResult<()> {
    if !t.get().get().is_python() {
        return Err(PyTypeError::new_err(
            "_pieces(): expected a tensor whose class handles its calls",
        ));
    }
    let class = t.get_type().unbind();
    let kind = Kind {
        class,
        spec,
        number,
    };
    if let Some(pieces) = pieces(Arc::new(kind), locals)? {
        wrappers::set_pieces(t.get().get().storage(), pieces);
    }
    Ok(())
}
