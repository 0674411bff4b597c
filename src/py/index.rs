//! Square brackets.

use super::convert::{self, TOO_LARGE};
use super::noted::Noted;
use super::numpy::is_array;
use super::object::{PyTensor, tensor_ref, viewing, wrap};
use super::types::type_name;
use super::watch::{self, Style};
use super::{data, dispatch};
use crate::layers::autograd::views;
use crate::mode;
use crate::ops::index::along::{Index, Put, get_item, get_only, set_item};
use crate::ops::index::truth::is_mask;
use crate::{DType, Scalar, Tensor};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyEllipsis, PyInt, PySlice, PyString, PyTuple};

/// One part of an index of `t`.
fn one(t: &Bound<'_, PyTensor>, o: &Bound<'_, PyAny>) -> PyResult<Index> {
    if o.is_exact_instance_of::<PyInt>()
        && let Ok(i) = convert::int(o)
    {
        return Ok(Index::Int(i));
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
    if is_sequence(o)? {
        return Ok(Index::Tensor(places(t, o)?));
    }
    let failure = match convert::int(o) {
        Ok(i) => return Ok(Index::Int(i)),
        Err(failure) => failure,
    };
    if let Some(error) = failure.raised() {
        return Err(error);
    }
    match o.call_method0("__index__") {
        Ok(i) => Ok(Index::Int(i.extract()?)),
        Err(_) => Err(PyIndexError::new_err(format!(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
            type_name(o)
        ))),
    }
}

/// True for what has items by number: sequences of Python's and others', arrays, strings.
fn is_sequence(o: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(data::is_sequence(o)
        || (!o.is_exact_instance_of::<PyInt>()
            && !o.is_instance_of::<PySlice>()
            && !o.is_instance_of::<PyDict>()
            && o.hasattr("__len__")?
            && o.hasattr("__getitem__")?))
}

/// The positions, or the mask, in a sequence.
fn places(t: &Bound<'_, PyTensor>, o: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if o.is_instance_of::<PyString>() || o.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!(
            "new(): invalid data type '{}'",
            type_name(o)
        )));
    }
    let here = t.get().get();
    let unwatched = crate::fake::current().is_none() && !crate::layers::recording();
    let mut places = match is_array(o) {
        true if unwatched => dispatch::fresh(super::numpy::from_array(o)?)?,
        // On meta PyTorch makes these where no mode sees it.
        false if unwatched && here.is_meta() && data::is_sequence(o) => data::unseen(o)?,
        _ => data::from_value(o, None, crate::Device::CPU)?,
    };
    if !is_array(o) && !is_mask(&places) {
        places = places.to_dtype(DType::I64)?;
    }
    Ok(match here.storage().fake_mode() {
        Some(mode) if !places.storage().is_fake() => mode.lift(&places),
        _ => places,
    })
}

/// True for a short sequence that holds slices, tensors or sequences: it means a tuple, as it did in old NumPy.
fn is_tuple(o: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_plain = o.is_instance_of::<PySlice>() || o.is_instance_of::<PyInt>() || o.is_none();
    if is_plain || tensor_ref(o).is_some() || is_array(o) || !is_sequence(o)? {
        return Ok(false);
    }
    let Ok(n @ ..32) = o.len() else {
        return Ok(false);
    };
    for i in 0..n {
        let Ok(item) = o.get_item(i) else {
            return Ok(false);
        };
        if item.is_exact_instance_of::<PyInt>() || item.is_exact_instance_of::<PyBool>() {
            continue;
        }
        if item.is_none()
            || item.is_instance_of::<PySlice>()
            || item.is_instance_of::<PyEllipsis>()
            || tensor_ref(&item).is_some()
            || is_sequence(&item)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn all(t: &Bound<'_, PyTensor>, o: &Bound<'_, PyAny>) -> PyResult<smallvec::SmallVec<[Index; 4]>> {
    if let Ok(parts) = o.cast::<PyTuple>() {
        return parts.iter().map(|i| one(t, &i)).collect();
    }
    if is_tuple(o)? {
        crate::warning::say(
            "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; use x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor index, x[torch.tensor(seq)], which will result either in an error or a different result",
        );
        return data::items(o)?.iter().map(|i| one(t, i)).collect();
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
    if index.is_exact_instance_of::<PyInt>()
        && slf.get().get().ndim() > 0
        && let Ok(i) = convert::int(index)
    {
        let made = wrap(slf.py(), get_item(slf.get().get(), &[Index::Int(i)])?)?;
        return Ok(viewing(made, std::slice::from_ref(slf.as_any())));
    }
    // The index is read before the tensor is borrowed: reading it may run Python.
    let indices = all(slf, index)?;
    let made = match &indices[..] {
        [only] if index.is_exact_instance_of::<PySlice>() => get_only(slf.get().get(), only)?,
        indices => get_item(slf.get().get(), indices)?,
    };
    let made = wrap(slf.py(), made)?;
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
    if crate::ops::sparse::is_sparse(slf.get().get()) {
        return Err(PyTypeError::new_err("Cannot assign to a sparse tensor"));
    }
    let _noted = Noted::of(args);
    let indices = all(slf, index)?;
    let converted;
    let value = if let Some(v) = tensor_ref(value) {
        Put::Tensor(v)
    } else if let Some(n) = convert::number(value) {
        if matches!(n, Scalar::UInt(_)) {
            return Err(PyValueError::new_err(TOO_LARGE));
        }
        // A number is a tensor for whoever records the call, as in PyTorch.
        if dispatch::on() || mode::records() && views::leads_somewhere(slf.get().get()) {
            converted = dispatch::assigned(n, slf.get().get())?;
            Put::Tensor(&converted)
        } else {
            Put::Scalar(n)
        }
    } else if is_array(value) {
        converted = dispatch::fresh(super::numpy::from_array(value)?)?;
        Put::Tensor(&converted)
    } else if value.is_instance_of::<PyInt>() {
        return Err(PyValueError::new_err(TOO_LARGE));
    } else {
        return Err(PyTypeError::new_err(format!(
            "can't assign a {} to a torch.{}Tensor",
            type_name(value),
            slf.get().get().dtype().scalar_type()
        )));
    };
    Ok(set_item(slf.get().get(), &indices, value)?)
}
