//! Elements that are read: from memory, or from those who watch dispatch.

use super::dispatch::object;
use super::error::carried;
use super::object::PyTensor;
use super::{batch, convert, dispatch, fake};
use crate::layers::trace;
use crate::ops::core::helpers;
use crate::{Result, Scalar, Tensor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// What those who watch dispatch say the only element is, or NotImplemented.
fn asked<'py>(t: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    t.py()
        .import("torchlike._ops.leaves")?
        .call_method1("value", (t,))
}

/// The only element of a tensor by the operator that a mode, or its class, handles; none if nobody does.
///
/// # Errors
/// What they report, or that they give no number.
pub fn shown(t: &Tensor) -> Result<Option<Scalar>> {
    Python::attach(|py| {
        let answer = asked(&object(py, t)?)?;
        if answer.is(py.NotImplemented()) {
            return Ok(None);
        }
        convert::number(&answer)
            .map(Some)
            .ok_or_else(|| PyRuntimeError::new_err(helpers::no_storage().to_string()))
    })
    .map_err(carried)
}

/// Tells modes that all elements of a tensor are read.
///
/// # Errors
/// If a mode makes a graph that would miss that.
pub fn reading(t: &Tensor) -> Result<()> {
    Python::attach(|py| {
        py.import("torchlike._ops.leaves")?
            .call_method1("reading", (object(py, t)?,))
            .map(drop)
    })
    .map_err(carried)
}

/// The value of a tensor of one element, from those who watch dispatch if there are any.
pub fn of(slf: &Bound<'_, PyTensor>) -> PyResult<Scalar> {
    if dispatch::on() || slf.get().get().is_python() {
        let answer = asked(slf.as_any())?;
        if !answer.is(slf.py().NotImplemented()) {
            return convert::number(&answer).ok_or_else(|| {
                PyRuntimeError::new_err(format!("Unable to cast {answer} to Scalar"))
            });
        }
    }
    trace::void();
    fake::check_value(slf)?;
    batch::check_item(slf.get().get())?;
    Ok(slf.get().get().item()?)
}
