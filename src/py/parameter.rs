//! `torchlike.nn.Parameter`, whose class is written in Python: how its instances are made.

use super::convert::tensor_arg;
use super::object::{instance, is_plain_tensor, is_tensor, set_parameter, tensor_ref};
use super::types::type_name;
use crate::{Tensor, f, mode};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// `Parameter.__new__`: a leaf on the data's memory. Data of another class keeps it, and only says that it is a parameter.
#[pyfunction]
#[pyo3(signature = (cls, data=None, requires_grad=true))]
fn _parameter<'py>(
    cls: &Bound<'py, PyType>,
    data: Option<&Bound<'py, PyAny>>,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let t = match data {
        None => Tensor::empty(&[0], mode::default_dtype(), mode::default_device())?,
        Some(o) if !is_tensor(o) || keeps_its_class(o) => {
            return flagged_parameter(o, requires_grad);
        }
        Some(o) => {
            let t = tensor_arg(o, "Parameter", "data")?;
            // Part of making the object: nobody who watches calls sees it.
            crate::ops::helpers::inside(|| f::detach(t))?
        }
    };
    let t = if requires_grad {
        super::gradient::require_grad(t)?
    } else {
        t
    };
    instance(cls, t)
}

/// True for data of a class of its own, and for fake tensors.
fn keeps_its_class(o: &Bound<'_, PyAny>) -> bool {
    !is_plain_tensor(o.get_type_ptr()) || tensor_ref(o).is_some_and(|t| t.storage().is_fake())
}

#[cold]
fn flagged_parameter<'py>(
    data: &Bound<'py, PyAny>,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let t = data
        .call_method0("detach")?
        .call_method1("requires_grad_", (requires_grad,))?;
    if !t.get_type().is(data.get_type()) {
        return Err(PyRuntimeError::new_err(format!(
            "Creating a Parameter from an instance of type {} requires that detach() returns an instance of the same type, but \
             return type {} was found instead. To use the type as a Parameter, please correct the detach() semantics defined by \
             its __torch_dispatch__() implementation.",
            type_name(data),
            type_name(&t)
        )));
    }
    t.setattr("_is_param", true)?;
    Ok(t)
}

/// Says which class `Parameter` is; called once, when it was made.
#[pyfunction]
fn _set_parameter(cls: &Bound<'_, PyType>) {
    set_parameter(cls);
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_parameter, m)?)?;
    m.add_function(wrap_pyfunction!(_set_parameter, m)?)
}
