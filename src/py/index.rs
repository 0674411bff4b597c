//! Square brackets.

use super::convert::{self, Failure};
use super::object::{PyTensor, tensor_ref, wrap};
use super::tensor::slice_parts;
use super::types::type_name;
use crate::ops::index::along::{Index, Put, get_item, set_item};
use crate::ops::schema::Kind;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyTuple};

fn one(o: &Bound<'_, PyAny>) -> PyResult<Index> {
    if o.is_exact_instance_of::<PyInt>() {
        return Ok(Index::Int(o.extract()?));
    }
    if let Ok(s) = o.cast::<PySlice>() {
        let (start, stop, step) = slice_parts(s)?;
        return Ok(Index::Slice { start, stop, step });
    }
    if o.is_none() {
        return Ok(Index::NewAxis);
    }
    if o.is_instance_of::<PyEllipsis>() {
        return Ok(Index::Ellipsis);
    }
    if o.is_instance_of::<PyBool>() {
        return Ok(Index::Bool(o.extract()?));
    }
    if let Some(t) = tensor_ref(o) {
        return Ok(Index::Tensor(t.clone()));
    }
    if o.is_instance_of::<PyList>() || o.is_instance_of::<PyTuple>() || super::numpy::is_array(o) {
        let t = super::data::from_value(o, None, crate::Device::CPU)?;
        let t = if t.numel() == 0 && !super::numpy::is_array(o) {
            t.to_dtype(crate::DType::I64)?
        } else {
            t
        };
        return Ok(Index::Tensor(t));
    }
    match convert::int(o) {
        Ok(i) => Ok(Index::Int(i)),
        Err(Failure::Error(e)) => Err(e),
        Err(Failure::Kind) => match o.call_method0("__index__") {
            Ok(i) => Ok(Index::Int(i.extract()?)),
            Err(_) if o.is_instance_of::<pyo3::types::PyString>() => {
                Err(PyTypeError::new_err("new(): invalid data type 'str'"))
            }
            Err(_) => Err(PyIndexError::new_err(format!(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
                type_name(o)
            ))),
        },
    }
}

fn all(o: &Bound<'_, PyAny>) -> PyResult<smallvec::SmallVec<[Index; 4]>> {
    if let Ok(t) = o.cast::<PyTuple>() {
        return t.iter().map(|i| one(&i)).collect();
    }
    // A short list that holds slices, tensors or sequences means a tuple, as it did in old NumPy.
    if let Ok(l) = o.cast::<PyList>()
        && l.len() < 32
        && l.iter().any(|i| {
            i.is_instance_of::<PySlice>()
                || i.is_instance_of::<PyEllipsis>()
                || i.is_none()
                || tensor_ref(&i).is_some_and(|t| t.ndim() > 0)
        })
    {
        return l.iter().map(|i| one(&i)).collect();
    }
    Ok(smallvec::smallvec![one(o)?])
}

/// `x[index]`.
pub fn get<'py>(
    slf: &Bound<'py, PyTensor>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let t = slf.get().get();
    if index.is_exact_instance_of::<PyInt>() && t.ndim() > 0 {
        return wrap(slf.py(), get_item(t, &[Index::Int(index.extract()?)])?);
    }
    wrap(slf.py(), get_item(t, &all(index)?)?)
}

/// `x[index] = value`.
pub fn set(
    slf: &Bound<'_, PyTensor>,
    index: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let t = slf.get().get();
    let indices = all(index)?;
    let converted;
    let value = match convert::convert(Kind::Operand, false, value) {
        Ok(crate::ops::Arg::Tensor(v)) => Put::Tensor(v),
        Ok(arg) => Put::Scalar(
            crate::ops::pointwise::rule::scalar_of(&arg)
                .ok_or_else(|| PyTypeError::new_err("expected a number"))?,
        ),
        Err(Failure::Error(e)) => return Err(e),
        Err(Failure::Kind) if super::numpy::is_array(value) => {
            converted = super::numpy::from_array(value)?;
            Put::Tensor(&converted)
        }
        Err(Failure::Kind) => {
            return Err(PyTypeError::new_err(format!(
                "can't assign a {} to a torch.{}Tensor",
                type_name(value),
                t.dtype().scalar_type()
            )));
        }
    };
    Ok(set_item(t, &indices, value)?)
}
