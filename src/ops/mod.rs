//! The op table: every operator, named once.
//!
//! A family file holds its rows; [`FAMILIES`] lists the families. Everything else (Python functions and methods,
//! stubs, docs, the table test) is derived by walking [`table()`].

pub mod activation;
pub mod adaptive_pool;
pub mod addmm;
pub mod args;
pub mod attention;
pub mod avg_pool;
pub mod bag;
pub mod batch_norm;
pub mod binary;
pub mod call;
pub mod classes;
pub mod complex_view;
pub mod composite;
pub mod contract;
pub mod conv;
pub mod copy;
pub mod create;
pub mod ctc;
pub mod dispatch;
pub mod distance;
pub mod dropout;
pub mod einsum;
pub mod either;
pub mod extreme;
pub mod factor;
pub mod fold;
pub mod gated;
pub mod getitem;
pub mod histogram;
pub mod index;
pub mod join;
pub mod linalg;
pub mod linalg_more;
pub mod loss;
pub mod lu;
mod map_macro;
pub mod margin_loss;
pub mod mask;
pub mod matrix;
pub mod nonzero;
pub mod norm;
pub mod op;
pub mod order;
pub mod pad;
pub mod part;
pub mod pointwise;
pub mod pointwise_more;
pub mod pool;
pub mod random;
pub mod range;
pub mod rearrange;
pub mod recurrent;
pub mod reduce;
pub mod refusal;
pub mod resize;
pub mod rules;
pub mod scan;
pub mod scatter;
pub mod schema;
pub mod search;
pub mod sort;
pub mod special;
pub mod spectral;
pub mod statistics;
pub mod take;
pub mod tensor_split;
pub mod triangle;
pub mod unary;
pub mod unpool;
pub mod view;
pub mod window;

pub use args::{Arg, Args, OwnedArg, OwnedArgs};
pub use op::{Op, OpDef, Ret, Value};

use std::collections::HashMap;
use std::sync::LazyLock;

/// The families of the table.
static FAMILIES: &[&[OpDef]] = &[
    unary::OPS,
    binary::OPS,
    copy::OPS,
    copy::CASTS,
    window::OPS,
    bag::OPS,
    create::OPS,
    range::OPS,
    view::OPS,
    complex_view::OPS,
    part::OPS,
    reduce::OPS,
    extreme::OPS,
    statistics::OPS,
    order::OPS,
    scan::OPS,
    sort::OPS,
    search::OPS,
    histogram::OPS,
    random::OPS,
    ctc::OPS,
    recurrent::OPS,
    index::OPS,
    scatter::OPS,
    take::OPS,
    getitem::OPS,
    mask::OPS,
    nonzero::OPS,
    activation::OPS,
    gated::OPS,
    dropout::OPS,
    join::OPS,
    tensor_split::OPS,
    rearrange::OPS,
    triangle::OPS,
    pad::OPS,
    pointwise_more::OPS,
    special::OPS,
    norm::OPS,
    batch_norm::OPS,
    loss::OPS,
    margin_loss::OPS,
    distance::OPS,
    classes::OPS,
    matrix::OPS,
    contract::OPS,
    addmm::OPS,
    einsum::OPS,
    conv::CONVOLUTIONS,
    conv::TRANSPOSED,
    conv::OPS,
    fold::OPS,
    pool::OPS,
    avg_pool::OPS,
    unpool::OPS,
    adaptive_pool::OPS,
    pool::MAXIMA,
    pool::UNPOOL,
    resize::OPS,
    attention::OPS,
    linalg::OPS,
    factor::OPS,
    lu::OPS,
    spectral::OPS,
    linalg_more::OPS,
];

