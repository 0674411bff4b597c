//! Sizes and strides as Python objects.

#![allow(
    unsafe_code,
    reason = "Size tuples are filled in place, and objects are kept under the interpreter lock"
)]

use crate::Dims;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use std::cell::UnsafeCell;

static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Tells the core the class of `Size` objects, a subclass of tuple.
#[pyfunction]
fn _register_size(py: Python<'_>, class: Py<PyType>) {
    let _ = SIZE.set(py, class);
}

/// A `Size` of these values.
pub fn size<'py>(py: Python<'py>, values: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let Some(class) = SIZE.get(py) else {
        return Ok(PyTuple::new(py, values)?.into_any());
    };
    // SAFETY: the class is a tuple subclass, so its allocator makes a tuple of n empty items, which are filled here
    // before anybody else sees it.
    unsafe {
        let class = class.as_ptr().cast::<ffi::PyTypeObject>();
        let slot = ffi::PyType_GetSlot(class, ffi::Py_tp_alloc);
        let alloc: ffi::allocfunc = std::mem::transmute(slot);
        let tuple = Bound::from_owned_ptr_or_err(py, alloc(class, values.len() as isize))?;
        for (i, v) in values.iter().enumerate() {
            ffi::PyTuple_SetItem(tuple.as_ptr(), i as isize, ffi::PyLong_FromLongLong(*v));
        }
        Ok(tuple)
    }
}

/// The shape of a tensor.
pub fn shape<'py>(py: Python<'py>, values: &Dims) -> PyResult<Bound<'py, PyAny>> {
    static SHAPES: Recent = Recent::none();
    SHAPES.find_or(py, values, || size(py, values))
}

/// The strides of a tensor.
pub fn strides<'py>(py: Python<'py>, values: &Dims) -> PyResult<Bound<'py, PyAny>> {
    static STRIDES: Recent = Recent::none();
    STRIDES.find_or(py, values, || {
        Ok(PyTuple::new(py, values.iter())?.into_any())
    })
}

/// How many objects are kept, as a power of two.
const BITS: u32 = 6;

/// Immutable objects that were made last, by their values: tensors have the shapes of others.
struct Recent(UnsafeCell<[Option<(Dims, Py<PyAny>)>; 1 << BITS]>);

// SAFETY: only touched with the interpreter lock held.
unsafe impl Sync for Recent {}

impl Recent {
    const fn none() -> Self {
        Self(UnsafeCell::new([const { None }; 1 << BITS]))
    }

    #[inline]
    fn find_or<'py>(
        &self,
        py: Python<'py>,
        values: &Dims,
        make: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mix = |h: u64, v: &i64| (h ^ *v as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = values.iter().fold(values.len() as u64, mix) >> (u64::BITS - BITS);
        // SAFETY: the borrow ends before anything of Python runs.
        if let Some((dims, found)) = unsafe { &(&*self.0.get())[place as usize] }
            && dims == values
        {
            return Ok(found.bind(py).clone());
        }
        let made = make()?;
        let entry = Some((values.clone(), made.clone().unbind()));
        // SAFETY: as above; the old object is dropped when the place holds the new one.
        let old = unsafe { std::mem::replace(&mut (*self.0.get())[place as usize], entry) };
        drop(old.map(|(_, o)| o.into_bound(py)));
        Ok(made)
    }
}

/// Registers the function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_register_size, m)?)
}
