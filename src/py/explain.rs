//! Where a tensor's values come from.

use super::object::{PyTensor, wrap};
use crate::layers::record::{self, History};
use crate::source::Source;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The files that becoming real reads, the calls that it replays, and the bytes that those make; nothing without a source.
#[pyfunction]
fn _explain(t: &Bound<'_, PyTensor>) -> PyResult<Option<(Vec<String>, Vec<String>, u64)>> {
    Ok(match t.get().get().storage().source() {
        None => None,
        Some(Source::File(p)) => Some((vec![p.describe()], Vec::new(), 0)),
        Some(source) => {
            let History { files, calls, made } = record::explain(&source)?;
            Some((files, calls, made))
        }
    })
}

/// True if nobody has written the tensor's storage since it was made without values.
#[pyfunction]
fn _is_blank(t: &Bound<'_, PyTensor>) -> bool {
    t.get().get().storage().is_blank()
}

/// A real tensor with the values that a meta tensor with a source would have; the tensor itself stays on meta.
#[pyfunction]
fn _peek<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let py = t.py();
    let inner = t.get().get().clone();
    let Some(source) = inner.storage().source() else {
        return Err(PyRuntimeError::new_err(
            "a meta tensor without a source has no values",
        ));
    };
    let real = py.detach(|| record::peek(&inner, &source))?;
    wrap(py, real)
}

/// Adds the functions to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_explain, m)?)?;
    m.add_function(wrap_pyfunction!(_is_blank, m)?)?;
    m.add_function(wrap_pyfunction!(_peek, m)?)
}
