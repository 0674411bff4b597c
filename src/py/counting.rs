//! The counter of calls.

use crate::layers::tape;
use pyo3::prelude::*;

/// Starts a counter on this thread, or ends the newest and gives its rows: `(operator, calls, flops, bytes)`.
#[pyfunction]
fn _count(start: bool) -> Vec<(&'static str, u64, u64, u64)> {
    if start {
        tape::start();
        return Vec::new();
    }
    tape::stop()
        .into_iter()
        .map(|(name, c)| (name, c.calls, c.flops, c.bytes))
        .collect()
}

/// Registers the function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_count, m)?)
}
