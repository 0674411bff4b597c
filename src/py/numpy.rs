//! Exchange with NumPy, without copies. NumPy is reached through its Python interface only.

#![allow(unsafe_code, reason = "memory of other owners is borrowed")]

use super::object::PyTensor;
use super::types::type_name;
use crate::{DType, Device, Dims, Storage, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn ndarray(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    Ok(NDARRAY
        .get_or_try_init(py, || {
            Ok::<_, PyErr>(
                py.import("numpy")?
                    .getattr("ndarray")?
                    .cast_into::<PyType>()
                    .map_err(|_| PyTypeError::new_err("numpy.ndarray"))?
                    .unbind(),
            )
        })?
        .bind(py))
}

/// True for a NumPy array; does not import NumPy for objects that cannot be one.
pub fn is_array(o: &Bound<'_, PyAny>) -> bool {
    let class = o.get_type();
    if class.is_exact_instance_of::<PyType>() && NDARRAY.get(o.py()).is_none() {
        match class.module() {
            Ok(m) if m.to_cow().is_ok_and(|m| m.starts_with("numpy")) => {}
            _ => return false,
        }
    }
    ndarray(o.py()).is_ok_and(|c| o.is_instance(c).unwrap_or(false))
}

fn numpy_name(d: DType) -> Option<&'static str> {
    Some(match d {
        DType::Bool => "?",
        DType::U8 => "u1",
        DType::I8 => "i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
        _ => return None,
    })
}

/// Keeps a Python object alive for a storage.
struct Keep(Option<Py<PyAny>>);

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some(o) = self.0.take() {
            // The last tensor may go without the lock held; the interpreter may be gone at exit.
            let _ = Python::try_attach(|_| drop(o));
        }
    }
}

/// The dtype that NumPy spells so.
fn dtype_named(code: &str) -> Option<DType> {
    DType::ALL.iter().copied().find(|d| {
        numpy_name(*d).is_some_and(|n| {
            n.trim_start_matches('<') == code.trim_start_matches(['<', '|', '='])
                || (*d == DType::Bool && code.ends_with("b1"))
        })
    })
}

/// The dtype of a number of NumPy's; None for other numbers.
pub fn scalar_dtype(o: &Bound<'_, PyAny>) -> Option<DType> {
    if o.get_type().module().ok()?.to_cow().ok()? != "numpy" {
        return None;
    }
    let code = o.getattr("dtype").and_then(|d| d.getattr("str")).ok()?;
    dtype_named(&code.extract::<String>().ok()?)
}

/// Warns of an array that must not be written, which a tensor on its memory would not know.
pub fn warn_unwritable(o: &Bound<'_, PyAny>) -> PyResult<()> {
    if !o.getattr("flags")?.getattr("writeable")?.is_truthy()? {
        crate::warn_once!(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing to this tensor will result in undefined behavior. You may want to copy the array to protect its data or make it writable before converting it to a tensor. This type of warning will be suppressed for the rest of this program."
        );
    }
    Ok(())
}

/// A tensor on an array's memory.
pub fn from_array(o: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if !is_array(o) {
        return Err(PyTypeError::new_err(format!(
            "expected np.ndarray (got {})",
            type_name(o)
        )));
    }
    let code: String = o.getattr("dtype")?.getattr("str")?.extract()?;
    if code.starts_with('>') {
        return Err(PyValueError::new_err(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is currently not supported.",
        ));
    }
    let found = dtype_named(&code);
    let Some(dtype) = found else {
        return Err(PyTypeError::new_err(format!(
            "can't convert np.ndarray of type {}. The only supported types are: float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.",
            o.getattr("dtype")?
                .getattr("type")?
                .str()?
                .to_string()
                .replace("<class '", "")
                .replace("'>", "")
        )));
    };
    let interface = o.getattr("__array_interface__")?;
    let interface = interface
        .cast::<PyDict>()
        .map_err(|_| PyTypeError::new_err("__array_interface__"))?;
    let item = |k: &str| {
        interface
            .get_item(k)?
            .ok_or_else(|| PyTypeError::new_err(format!("__array_interface__ lacks {k}")))
    };
    let (address, _readonly): (usize, bool) = item("data")?.extract()?;
    let shape: Vec<i64> = o.getattr("shape")?.extract()?;
    let bytes: Vec<i64> = o.getattr("strides")?.extract()?;
    let size = dtype.size() as i64;
    if bytes.iter().any(|s| s % size != 0) {
        return Err(PyValueError::new_err(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory.",
        ));
    }
    if bytes.iter().zip(&shape).any(|(s, n)| *s < 0 && *n > 1) {
        return Err(PyValueError::new_err(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. (You can probably work around this by making a copy of your array  with array.copy().) ",
        ));
    }
    let strides: Dims = bytes.iter().map(|s| (s / size).max(0)).collect();
    let shape = Dims::new(&shape);
    let nbytes = crate::dims::storage_bytes(&shape, &strides, 0, dtype.size())?;
    let keep = Keep(Some(o.clone().unbind()));
    // SAFETY: the array owns these bytes, and `keep` holds the array as long as the storage lives.
    let storage =
        unsafe { Storage::foreign(address as *mut u8, nbytes, Device::CPU, Box::new(keep)) };
    Ok(Tensor::checked(storage, shape, strides, 0, dtype)?)
}

