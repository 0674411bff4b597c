//! `UntypedStorage`: the bytes behind tensors.

use super::types;
use crate::{DType, Device, Storage, Tensor};
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;

/// `torchlike.UntypedStorage`.
#[pyclass(
    frozen,
    name = "UntypedStorage",
    module = "torchlike.storage",
    subclass,
    weakref
)]
pub struct PyStorage(pub Storage);

/// The storage in a Python object: untyped, or typed with an `_untyped_storage`.
pub fn storage_of(o: &Bound<'_, PyAny>) -> PyResult<Storage> {
    if let Ok(s) = o.cast::<PyStorage>() {
        return Ok(s.get().0.clone());
    }
    match o.getattr("_untyped_storage") {
        Ok(inner) => Ok(inner
            .cast::<PyStorage>()
            .map_err(|_| PyTypeError::new_err("expected a storage"))?
            .get()
            .0
            .clone()),
        Err(_) => Err(PyTypeError::new_err(format!(
            "expected a storage, got {}",
            types::type_name(o)
        ))),
    }
}

/// True if other processes can map the bytes; those of GPUs always can.
pub fn is_shared(storage: &Storage) -> bool {
    storage.device().kind == crate::DeviceKind::Cuda || storage.shared_file().is_some()
}

/// Moves the bytes to where other processes can map them.
pub fn share(storage: &Storage) -> PyResult<()> {
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

#[pymethods]
impl PyStorage {
    #[new]
    #[pyo3(signature = (size=0, *, device=None))]
    fn new(size: usize, device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device
            .map(types::device_of)
            .transpose()?
            .unwrap_or_else(crate::mode::default_device);
        Ok(Self(Storage::empty(size, device)?))
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
        self.0.share()?;
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
    fn is_pinned(&self) -> bool {
        false
    }
    fn resizable(&self) -> bool {
        self.0.is_resizable()
    }
    fn resize_(slf: Bound<'_, Self>, size: i64) -> PyResult<Bound<'_, Self>> {
        let n = usize::try_from(size).map_err(|_| {
            pyo3::exceptions::PyRuntimeError::new_err("resize_: size must not be negative")
        })?;
        slf.get().0.resize(n)?;
        Ok(slf)
    }
    fn cpu(&self) -> PyResult<Self> {
        Ok(Self(self.bytes().to_device(Device::CPU)?.storage().clone()))
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
        crate::ops::helpers::copy_(&at, &Tensor::scalar(crate::Scalar::Int(value), DType::U8)?)?;
        Ok(())
    }
    fn fill_(slf: Bound<'_, Self>, value: i64) -> PyResult<Bound<'_, Self>> {
        if !slf.get().0.is_hollow() {
            crate::ops::helpers::copy_(
                &slf.get().bytes(),
                &Tensor::scalar(crate::Scalar::Int(value), DType::U8)?,
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
    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.clone()
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
        if self.0.device().is_meta() {
            return Ok(format!("...\n{tail}"));
        }
        let values = self.tolist(py)?;
        let mut text = String::new();
        for v in values.try_iter()? {
            text.push_str(&format!(" {}\n", v?));
        }
        Ok(format!("{text}{tail}"))
    }
}
