//! The kinds of rows of an operator table, each made by a function: `kernel(name, schema, forms, body, sentence)`.

use crate::ops::core::args::{Args, OwnedArgs};
use crate::ops::core::op::{Body, KernelBody, OpDef, Ret};
use crate::plan::Views;
use crate::{Result, Tensor};

/// A row of the table: an op with a layout rule and a CPU kernel.
#[must_use]
pub const fn kernel(
    name: &'static str,
    schema: &'static str,
    forms: u16,
    body: KernelBody,
    doc: &'static str,
) -> OpDef {
    OpDef {
        name,
        schema,
        forms,
        body: Body::Kernel(body),
        doc,
        samples: "",
    }
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
    OpDef {
        name,
        schema,
        forms,
        body: Body::View(f),
        doc,
        samples: "",
    }
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
    OpDef {
        name,
        schema,
        forms,
        body: Body::Become(f),
        doc,
        samples: "",
    }
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
    OpDef {
        name,
        schema,
        forms,
        body: Body::Compose(f),
        doc,
        samples: "",
    }
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
    OpDef {
        name,
        schema,
        forms,
        body: Body::Forward(f),
        doc,
        samples: "",
    }
}
