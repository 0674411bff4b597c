//! Exchange with NumPy and DLPack, without copies. NumPy is reached through its Python interface only.

#![allow(unsafe_code, reason = "memory of other owners is borrowed")]

use super::object::{PyTensor, wrap};
use super::types::type_name;
use crate::{DType, Device, Dims, Storage, Tensor};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::ffi::c_void;

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
    let found = DType::ALL.iter().copied().find(|d| {
        numpy_name(*d).is_some_and(|n| {
            n.trim_start_matches('<') == code.trim_start_matches(['<', '|', '='])
                || (*d == DType::Bool && code.ends_with("b1"))
        })
    });
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
    if t.requires_grad() {
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

#[repr(C)]
struct DlDevice {
    kind: i32,
    id: i32,
}
#[repr(C)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}
/// `DLManagedTensor` of the DLPack C interface (version 0).
#[repr(C)]
struct DlManaged {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManaged)>,
}

struct Export {
    managed: DlManaged,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _tensor: Tensor,
}

const NAME: &std::ffi::CStr = c"dltensor";
const USED: &std::ffi::CStr = c"used_dltensor";

fn dl_code(d: DType) -> Option<(u8, u8)> {
    let bits = (d.size() * 8) as u8;
    Some(match d {
        DType::Bool => (6, bits),
        DType::BF16 => (4, bits),
        d if d.is_storage_only() => return None,
        d if d.is_complex() => (5, bits),
        d if d.is_float() => (2, bits),
        d if d.is_signed() => (0, bits),
        _ => (1, bits),
    })
}

unsafe extern "C" fn delete_export(m: *mut DlManaged) {
    if !m.is_null() {
        // SAFETY: the context is the box that `to_dlpack` leaked, deleted once by its consumer.
        drop(unsafe { Box::from_raw((*m).context.cast::<Export>()) });
    }
}

unsafe extern "C" fn delete_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a live capsule; a consumed one has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let m = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<DlManaged>();
            if let Some(deleter) = (*m).deleter {
                deleter(m);
            }
        }
    }
}

/// A DLPack capsule of a tensor.
pub fn to_dlpack<'py>(slf: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let t = slf.get().get().clone();
    t.check_inside()?;
    if t.requires_grad() {
        return Err(PyBufferError::new_err(
            "Can't export tensors that require gradient, use tensor.detach()",
        ));
    }
    if t.is_conj() {
        return Err(PyBufferError::new_err(
            "Can't export tensors with the conjugate bit set",
        ));
    }
    if t.storage().is_hollow() {
        return Err(PyBufferError::new_err("Cannot pack tensors on meta"));
    }
    let Some((code, bits)) = dl_code(t.dtype()) else {
        return Err(PyBufferError::new_err(format!(
            "{} types are not supported by dlpack",
            t.dtype()
        )));
    };
    let device = match t.device().kind {
        crate::DeviceKind::Cuda => DlDevice {
            kind: 2,
            id: i32::from(t.device().index),
        },
        _ => DlDevice { kind: 1, id: 0 },
    };
    t.storage().lend();
    let mut export = Box::new(Export {
        shape: t.shape().to_vec(),
        strides: t.strides().to_vec(),
        managed: DlManaged {
            tensor: DlTensor {
                data: t.data_ptr().cast(),
                device,
                ndim: t.ndim() as i32,
                dtype: DlType {
                    code,
                    bits,
                    lanes: 1,
                },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: Some(delete_export),
        },
        _tensor: t,
    });
    export.managed.tensor.shape = export.shape.as_mut_ptr();
    export.managed.tensor.strides = export.strides.as_mut_ptr();
    let raw = Box::into_raw(export);
    // SAFETY: the box is alive until its deleter runs; the capsule's destructor runs it if nobody consumed it.
    unsafe {
        (*raw).managed.context = raw.cast();
        Bound::from_owned_ptr_or_err(
            slf.py(),
            ffi::PyCapsule_New(
                (&raw mut (*raw).managed).cast(),
                NAME.as_ptr(),
                Some(delete_capsule),
            ),
        )
    }
}

struct Imported(*mut DlManaged);
// SAFETY: DLPack's deleter may be called from any thread.
unsafe impl Send for Imported {}
impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the consumer of a capsule owns the structure and deletes it once.
        unsafe {
            if let Some(deleter) = (*self.0).deleter {
                deleter(self.0);
            }
        }
    }
}

/// A tensor on the memory of an object with `__dlpack__`, or of a capsule.
#[pyfunction]
#[pyo3(signature = (ext_tensor, *, device=None, copy=None))]
pub fn from_dlpack<'py>(
    ext_tensor: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = ext_tensor.py();
    let capsule = if ext_tensor.hasattr("__dlpack__")? {
        ext_tensor.call_method0("__dlpack__")?
    } else {
        ext_tensor.clone()
    };
    // SAFETY: validity is asked before the pointer is used; the name change marks the capsule as consumed.
    let managed = unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), NAME.as_ptr()) != 1 {
            return Err(PyRuntimeError::new_err(
                "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have already constructed a tensor from it once.",
            ));
        }
        let m = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<DlManaged>();
        ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr());
        m
    };
    let owner = Imported(managed);
    // SAFETY: the producer guarantees the structure and its arrays while it is not deleted.
    let (d, shape, strides) = unsafe {
        let d = &(*managed).tensor;
        let n = usize::try_from(d.ndim).unwrap_or(0);
        let shape = Dims::new(if n == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(d.shape, n)
        });
        let strides = if d.strides.is_null() {
            crate::dims::contiguous_strides(&shape)
        } else {
            Dims::new(if n == 0 {
                &[]
            } else {
                std::slice::from_raw_parts(d.strides, n)
            })
        };
        (d, shape, strides)
    };
    if d.device.kind != 1 {
        return Err(PyBufferError::new_err(
            "from_dlpack: only host memory can be imported",
        ));
    }
    let dtype = DType::ALL
        .iter()
        .copied()
        .find(|t| dl_code(*t) == Some((d.dtype.code, d.dtype.bits)) && d.dtype.lanes == 1);
    let Some(dtype) = dtype else {
        return Err(PyBufferError::new_err(format!(
            "from_dlpack: unsupported element type (code {}, {} bits)",
            d.dtype.code, d.dtype.bits
        )));
    };
    let ptr = d.data.cast::<u8>().wrapping_add(d.byte_offset as usize);
    let nbytes = crate::dims::storage_bytes(&shape, &strides, 0, dtype.size())?;
    // SAFETY: the producer's memory lives until `owner` deletes it.
    let storage = unsafe { Storage::foreign(ptr, nbytes, Device::CPU, Box::new(owner)) };
    let mut t = Tensor::checked(storage, shape, strides, 0, dtype)?;
    if copy == Some(true) {
        t = crate::ops::helpers::clone(&t, crate::MemoryFormat::Preserve)?;
    }
    if let Some(d) = device {
        t = t.to_device(super::types::device_of(d)?)?;
    }
    wrap(py, t)
}
