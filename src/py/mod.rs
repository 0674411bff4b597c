//! The Python extension module `torchlike._C`. The only folder that knows pyo3.

#![allow(non_snake_case, reason = "the module is called _C")]
#![allow(clippy::needless_pass_by_value, reason = "pyo3 hands arguments over")]
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "pyo3 expands method tables inside unsafe functions"
)]

mod again;
mod arguments;
mod attributes;
mod autocast;
mod backward;
mod batch;
mod blocks;
mod call;
mod class;
mod convert;
mod counting;
mod cuda;
mod data;
mod dispatch;
mod dlpack;
mod element;
mod error;
mod explain;
mod fake;
mod files;
mod forward;
mod function;
mod functions;
mod generator;
mod given;
mod grad_hooks;
mod gradient;
mod graph;
mod groups;
mod held;
mod index;
mod integers;
mod ledger;
mod legacy;
mod lists;
mod lives_on;
mod load;
mod load_file;
mod mesh;
mod messages;
mod metadata;
mod methods;
mod misfit;
mod modes;
mod module;
mod noted;
mod numpy;
mod object;
mod old_forms;
mod operators;
mod out;
mod parameter;
mod parts;
mod plain;
mod program;
mod python_names;
mod results;
mod save;
mod saved;
mod shown;
mod sink;
mod sizes;
mod storage;
mod table;
mod taken;
mod tensor;
mod transforms;
mod types;
mod watch;
mod wrappers;

use pyo3::prelude::*;

/// `torchlike._C`
#[pymodule(gil_used = true)]
fn _C(m: &Bound<'_, PyModule>) -> PyResult<()> {
    error::register(m)?;
    types::register(m)?;
    sizes::register(m)?;
    tensor::register(m)?;
    m.add_class::<storage::PyStorage>()?;
    groups::register(m)?;
    cuda::register(m)?;
    parts::register(m)?;
    module::register(m)?;
    counting::register(m)?;
    explain::register(m)?;
    graph::register(m)?;
    saved::register(m)?;
    grad_hooks::register(m)?;
    autocast::register(m)?;
    backward::register(m)?;
    forward::register(m)?;
    batch::register(m)?;
    transforms::register(m)?;
    function::register(m)?;
    functions::register(m)?;
    table::register(m)?;
    modes::register(m)?;
    dispatch::register(m)?;
    again::register(m)?;
    fake::register(m)?;
    ledger::register(m)?;
    mesh::register(m)?;
    program::register(m)
}
