//! The text of GPU kernels: made from expressions and the files in `kernels/`, without a GPU or its libraries.

use crate::DType;
use crate::cpu::reduce::{Kind, Post};
pub use crate::kernels::job::{computed, storage_type};
use crate::random::Distribution;
use std::fmt::Write as _;

const MACHINE: &str = include_str!("kernels/machine.cuh");
const COMMON: &str = include_str!("kernels/common.cuh");
const TOOLS: &str = include_str!("kernels/tools.cuh");
const MAP: &str = include_str!("kernels/map.cu");
const REDUCE: &str = include_str!("kernels/reduce.cu");
const RANDOM: &str = include_str!("kernels/random.cu");

/// How a pointwise kernel reads an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A number that comes with the call.
    Number,
    /// A tensor of this dtype.
    Tensor(DType),
}

/// What a fold computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fold {
    /// A value, and what happens to it at the end.
    Value(Kind, Post),
    /// Variance and mean.
    Moments,
    /// Where the extreme is, and which it is.
    Arg {
        /// The largest, not the smallest.
        max: bool,
    },
}

/// The text of a kernel: what it is compiled for, and its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    /// Type names and definitions.
    pub head: String,
    /// What comes after them.
    pub file: &'static str,
}

impl Text {
    /// All that is compiled.
    #[must_use]
    pub fn whole(&self) -> String {
        [MACHINE, COMMON, TOOLS, &self.head, self.file].concat()
    }
}

/// How a pointwise kernel walks over its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// All lie densely: a thread reads so many elements at once.
    Dense(usize),
    /// By dimensions, so many neighbours of the first at once; along it the operands that say so are dense.
    Rows {
        /// Neighbours; operands that are not dense do not move along them if there are several.
        pack: usize,
        /// Which operands are dense along the first dimension.
        along: [bool; 3],
    },
    /// Tiles of so many elements of two dimensions, the second of which the operands that say so are dense along.
    Tiles {
        /// The length of a tile.
        tile: usize,
        /// Which operands are turned.
        turned: [bool; 3],
    },
}

/// Any strides.
pub const ANY: Walk = Walk::Rows {
    pack: 1,
    along: [false; 3],
};

/// A pointwise kernel (`kernel`): `expression` of `a`, `b`, `c`, computed in `compute`. Elements are counted in 64 bits if `wide`.
#[must_use]
pub fn map(
    expression: &str,
    compute: DType,
    out: DType,
    operands: &[Read],
    walk: Walk,
    wide: bool,
) -> Option<Text> {
    let mut text = String::with_capacity(640);
    let t = storage_type(computed(compute))?;
    writeln!(text, "typedef {t} T;\ntypedef {} TO;", storage_type(out)?).ok()?;
    let (pack, tile, bits, bit) = match walk {
        Walk::Dense(n) => (n, 0, [true; 3], "ALONG"),
        Walk::Rows { pack, along } => (pack, 0, along, "ALONG"),
        Walk::Tiles { tile, turned } => (1, tile, turned, "TURN"),
    };
    for (i, name) in ["A", "B", "C"].into_iter().enumerate() {
        let (kind, get) = match operands.get(i) {
            None => ("u8", "T(0)".to_owned()),
            Some(Read::Number) => ("u8", format!("Number<T>::of(numbers, {})", 3 + i)),
            Some(Read::Tensor(d)) => (storage_type(*d)?, format!("to<T>(up(IN_{name}))")),
        };
        let is = u8::from(bits[i]);
        writeln!(
            text,
            "typedef {kind} T{name};\n#define GET_{name} {get}\n#define {bit}_{name} {is}"
        )
        .ok()?;
    }
    let index = if wide { "i64" } else { "u32" };
    let flat = u8::from(matches!(walk, Walk::Dense(_)));
    writeln!(
        text,
        "#define INDEX {index}\n#define FLAT {flat}\n#define TILE {tile}\n#define PACK {pack}\n#define RESULT ({expression})"
    )
    .ok()?;
    Some(Text {
        head: text,
        file: MAP,
    })
}

/// The dtype in which a fold accumulates.
#[must_use]
pub fn folded(kind: Kind, input: DType) -> DType {
    let d = computed(input);
    match kind {
        Kind::Max | Kind::Min => d,
        Kind::NonZero => DType::I64,
        Kind::Sum | Kind::NanSum | Kind::Prod if d.is_integral(true) => DType::I64,
        Kind::Sum | Kind::NanSum | Kind::Prod => d,
        _ if d.is_integral(true) => DType::F64,
        _ => d.to_real(),
    }
}

