//! Python's operators on tensors.

use super::call::binary;
use super::object::{PyTensor, is_tensor, wrap};
use super::results::to_python;
use super::watch::{self, Course, Style};
use crate::op;
use crate::ops::Arg;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;

/// An operator of Python: the function that those who watch see, and how PyTorch calls it.
pub(super) struct Slot {
    /// The attribute of Tensor.
    pub(super) path: &'static str,
    pub(super) style: Style,
}

/// Computes `slf <op> other`, unless somebody who watches answers. A `TypeError` lets the other operand try.
pub(super) fn operator<'py>(
    slot: &Slot,
    slf: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let done = if watch::watched([slf, other]) {
        watched_operator(slot, slf, other, compute)
    } else {
        compute()
    };
    match done {
        Err(e) if e.is_instance_of::<PyTypeError>(slf.py()) => {
            Ok(slf.py().NotImplemented().into_bound(slf.py()))
        }
        done => done,
    }
}

#[cold]
fn watched_operator<'py>(
    slot: &Slot,
    slf: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(
        match watch::course(slf.py(), slot.path, slot.style, &[slf, other])? {
            Course::On => compute()?,
            Course::Keep(class) => watch::keep(compute()?, &class)?,
            Course::Done(result) => result,
        },
    )
}

fn matmul<'py>(a: &Bound<'py, PyAny>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !is_tensor(a) || !is_tensor(b) {
        return Ok(a.py().NotImplemented().into_bound(a.py()));
    }
    binary(op!("matmul")?, a, b, false, false)
}

macro_rules! operators {
    ($($slot:ident $name:literal $reflected:literal $style:ident $path:literal;)+) => {
        #[pymethods]
        impl PyTensor {
            $(fn $slot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                const SLOT: Slot = Slot { path: $path, style: Style::$style };
                let slf = slf.as_any();
                operator(&SLOT, slf, other, || binary(op!($name)?, slf, other, $reflected, false))
            })+
        }
    };
}
operators! {
    __add__ "add" false Parsed "add";
    __radd__ "add" false Parsed "add";
    __sub__ "sub" false Parsed "sub";
    __rsub__ "sub" true Python "__rsub__";
    __mul__ "mul" false Parsed "mul";
    __rmul__ "mul" false Parsed "mul";
    __truediv__ "div" false Parsed "div";
    __floordiv__ "floor_divide" false Python "__floordiv__";
    __rfloordiv__ "floor_divide" true Python "__rfloordiv__";
    __mod__ "remainder" false Parsed "remainder";
    __rmod__ "remainder" true Python "__rmod__";
    __and__ "bitwise_and" false Parsed "__and__";
    __rand__ "bitwise_and" false Parsed "bitwise_and";
    __or__ "bitwise_or" false Parsed "__or__";
    __ror__ "bitwise_or" false Parsed "bitwise_or";
    __xor__ "bitwise_xor" false Parsed "__xor__";
    __rxor__ "bitwise_xor" false Parsed "bitwise_xor";
    __lshift__ "bitwise_left_shift" false Parsed "__lshift__";
    __rlshift__ "bitwise_left_shift" true Python "__rlshift__";
    __rshift__ "bitwise_right_shift" false Parsed "__rshift__";
    __rrshift__ "bitwise_right_shift" true Python "__rrshift__";
}

#[pymethods]
impl PyTensor {
    /// As PyTorch does it, so that the bits are the same: the reciprocal times the other operand.
    fn __rtruediv__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const SLOT: Slot = Slot {
            path: "__rdiv__",
            style: Style::Python,
        };
        operator(&SLOT, slf.as_any(), other, || {
            let inverse = wrap(slf.py(), crate::f::reciprocal(slf.get().get())?)?;
            binary(op!("mul")?, &inverse, other, false, false)
        })
    }
    fn __rdiv__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::__rtruediv__(slf, other)
    }
}

/// Computes an operator of one tensor, unless somebody who watches answers.
fn unary<'py>(
    path: &'static str,
    op: crate::Result<&'static crate::ops::Op>,
    slf: &Bound<'py, PyTensor>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, op) = (slf.py(), op?);
    let compute = || {
        let result = crate::ops::dispatch::run(op, &[Arg::Tensor(slf.get().get())])?;
        to_python(py, result, op)
    };
    if !watch::watched([slf.as_any()]) {
        return compute();
    }
    match watch::course(py, path, Style::Parsed, &[slf.as_any()])? {
        Course::On => compute(),
        Course::Keep(class) => watch::keep(compute()?, &class),
        Course::Done(result) => Ok(result),
    }
}

#[pymethods]
impl PyTensor {
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (op, path) = match how {
            CompareOp::Eq => (op!("eq")?, "eq"),
            CompareOp::Ne => (op!("ne")?, "ne"),
            CompareOp::Lt => (op!("lt")?, "lt"),
            CompareOp::Le => (op!("le")?, "le"),
            CompareOp::Gt => (op!("gt")?, "gt"),
            CompareOp::Ge => (op!("ge")?, "ge"),
        };
        let slf = slf.as_any();
        // Equality of a tensor that overrides is the method, as it is written in Python in PyTorch.
        let shown = || watch::overrides(slf) || watch::state() & watch::MODES != 0;
        let path = if path == "eq" && shown() {
            "__eq__"
        } else {
            path
        };
        let slot = Slot {
            path,
            style: Style::Parsed,
        };
        operator(&slot, slf, other, || binary(op, slf, other, false, false))
    }
    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        unary("neg", op!("neg"), slf)
    }
    fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        unary("positive", op!("positive"), slf)
    }
    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        unary("abs", op!("abs"), slf)
    }
    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        unary("__invert__", op!("bitwise_not"), slf)
    }
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const SLOT: Slot = Slot {
            path: "pow",
            style: Style::Python,
        };
        let slf = slf.as_any();
        operator(&SLOT, slf, other, || {
            binary(op!("pow")?, slf, other, false, false)
        })
    }
    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const SLOT: Slot = Slot {
            path: "__rpow__",
            style: Style::Python,
        };
        let slf = slf.as_any();
        operator(&SLOT, slf, other, || {
            binary(op!("pow")?, slf, other, true, false)
        })
    }
    fn __matmul__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const SLOT: Slot = Slot {
            path: "matmul",
            style: Style::Parsed,
        };
        operator(&SLOT, slf.as_any(), other, || matmul(slf.as_any(), other))
    }
    fn __rmatmul__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        const SLOT: Slot = Slot {
            path: "__rmatmul__",
            style: Style::Python,
        };
        operator(&SLOT, slf.as_any(), other, || matmul(other, slf.as_any()))
    }
}
