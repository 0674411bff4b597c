//! `UntypedStorage`: the bytes behind tensors.

use super::types;
use crate::{DType, Device, Scalar, Storage, Tensor};
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyWeakrefReference};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// `torchlike.UntypedStorage`.
#[pyclass(
    frozen,
    name = "UntypedStorage",
    module = "torchlike.storage",
    subclass,
    weakref,
    dict
)]
pub struct PyStorage(pub Storage);

/// The Python objects that stand for storages, by the storages' addresses.
static OBJECTS: Mutex<BTreeMap<usize, Py<PyWeakrefReference>>> = Mutex::new(BTreeMap::new());

/// The Python object of a storage: the same as long as somebody has it.
pub fn object<'py>(py: Python<'py>, storage: &Storage) -> PyResult<Bound<'py, PyAny>> {
    let id = storage.id();
    let known = {
        let objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        objects.get(&id).map(|o| o.clone_ref(py))
    };
    if let Some(o) = known.and_then(|o| o.bind(py).upgrade()) {
        return Ok(o);
    }
    let made = Bound::new(py, PyStorage(storage.clone()))?.into_any();
    remember(&made, id)?;
    Ok(made)
}

fn remember(o: &Bound<'_, PyAny>, id: usize) -> PyResult<()> {
    let reference = PyWeakrefReference::new(o)?.unbind();
    let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    let _before = objects.insert(id, reference);
    drop(objects);
    Ok(())
}

impl Drop for PyStorage {
    fn drop(&mut self) {
        Python::attach(|py| {
            let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
            let is_gone = |o: &Py<PyWeakrefReference>| o.bind(py).upgrade().is_none();
            let gone = match objects.get(&self.0.id()).is_some_and(is_gone) {
                true => objects.remove(&self.0.id()),
                false => None,
            };
            drop(objects);
            drop(gone);
        });
    }
}

/// Refuses a typed storage of another dtype.
///
/// # Errors
/// If it has one.
pub fn check_typed(o: &Bound<'_, PyAny>, dtype: DType) -> PyResult<()> {
    if let Ok(own) = o.getattr("dtype")
        && let Ok(own) = own.cast::<types::PyDType>()
        && own.get().0 != dtype
    {
        return Err(pyo3::exceptions::PyRuntimeError::new_err(format!(
            "Expected a Storage of type {} or an UntypedStorage, but got type {} for argument 1 'storage'",
            dtype.scalar_type(),
            own.get().0.scalar_type()
        )));
    }
    Ok(())
}

/// The storage in a Python object: untyped, or typed with an `_untyped_storage`.
pub fn storage_of(o: &Bound<'_, PyAny>) -> PyResult<Storage> {
    if let Ok(s) = o.cast::<PyStorage>() {
        remember(o, s.get().0.id())?;
        return Ok(s.get().0.clone());
    }
    match o.getattr("_untyped_storage") {
        Ok(inner) if inner.is_instance_of::<PyStorage>() => storage_of(&inner),
        Ok(_) => Err(PyTypeError::new_err("expected a storage")),
        Err(_) => Err(PyTypeError::new_err(format!(
            "expected a storage, got {}",
            types::type_name(o)
        ))),
    }
}

/// Whether an object is a tensor, or a storage, typed or not.
pub fn is_source(o: &Bound<'_, PyAny>) -> bool {
    super::object::is_tensor(o)
        || o.is_instance_of::<PyStorage>()
        || o.hasattr("_untyped_storage").unwrap_or(false)
}

/// True if other processes can map the bytes; those of GPUs always can.
pub fn is_shared(storage: &Storage) -> bool {
    storage.device().kind == crate::DeviceKind::Cuda || storage.shared_file().is_some()
}

/// Moves the bytes to where other processes can map them.
pub fn share(storage: &Storage) -> PyResult<()> {
    if storage.is_hollow() {
        return Err(pyo3::exceptions::PyRuntimeError::new_err(
            "_share_fd_: only available on CPU",
        ));
    }
    if storage.device().kind != crate::DeviceKind::Cuda {
        storage.share()?;
    }
    Ok(())
}

impl PyStorage {
    /// All bytes, as a tensor on them.
    pub(super) fn bytes(&self) -> Tensor {
        Tensor::bytes_of(&self.0)
    }

    fn readable(&self) -> PyResult<()> {
        if self.0.is_hollow() {
            return Err(PyNotImplementedError::new_err(
                "Not available for 'meta' device type",
            ));
        }
        Ok(())
    }

