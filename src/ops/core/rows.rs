//! The kinds of rows of an operator table, each made by a function: `kernel(name, schema, forms, body, sentence)`.

use crate::ops::core::args::{Args, OwnedArgs};
use crate::ops::core::op::{Amp, Batch, Body, Grad, KernelBody, OpDef, Ret};
use crate::plan::Views;
use crate::{Result, Tensor};

/// A row without samples yet.
const fn row(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    body: Body,
    doc: &'static str,
) -> OpDef {
    OpDef {
        name,
        schema,
        forms,
        body,
        doc,
        samples: "",
        grad: Grad::Unstated,
        batch: Batch::Derived,
        amp: Amp::KEPT,
        apart: 0,
        alike: 0,
    }
}

/// A row of the table: an op with a layout rule and a CPU kernel.
#[must_use]
pub const fn kernel(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    body: KernelBody,
    doc: &'static str,
) -> OpDef {
    row(name, schema, forms, Body::Kernel(body), doc)
}

/// A row of the table: a view.
#[must_use]
pub const fn view(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    f: fn(&Args) -> Result<Views>,
    doc: &'static str,
) -> OpDef {
    row(name, schema, forms, Body::View(f), doc)
}

/// A row of the table: an op that gives argument 0 another storage or size.
#[must_use]
pub const fn becomes(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    f: fn(&Args) -> Result<Tensor>,
    doc: &'static str,
) -> OpDef {
    row(name, schema, forms, Body::Become(f), doc)
}

/// A row of the table: an op made of other ops.
#[must_use]
pub const fn compose(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    f: fn(&Args) -> Result<Ret>,
    doc: &'static str,
) -> OpDef {
    row(name, schema, forms, Body::Compose(f), doc)
}

/// A row of the table: an op that is a call of another one, whatever the form.
#[must_use]
pub const fn forward(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    f: fn(&Args) -> Result<OwnedArgs>,
    doc: &'static str,
) -> OpDef {
    row(name, schema, forms, Body::Forward(f), doc)
}
