//! What kernels take that need each line as a whole.

use super::extreme::compare_type;
use super::room::{self, Room};
use super::running::run_beside;
use super::select::{Pick, chosen_in};
use super::sort::repeats;
use super::{alloc, lines, magnitudes};
use crate::{DType, Result, Tensor};

/// Lines of at most so many elements are sorted without memory.
const FEWEST: usize = super::sort::FEWEST;

/// The elements along `dims`, and how many lines of them there are.
fn sizes(t: &Tensor, dims: &[usize]) -> [usize; 2] {
    let along = |d: &usize| t.shape().get(*d).copied().unwrap_or(1);
    let n: i64 = dims.iter().map(along).product();
    let count = t.numel().checked_div(n).unwrap_or(0);
    [n as usize, count as usize]
}

/// Lists of keys with positions that lines are sorted in, or of the `k` best of each.
struct Keys {
    lines: usize,
    each: usize,
}

impl Keys {
    fn of(input: &Tensor, dim: usize, k: Option<usize>) -> Self {
        let [n, lines] = sizes(input, &[dim]);
        let kept = match k {
            _ if n <= FEWEST => 0,
            Some(k) if k.saturating_mul(64) <= n => (2 * k).max(256).min(n),
            _ => n,
        };
        let each = kept * size_of::<(u64, u64)>();
        Self { lines, each }
    }
}

/// Notes the keys that lines are sorted by.
#[must_use]
pub fn keys(input: &Tensor, dim: usize, k: Option<usize>) -> alloc::Noted {
    let keys = Keys::of(input, dim, k);
    room::lists(keys.lines, keys.each)
}

/// What sorting takes, or finding the `k` first.
///
/// # Errors
/// If a size overflows.
pub fn sort(
    room: &mut Room,
    outs: &[Tensor],
    input: &Tensor,
    dim: usize,
    k: Option<usize>,
) -> Result<()> {
    if outs[0].numel() == 0 || lines::are_single(input, dim) {
        return Ok(());
    }
    if k.is_none() && repeats(input, dim) {
        return room.empty(&input.shape()[dim..=dim], DType::I64).map(drop);
    }
    room.lines(input, &[dim], input.dtype())?;
    room.lines(&outs[0], &[dim], input.dtype())?;
    room.lines(&outs[1], &[dim], DType::I64)?;
    let keys = Keys::of(input, dim, k);
    room.lists(keys.lines, keys.each)
}

/// What [`choose`](super::select::choose) takes.
///
/// # Errors
/// If a size overflows.
pub fn choose(
    room: &mut Room,
    outs: &[Tensor],
    input: &Tensor,
    dims: &[usize],
    what: Pick,
) -> Result<()> {
    let d = chosen_in(input.dtype());
    room.lines(input, dims, d)?;
    let [n, lines] = sizes(input, dims);
    if n == 0 {
        return Ok(());
    }
    match outs.get(1) {
        Some(indices) => room.dense(indices, DType::I64)?,
        None => room.empty(outs[0].shape(), DType::I64)?,
    };
    room.within(|room| room.lists(lines, what.keys(n)))?;
    room.dense(&outs[0], d).map(drop)
}

/// What [`logsumexp`](super::select::logsumexp) takes.
///
/// # Errors
/// If a size overflows.
pub fn logsumexp(room: &mut Room, out: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    if out.dtype().is_complex() {
        room.lines(input, dims, DType::C128)?;
        return room.empty(out.shape(), DType::C128).map(drop);
    }
    let d = super::select::summed_in(out.dtype());
    match super::select::columns_of(input, dims) {
        Some(_) => room.dense(input, d)?,
        None => room.lines(input, dims, d)?,
    };
    room.dense(out, d).map(drop)
}

/// What [`quantile`](super::quantile::quantile) takes.
///
/// # Errors
/// If a size overflows.
pub fn quantile(
    room: &mut Room,
    out: &Tensor,
    input: &Tensor,
    several: bool,
    dims: &[usize],
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    room.lines(input, dims, input.dtype())?;
    let first: &[usize] = if several { &[0] } else { &[] };
    room.lines(out, first, input.dtype())?;
    let [n, lines] = sizes(input, dims);
    room.lists(lines, n * input.dtype().size())
}

/// What [`arg_extreme`](super::extreme::arg_extreme) takes.
///
/// # Errors
/// If a size overflows.
pub fn arg_extreme(
    room: &mut Room,
    values: Option<&Tensor>,
    indices: &Tensor,
    input: &Tensor,
    dims: &[usize],
) -> Result<()> {
    use super::extreme::Way;
    let d = compare_type(input.dtype());
    match Way::of(values, indices, input, dims) {
        Way::Single | Way::Dense => Ok(()),
        Way::Columns(_) => {
            room.dense(input, d)?;
            room.dense(indices, DType::I64)?;
            match values {
                Some(v) => room.dense(v, d),
                None => room.empty(indices.shape(), d),
            }
            .map(drop)
        }
        Way::Lines => {
            room.lines(input, dims, d)?;
            room.dense(indices, DType::I64)?;
            room.all_dense([values], d)
        }
    }
}

/// What [`running_extreme`](super::running::running_extreme) takes.
///
/// # Errors
/// If a size overflows.
pub fn running_extreme(room: &mut Room, outs: &[Tensor], input: &Tensor, dim: usize) -> Result<()> {
    if lines::are_single(input, dim) || run_beside([&outs[0], &outs[1], input], dim) {
        return Ok(());
    }
    let mut lines = [input, &outs[0], &outs[1]].into_iter();
    lines.try_for_each(|t| room.lines(t, &[dim], t.dtype()).map(drop))
}

/// What [`renorm`](super::renorm::renorm) takes.
///
/// # Errors
/// If a size overflows.
pub fn renorm(room: &mut Room, out: &Tensor, input: &Tensor, p: f64, dim: usize) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let wide = super::renorm::computed_in(input.dtype());
    let x = room.dense(input, wide)?;
    let n = x.shape()[dim];
    room.within(|room| {
        if wide.is_complex() && p != 2.0 {
            magnitudes::room(room, &x)?;
        }
        room.elements(n as usize, DType::F64)
    })?;
    room.dense(out, wide).map(drop)
}
