//! Which of Python's values become integers of a type, where `tensor()` is asked for one.

use super::object::tensor_ref;
use super::types::type_name;
use crate::{DType, Scalar};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// Refuses items that are no integers, and do not become such by Python's rules, where integers are wanted.
#[cold]
pub(super) fn check_index(o: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<()> {
    let integers = |d: DType| d.is_integral(true) && d != DType::U64;
    let Some(wanted) = wanted.filter(|&d| integers(d)) else {
        return Ok(());
    };
    if let Some(t) = tensor_ref(o) {
        return match t.numel() == 1 && t.dtype().is_integral(true) {
            true => Ok(()),
            false => Err(PyTypeError::new_err(
                "only integer tensors of a single element can be converted to an index",
            )),
        };
    }
    let fits = o.is_instance_of::<PyFloat>()
        || match super::numpy::scalar_dtype(o) {
            Some(DType::Bool) => wanted == DType::Bool,
            Some(d) => d.is_integral(false),
            None => true,
        };
    if !fits {
        return Err(not_an_index(o));
    }
    Ok(())
}

/// The error for an object that stands where an integer has to.
pub(super) fn not_an_index(o: &Bound<'_, PyAny>) -> PyErr {
    let name = type_name(o);
    PyTypeError::new_err(format!(
        "'{name}' object cannot be interpreted as an integer"
    ))
}

/// Checks that integers fit the dtype, as PyTorch does.
pub(super) fn check_range(values: &[Scalar], d: DType) -> PyResult<()> {
    let (low, high): (i128, i128) = match d {
        DType::U8 => (-255, 255),
        DType::I8 => (-128, 127),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN.into(), i64::MAX.into()),
        DType::U16 => (-65535, u16::MAX.into()),
        DType::U32 => (-4_294_967_295, u32::MAX.into()),
        DType::U64 => (0, u64::MAX.into()),
        _ => return Ok(()),
    };
    for v in values {
        let fits = match v {
            Scalar::Int(i) => (low..=high).contains(&(*i).into()),
            Scalar::UInt(u) => (low..=high).contains(&(*u).into()),
            Scalar::Float(f) => {
                let low = if d.is_signed() { low } else { 0 } as f64;
                *f >= low && *f <= high as f64
            }
            _ => true,
        };
        if fits {
            continue;
        }
        return Err(match v {
            Scalar::Float(_) => PyRuntimeError::new_err(format!(
                "value cannot be converted to type {d} without overflow"
            )),
            Scalar::UInt(_) => PyValueError::new_err("Overflow when unpacking long long"),
            _ if d == DType::I64 => PyValueError::new_err("Overflow when unpacking long long"),
            _ if d == DType::U64 => {
                pyo3::exceptions::PyOverflowError::new_err("can't convert negative int to unsigned")
            }
            _ => PyRuntimeError::new_err(format!(
                "value cannot be converted to type {d} without overflow"
            )),
        });
    }
    Ok(())
}