/// The kernels of a fold (`first`, `columns` and `second`), which read `pack` neighbours at once. Positions are counted in 64 bits if
/// `wide`.
#[must_use]
pub fn reduce(fold: Fold, input: DType, out: DType, pack: usize, wide: bool) -> Option<Text> {
    let mut text = String::with_capacity(512);
    let v = match fold {
        Fold::Value(kind, _) => folded(kind, input),
        Fold::Arg { .. } | Fold::Moments => computed(input),
    };
    writeln!(
        text,
        "typedef {} IN;\ntypedef {} OUT;\ntypedef {} V;\n#define PACK {pack}",
        storage_type(input)?,
        storage_type(out)?,
        storage_type(v)?
    )
    .ok()?;
    match fold {
        Fold::Moments => text.push_str("#define MOMENTS 1\n"),
        Fold::Arg { max } => {
            let (better, place) = (
                if max { '>' } else { '<' },
                if wide { "i64" } else { "i32" },
            );
            writeln!(
                text,
                "#define ARG {place}\n#define BETTER(a, b) ((a) {better} (b))"
            )
            .ok()?;
        }
        Fold::Value(kind, post) => {
            let load = match kind {
                Kind::Sum | Kind::Prod => "to<V>(x)",
                Kind::NanSum => "(x != x ? V(0) : to<V>(x))",
                Kind::Max | Kind::Min => "V(x)",
                Kind::AbsSum | Kind::AbsMax | Kind::AbsMin => "to<V>(abs_(x))",
                Kind::SqSum => "to<V>(sq_(x))",
                Kind::PowSum => "V(pow(to<V>(abs_(x)), V(p)))",
                Kind::NonZero | Kind::Any | Kind::All => "to<V>(to<bool>(x))",
            };
            let (start, join) = match kind {
                Kind::Prod => ("V(1)", "V((a) * (b))"),
                Kind::Max => ("least<V>()", "max_(a, b)"),
                Kind::Min | Kind::AbsMin => ("most<V>()", "min_(a, b)"),
                Kind::AbsMax | Kind::Any => ("V(0)", "max_(a, b)"),
                Kind::All => ("V(1)", "min_(a, b)"),
                _ => ("V(0)", "V((a) + (b))"),
            };
            let finish = match post {
                Post::None => "(a)",
                Post::Over(_) => "((a) / V(post))",
                Post::Sqrt => "sqrt(a)",
                Post::Pow(_) => "pow(a, V(post))",
            };
            writeln!(text, "#define IDENTITY {start}\n#define LOAD(x) {load}\n#define JOIN(a, b) {join}\n#define FINISH(a) {finish}").ok()?;
        }
    }
    Some(Text {
        head: text,
        file: REDUCE,
    })
}

/// How a distribution is drawn on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The kernel (`kernel`).
    pub text: Text,
    /// How many numbers one Philox block of 128 bits gives.
    pub per_block: u64,
    /// Two real and two whole parameters.
    pub p: [f64; 2],
    /// The least integer, and how many there are (0: all).
    pub i: (i64, u64),
}

/// The kernel of a distribution.
#[must_use]
pub fn random(d: &Distribution, out: DType) -> Option<Recipe> {
    use Distribution as D;
    let double = out == DType::F64;
    let (mut wide, mut i, mut p) = (false, (0, 0), [0.0; 2]);
    let (mode, result) = match *d {
        D::Uniform { from, to } => {
            p = [from, to];
            (0, "reverse<R>(x * R(p1 - p0) + R(p0), R(p0), R(p1))")
        }
        D::Normal { mean, std } => {
            p = [mean, std];
            (1, "x * R(p1) + R(p0)")
        }
        D::LogNormal { mean, std } => {
            p = [mean, std];
            (1, "exp(x * R(p1) + R(p0))")
        }
        D::Exponential { lambda } => {
            p = [
                lambda,
                if double {
                    f64::EPSILON
                } else {
                    f64::from(f32::EPSILON)
                } / 2.0,
            ];
            (0, "R(-1) / R(p0) * (x >= R(1) - R(p1) ? -R(p1) : log(x))")
        }
        D::Cauchy { median, sigma } => {
            p = [median, sigma];
            (
                0,
                "R(p0) + R(p1) * tan(R(3.14159265358979323846) * (x - R(0.5)))",
            )
        }
        D::Geometric { p: chance } => {
            p[0] = chance;
            (0, "ceil(log(x) / R(log1p(-p0)))")
        }
        D::Bernoulli { p: chance } => {
            p[0] = chance;
            (0, "x < R(p0)")
        }
        D::Random => {
            let (span, both) = whole_range(out)?;
            (wide, i) = (both, (0, span));
            (2, "i64(i1 ? x % i1 : x)")
        }
        D::RandomRange { from, to } => {
            let span = match to {
                Some(to) => to.wrapping_sub(from) as u64,
                None if from == i64::MIN => 0,
                None => (largest(out)?.wrapping_sub(from) as u64).wrapping_add(1),
            };
            (wide, i) = (span == 0 || span >= 1 << 28, (from, span));
            (2, "i64((i1 ? x % i1 : x) + u64(i0))")
        }
    };
    let real = if double { "double" } else { "float" };
    let r = if mode == 2 { "u64" } else { real };
    let mut text = String::with_capacity(256);
    let flag = u8::from(wide);
    writeln!(text, "typedef {} TO;\ntypedef {r} R;\n#define MODE {mode}\n#define WIDE {flag}\n#define RESULT ({result})", storage_type(out)?).ok()?;
    let pair = if mode == 2 { wide } else { double };
    Some(Recipe {
        text: Text {
            head: text,
            file: RANDOM,
        },
        per_block: if pair { 2 } else { 4 },
        p,
        i,
    })
}

/// How many integers `random_()` draws from, and if they need 64 bits.
fn whole_range(d: DType) -> Option<(u64, bool)> {
    Some(match d {
        DType::Bool => (2, false),
        DType::F16 => ((1 << 11) + 1, false),
        DType::BF16 => ((1 << 8) + 1, false),
        DType::F32 => ((1 << 24) + 1, false),
        DType::F64 => ((1 << 53) + 1, true),
        d => {
            let top = largest(d)? as u64;
            (top + 1, d.size() == 8)
        }
    })
}

fn largest(d: DType) -> Option<i64> {
    use DType::*;
    Some(match d {
        Bool => 1,
        U8 => 255,
        I8 => 127,
        I16 => 32767,
        U16 => 65535,
        I32 => i64::from(i32::MAX),
        U32 => i64::from(u32::MAX),
        I64 | U64 => i64::MAX,
        F16 => 1 << 11,
        BF16 => 1 << 8,
        F32 => 1 << 24,
        F64 => 1 << 53,
        _ => return None,
    })
}
