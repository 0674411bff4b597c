//! Every kind of kernel that can be asked for, for checks without a GPU.

use super::source::{ANY, Fold, Read, Text, Walk, map, random, reduce};
use crate::cpu::reduce::{Kind, Post};
use crate::random::Distribution;
use crate::{DType, kernels};

/// The dtypes that stand for the classes of elements.
const CLASSES: [DType; 12] = {
    use DType::*;
    [Bool, U8, I8, I32, I64, F16, BF16, F32, F64, C32, C64, C128]
};

/// A pointwise row, as far as its GPU kernels go.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The expression.
    pub expression: &'static str,
    /// How many operands it has.
    pub arity: usize,
    /// The dtypes of the loop and of the result, by that of the operands.
    pub types: fn(DType) -> (DType, DType),
    /// Whether it is computed in a dtype.
    pub computes: Box<dyn Fn(DType) -> bool>,
}

/// Every kind of kernel that can be asked for, by name: each row for each class of element, folds, copies, draws.
#[must_use]
pub fn all(rows: impl Iterator<Item = Row>) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for row in rows {
        for d in CLASSES {
            list.extend(of_row(&row, d));
        }
    }
    for (i, from) in CLASSES.into_iter().enumerate() {
        for (k, to) in CLASSES.into_iter().enumerate() {
            let expression = match (from.is_complex(), k % 2) {
                (true, 0) => "conj_(a)",
                _ => "a",
            };
            let text = map(
                expression,
                from,
                to,
                &[Read::Tensor(from)],
                walks(from)[(i + k) % 3],
                false,
            );
            list.extend(text.map(|t| (format!("copy {} {}", from.name(), to.name()), t.whole())));
        }
        let operands = [DType::Bool, from, from].map(Read::Tensor);
        let text = map("a != T(0) ? b : c", from, from, &operands, ANY, false);
        list.extend(text.map(|t| (format!("where {}", from.name()), t.whole())));
        let text = map("f0", from, from, &[], ANY, false);
        list.extend(text.map(|t| (format!("fill {}", from.name()), t.whole())));
        list.extend(kernels::samples(from).into_iter().map(|job| {
            let text = Text {
                head: job.head,
                file: job.kernel.file,
            };
            (format!("{} {}", job.kernel.name, from.name()), text.whole())
        }));
        folds(from, &mut list);
        draws(from, &mut list);
    }
    list
}

/// A walk of each kind, for checks without a device.
fn walks(d: DType) -> [Walk; 3] {
    let tile = if d.size() > 4 { 32 } else { 64 };
    [
        Walk::Dense((16 / d.size()).max(1)),
        Walk::Rows {
            pack: (16 / d.size()).max(1),
            along: [true, false, true],
        },
        Walk::Tiles {
            tile,
            turned: [true, false, false],
        },
    ]
}

/// The kernel of a row for a class of elements, if it has one.
fn of_row(row: &Row, d: DType) -> Option<(String, String)> {
    let (compute, out) = (row.types)(d);
    if !(row.computes)(compute) {
        return None;
    }
    // A number in the middle for one class, so that both kinds of operand occur.
    let operand = |i| match (i, d) {
        (1, DType::F32) => Read::Number,
        _ => Read::Tensor(d),
    };
    let operands: Vec<Read> = (0..row.arity).map(operand).collect();
    let walk = match d {
        DType::F64 => Walk::Dense(2),
        DType::F32 => walks(d)[1],
        _ => ANY,
    };
    let text = map(
        row.expression,
        compute,
        out,
        &operands,
        walk,
        d == DType::I64,
    )?;
    Some((format!("{} {}", row.name, d.name()), text.whole()))
}

fn folds(d: DType, list: &mut Vec<(String, String)>) {
    use Kind::*;
    let (real, pack) = (!d.is_complex(), (16 / d.size()).max(1));
    for kind in [
        Sum, NanSum, Prod, Max, Min, AbsSum, SqSum, AbsMax, AbsMin, PowSum, NonZero,
    ] {
        let ordered = matches!(kind, Max | Min);
        let magnitude = matches!(kind, AbsSum | SqSum | AbsMax | AbsMin | PowSum);
        if ordered && !real || magnitude && d.is_integral(true) || kind == NanSum && !real {
            continue;
        }
        let post = match kind {
            Sum if !d.is_integral(true) => Post::Over(1.0),
            SqSum => Post::Sqrt,
            PowSum => Post::Pow(0.5),
            _ => Post::None,
        };
        let out = if magnitude {
            d.to_real()
        } else if ordered {
            d
        } else if d.is_integral(true) || kind == NonZero {
            DType::I64
        } else {
            d
        };
        list.extend(
            reduce(Fold::Value(kind, post), d, out, pack, false)
                .map(|t| (format!("fold {kind:?} {}", d.name()), t.whole())),
        );
    }
    if real && d.is_float() {
        let text = reduce(Fold::Moments, d, d, pack, false);
        list.extend(text.map(|t| (format!("moments {}", d.name()), t.whole())));
    }
    if real {
        for max in [true, false] {
            list.extend(reduce(Fold::Arg { max }, d, d, pack, max).map(|t| {
                (
                    format!("arg{} {}", if max { "max" } else { "min" }, d.name()),
                    t.whole(),
                )
            }));
        }
    }
}

fn draws(d: DType, list: &mut Vec<(String, String)>) {
    use Distribution as D;
    if d.is_complex() {
        return;
    }
    let float = d.is_float();
    let kinds: [(&str, D, bool); 10] = [
        ("uniform", D::Uniform { from: 0.0, to: 1.0 }, float),
        (
            "normal",
            D::Normal {
                mean: 0.0,
                std: 1.0,
            },
            float,
        ),
        (
            "log_normal",
            D::LogNormal {
                mean: 0.0,
                std: 1.0,
            },
            float,
        ),
        ("exponential", D::Exponential { lambda: 1.0 }, float),
        (
            "cauchy",
            D::Cauchy {
                median: 0.0,
                sigma: 1.0,
            },
            float,
        ),
        ("geometric", D::Geometric { p: 0.5 }, true),
        ("bernoulli", D::Bernoulli { p: 0.5 }, true),
        ("random", D::Random, true),
        (
            "random_range",
            D::RandomRange {
                from: 0,
                to: Some(10),
            },
            true,
        ),
        (
            "random_wide",
            D::RandomRange {
                from: i64::MIN,
                to: None,
            },
            true,
        ),
    ];
    for (name, dist, there) in kinds {
        if there {
            list.extend(random(&dist, d).map(|r| (format!("{name} {}", d.name()), r.text.whole())));
        }
    }
}
