//! The Python extension module `torchlike._C`. The only folder that knows pyo3.

#![allow(clippy::needless_pass_by_value, reason = "pyo3 hands arguments over")]

mod call;
mod convert;
mod data;
mod error;
mod functions;
mod index;
mod numpy;
mod storage;
mod tensor;
mod types;

use pyo3::prelude::*;

/// `torchlike._C`
#[pymodule(gil_used = true)]
fn _C(m: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(m)?;
    types::register(m)?;
    tensor::register(m)?;
    m.add_class::<storage::PyStorage>()?;
    call::register(m)?;
    functions::register(m)
}
