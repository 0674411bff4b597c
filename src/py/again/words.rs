//! The words that a call is known by: numbers, which are equal if and only if the calls are of one kind.

use crate::ops::args::Arg;
use crate::{Scalar, Tensor};
use smallvec::SmallVec;

/// What a call is known by.
pub type Words = SmallVec<[u64; 64]>;

/// What comes next is a tensor.
pub const TENSOR: u64 = 1 << 32;
/// So many tensors.
pub const LIST: u64 = 2 << 32;
const DIMS: u64 = 3 << 32;
const SCALAR: u64 = 4 << 32;
const TEXT: u64 = 5 << 32;
const PLAIN: u64 = 6 << 32;
const FLOATS: u64 = 7 << 32;
const SCALARS: u64 = 8 << 32;
const BOOLS: u64 = 9 << 32;
const DTYPE: u64 = 10 << 32;

fn push_dims(words: &mut Words, dims: &[i64]) {
    words.push(DIMS | dims.len() as u64);
    words.extend(dims.iter().map(|d| *d as u64));
}

fn push_scalar(words: &mut Words, s: Scalar) {
    match s {
        Scalar::Bool(b) => words.extend([SCALAR | 1, u64::from(b)]),
        Scalar::Int(i) => words.extend([SCALAR | 2, i as u64]),
        Scalar::UInt(u) => words.extend([SCALAR | 3, u]),
        Scalar::Float(f) => words.extend([SCALAR | 4, f.to_bits()]),
        Scalar::Complex(c) => words.extend([SCALAR | 5, c.re.to_bits(), c.im.to_bits()]),
    }
}

fn push_text(words: &mut Words, text: &str) {
    words.push(TEXT | text.len() as u64);
    words.extend(text.bytes().map(u64::from));
}

/// How a tensor lies: sizes, strides, offset, type, device and flags.
pub fn push_layout(words: &mut Words, t: &Tensor) {
    push_dims(words, t.shape());
    words.extend(t.strides().iter().map(|d| *d as u64));
    let device = u64::from(t.storage().device_word());
    words.push(t.offset() as u64);
    words.push(device << 48 | (t.dtype() as u64) << 32 | u64::from(t.glance()));
}

/// Adds an argument that is no tensor; false if calls with it are not remembered.
pub fn push(words: &mut Words, a: &Arg) -> bool {
    match a {
        Arg::None => words.push(PLAIN),
        Arg::Layout(l) => push_text(words, l.name()),
        Arg::Scalar(s) => push_scalar(words, *s),
        Arg::Int(i) => words.extend([PLAIN | 2, *i as u64]),
        Arg::Float(f) => words.extend([PLAIN | 3, f.to_bits()]),
        Arg::Bool(b) => words.push(PLAIN | 4 | u64::from(*b)),
        Arg::Ints(d) => push_dims(words, d),
        Arg::Floats(l) => {
            words.push(FLOATS | l.len() as u64);
            words.extend(l.iter().map(|f| f.to_bits()));
        }
        Arg::Scalars(l) => {
            words.push(SCALARS | l.len() as u64);
            l.iter().for_each(|s| push_scalar(words, *s));
        }
        Arg::Bools(l) => {
            words.push(BOOLS | l.len() as u64);
            words.extend(l.iter().map(|b| u64::from(*b)));
        }
        Arg::Str(s) => push_text(words, s),
        Arg::DType(d) => words.push(DTYPE | *d as u64),
        Arg::Device(d) => push_text(words, &d.to_string()),
        Arg::Format(f) => push_text(words, &format!("{f:?}")),
        Arg::Tensor(_) | Arg::Tensors(_) | Arg::OptTensors(_) | Arg::Generator(_) => return false,
    }
    true
}
