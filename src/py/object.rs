//! Tensors as Python objects: the classes, the way in and the way out.

#![allow(
    unsafe_code,
    reason = "the tensor in a Python object is replaced in place, under the interpreter lock, and objects are made by hand"
)]

use crate::{DType, Device, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// `torchlike.Tensor`.
#[pyclass(frozen, name = "Tensor", module = "torchlike", subclass, weakref, dict)]
pub struct PyTensor(UnsafeCell<Tensor>);

// SAFETY: the cell is only read and written with the interpreter lock held; work without the lock uses clones.
unsafe impl Sync for PyTensor {}

impl PyTensor {
    /// Wraps a tensor; what belongs to another tensor alone stays there.
    #[inline]
    pub fn new(mut t: Tensor) -> Self {
        t.strip();
        Self(UnsafeCell::new(t))
    }

    /// The tensor.
    #[inline]
    pub fn get(&self) -> &Tensor {
        // SAFETY: see the Sync implementation; `set` is never called while a borrow of the same call is used.
        unsafe { &*self.0.get() }
    }

    /// Replaces the tensor: another layout or storage in the same Python object.
    pub fn set(&self, t: Tensor) {
        // SAFETY: as above. The old one is dropped after, as that may run code of Python's that looks here.
        let old = unsafe { std::mem::replace(&mut *self.0.get(), t) };
        drop(old);
    }

    /// Gives the tensor other contents; what belongs to it alone stays.
    pub fn change(&self, t: Tensor) {
        self.set(t.keeping(self.get()));
    }

    /// The tensor object in a Python object.
    pub fn of<'a>(o: &'a Bound<'_, PyAny>) -> PyResult<&'a PyTensor> {
        o.cast::<PyTensor>()
            .map(|b| b.get())
            .map_err(|_| PyTypeError::new_err("expected a Tensor"))
    }
}

static TENSOR: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(std::ptr::null_mut());
static PARAMETER: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(std::ptr::null_mut());
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// The tensor in a Python object, if it is one. Exact types are found by two pointer comparisons.
#[inline]
pub fn tensor_ref<'a>(o: &'a Bound<'_, PyAny>) -> Option<&'a Tensor> {
    // SAFETY: the object is alive, so its type is.
    let class = unsafe { ffi::Py_TYPE(o.as_ptr()) };
    if is_plain_tensor(class) {
        // SAFETY: instances of exactly these types have this layout.
        return Some(unsafe { o.cast_unchecked::<PyTensor>() }.get().get());
    }
    o.cast::<PyTensor>().ok().map(|b| b.get().get())
}

/// True for the two classes whose instances nobody can make special: `Tensor` and `Parameter` themselves.
#[inline]
pub fn is_plain_tensor(class: *mut ffi::PyTypeObject) -> bool {
    class == TENSOR.load(Relaxed) || class == PARAMETER.load(Relaxed)
}

/// True for tensors of any class.
#[inline]
pub fn is_tensor(o: &Bound<'_, PyAny>) -> bool {
    is_plain_tensor(o.get_type_ptr()) || o.is_instance_of::<PyTensor>()
}

/// A new Python object for a tensor.
#[inline]
pub fn wrap(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    if t.is_python() {
        return super::dispatch::result(py, &t);
    }
    // SAFETY: `Tensor` itself is such a class.
    unsafe { made(py, TENSOR.load(Relaxed), t) }
}

/// An instance of a subclass of Tensor around a tensor, without running its `__new__` or `__init__`.
pub fn instance<'py>(cls: &Bound<'py, PyType>, t: Tensor) -> PyResult<Bound<'py, PyAny>> {
    if !cls.is_subclass_of::<PyTensor>()? {
        return Err(PyTypeError::new_err(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your class inherits from Tensor.",
        ));
    }
    // SAFETY: the class was just found to be such a class.
    unsafe { made(cls.py(), cls.as_ptr().cast(), t) }
}

/// An instance of `class` made by hand.
///
/// # Safety
/// The class is `Tensor` or one that Python code derived from it.
#[inline]
unsafe fn made(
    py: Python<'_>,
    class: *mut ffi::PyTypeObject,
    t: Tensor,
) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: an instance of such a class is a block of zeros from its type's allocator (no dict, no weak references)
    // with the tensor at the place where `prepare` found it in an instance that pyo3 made.
    unsafe {
        let o = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0))?;
        let place = o.as_ptr().byte_add(PLACE.load(Relaxed));
        place.cast::<PyTensor>().write(PyTensor::new(t));
        Ok(o)
    }
}

/// Notes the classes and where an instance keeps its tensor; called once, before the first [`wrap`].
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let sample = Bound::new(
        py,
        PyTensor::new(Tensor::empty(&[], DType::F32, Device::META)?),
    )?;
    let place = std::ptr::from_ref(sample.get()) as usize - sample.as_ptr() as usize;
    PLACE.store(place, Relaxed);
    TENSOR.store(py.get_type::<PyTensor>().as_ptr().cast(), Relaxed);
    Ok(())
}

static PARAMETER_CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Notes `torchlike.nn.Parameter`, which is written in Python as its class has a class of its own; the first one stays.
pub fn set_parameter(cls: &Bound<'_, PyType>) {
    let kept = PARAMETER_CLASS.get_or_init(cls.py(), || cls.clone().unbind());
    PARAMETER.store(kept.as_ptr().cast(), Relaxed);
}

/// `torchlike.nn.Parameter`.
///
/// # Errors
/// If the package is not imported yet.
pub fn parameter(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    PARAMETER_CLASS
        .get(py)
        .map(|class| class.bind(py))
        .ok_or_else(|| PyRuntimeError::new_err("torchlike is not initialised"))
}
