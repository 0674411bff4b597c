//! Python's operators on tensors.

use super::call::binary;
use super::object::{PyTensor, tensor_ref, wrap};
use super::results::to_python;
use super::types;
use crate::{op, run};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;

fn matmul<'py>(a: &Bound<'py, PyAny>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (Some(_), Some(_)) = (tensor_ref(a), tensor_ref(b)) else {
        return Ok(a.py().NotImplemented().into_bound(a.py()));
    };
    binary(op!("matmul")?, a, b, false, false)
}

macro_rules! operators {
    ($($slot:ident $name:literal $reflected:literal;)+) => {
        #[pymethods]
        impl PyTensor {
            $(fn $slot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                binary(op!($name)?, slf.as_any(), other, $reflected, false)
            })+
        }
    };
}
operators! {
    __add__ "add" false; __radd__ "add" false; __sub__ "sub" false; __rsub__ "sub" true; __mul__ "mul" false; __rmul__ "mul" false;
    __truediv__ "div" false; __floordiv__ "floor_divide" false; __rfloordiv__ "floor_divide" true;
    __mod__ "remainder" false; __rmod__ "remainder" true; __and__ "bitwise_and" false; __rand__ "bitwise_and" false;
    __or__ "bitwise_or" false; __ror__ "bitwise_or" false; __xor__ "bitwise_xor" false; __rxor__ "bitwise_xor" false;
    __lshift__ "bitwise_left_shift" false; __rlshift__ "bitwise_left_shift" true; __rshift__ "bitwise_right_shift" false;
    __rrshift__ "bitwise_right_shift" true;
}

#[pymethods]
impl PyTensor {
    /// As PyTorch does it, so that the bits are the same: the reciprocal times the other operand.
    fn __rtruediv__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inverse = wrap(slf.py(), crate::run1!("reciprocal", slf.get().get())?)?;
        binary(op!("mul")?, &inverse, other, false, false)
    }
    fn __rdiv__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::__rtruediv__(slf, other)
    }
}

macro_rules! in_place_operators {
    ($($slot:ident $name:literal;)+) => {
        #[pymethods]
        impl PyTensor {
            $(fn $slot(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                let result = binary(op!($name)?, slf.as_any(), other, false, true)?;
                if result.is(slf.py().NotImplemented().bind(slf.py())) {
                    return Err(PyTypeError::new_err(format!(
                        "unsupported operand type(s) for {}: 'Tensor' and '{}'", stringify!($slot), types::type_name(other))));
                }
                Ok(())
            })+
        }
    };
}
in_place_operators! {
    __iadd__ "add"; __isub__ "sub"; __imul__ "mul"; __itruediv__ "div"; __ifloordiv__ "floor_divide"; __imod__ "remainder";
    __iand__ "bitwise_and"; __ior__ "bitwise_or"; __ixor__ "bitwise_xor"; __ilshift__ "bitwise_left_shift"; __irshift__ "bitwise_right_shift";
}

#[pymethods]
impl PyTensor {
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let op = match how {
            CompareOp::Eq => op!("eq")?,
            CompareOp::Ne => op!("ne")?,
            CompareOp::Lt => op!("lt")?,
            CompareOp::Le => op!("le")?,
            CompareOp::Gt => op!("gt")?,
            CompareOp::Ge => op!("ge")?,
        };
        binary(op, slf.as_any(), other, false, false)
    }
    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(slf.py(), run!("neg", slf.get().get())?, op!("neg")?)
    }
    fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(
            slf.py(),
            run!("positive", slf.get().get())?,
            op!("positive")?,
        )
    }
    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(slf.py(), run!("abs", slf.get().get())?, op!("abs")?)
    }
    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(
            slf.py(),
            run!("bitwise_not", slf.get().get())?,
            op!("bitwise_not")?,
        )
    }
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(op!("pow")?, slf.as_any(), other, false, false)
    }
    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(op!("pow")?, slf.as_any(), other, true, false)
    }
    fn __ipow__(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, PyAny>,
        _modulo: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        binary(op!("pow")?, slf.as_any(), other, false, true).map(drop)
    }
    fn __matmul__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        matmul(slf.as_any(), other)
    }
    fn __rmatmul__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        matmul(other, slf.as_any())
    }
}
