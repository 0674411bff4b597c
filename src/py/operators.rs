//! Python's operators on tensors, as the slots of the class.

#![allow(
    unsafe_code,
    reason = "slots are functions of CPython's C interface, which get objects as pointers"
)]

use super::call::{binary, guard};
use super::class::{object, slot};
use super::object::{is_tensor, tensor_ref, wrap};
use super::results::to_python;
use super::watch::{self, Style};
use crate::ops::{Arg, Args, Call, Op, Ret, dispatch};
use crate::{Tensor, ensure, op};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{c_int, c_void};

type Object<'a, 'py> = &'a Bound<'py, PyAny>;
type Outcome<'py> = PyResult<Bound<'py, PyAny>>;

/// An operator of Python: the attribute of Tensor that those who watch see, and how PyTorch calls it.
struct Shown(&'static str, Style);

impl Shown {
    /// Computes `slf <op> other`, unless somebody who watches answers. A `TypeError` lets the other operand try.
    #[inline]
    fn operator<'py>(
        &self,
        slf: Object<'_, 'py>,
        other: Object<'_, 'py>,
        compute: impl FnOnce() -> Outcome<'py>,
    ) -> Outcome<'py> {
        match watch::unless_answered(self.0, self.1, &[slf, other], compute) {
            Err(e) if e.is_instance_of::<PyTypeError>(slf.py()) => not_implemented(slf.py()),
            done => done,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "an outcome of an operator")]
fn not_implemented(py: Python<'_>) -> Outcome<'_> {
    Ok(py.NotImplemented().into_bound(py))
}

/// Asks the left operand, if it is a tensor, and then the right one.
#[inline]
fn either<'py>(
    a: Object<'_, 'py>,
    b: Object<'_, 'py>,
    forward: impl FnOnce() -> Outcome<'py>,
    reflected: impl FnOnce() -> Outcome<'py>,
) -> Outcome<'py> {
    if is_tensor(a) {
        let done = forward()?;
        if !is_tensor(b) || !done.is(not_implemented(a.py())?) {
            return Ok(done);
        }
    }
    reflected()
}

/// Slots of two operands: `slot function "row" ("path" Style) ("reflected path" Style order)`. `swapped` computes with the
/// operands as they stand, `same` with the tensor first, as addition can.
macro_rules! two {
    (@first swapped $a:ident $b:ident) => { ($b, $a, true) };
    (@first same $a:ident $b:ident) => { ($b, $a, false) };
    ($($slot:ident $function:ident $row:literal ($path:literal $style:ident) ($back:literal $as:ident $order:ident);)+) => {
        $(unsafe extern "C" fn $function(a: *mut ffi::PyObject, b: *mut ffi::PyObject) -> *mut ffi::PyObject {
            // SAFETY: called by the interpreter with the lock held and both objects alive.
            let (a, b) = unsafe { (object(&a), object(&b)) };
            guard(|| {
                let forward = || Shown($path, Style::$style).operator(a, b, || binary(op!($row)?, a, b, false, false));
                either(a, b, forward, || {
                    let (slf, other, swapped) = two!(@first $order a b);
                    Shown($back, Style::$as).operator(slf, other, || binary(op!($row)?, slf, other, swapped, false))
                })
                .map(Bound::into_ptr)
            })
        })+
        const TWO: &[(c_int, ffi::binaryfunc)] = &[$((ffi::$slot, $function)),+];
    };
}
two! {
    Py_nb_add add "add" ("add" Parsed) ("add" Parsed same);
    Py_nb_subtract sub "sub" ("sub" Parsed) ("__rsub__" Python swapped);
    Py_nb_multiply mul "mul" ("mul" Parsed) ("mul" Parsed same);
    Py_nb_floor_divide floor_divide "floor_divide" ("__floordiv__" Python) ("__rfloordiv__" Python swapped);
    Py_nb_remainder remainder "remainder" ("remainder" Parsed) ("__rmod__" Python swapped);
    Py_nb_and and "bitwise_and" ("__and__" Parsed) ("bitwise_and" Parsed same);
    Py_nb_or or "bitwise_or" ("__or__" Parsed) ("bitwise_or" Parsed same);
    Py_nb_xor xor "bitwise_xor" ("__xor__" Parsed) ("bitwise_xor" Parsed same);
    Py_nb_lshift lshift "bitwise_left_shift" ("__lshift__" Parsed) ("__rlshift__" Python swapped);
    Py_nb_rshift rshift "bitwise_right_shift" ("__rshift__" Parsed) ("__rrshift__" Python swapped);
}

unsafe extern "C" fn true_divide(
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let (a, b) = unsafe { (object(&a), object(&b)) };
    guard(|| {
        let forward = || {
            Shown("div", Style::Parsed).operator(a, b, || binary(op!("div")?, a, b, false, false))
        };
        either(a, b, forward, || divided_by(b, a)).map(Bound::into_ptr)
    })
}

