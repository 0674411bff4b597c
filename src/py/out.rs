//! What `out=` has to be.

use super::arguments::{Fail, Misfit};
use super::groups::Overload;
use super::object::is_tensor;
use super::types::type_name;
use crate::ops::schema::Returns;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// Whether `out=` is a tensor, or as many as there are results.
pub(super) fn fits<'c, 'py>(
    overload: &Overload,
    object: &'c Bound<'py, PyAny>,
) -> Result<(), Fail<'c, 'py>> {
    let results = &overload.op.schema.returns;
    let Some(list) = sequence(object).filter(|_| *results != Returns::One) else {
        return match is_tensor(object) && !matches!(results, Returns::Tuple(_)) {
            true => Ok(()),
            false => Err(Misfit::WrongOut { object }.into()),
        };
    };
    if let Some(at) = list.iter().position(|o| !is_tensor(o)) {
        let text = wrong_element(at, overload.op.schema.params.len(), &list[at]);
        return Err(Fail::Error(PyTypeError::new_err(text)));
    }
    match results {
        // Those without names are as many as the call asks for.
        Returns::Tuple(names)
            if names.len() != list.len() && names.iter().all(|n| !n.is_empty()) =>
        {
            let (n, given) = (names.len(), list.len());
            let text = format!("expected tuple of {n} elements but got {given}");
            Err(Fail::Error(PyTypeError::new_err(text)))
        }
        _ => Ok(()),
    }
}

/// The items of a list or tuple.
fn sequence<'py>(o: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    let is_list = o.is_instance_of::<PyTuple>() || o.is_instance_of::<PyList>();
    is_list.then(|| o.try_iter().ok()?.collect::<PyResult<_>>().ok())?
}

/// What is said of an item of a list of tensors that is none.
pub(super) fn wrong_element(at: usize, argument: usize, item: &Bound<'_, PyAny>) -> String {
    let found = type_name(item);
    format!("expected Tensor as element {at} in argument {argument}, but got {found}")
}
