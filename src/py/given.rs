//! What is given to functions that are written by hand, in the words of PyTorch's parser where it does not fit.

use super::convert::{self, Failure};
use super::types::type_name;
use crate::ops::Arg;
use crate::ops::schema::Kind;
use crate::{DType, Device};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// An element type, if one is given.
pub(super) fn dtype(o: Option<&Bound<'_, PyAny>>, function: &str) -> PyResult<Option<DType>> {
    let Some(o) = o.filter(|o| !o.is_none()) else {
        return Ok(None);
    };
    match convert::convert(Kind::DType, false, o) {
        Ok(Arg::DType(d)) => Ok(Some(d)),
        _ => Err(PyTypeError::new_err(format!(
            "{function}(): argument 'dtype' must be torch.dtype, not {}",
            type_name(o)
        ))),
    }
}

/// A device, if one is given.
pub(super) fn device(o: Option<&Bound<'_, PyAny>>, function: &str) -> PyResult<Option<Device>> {
    let Some(o) = o.filter(|o| !o.is_none()) else {
        return Ok(None);
    };
    let wrong = |failure: Failure| {
        failure.raised().unwrap_or_else(|| {
            PyTypeError::new_err(format!(
                "{function}(): argument 'device' must be torch.device, not {}",
                type_name(o)
            ))
        })
    };
    convert::device(o).map(Some).map_err(wrong)
}

/// A truth value that is given by keyword.
pub(super) fn truth(o: &Bound<'_, PyAny>, function: &str, name: &str) -> PyResult<bool> {
    let wrong = || {
        let found = type_name(o);
        PyTypeError::new_err(format!(
            "{function}(): argument '{name}' must be bool, not {found}"
        ))
    };
    o.extract().map_err(|_| wrong())
}

/// The only argument of a function that may be given by place, in the words of PyTorch's parser where it is not given so.
pub(super) fn only<'a, 'py>(
    function: &str,
    name: &str,
    placed: &'a Bound<'py, PyTuple>,
    named: Option<&'a Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match (placed.len(), named) {
        (1, None) => placed.get_item(0),
        (0, Some(given)) => Ok(given.clone()),
        (0, None) => {
            let text = super::python_names::missing(function, &[name.to_owned()]);
            Err(PyTypeError::new_err(text))
        }
        (1, Some(_)) => Err(PyTypeError::new_err(format!(
            "{function}() got multiple values for argument '{name}'"
        ))),
        (n, _) => Err(PyTypeError::new_err(format!(
            "{function}() takes 1 positional argument but {n} were given"
        ))),
    }
}
