//! Square brackets.

use super::convert::{self, Failure};
use super::dispatch;
use super::noted::Noted;
use super::object::{PyTensor, tensor_ref, viewing, wrap};
use super::types::type_name;
use super::watch::{self, Style};
use crate::layers::autograd::views;
use crate::mode;
use crate::ops::index::along::{Index, Put, get_item, set_item};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyTuple};

/// One part of an index of `t`.
fn one(t: &Bound<'_, PyTensor>, o: &Bound<'_, PyAny>) -> PyResult<Index> {
    if o.is_exact_instance_of::<PyInt>() {
        return Ok(Index::Int(o.extract()?));
    }
    if let Ok(s) = o.cast::<PySlice>() {
        let [start, stop, step] = convert::slice(s)?.map(Some);
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
    if let Some(places) = tensor_ref(o) {
        return Ok(Index::Tensor(places.clone()));
    }
    if o.is_instance_of::<PyList>() || o.is_instance_of::<PyTuple>() || super::numpy::is_array(o) {
        let mut places = super::data::from_value(o, None, crate::Device::CPU)?;
        if places.numel() == 0 && !super::numpy::is_array(o) {
            places = places.to_dtype(crate::DType::I64)?;
        }
        match t.get().get().storage().fake_mode() {
            Some(mode) if !places.storage().is_fake() => places = mode.lift(&places),
            _ if t.get().get().is_meta() => {}
            _ => places = dispatch::fresh(places)?,
        }
        return Ok(Index::Tensor(places));
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

fn all(t: &Bound<'_, PyTensor>, o: &Bound<'_, PyAny>) -> PyResult<smallvec::SmallVec<[Index; 4]>> {
    if let Ok(parts) = o.cast::<PyTuple>() {
        return parts.iter().map(|i| one(t, &i)).collect();
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
        return l.iter().map(|i| one(t, &i)).collect();
    }
    Ok(smallvec::smallvec![one(t, o)?])
}

/// `x[index]`.
pub fn get<'py>(
    slf: &Bound<'py, PyTensor>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let args = [slf.as_any(), index];
    watch::unless_answered("__getitem__", Style::Parsed, &args, || {
        plain_get(slf, index)
    })
}

fn plain_get<'py>(
    slf: &Bound<'py, PyTensor>,
    index: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if index.is_exact_instance_of::<PyInt>() && slf.get().get().ndim() > 0 {
        let i = Index::Int(index.extract()?);
        let made = wrap(slf.py(), get_item(slf.get().get(), &[i])?)?;
        return Ok(viewing(made, std::slice::from_ref(slf.as_any())));
    }
    // The index is read before the tensor is borrowed: reading it may run Python.
    let indices = all(slf, index)?;
    let made = wrap(slf.py(), get_item(slf.get().get(), &indices)?)?;
    Ok(viewing(made, std::slice::from_ref(slf.as_any())))
}

/// `x[index] = value`.
pub fn set<'py>(
    slf: &Bound<'py, PyTensor>,
    index: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let args = [slf.as_any(), index, value];
    if watch::answer("__setitem__", Style::Parsed, &args)?.is_some() {
        return Ok(());
    }
    let _noted = Noted::of(args);
    let indices = all(slf, index)?;
    let converted;
    let value = if let Some(v) = tensor_ref(value) {
        Put::Tensor(v)
    } else if let Some(n) = convert::number(value) {
        // A number is a tensor for whoever records the call, as in PyTorch.
        if dispatch::on() || mode::records() && views::leads_somewhere(slf.get().get()) {
            converted = dispatch::assigned(n, slf.get().get())?;
            Put::Tensor(&converted)
        } else {
            Put::Scalar(n)
        }
    } else if super::numpy::is_array(value) {
        converted = super::numpy::from_array(value)?;
        Put::Tensor(&converted)
    } else {
        return Err(PyTypeError::new_err(format!(
            "can't assign a {} to a torch.{}Tensor",
            type_name(value),
            slf.get().get().dtype().scalar_type()
        )));
    };
    Ok(set_item(slf.get().get(), &indices, value)?)
}
