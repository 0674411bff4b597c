//! Tensors as Python objects: the classes, the way in and the way out.

#![allow(
    unsafe_code,
    reason = "the tensor in a Python object is replaced in place, under the interpreter lock, and instances are told by the address of their class"
)]

use super::class::{self, is_fake_class};
use super::lives_on;
use crate::Tensor;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::cell::{Cell, UnsafeCell};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// `torchlike._C.TensorBase`, which holds a tensor and has the methods; [`class`] makes `torchlike.Tensor` of it.
#[pyclass(
    frozen,
    name = "TensorBase",
    module = "torchlike._C",
    subclass,
    weakref,
    dict
)]
pub struct PyTensor {
    tensor: UnsafeCell<Tensor>,
    /// The object that this one is a view of.
    base: UnsafeCell<Option<Py<PyTensor>>>,
    /// How many objects are views of this one.
    viewers: Cell<u32>,
    /// Tells the object from all others there ever were, once somebody asked; 0 before.
    number: Cell<u32>,
}

/// How many objects have a number.
static NUMBERS: AtomicU32 = AtomicU32::new(0);

// SAFETY: the cells are only read and written with the interpreter lock held; work without the lock uses clones.
unsafe impl Sync for PyTensor {}

impl PyTensor {
    /// Wraps a tensor.
    #[inline]
    pub fn new(t: Tensor) -> Self {
        Self {
            tensor: UnsafeCell::new(t),
            base: UnsafeCell::new(None),
            viewers: Cell::new(0),
            number: Cell::new(0),
        }
    }

    /// What tells the object from all others there ever were; nothing when there are no more numbers.
    pub fn number(&self) -> Option<u32> {
        if self.number.get() == 0 {
            let next = |n: u32| n.checked_add(1);
            let before = NUMBERS.fetch_update(Relaxed, Relaxed, next).ok()?;
            self.number.set(before + 1);
        }
        Some(self.number.get())
    }

    /// The number, if somebody has asked for it.
    pub fn known_number(&self) -> Option<u32> {
        Some(self.number.get()).filter(|n| *n > 0)
    }

    /// The tensor.
    #[inline]
    pub fn get(&self) -> &Tensor {
        // SAFETY: see the Sync implementation; `set` is never called while a borrow of the same call is used.
        unsafe { &*self.tensor.get() }
    }

    /// The object that this one is a view of.
    pub fn base(&self) -> Option<&Py<PyTensor>> {
        // SAFETY: as above.
        unsafe { &*self.base.get() }.as_ref()
    }

    /// Notes, or forgets, the object that this one is a view of.
    pub fn set_base(&self, base: Option<Py<PyTensor>>) {
        Self::count_viewer(base.as_ref(), 1);
        // SAFETY: as above. The old one is dropped after, as that may run code of Python's that looks here.
        let old = unsafe { std::mem::replace(&mut *self.base.get(), base) };
        Self::count_viewer(old.as_ref(), -1);
        drop(old);
    }

    /// How many living objects are views of this one.
    pub fn viewers(&self) -> u32 {
        self.viewers.get()
    }

    /// One more, or less, is a view of an object.
    #[inline]
    fn count_viewer(base: Option<&Py<PyTensor>>, by: i32) {
        if let Some(base) = base {
            let viewers = &base.get().viewers;
            viewers.set(viewers.get().saturating_add_signed(by));
        }
    }

    /// Takes the object that this one is a view of out, for who frees this one.
    #[inline]
    pub fn take_base(&mut self) -> Option<Py<PyTensor>> {
        let base = self.base.get_mut().take();
        Self::count_viewer(base.as_ref(), -1);
        base
    }

    /// Replaces the tensor: another layout or storage in the same Python object.
    pub fn set(&self, t: Tensor) {
        t.settle();
        if self.get().own_place().is_some() {
            drop(lives_on::taken(self));
        }
        // SAFETY: as above. The old one is dropped after, as that may run code of Python's that looks here.
        let old = unsafe { std::mem::replace(&mut *self.tensor.get(), t) };
        class::note_object(self);
        drop(old);
    }

