//! Functions that `torchlike.func` transforms: where they begin and end, and what they are not allowed to do.

use super::dispatch;
use super::object::tensor_ref;
use crate::captured;
use crate::layers::{batch, modes};
use crate::ops::Call;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;

/// A function that is differentiated begins, by its recorded calls or forward; it is given these tensors, and what else stands among
/// them.
#[pyfunction]
fn _transform_enter(given: Vec<Bound<'_, PyAny>>, records: bool) {
    captured::enter(records);
    _transform_give(given);
}

/// The innermost function is given more.
#[pyfunction]
fn _transform_give(given: Vec<Bound<'_, PyAny>>) {
    let tensors = given.iter().filter_map(|o| tensor_ref(o));
    tensors.for_each(|t| captured::give(t.storage()));
}

/// The innermost function ends.
#[pyfunction]
fn _transform_exit() {
    captured::leave();
}

/// Whether a function runs that is differentiated, or one of many examples.
#[pyfunction]
fn _transforms_active() -> bool {
    are_active()
}

/// Whether a function runs whose calls are recorded to be differentiated.
#[pyfunction]
fn _transforms_record() -> bool {
    captured::records()
}

/// Looks at writes to what functions did not make, or does not; gives what was so before.
#[pyfunction]
fn _transforms_look(on: bool) -> bool {
    captured::look(on)
}

/// Whether a function runs that is differentiated, or one of many examples.
pub fn are_active() -> bool {
    captured::depth() > 0 || batch::is_at_work()
}

/// Refuses a method that such functions may not call.
///
/// # Errors
/// PyTorch's text, if one runs.
pub fn refuse(method: &str, also: &str) -> PyResult<()> {
    if !are_active() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "You are attempting to call Tensor.{method}() {also}inside of a function being transformed by a functorch transform. \
         This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call \
         {method}() outside of a function being transformed instead."
    )))
}

/// The name of the operator that a call is.
fn named(c: &Call) -> Option<String> {
    let of = |py: Python<'_>| -> PyResult<Option<String>> {
        let shown = dispatch::show(py, c)?;
        let leaves = py.import(intern!(py, "torchlike._ops.leaves"))?;
        leaves
            .getattr(intern!(py, "named"))?
            .call1(&shown)?
            .extract()
    };
    Python::attach(of).ok().flatten()
}

/// Adds the functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_transform_enter _transform_give _transform_exit _transforms_active _transforms_record _transforms_look);
    modes::set_named(named);
    Ok(())
}
