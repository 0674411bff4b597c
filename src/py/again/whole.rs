//! Tensors on meshes that Python makes of their pieces.

use super::LIMIT;
use crate::mixed::Map;
use crate::ops::{f, helpers};
use crate::parts::located;
use crate::py::dispatch::handler;
use crate::py::gradient::require_grad;
use crate::py::noted::Noted;
use crate::py::object::{PyTensor, instance, tensor_ref, wrap};
use crate::py::types::PyDType;
use crate::py::wrappers::{self, Kind, Pieces};
use crate::{DType, Device, Dims, MemoryFormat, Storage, Tensor, dims, mode};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
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
        let number = number_of(spec)?;
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

    /// A tensor that looks so on a storage.
    fn on(&self, storage: Storage) -> crate::Result<Tensor> {
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        Tensor::checked(storage, shape, strides, 0, self.dtype)
    }
}

/// The number of a spec.
pub fn number_of(spec: &Bound<'_, PyAny>) -> PyResult<u64> {
    let py = spec.py();
    match spec.getattr(intern!(py, "_number"))?.extract()? {
        0 => spec.getattr(intern!(py, "number"))?.extract(),
        number => Ok(number),
    }
}

/// The type of the tensors that a spec is of.
pub fn dtype_of(spec: &Bound<'_, PyAny>) -> PyResult<DType> {
    let dtype = spec.getattr(intern!(spec.py(), "dtype"))?;
    Ok(dtype.cast::<PyDType>()?.get().0)
}

/// How many ranks of a spec's mesh this process plays.
pub fn seats(spec: &Bound<'_, PyAny>) -> PyResult<usize> {
    let mesh = spec.getattr(intern!(spec.py(), "mesh"))?;
    mesh.getattr(intern!(spec.py(), "_seats"))?.len()
}

/// How a tensor on a mesh lies, and its pieces.
pub struct Lies<'py> {
    pub spec: Bound<'py, PyAny>,
    pub locals: Vec<Tensor>,
}

impl<'py> Lies<'py> {
    pub fn of(py: Python<'py>, t: &Tensor) -> PyResult<Self> {
        if let Some(pieces) = wrappers::pieces(t.storage()) {
            return Ok(Self {
                spec: pieces.kind.spec.bind(py).clone(),
                locals: pieces.locals.clone(),
            });
        }
        let whole = wrap(py, t.clone())?;
        Ok(Self {
            spec: whole.getattr(intern!(py, "_spec"))?,
            locals: tensors_in(&whole.getattr(intern!(py, "_locals"))?)?,
        })
    }
}

/// The tensors in a list.
pub fn tensors_in(list: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    let tensor = |o: Bound<'_, PyAny>| {
        let found = tensor_ref(&o).cloned();
        found.ok_or_else(|| PyTypeError::new_err("expected pieces that are Tensors"))
    };
    list.try_iter()?.map(|o| tensor(o?)).collect()
}

/// The class of tensors on meshes.
fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "torchlike.distributed.tensor._dtensor", "DTensor")
}

/// A new tensor on a mesh, which gets an object when somebody asks for it.
pub fn made(spec: &Bound<'_, PyAny>, locals: Vec<Tensor>) -> PyResult<Tensor> {
    let py = spec.py();
    let class = class(py)?;
    let look = Look::of(class, spec)?;
    if locals.is_empty() || locals.iter().any(Tensor::is_python) {
        let objects = locals.into_iter().map(|t| wrap(py, t));
        let objects = PyList::new(py, objects.collect::<PyResult<Vec<_>>>()?)?;
        let made = _on_mesh(class, spec, &objects, false)?;
        let found = tensor_ref(&made).cloned();
        return found.ok_or_else(|| PyTypeError::new_err("expected a Tensor"));
    }
    let storage = Storage::hollow(look.nbytes, located(&locals[0]));
    let kind = look.kind.clone();
    wrappers::register_pieces(&storage, Arc::new(Pieces { kind, locals }));
    Ok(look.on(storage)?.with_python(true))
}

/// Plain pieces of a kind; nothing if some have a class that handles their calls.
fn pieces(kind: Arc<Kind>, locals: &Bound<'_, PyList>) -> PyResult<Option<Arc<Pieces>>> {
    let locals = tensors_in(locals)?;
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
    let mut t = look.on(storage.clone())?;
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
    let pieces = pieces(Arc::new(kind), locals)?;
    wrappers::register(t.as_any(), t.get().get().storage(), pieces)?;
    Ok(())
}

/// A copy of the box of a tensor that begins at `at` and has this shape: contiguous, and without a history.
#[pyfunction]
pub fn _part<'py>(
    t: &Bound<'py, PyTensor>,
    at: Vec<i64>,
    shape: Vec<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let _noted = Noted::of([t.as_any()]);
    let made = mode::with_grad(false, || -> crate::Result<Tensor> {
        let mut part = t.get().get().clone();
        for (dim, (start, size)) in at.iter().zip(&shape).enumerate() {
            if part.shape().get(dim) != Some(size) {
                part = f::narrow(&part, dim as i64, *start, *size)?;
            }
        }
        helpers::clone(&part, MemoryFormat::Contiguous)
    })?;
    wrap(t.py(), made)
}