    fn position(&self, i: i64) -> PyResult<i64> {
        let n = self.0.nbytes() as i64;
        if i < -n || i >= n {
            return Err(PyIndexError::new_err(format!(
                "index {i} out of range for storage of size {n}"
            )));
        }
        Ok(if i < 0 { i + n } else { i })
    }
}

/// The low bytes of a sequence's integers.
fn sequence(o: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let refused = |text: String| {
        pyo3::exceptions::PyRuntimeError::new_err(format!("torch.UntypedStorage(): {text}"))
    };
    let is_sequence = super::object::tensor_ref(o).is_none()
        && o.hasattr("__len__")?
        && o.hasattr("__getitem__")?;
    if !is_sequence {
        return Err(refused(format!(
            "Expected a sequence type, but got {}",
            types::type_name(o)
        )));
    }
    super::data::items(o)?
        .iter()
        .map(|item| match super::convert::number(item) {
            Some(Scalar::Int(i)) => Ok(i as u8),
            _ => Err(refused(format!(
                "tried to construct a storage from a sequence ({}), but one of the items was of type {} instead of int",
                types::type_name(o),
                types::type_name(item)
            ))),
        })
        .collect()
}

#[pymethods]
impl PyStorage {
    /// So many bytes without values, or those of a sequence.
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (mut device, mut given) = (None, args.get_item(0).ok());
        let mut is_known = args.len() < 2;
        for (name, value) in kwargs.iter().flat_map(|k| k.iter()) {
            match name.extract::<&str>()? {
                "device" if !value.is_none() => device = Some(value),
                "device" | "allocator" => {}
                "size" if given.is_none() => given = Some(value),
                _ => is_known = false,
            }
        }
        if !is_known {
            return Err(PyTypeError::new_err(format!(
                "torch.UntypedStorage() received an invalid combination of arguments - got ({}), but expected one of:\n * (*, int allocator = None, torch.device device = None)\n * (int size, *, int allocator = None, torch.device device = None)\n * (object sequence, *, int allocator = None, torch.device device = None)\n",
                super::messages::classes(
                    &args.iter().collect::<Vec<_>>(),
                    &kwargs.iter().flat_map(|k| k.iter()).collect::<Vec<_>>()
                )
            )));
        }
        let device = match &device {
            None => crate::mode::default_device(),
            Some(d) => types::device_of(d).map_err(|_| {
                pyo3::exceptions::PyRuntimeError::new_err(format!(
                    "torch.UntypedStorage(): Storage device not recognized: {d}"
                ))
            })?,
        };
        let bytes = match &given {
            None => Vec::new(),
            Some(o) if super::convert::number(o).is_some_and(|n| matches!(n, Scalar::Int(_))) => {
                let size = usize::try_from(o.extract::<i64>()?).map_err(|_| {
                    pyo3::exceptions::PyRuntimeError::new_err(
                        "torch.UntypedStorage(): the size must not be negative",
                    )
                })?;
                return Ok(Self(Storage::empty(size, device)?));
            }
            Some(o) => sequence(o)?,
        };
        let made = Tensor::from_slice(&bytes, &[bytes.len() as i64])?;
        match device.is_meta() {
            true => Ok(Self(Storage::empty(bytes.len(), device)?)),
            false => Ok(Self(made.to_device(device)?.storage().clone())),
        }
    }
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }
    fn size(&self) -> usize {
        self.0.nbytes()
    }
    fn __len__(&self) -> usize {
        self.0.nbytes()
    }
    fn element_size(&self) -> usize {
        1
    }
    fn data_ptr(&self) -> usize {
        self.0.ptr() as usize
    }
    #[getter]
    fn _cdata(&self) -> usize {
        self.0.id()
    }
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<types::PyDevice>> {
        types::device(py, self.0.device())
    }
    #[getter]
    fn is_cuda(&self) -> bool {
        self.0.device().kind == crate::DeviceKind::Cuda
    }
    fn is_shared(&self) -> bool {
        is_shared(&self.0)
    }
    fn share_memory_(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        share(&slf.get().0)?;
        Ok(slf)
    }
    /// The file that other processes can map, and its size; the bytes move there first. The storage keeps it open.
    fn _share_fd_cpu_(&self) -> PyResult<(i32, usize)> {
        share(&self.0)?;
        let file = self.0.shared_file().unwrap_or(-1);
        Ok((file, self.0.nbytes()))
    }
    /// A storage over the first bytes of a file that another process shares; the caller's descriptor stays its own.
    #[staticmethod]
    fn _new_shared_fd_cpu(fd: i32, size: usize) -> PyResult<Self> {
        Ok(Self(Storage::from_shared(fd, size)?))
    }
    /// A storage of zeros in shared memory.
    #[staticmethod]
    fn _new_using_fd_cpu(size: usize) -> PyResult<Self> {
        Ok(Self(Storage::in_shared_memory(size)?))
    }
    /// A storage over a file's first bytes: read when they are looked at, and writes stay in this process.
    #[staticmethod]
    fn _of_file(path: std::path::PathBuf, nbytes: u64) -> PyResult<Self> {
        let map = crate::io::mmap::Private::map(&path)?;
        Ok(Self(Storage::from_private(&map, 0, nbytes)?))
    }
    /// Some of the bytes as a storage of their own over the same memory.
    fn _part(&self, start: usize, nbytes: usize) -> PyResult<Self> {
        Ok(Self(self.0.part(start, nbytes)?))
    }
    fn resizable(&self) -> bool {
        self.0.is_resizable()
    }
    fn resize_<'py>(slf: Bound<'py, Self>, size: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let size: i64 = size.extract().map_err(|_| {
            let found = types::type_name(size);
            pyo3::exceptions::PyRuntimeError::new_err(format!(
                "resize_ expects an int, but got {found}"
            ))
        })?;
        let n = usize::try_from(size).map_err(|_| {
            pyo3::exceptions::PyRuntimeError::new_err("resize_: size must not be negative")
        })?;
        slf.get().0.resize(n)?;
        Ok(slf)
    }
    fn clone(&self) -> PyResult<Self> {
        if self.0.is_hollow() && !self.0.device().is_meta() && self.0.fake_mode().is_none() {
            self.readable()?;
        }
        Ok(Self(
            crate::ops::helpers::clone(&self.bytes(), crate::MemoryFormat::Contiguous)?
                .storage()
                .clone(),
        ))
    }
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.readable()?;
        super::data::to_list(py, &self.bytes())
    }
    fn __getitem__<'py>(&self, py: Python<'py>, index: i64) -> PyResult<Bound<'py, PyAny>> {
        self.readable()?;
        super::results::scalar(
            py,
            crate::cpu::read_scalar(&self.bytes().to_device(Device::CPU)?, self.position(index)?)?,
        )
    }
    fn __setitem__(&self, index: i64, value: i64) -> PyResult<()> {
        self.readable()?;
        let at = self.bytes();
        let at = at.look(&crate::plan::ViewPlan::of(&at).narrowed(0, self.position(index)?, 1));
        crate::ops::helpers::copy_(&at, &Tensor::scalar(Scalar::Int(value), DType::U8)?)?;
        Ok(())
    }
    fn fill_(slf: Bound<'_, Self>, value: i64) -> PyResult<Bound<'_, Self>> {
        if !slf.get().0.is_hollow() {
            crate::ops::helpers::copy_(
                &slf.get().bytes(),
                &Tensor::scalar(Scalar::Int(value), DType::U8)?,
            )?;
        }
        Ok(slf)
    }
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|o| o.get().0.same(&self.0))
    }
    fn __hash__(&self) -> usize {
        self.0.id() >> 4
    }
    /// The bytes as a uint8 tensor on the same storage.
    fn _as_tensor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        super::object::wrap(py, self.bytes())
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rebuild = py
            .import("torchlike._tensor")?
            .getattr("_rebuild_storage")?;
        let data = if self.0.device().is_meta() {
            py.None().into_bound(py)
        } else {
            pyo3::types::PyBytes::new(py, &self.bytes().to_vec::<u8>()?).into_any()
        };
        (
            rebuild,
            (self.0.device().to_string(), self.0.nbytes(), data),
        )
            .into_pyobject(py)
            .map(Bound::into_any)
    }
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let tail = format!(
            "[torchlike.storage.UntypedStorage(device={}) of size {}]",
            self.0.device(),
            self.0.nbytes()
        );
        if self.0.device().is_meta() || self.0.is_fake() {
            return Ok(format!("...\n{tail}"));
        }
        let values = self.tolist(py)?;
        let values = values.try_iter()?.map(|v| Ok(v?.to_string()));
        let values = values.collect::<PyResult<Vec<_>>>()?;
        Ok(format!(" {}\n{tail}", values.join("\n ")))
    }
}
