//! Python's in-place operators, `x += y`.
//!
//! They are methods of the class and no type slots: a slot that pyo3 makes always gives `x` back, but whoever takes the call
//! over may give anything.

#![allow(
    unsafe_code,
    reason = "method descriptors of CPython's C interface are made by hand"
)]

use super::call::{binary, guard};
use super::object::PyTensor;
use super::operators::{Slot, operator};
use super::watch::Style;
use crate::op;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

macro_rules! in_place_operators {
    ($($method:ident $python:literal $name:literal $path:literal $style:ident;)+) => {
        $(unsafe extern "C" fn $method(
            slf: *mut ffi::PyObject,
            other: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject {
            const SLOT: Slot = Slot { path: $path, style: Style::$style };
            guard(|| {
                // SAFETY: the interpreter calls with the lock held and both objects alive.
                let (slf, other) = unsafe {
                    let py = Python::assume_attached();
                    (Bound::from_borrowed_ptr(py, slf), Bound::from_borrowed_ptr(py, other))
                };
                operator(&SLOT, &slf, &other, || binary(op!($name)?, &slf, &other, false, true))
                    .map(Bound::into_ptr)
            })
        })+
        const METHODS: &[(&CStr, ffi::PyCFunction)] = &[$(($python, $method)),+];
    };
}
in_place_operators! {
    iadd c"__iadd__" "add" "add_" Parsed;
    isub c"__isub__" "sub" "sub_" Parsed;
    imul c"__imul__" "mul" "mul_" Parsed;
    itruediv c"__itruediv__" "div" "div_" Parsed;
    ifloordiv c"__ifloordiv__" "floor_divide" "floor_divide_" Parsed;
    imod c"__imod__" "remainder" "remainder_" Parsed;
    ipow c"__ipow__" "pow" "pow_" Python;
    iand c"__iand__" "bitwise_and" "bitwise_and_" Parsed;
    ior c"__ior__" "bitwise_or" "bitwise_or_" Parsed;
    ixor c"__ixor__" "bitwise_xor" "bitwise_xor_" Parsed;
    ilshift c"__ilshift__" "bitwise_left_shift" "bitwise_left_shift_" Parsed;
    irshift c"__irshift__" "bitwise_right_shift" "bitwise_right_shift_" Parsed;
}

/// Puts the methods onto the tensor class.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PyTensor>();
    for (name, function) in METHODS {
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunction: *function,
            },
            ml_flags: ffi::METH_O,
            ml_doc: std::ptr::null(),
        }));
        // SAFETY: the definition is leaked, so it outlives the descriptor.
        let descriptor = unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyDescr_NewMethod(class.as_ptr().cast(), definition),
            )?
        };
        class.setattr(name.to_string_lossy(), descriptor)?;
    }
    Ok(())
}
