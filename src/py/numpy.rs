//! Exchange with NumPy, without copies. NumPy is reached through its Python interface only.

#![allow(unsafe_code, reason = "memory of other owners is borrowed")]

use super::object::PyTensor;
use super::types::type_name;
use crate::{DType, Device, Dims, Storage, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use pyo3::{ffi, intern, prelude::*};
use std::ffi::{c_char, c_int, c_void};

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

/// Whether NumPy defines the class of an object.
fn is_its_own(o: &Bound<'_, PyAny>) -> bool {
    let module = o.get_type().module();
    module.is_ok_and(|m| m.to_cow().is_ok_and(|m| m.starts_with("numpy")))
}

/// True for a NumPy array; does not import NumPy for objects that cannot be one.
pub fn is_array(o: &Bound<'_, PyAny>) -> bool {
    let plain = o.get_type().is_exact_instance_of::<PyType>();
    if plain && NDARRAY.get(o.py()).is_none() && !is_its_own(o) {
        return false;
    }
    ndarray(o.py()).is_ok_and(|c| o.is_instance(c).unwrap_or(false))
}

/// Whether it is a scalar of NumPy's, which is not imported for others.
pub fn is_scalar(o: &Bound<'_, PyAny>) -> bool {
    if !is_its_own(o) {
        return false;
    }
    let generic = o.py().import("numpy").and_then(|m| m.getattr("generic"));
    generic.is_ok_and(|class| o.is_instance(&class).unwrap_or(false))
}

/// The letter of NumPy's for a kind of number, which its size says the rest of.
fn kind(d: DType) -> Option<u8> {
    Some(match d {
        DType::Bool => b'b',
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => b'u',
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => b'i',
        DType::F16 | DType::F32 | DType::F64 => b'f',
        DType::C64 | DType::C128 => b'c',
        _ => return None,
    })
}

/// The dtype of a kind and a size in bytes.
fn of_kind(letter: u8, size: usize) -> Option<DType> {
    let same = |d: &DType| kind(*d) == Some(letter) && d.size() == size;
    DType::ALL.iter().copied().find(same)
}

/// NumPy's `PyArrayInterface`: what arrays show of themselves to other libraries.
///
/// Source: the array interface protocol, version 3, "C-struct access".
#[repr(C)]
struct Interface {
    /// Two.
    version: c_int,
    ndim: c_int,
    kind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *mut isize,
    /// In bytes.
    strides: *mut isize,
    data: *mut c_void,
    descr: *mut ffi::PyObject,
}

/// Flags of an [`Interface`]: its addresses are multiples of the element's size, bytes are in the machine's order, and it may be
/// written.
const ALIGNED: c_int = 0x100;
const NATIVE: c_int = 0x200;
const WRITABLE: c_int = 0x400;

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

/// The dtype of a number of NumPy's; None for other numbers.
pub fn scalar_dtype(o: &Bound<'_, PyAny>) -> Option<DType> {
    if o.get_type().module().ok()?.to_cow().ok()? != "numpy" {
        return None;
    }
    let code = o.getattr("dtype").and_then(|d| d.getattr("str")).ok()?;
    let code: String = code.extract().ok()?;
    let (letter, size) = code
        .trim_start_matches(['<', '|', '='])
        .split_at_checked(1)?;
    of_kind(letter.as_bytes()[0], size.parse().ok()?)
}

/// A tensor on an array's memory, with a warning if that must not be written, which a tensor would not know.
pub fn shared(o: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let (t, writable) = imported(o)?;
    if !writable {
        crate::warn_once!(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing to this tensor will result in undefined behavior. You may want to copy the array to protect its data or make it writable before converting it to a tensor. This type of warning will be suppressed for the rest of this program."
        );
    }
    Ok(t)
}

/// A tensor on an array's memory.
pub fn from_array(o: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    Ok(imported(o)?.0)
}

/// A tensor on an array's memory, and whether that may be written.
fn imported(o: &Bound<'_, PyAny>) -> PyResult<(Tensor, bool)> {
    if !is_array(o) {
        return Err(PyTypeError::new_err(format!(
            "expected np.ndarray (got {})",
            type_name(o)
        )));
    }
    let py = o.py();
    // The class's own: a subclass could show memory that its array does not keep.
    let capsule = ndarray(py)?
        .getattr(intern!(py, "__array_struct__"))?
        .call_method1(intern!(py, "__get__"), (o,))?;
    // SAFETY: NumPy's capsules have no name and hold this structure, which lives as long as they do.
    let about = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
    if about.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: as above.
    let about = unsafe { &*about.cast::<Interface>() };
    // Records have no order of their own.
    if about.flags & NATIVE == 0 && about.kind as u8 != b'V' {
        return Err(PyValueError::new_err(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is currently not supported.",
        ));
    }
    let Some(dtype) = of_kind(about.kind as u8, about.itemsize as usize) else {
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
    let sizes = |q: *mut isize| match about.ndim {
        0 => Dims::new(&[]),
        // SAFETY: so many numbers are there.
        n => unsafe { std::slice::from_raw_parts(q, n as usize) }
            .iter()
            .map(|&v| v as i64)
            .collect(),
    };
    let (shape, bytes): (Dims, Dims) = (sizes(about.shape), sizes(about.strides));
    let size = dtype.size() as i64;
    if bytes.iter().any(|s| s % size != 0) {
        return Err(PyValueError::new_err(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory.",
        ));
    }
    if bytes.iter().zip(&*shape).any(|(s, n)| *s < 0 && *n > 1) {
        return Err(PyValueError::new_err(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. (You can probably work around this by making a copy of your array  with array.copy().) ",
        ));
    }
    let strides: Dims = bytes.iter().map(|s| (s / size).max(0)).collect();
    let nbytes = crate::dims::storage_bytes(&shape, &strides, 0, dtype.size())?;
    let keep = Keep(Some(o.clone().unbind()));
    // SAFETY: the array owns these bytes, and `keep` holds the array as long as the storage lives.
    let storage =
        unsafe { Storage::foreign(about.data.cast(), nbytes, Device::CPU, Box::new(keep)) };
    let writable = about.flags & WRITABLE != 0;
    Ok((
        Tensor::checked(storage, shape, strides, 0, dtype)?,
        writable,
    ))
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
    let Some(letter) = kind(t.dtype()) else {
        return Err(PyTypeError::new_err(format!(
            "Got unsupported ScalarType {}",
            t.dtype().scalar_type()
        )));
    };
    if t.numel() == 0 {
        let shape = PyTuple::new(py, t.shape().iter())?;
        let code = format!("{}{}", char::from(letter), t.dtype().size());
        return py.import("numpy")?.call_method1("empty", (shape, code));
    }
    if t.storage().is_hollow() {
        return Err(PyRuntimeError::new_err(
            ".numpy() is not supported for tensor subclasses.",
        ));
    }
    t.storage().lend();
    let as_array = AS_ARRAY.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("numpy")?.getattr("asarray")?.unbind())
    })?;
    as_array.bind(py).call1((Exported { t },))
}

