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

/// The only element of a tensor that has no memory, by the operator that its class handles.
///
/// # Errors
/// What the class reports, or that it gives no number.
pub fn of_class(t: &Tensor) -> Result<Scalar> {
    Python::attach(|py| {
        let answer = asked(&object(py, t)?)?;
        convert::number(&answer)
            .ok_or_else(|| PyRuntimeError::new_err(helpers::no_storage().to_string()))
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
