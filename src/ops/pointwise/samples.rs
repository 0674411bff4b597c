//! Samples of pointwise rows, which their type rules imply: a call for each class of dtype that the loop knows.

use crate::DType;
use crate::ops::core::op::{Body, KernelBody, Op, Row};
use crate::ops::core::schema::Kind;

/// Operands of these shapes broadcast to the first.
const SHAPES: [&str; 3] = ["[3, 4]", "[4]", "[3, 1]"];

/// One dtype of each class, as samples spell it.
const CLASSES: [(&str, DType); 5] = [
    ("f32", DType::F32),
    ("i64", DType::I64),
    ("b8", DType::Bool),
    ("c64", DType::C64),
    ("bf16", DType::BF16),
];

/// The samples of a row: its own, or those that its type rule implies.
#[must_use]
pub fn of(op: &Op) -> String {
    let Body::Kernel(KernelBody {
        row: Row::Map(row), ..
    }) = op.def.body
    else {
        return op.def.samples.to_owned();
    };
    let rest = op.schema.params.iter().skip(row.arity);
    if !op.def.samples.is_empty() || rest.into_iter().any(|p| p.default.is_none()) {
        return op.def.samples.to_owned();
    }
    let known = |d: DType| (row.kernel)((row.types)(d).0).is_some();
    let calls: Vec<String> = CLASSES
        .iter()
        .filter(|(_, d)| known(*d))
        .map(|(name, _)| call(op, row.arity, name))
        .collect();
    calls.join("; ")
}

/// A call with operands of one dtype.
fn call(op: &Op, arity: usize, dtype: &str) -> String {
    let operands = op.schema.params.iter().take(arity).zip(SHAPES);
    let texts: Vec<String> = operands
        .map(|(p, shape)| match p.kind {
            Kind::Tensor | Kind::Operand => format!("{dtype}{shape}"),
            _ => "1".to_owned(),
        })
        .collect();
    texts.join(", ")
}