/// A tensor on the memory of any object with the buffer protocol.
pub fn from_buffer(
    o: &Bound<'_, PyAny>,
    dtype: DType,
    count: i64,
    offset: i64,
) -> PyResult<Tensor> {
    let py = o.py();
    let view = py
        .import("builtins")?
        .getattr("memoryview")?
        .call1((o,))
        .map_err(|_| PyValueError::new_err("object does not implement Python buffer protocol."))?;
    if view.getattr("readonly")?.is_truthy()? {
        crate::warn_once!(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can write to the underlying (supposedly non-writable) buffer using the tensor. You may want to copy the buffer to protect its data or make it writable before converting it to a tensor. This type of warning will be suppressed for the rest of this program."
        );
    }
    let array = py
        .import("numpy")?
        .call_method1("frombuffer", (view.call_method1("cast", ("B",))?, "u1"));
    let total: i64 = view.getattr("nbytes")?.extract()?;
    let size = dtype.size() as i64;
    if total == 0 || count == 0 {
        return Err(PyValueError::new_err(format!(
            "both buffer length ({total}) and count ({count}) must not be 0"
        )));
    }
    if offset < 0 || offset >= total {
        return Err(PyValueError::new_err(format!(
            "offset ({offset} bytes) must be non-negative and no greater than buffer length ({total} bytes) minus 1"
        )));
    }
    if count > 0 && offset.saturating_add(count.saturating_mul(size)) > total {
        return Err(PyValueError::new_err(format!(
            "requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than actual buffer length ({total} bytes)"
        )));
    }
    if count <= 0 && (total - offset) % size != 0 {
        return Err(PyValueError::new_err(format!(
            "buffer length ({} bytes) after offset ({offset} bytes) must be a multiple of element size ({size})",
            total - offset
        )));
    }
    let n = if count > 0 {
        count
    } else {
        (total - offset) / size
    };
    let whole = from_array(&array?)?;
    let ptr = whole.data_ptr().wrapping_offset(offset as isize);
    // SAFETY: the range lies within the buffer by the checks above, and `whole` keeps the buffer alive.
    let storage =
        unsafe { Storage::foreign(ptr, (n * size) as usize, Device::CPU, Box::new(whole)) };
    Ok(Tensor::checked(
        storage,
        Dims::new(&[n]),
        Dims::new(&[1]),
        0,
        dtype,
    )?)
}

/// An array on a tensor's memory.
pub fn to_numpy<'py>(slf: &Bound<'py, PyTensor>, force: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let mut t = slf.get().get().clone();
    if t.storage().is_opaque() {
        if t.storage().parts().is_some_and(|p| p.layout() != "strided") {
            return Err(PyTypeError::new_err(
                "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.",
            ));
        }
        crate::layers::parts::check_plain(&t, "numpy")?;
    }
    t.check_inside()?;
    if force {
        t = crate::ops::helpers::resolve(&t.to_device(Device::CPU)?)?.with_requires_grad(false);
    }
    if !t.device().is_cpu() {
        return Err(PyTypeError::new_err(format!(
            "can't convert {} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
            t.device()
        )));
    }
    if t.requires_grad() && crate::mode::grad_enabled() {
        return Err(PyRuntimeError::new_err(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        ));
    }
    if t.is_conj() {
        return Err(PyRuntimeError::new_err(
            "Can't call numpy() on Tensor that has conjugate bit set. Use tensor.resolve_conj().numpy() instead.",
        ));
    }
    if t.is_neg() {
        return Err(PyRuntimeError::new_err(
            "Can't call numpy() on Tensor that has negative bit set. Use tensor.resolve_neg().numpy() instead.",
        ));
    }
    let Some(code) = numpy_name(t.dtype()) else {
        return Err(PyTypeError::new_err(format!(
            "Got unsupported ScalarType {}",
            t.dtype().scalar_type()
        )));
    };
    let shape = PyTuple::new(py, t.shape().iter())?;
    if t.numel() == 0 {
        return py.import("numpy")?.call_method1("empty", (shape, code));
    }
    if t.storage().is_hollow() && t.numel() > 0 {
        return Err(PyRuntimeError::new_err(
            ".numpy() is not supported for tensor subclasses.",
        ));
    }
    let strides = PyTuple::new(py, t.strides().iter().map(|s| s * t.dtype().size() as i64))?;
    t.storage().lend();
    let owner = Bound::new(py, Exported { t: t.clone() })?;
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item(
        "typestr",
        if t.dtype() == DType::Bool {
            "|b1"
        } else {
            code
        },
    )?;
    interface.set_item("shape", shape)?;
    interface.set_item("strides", strides)?;
    interface.set_item("data", (t.data_ptr() as usize, false))?;
    owner.setattr("__array_interface__", interface)?;
    let kw = PyDict::new(py);
    kw.set_item("copy", false)?;
    py.import("numpy")?
        .call_method("array", (owner,), Some(&kw))
}

/// What an exported array keeps alive: the tensor.
#[pyclass(dict)]
struct Exported {
    #[allow(dead_code, reason = "held for its memory")]
    t: Tensor,
}