    /// What the tensor becomes by a write in place: this object has its history.
    pub fn become_(&self, t: Tensor) {
        t.forget_own_head();
        self.set(t);
    }

    /// Gives the tensor other contents; its place in the graph stays.
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

static PARAMETER: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(null_mut());

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

/// True for the classes whose instances nobody can make special: `Tensor`, `Parameter` and `FakeTensor` themselves.
#[inline]
pub fn is_plain_tensor(class: *mut ffi::PyTypeObject) -> bool {
    class::is_tensor_class(class) || class == PARAMETER.load(Relaxed) || is_fake_class(class)
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
    if t.storage().is_fake() {
        return wrap_fake(py, t);
    }
    class::plain(py, t)
}

fn wrap_fake(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    if is_fake_class(null_mut()) {
        // The import says which class it is.
        py.import("torchlike._subclasses.fake_tensor")?;
    }
    class::fake(py, t)
}

/// A result of a call, which notes what it is a view of if that is among the arguments.
#[inline]
pub fn viewing<'py>(made: Bound<'py, PyAny>, of: &[Bound<'py, PyAny>]) -> Bound<'py, PyAny> {
    if let Some(t) = tensor_ref(&made) {
        if t.is_view() {
            note_base(&made, t, of);
        }
    } else if let Ok(list) = made.cast::<PyTuple>() {
        for item in list {
            viewing(item, of);
        }
    }
    made
}

/// Gives an object the history of its tensor: that of a call which was recorded after a handler had made the object.
pub fn adopt(o: &Bound<'_, PyAny>, t: &Tensor) {
    if let Some(edge) = t.edge()
        && let Ok(holder) = o.cast::<PyTensor>()
        && holder.get().get().link().is_none()
    {
        let made = holder.get().get().clone();
        holder.get().set(made.tracked(edge.to, edge.nr));
    }
}

/// What an object is a view of, or it itself.
pub fn base_or_self(o: &Bound<'_, PyTensor>) -> Py<PyTensor> {
    match o.get().base() {
        Some(base) => base.clone_ref(o.py()),
        None => o.clone().unbind(),
    }
}

#[inline]
fn note_base(made: &Bound<'_, PyAny>, t: &Tensor, of: &[Bound<'_, PyAny>]) {
    let found = of
        .iter()
        .find(|o| tensor_ref(o).is_some_and(|base| t.is_of_family(base)));
    let (Some(found), Ok(made)) = (found, made.cast::<PyTensor>()) else {
        return;
    };
    let Ok(owner) = found.cast::<PyTensor>() else {
        return;
    };
    if made.is(owner) {
        return;
    }
    made.get().set_base(Some(base_or_self(owner)));
}

/// An instance of a subclass of Tensor around a tensor, without running its `__new__` or `__init__`.
pub fn instance<'py>(cls: &Bound<'py, PyType>, t: Tensor) -> PyResult<Bound<'py, PyAny>> {
    if !cls.is_subclass(class::tensor_class(cls.py())?.as_any())? {
        return Err(PyTypeError::new_err(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure your class inherits from Tensor.",
        ));
    }
    // SAFETY: the class was just found to be such a class.
    unsafe { class::instance(cls.py(), cls.as_ptr().cast(), t) }
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

/// The dictionary of an object's attributes, whatever its class shows as `__dict__`.
///
/// # Errors
/// If it has none.
pub fn attributes_of<'py>(o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: the object lives and the interpreter lock is held; what comes back is a new reference or an error.
    let found = unsafe {
        Bound::from_owned_ptr_or_err(o.py(), ffi::PyObject_GenericGetDict(o.as_ptr(), null_mut()))
    };
    Ok(found?.cast_into::<PyDict>()?)
}
