//! The op table for the tools and tests: its rows as data, and calls of a row by its name.

use super::arguments::Incoming;
use super::groups::Group;
use crate::ops::op::{Amp, Body, Cast, Grad};
use crate::ops::{ALIASES, find, table};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Calls one row by its full name, whether or not it has a public one; `in_place` on its first argument.
#[pyfunction]
#[pyo3(signature = (name, in_place, args, kwargs))]
fn _call_row<'py>(
    name: &str,
    in_place: bool,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let group = Group::of_row(args.py(), find(name)?, in_place);
    let call = Incoming {
        py: args.py(),
        positional: args.iter().collect(),
        keywords: kwargs.iter().collect(),
    };
    call.run(&group)
}

/// Small calls of each operator for the tests, in the notation of `docs/adding_an_op.md`: `(full name, calls)` a row.
#[pyfunction]
fn _op_samples() -> Vec<(&'static str, String)> {
    table()
        .iter()
        .map(|op| (op.def.name, crate::ops::pointwise::samples::of(op)))
        .collect()
}

/// The op table as data: `(full name, schema, forms, sentence)` a row.
#[pyfunction]
fn _op_table() -> Vec<(&'static str, &'static str, u16, &'static str)> {
    table()
        .iter()
        .map(|op| (op.def.name, op.def.schema, op.def.forms, op.def.doc))
        .collect()
}

/// What each operator is: a `kernel`, a `view`, a `change` of its first argument, or a `composite` of others.
#[pyfunction]
fn _op_kinds() -> Vec<(&'static str, &'static str)> {
    let kind = |body: &Body| match body {
        Body::Kernel(_) => "kernel",
        Body::View(_) => "view",
        Body::Become(_) => "change",
        Body::Compose(_) | Body::Forward(_) => "composite",
    };
    table()
        .iter()
        .map(|op| (op.def.name, kind(&op.def.body)))
        .collect()
}

/// The rows that work on each element alone.
#[pyfunction]
fn _op_pointwise() -> Vec<&'static str> {
    let alone = |body: &Body| matches!(body, Body::Kernel(k) if k.traits.pointwise);
    let rows = table().iter().filter(|op| alone(&op.def.body));
    rows.map(|op| op.def.name).collect()
}

/// What rows compute in under automatic mixed precision, where they say so: `(full name, on the CPU, on GPUs)`.
#[pyfunction]
fn _op_amp() -> Vec<(&'static str, String, String)> {
    let word = |cast: Cast| format!("{cast:?}").to_lowercase();
    let rows = table().iter().filter(|op| op.def.amp != Amp::KEPT);
    rows.map(|op| (op.def.name, word(op.def.amp.cpu), word(op.def.amp.cuda)))
        .collect()
}

/// What each row says of its gradient: `(full name, kind, text, what is wrong with the text)`.
#[pyfunction]
fn _op_gradients() -> Vec<(&'static str, &'static str, &'static str, Option<String>)> {
    let said = |grad: Grad| match grad {
        Grad::Unstated => ("unstated", ""),
        Grad::Zero => ("zero", ""),
        Grad::Refused => ("refused", ""),
        Grad::Through(_) => ("through", ""),
        Grad::Rule(text) => ("rule", text),
    };
    table()
        .iter()
        .map(|op| {
            let (kind, text) = said(op.def.grad);
            (
                op.def.name,
                kind,
                text,
                crate::layers::autograd::rule::of(op).err(),
            )
        })
        .collect()
}

/// The rows whose calls are one node of the graph, by a text of their own. Nothing is parsed for it.
#[pyfunction]
fn _op_texts() -> Vec<&'static str> {
    let text = |grad: Grad| matches!(grad, Grad::Rule(_));
    let rows = table().iter().filter(|op| text(op.def.grad));
    rows.map(|op| op.def.name).collect()
}

/// Other names of ops: `(alias, name)`.
#[pyfunction]
fn _op_aliases() -> Vec<(&'static str, &'static str)> {
    ALIASES.to_vec()
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_call_row, m)?)?;
    m.add_function(wrap_pyfunction!(_op_table, m)?)?;
    m.add_function(wrap_pyfunction!(_op_samples, m)?)?;
    m.add_function(wrap_pyfunction!(_op_amp, m)?)?;
    m.add_function(wrap_pyfunction!(_op_kinds, m)?)?;
    m.add_function(wrap_pyfunction!(_op_pointwise, m)?)?;
    m.add_function(wrap_pyfunction!(_op_gradients, m)?)?;
    m.add_function(wrap_pyfunction!(_op_texts, m)?)?;
    m.add_function(wrap_pyfunction!(_op_aliases, m)?)
}