/// `other / slf` as PyTorch computes it, so that the bits are the same: the reciprocal times the other operand.
pub(super) fn divided_by<'py>(slf: Object<'_, 'py>, other: Object<'_, 'py>) -> Outcome<'py> {
    Shown("__rdiv__", Style::Python).operator(slf, other, || {
        let Some(t) = tensor_ref(slf) else {
            return not_implemented(slf.py());
        };
        let inverse = wrap(slf.py(), crate::f::reciprocal(t)?)?;
        binary(op!("mul")?, &inverse, other, false, false)
    })
}

/// True if the class of one object is a proper subclass of the other's.
fn is_derived(a: Object, b: Object) -> PyResult<bool> {
    let (a, b) = (a.get_type(), b.get_type());
    Ok(!a.is(&b) && a.is_subclass(&b)?)
}

/// `other - slf` where it is asked for by name: of two tensors an operator of its own, which a slot cannot tell from `-`.
unsafe extern "C" fn reflected_sub(
    slf: *mut ffi::PyObject,
    other: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let (slf, other) = unsafe { (object(&slf), object(&other)) };
    guard(|| {
        // The interpreter asks instances of subclasses first, as they have this method and not the slot.
        if is_tensor(other) && is_derived(slf, other)? {
            let forward = || binary(op!("sub")?, other, slf, false, false);
            let shown = Shown("sub", Style::Parsed).operator(other, slf, forward);
            return shown.map(Bound::into_ptr);
        }
        let difference = || match is_tensor(other) {
            true => binary(op!("rsub")?, slf, other, false, false),
            false => binary(op!("sub")?, slf, other, true, false),
        };
        Shown("__rsub__", Style::Python)
            .operator(slf, other, difference)
            .map(Bound::into_ptr)
    })
}

unsafe extern "C" fn matrix_multiply(
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let (a, b) = unsafe { (object(&a), object(&b)) };
    let product = || {
        if !is_tensor(a) || !is_tensor(b) {
            return not_implemented(a.py());
        }
        binary(op!("matmul")?, a, b, false, false)
    };
    guard(|| {
        let forward = || Shown("matmul", Style::Parsed).operator(a, b, product);
        let reflected = || Shown("__rmatmul__", Style::Python).operator(b, a, product);
        either(a, b, forward, reflected).map(Bound::into_ptr)
    })
}

unsafe extern "C" fn power(
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
    modulo: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let (a, b, modulo) = unsafe { (object(&a), object(&b), object(&modulo)) };
    guard(|| {
        if !modulo.is_none() {
            return Ok(a.py().NotImplemented().into_ptr());
        }
        let forward = || {
            Shown("pow", Style::Python).operator(a, b, || binary(op!("pow")?, a, b, false, false))
        };
        let reflected = || {
            Shown("__rpow__", Style::Python)
                .operator(b, a, || binary(op!("pow")?, b, a, true, false))
        };
        either(a, b, forward, reflected).map(Bound::into_ptr)
    })
}

/// In-place operators, `x += y`: `slot function "row" ("path" Style)`. Whoever takes the call over may give anything.
macro_rules! in_place {
    ($($slot:ident $function:ident $row:literal ($path:literal $style:ident) $(, $modulo:ident)?;)+) => {
        $(unsafe extern "C" fn $function(
            slf: *mut ffi::PyObject,
            other: *mut ffi::PyObject,
            $($modulo: *mut ffi::PyObject,)?
        ) -> *mut ffi::PyObject {
            // SAFETY: as above.
            let (slf, other) = unsafe { (object(&slf), object(&other)) };
            guard(|| {
                Shown($path, Style::$style)
                    .operator(slf, other, || binary(op!($row)?, slf, other, false, true))
                    .map(Bound::into_ptr)
            })
        })+
        const IN_PLACE: &[(c_int, *mut c_void)] = &[$((ffi::$slot, $function as *mut c_void)),+];
    };
}
in_place! {
    Py_nb_inplace_add iadd "add" ("add_" Parsed);
    Py_nb_inplace_subtract isub "sub" ("sub_" Parsed);
    Py_nb_inplace_multiply imul "mul" ("mul_" Parsed);
    Py_nb_inplace_true_divide itruediv "div" ("div_" Parsed);
    Py_nb_inplace_floor_divide ifloordiv "floor_divide" ("floor_divide_" Parsed);
    Py_nb_inplace_remainder imod "remainder" ("remainder_" Parsed);
    Py_nb_inplace_power ipow "pow" ("pow_" Python), _modulo;
    Py_nb_inplace_and iand "bitwise_and" ("bitwise_and_" Parsed);
    Py_nb_inplace_or ior "bitwise_or" ("bitwise_or_" Parsed);
    Py_nb_inplace_xor ixor "bitwise_xor" ("bitwise_xor_" Parsed);
    Py_nb_inplace_lshift ilshift "bitwise_left_shift" ("bitwise_left_shift_" Parsed);
    Py_nb_inplace_rshift irshift "bitwise_right_shift" ("bitwise_right_shift_" Parsed);
}