static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// What an exported array keeps alive: the tensor.
#[pyclass(frozen)]
struct Exported {
    t: Tensor,
}

/// An [`Interface`], and the sizes that it points at.
#[repr(C)]
struct Export {
    about: Interface,
    shape: Vec<isize>,
    strides: Vec<isize>,
}

#[pymethods]
impl Exported {
    /// By which NumPy finds the memory.
    #[getter]
    fn __array_struct__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (t, size) = (&self.t, self.t.dtype().size());
        let mut export = Box::new(Export {
            shape: t.shape().iter().map(|&n| n as isize).collect(),
            strides: t
                .strides()
                .iter()
                .map(|&s| s as isize * size as isize)
                .collect(),
            about: Interface {
                version: 2,
                ndim: t.ndim() as c_int,
                kind: kind(t.dtype()).unwrap_or(b'V') as c_char,
                itemsize: size as c_int,
                flags: ALIGNED | NATIVE | WRITABLE,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                data: t.data_ptr().cast(),
                descr: std::ptr::null_mut(),
            },
        });
        export.about.shape = export.shape.as_mut_ptr();
        export.about.strides = export.strides.as_mut_ptr();
        let raw = Box::into_raw(export);
        // SAFETY: the box is alive until the capsule's destructor runs.
        unsafe {
            let made = ffi::PyCapsule_New(raw.cast(), std::ptr::null(), Some(delete_export));
            if made.is_null() {
                drop(Box::from_raw(raw));
            }
            Bound::from_owned_ptr_or_err(py, made)
        }
    }
}

unsafe extern "C" fn delete_export(capsule: *mut ffi::PyObject) {
    // SAFETY: capsules with this destructor hold such a box, which nobody else owns.
    unsafe {
        let raw = ffi::PyCapsule_GetPointer(capsule, std::ptr::null());
        drop(Box::from_raw(raw.cast::<Export>()));
    }
}