/// Other names of operators: `(alias, name)`, with all their forms.
pub static ALIASES: &[(&str, &str)] = &[
    ("absolute", "abs"),
    ("negative", "neg"),
    ("arcsin", "asin"),
    ("arccos", "acos"),
    ("arctan", "atan"),
    ("arcsinh", "asinh"),
    ("arccosh", "acosh"),
    ("arctanh", "atanh"),
    ("arctan2", "atan2"),
    ("fix", "trunc"),
    ("subtract", "sub"),
    ("multiply", "mul"),
    ("divide", "div"),
    ("true_divide", "div"),
    ("greater", "gt"),
    ("greater_equal", "ge"),
    ("less", "lt"),
    ("less_equal", "le"),
    ("not_equal", "ne"),
    ("special.expit", "sigmoid"),
    ("special.exp2", "exp2"),
    ("special.expm1", "expm1"),
    ("special.log1p", "log1p"),
    ("special.erf", "erf"),
    ("special.erfc", "erfc"),
    ("special.erfinv", "erfinv"),
    ("special.gammaln", "lgamma"),
    ("special.psi", "digamma"),
    ("special.digamma", "digamma"),
    ("special.xlogy", "xlogy"),
    ("special.round", "round"),
    ("special.logsumexp", "logsumexp"),
    ("swapaxes", "transpose"),
    ("swapdims", "transpose"),
    ("moveaxis", "movedim"),
    ("nn.functional.relu", "relu"),
    ("special.i0", "i0"),
    ("special.logit", "logit"),
    ("special.sinc", "sinc"),
    ("special.polygamma", "polygamma"),
    ("special.multigammaln", "mvlgamma"),
    ("special.gammainc", "igamma"),
    ("special.gammaincc", "igammac"),
    ("clip", "clamp"),
    ("concat", "cat"),
    ("concatenate", "cat"),
    ("row_stack", "vstack"),
    ("nn.functional.pixel_shuffle", "pixel_shuffle"),
    ("nn.functional.pixel_unshuffle", "pixel_unshuffle"),
    ("nn.functional.channel_shuffle", "channel_shuffle"),
    ("ger", "outer"),
];

static TABLE: LazyLock<Vec<Op>> = LazyLock::new(|| {
    let rows = FAMILIES.iter().flat_map(|f| f.iter());
    rows.enumerate()
        .map(|(id, def)| Op {
            def,
            schema: schema::Schema::parse(def.schema),
            id,
        })
        .collect()
});

static INDEX: LazyLock<HashMap<&'static str, &'static Op>> =
    LazyLock::new(|| table().iter().map(|op| (op.def.name, op)).collect());

/// All operators.
#[must_use]
pub fn table() -> &'static [Op] {
    &TABLE
}

/// An operator by its full name (`max#dim`).
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> crate::Result<&'static Op> {
    INDEX
        .get(name)
        .copied()
        .ok_or_else(|| crate::err!(Attribute, "torchlike has no operator '{name}'"))
}

/// Calls an operator by name with values in schema order: how Rust programs without a typed helper reach the table.
///
/// # Errors
/// If there is no such operator, or the call fails.
pub fn invoke(name: &str, values: &[Arg]) -> crate::Result<Ret> {
    dispatch::run(find(name)?, values)
}

/// A table entry looked up once per call site.
#[macro_export]
macro_rules! op {
    ($name:literal) => {{
        static OP: std::sync::OnceLock<&'static $crate::ops::Op> = std::sync::OnceLock::new();
        match OP.get() {
            Some(op) => Ok::<&'static $crate::ops::Op, $crate::Error>(*op),
            None => $crate::ops::find($name).map(|op| *OP.get_or_init(|| op)),
        }
    }};
}

/// Calls an op from another op: `run!("mul", a, b)?`. Values convert into [`Arg`]; the result is a [`Ret`].
#[macro_export]
macro_rules! run {
    ($name:literal $(, $value:expr)* $(,)?) => {
        $crate::op!($name).and_then(|op| $crate::ops::dispatch::run(op, &[$($crate::ops::Arg::from($value)),*]))
    };
}

/// Like [`run!`], for ops with one tensor as result.
#[macro_export]
macro_rules! run1 {
    ($name:literal $(, $value:expr)* $(,)?) => {
        $crate::run!($name $(, $value)*).and_then($crate::ops::Ret::one)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_aliases_lead_somewhere() {
        assert_eq!(INDEX.len(), table().len());
        for (alias, name) in ALIASES {
            assert!(
                table().iter().any(|op| op.path() == *name),
                "{alias} -> {name}"
            );
        }
    }
}