/// Computes an operator of one tensor, unless somebody who watches answers.
fn unary<'py>(
    path: &'static str,
    op: &'static Op,
    slf: Object<'_, 'py>,
    suits: fn(&Tensor) -> crate::Result<()>,
) -> Outcome<'py> {
    watch::unless_answered(path, Style::Parsed, &[slf], || {
        let Some(t) = tensor_ref(slf) else {
            return not_implemented(slf.py());
        };
        suits(t)?;
        let args = Args::new(op, [Arg::Tensor(t)].into_iter())?;
        match dispatch::call(Call::new(&args))? {
            Ret::Same(_) => Ok(slf.clone()),
            result => to_python(slf.py(), result, op),
        }
    })
}

/// What an operator of any tensor asks.
fn any(_: &Tensor) -> crate::Result<()> {
    Ok(())
}

/// What `~` asks, where the function `bitwise_not` leaves it to its kernel.
fn of_bits(t: &Tensor) -> crate::Result<()> {
    ensure!(
        t.dtype().is_integral(true),
        Type,
        "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
    );
    Ok(())
}

/// Slots of one operand: `slot function "row" "path" what it asks`.
macro_rules! one {
    ($($slot:ident $function:ident $row:literal $path:literal $suits:ident;)+) => {
        $(unsafe extern "C" fn $function(slf: *mut ffi::PyObject) -> *mut ffi::PyObject {
            // SAFETY: as above.
            let slf = unsafe { object(&slf) };
            guard(|| unary($path, op!($row)?, slf, $suits).map(Bound::into_ptr))
        })+
        const ONE: &[(c_int, ffi::unaryfunc)] = &[$((ffi::$slot, $function)),+];
    };
}
one! {
    Py_nb_negative neg "neg" "neg" any;
    Py_nb_positive pos "positive" "positive" any;
    Py_nb_absolute abs "abs" "abs" any;
    Py_nb_invert invert "bitwise_not" "__invert__" of_bits;
}

unsafe extern "C" fn compare(
    a: *mut ffi::PyObject,
    b: *mut ffi::PyObject,
    how: c_int,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    let (a, b) = unsafe { (object(&a), object(&b)) };
    guard(|| {
        let (op, path) = match how {
            ffi::Py_EQ => (op!("eq")?, "eq"),
            ffi::Py_NE => (op!("ne")?, "ne"),
            ffi::Py_LT => (op!("lt")?, "lt"),
            ffi::Py_LE => (op!("le")?, "le"),
            ffi::Py_GT => (op!("gt")?, "gt"),
            _ => (op!("ge")?, "ge"),
        };
        // Equality of a tensor that overrides is the method, as it is written in Python in PyTorch.
        let shown = || watch::overrides(a) || watch::state() & watch::MODES != 0;
        let path = if how == ffi::Py_EQ && shown() {
            "__eq__"
        } else {
            path
        };
        Shown(path, Style::Parsed)
            .operator(a, b, || match of_array(how, b)? {
                Some(b) => binary(op, a, &b, false, false),
                None => binary(op, a, b, false, false),
            })
            .map(Bound::into_ptr)
    })
}

/// The tensor on an array that equality is asked with; other comparisons leave arrays to NumPy.
fn of_array<'py>(how: c_int, o: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    if how != ffi::Py_EQ || tensor_ref(o).is_some() || !super::numpy::is_array(o) {
        return Ok(None);
    }
    super::object::wrap(o.py(), super::numpy::from_array(o)?).map(Some)
}

/// Methods in the place of what the interpreter makes of slots; the list lives as long as the process.
fn methods() -> *mut ffi::PyMethodDef {
    let method = ffi::PyMethodDef {
        ml_name: c"__rsub__".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunction: reflected_sub,
        },
        ml_flags: ffi::METH_O | ffi::METH_COEXIST,
        ml_doc: c"other - self".as_ptr(),
    };
    Box::leak(Box::new([method, ffi::PyMethodDef::zeroed()])).as_mut_ptr()
}

/// The slots of the class that are operators.
pub(super) fn slots() -> Vec<ffi::PyType_Slot> {
    let one = ONE.iter().map(|&(at, f)| slot(at, f as *mut c_void));
    let two = TWO.iter().map(|&(at, f)| slot(at, f as *mut c_void));
    let in_place = IN_PLACE.iter().map(|&(at, f)| slot(at, f));
    let others = [
        slot(ffi::Py_nb_true_divide, true_divide as *mut c_void),
        slot(ffi::Py_nb_matrix_multiply, matrix_multiply as *mut c_void),
        slot(ffi::Py_nb_power, power as *mut c_void),
        slot(ffi::Py_tp_richcompare, compare as *mut c_void),
        slot(ffi::Py_tp_methods, methods().cast()),
    ];
    one.chain(two).chain(in_place).chain(others).collect()
}
