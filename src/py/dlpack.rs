//! Exchange by DLPack, versions 0 and 1, without copies unless they are asked for.
//!
//! Source: the C header of DLPack 1.0 and the Python specification of the array API, version 2024.12.

#![allow(unsafe_code, reason = "memory of other owners is borrowed")]

use super::object::{PyTensor, wrap};
use crate::ops::helpers;
use crate::{DType, Device, Dims, MemoryFormat, Storage, Tensor};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{CStr, c_void};

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
/// `DLManagedTensor` of version 0.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}
/// `DLManagedTensorVersioned` of version 1.
#[repr(C)]
struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// The flags of version 1.
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;

/// A structure that travels in a capsule.
trait Packed: Sized {
    /// What the capsule is called, before and after it is used up.
    const NAMES: [&'static CStr; 2];
    fn make(tensor: DlTensor, copied: bool) -> Self;
    fn tensor(&mut self) -> &mut DlTensor;
    fn context(&mut self) -> &mut *mut c_void;
    /// Lets its producer take it back.
    ///
    /// # Safety
    /// The pointer is alive, and nobody uses it afterwards.
    unsafe fn delete(m: *mut Self);
}

impl Packed for Managed {
    const NAMES: [&'static CStr; 2] = [c"dltensor", c"used_dltensor"];
    fn make(tensor: DlTensor, _: bool) -> Self {
        Self {
            tensor,
            context: std::ptr::null_mut(),
            deleter: Some(delete_export::<Self>),
        }
    }
    fn tensor(&mut self) -> &mut DlTensor {
        &mut self.tensor
    }
    fn context(&mut self) -> &mut *mut c_void {
        &mut self.context
    }
    unsafe fn delete(m: *mut Self) {
        // SAFETY: by the trait's contract; the deleter is the producer's.
        unsafe {
            if let Some(deleter) = (*m).deleter {
                deleter(m);
            }
        }
    }
}

impl Packed for Versioned {
    const NAMES: [&'static CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];
    fn make(tensor: DlTensor, copied: bool) -> Self {
        Self {
            version: [1, 0],
            context: std::ptr::null_mut(),
            deleter: Some(delete_export::<Self>),
            flags: if copied { COPIED } else { 0 },
            tensor,
        }
    }
    fn tensor(&mut self) -> &mut DlTensor {
        &mut self.tensor
    }
    fn context(&mut self) -> &mut *mut c_void {
        &mut self.context
    }
    unsafe fn delete(m: *mut Self) {
        // SAFETY: by the trait's contract; the deleter is the producer's.
        unsafe {
            if let Some(deleter) = (*m).deleter {
                deleter(m);
            }
        }
    }
}

struct Export<M> {
    managed: M,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _tensor: Tensor,
}

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

unsafe extern "C" fn delete_export<M: Packed>(m: *mut M) {
    if !m.is_null() {
        // SAFETY: the context is the box that `packed` leaked, deleted once by its consumer.
        drop(unsafe { Box::from_raw((*(*m).context()).cast::<Export<M>>()) });
    }
}

unsafe extern "C" fn delete_capsule<M: Packed>(capsule: *mut ffi::PyObject) {
    let name = M::NAMES[0].as_ptr();
    // SAFETY: called by the interpreter with a live capsule; a consumed one has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 {
            M::delete(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}

/// The device of a tensor, as DLPack numbers them.
///
/// # Errors
/// For meta tensors.
pub fn device_of(t: &Tensor) -> PyResult<(i32, i32)> {
    match t.device().kind {
        crate::DeviceKind::Cpu => Ok((1, 0)),
        crate::DeviceKind::Cuda => Ok((2, i32::from(t.device().index))),
        crate::DeviceKind::Meta => Err(pyo3::exceptions::PyValueError::new_err(
            "Unknown device type meta for Dlpack",
        )),
    }
}

/// A capsule of a tensor: of version 1 if the consumer knows it, on the device it asks for, a copy if it wants one.
///
/// # Errors
/// If the tensor has no memory that others may read, or a copy is needed and refused.
pub fn to_dlpack<'py>(
    slf: &Bound<'py, PyTensor>,
    max_version: Option<(i64, i64)>,
    dl_device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut t = slf.get().get().clone();
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
    if t.storage().parts().is_some_and(|p| p.layout() != "strided") {
        return Err(PyBufferError::new_err(
            "Can't export tensors with layout other than torch.strided",
        ));
    }
    if t.storage().is_hollow() {
        return Err(PyBufferError::new_err("Cannot pack tensors on meta"));
    }
    let mut copied = false;
    if let Some(wanted) = dl_device.filter(|d| Some(*d) != device_of(&t).ok()) {
        if copy == Some(false) {
            return Err(PyBufferError::new_err(
                "Can't move a tensor to another device without copying it",
            ));
        }
        let device = match wanted {
            (1, _) => Device::CPU,
            (2, n) => Device::cuda(i8::try_from(n).unwrap_or(0)),
            (kind, _) => {
                return Err(PyBufferError::new_err(format!(
                    "Can't export tensors to devices of DLPack's kind {kind}"
                )));
            }
        };
        (t, copied) = (t.to_device(device)?, true);
    } else if copy == Some(true) {
        (t, copied) = (helpers::clone(&t, MemoryFormat::Preserve)?, true);
    }
    if max_version.is_some_and(|v| v >= (1, 0)) {
        packed::<Versioned>(slf.py(), t, copied)
    } else {
        packed::<Managed>(slf.py(), t, copied)
    }
}

fn packed<M: Packed>(py: Python<'_>, t: Tensor, copied: bool) -> PyResult<Bound<'_, PyAny>> {
    let Some((code, bits)) = dl_code(t.dtype()) else {
        return Err(PyBufferError::new_err(format!(
            "{} types are not supported by dlpack",
            t.dtype()
        )));
    };
    let (kind, id) = device_of(&t)?;
    if t.storage().is_hollow() && t.numel() > 0 {
        return Err(PyBufferError::new_err(
            "Can't export tensors without data, as those of a fake mode are",
        ));
    }
    t.storage().lend();
    let tensor = DlTensor {
        data: t.data_ptr().cast(),
        device: DlDevice { kind, id },
        ndim: t.ndim() as i32,
        dtype: DlType {
            code,
            bits,
            lanes: 1,
        },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let mut export = Box::new(Export {
        shape: t.shape().to_vec(),
        strides: t.strides().to_vec(),
        managed: M::make(tensor, copied),
        _tensor: t,
    });
    let (shape, strides) = (export.shape.as_mut_ptr(), export.strides.as_mut_ptr());
    let made = export.managed.tensor();
    (made.shape, made.strides) = (shape, strides);
    let raw = Box::into_raw(export);
    // SAFETY: the box is alive until its deleter runs; the capsule's destructor runs it if nobody consumed it.
    unsafe {
        *(*raw).managed.context() = raw.cast();
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyCapsule_New(
                (&raw mut (*raw).managed).cast(),
                M::NAMES[0].as_ptr(),
                Some(delete_capsule::<M>),
            ),
        )
    }
}

struct Imported<M: Packed>(*mut M);
// SAFETY: DLPack's deleter may be called from any thread.
unsafe impl<M: Packed> Send for Imported<M> {}
impl<M: Packed> Drop for Imported<M> {
    fn drop(&mut self) {
        // SAFETY: the consumer of a capsule owns the structure and deletes it once.
        unsafe { M::delete(self.0) }
    }
}

/// What a capsule holds; nothing if it is of the other version, or used up.
fn taken<M: Packed>(capsule: &Bound<'_, PyAny>) -> Option<Imported<M>> {
    let [fresh, used] = M::NAMES.map(CStr::as_ptr);
    // SAFETY: validity is asked before the pointer is used; the name change marks the capsule as consumed.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), fresh) != 1 {
            return None;
        }
        let m = ffi::PyCapsule_GetPointer(capsule.as_ptr(), fresh).cast::<M>();
        ffi::PyCapsule_SetName(capsule.as_ptr(), used);
        Some(Imported(m))
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
        exported(ext_tensor)?
    } else {
        ext_tensor.clone()
    };
    let mut t = if let Some(owner) = taken::<Versioned>(&capsule) {
        // SAFETY: the producer guarantees the structure while it is not deleted.
        let (version, flags) = unsafe { ((*owner.0).version, (*owner.0).flags) };
        if version[0] > 1 {
            return Err(PyBufferError::new_err(format!(
                "from_dlpack: a capsule of version {}.{} is not understood",
                version[0], version[1]
            )));
        }
        let t = borrowed(owner)?;
        // Nothing here would keep anybody from writing.
        if flags & READ_ONLY != 0 && copy != Some(false) {
            helpers::clone(&t, MemoryFormat::Preserve)?
        } else {
            t
        }
    } else if let Some(owner) = taken::<Managed>(&capsule) {
        borrowed(owner)?
    } else {
        return Err(PyRuntimeError::new_err(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have already constructed a tensor from it once.",
        ));
    };
    if copy == Some(true) {
        t = helpers::clone(&t, MemoryFormat::Preserve)?;
    }
    if let Some(d) = device {
        let device = super::types::device_of(d)?;
        if copy == Some(false) && device.canonical() != t.device() {
            return Err(PyBufferError::new_err(
                "from_dlpack: a tensor cannot be moved to another device without copying it",
            ));
        }
        t = t.to_device(device)?;
    }
    wrap(py, t)
}

/// The capsule of a producer, of version 1 if it knows that.
fn exported<'py>(from: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = from.py();
    let asked = PyDict::new(py);
    asked.set_item("max_version", (1, 0))?;
    match from.call_method("__dlpack__", (), Some(&asked)) {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => from.call_method0("__dlpack__"),
        other => other,
    }
}

/// A tensor on the memory that a structure describes.
fn borrowed<M: Packed + 'static>(owner: Imported<M>) -> PyResult<Tensor> {
    // SAFETY: the producer guarantees the structure and its arrays while it is not deleted.
    let (d, shape, strides) = unsafe {
        let d = (*owner.0).tensor();
        let n = usize::try_from(d.ndim).unwrap_or(0);
        let list = |p: *mut i64| {
            Dims::new(if n == 0 {
                &[]
            } else {
                std::slice::from_raw_parts(p, n)
            })
        };
        let shape = list(d.shape);
        let strides = if d.strides.is_null() {
            crate::dims::contiguous_strides(&shape)
        } else {
            list(d.strides)
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
    Ok(Tensor::checked(storage, shape, strides, 0, dtype)?)
}
