//! The least and the largest element, of many read once for both.

use super::pool;
use super::reduce::{Kind, Post, fold_room, folds_as_it_is, run_kind};
use super::room::Room;
use crate::{Device, Dims, Result, Tensor};

/// Bytes of elements that are still near when they are read again.
const PART: i64 = 1 << 17;
const KINDS: [Kind; 2] = [Kind::Min, Kind::Max];

/// Whether elements are many and lie in one piece: of others, and along dimensions, both are found one after the other.
fn in_parts(input: &Tensor, dims: &[usize]) -> bool {
    let dense = input.is_contiguous() && !input.is_lazy();
    let all = dims.len() == input.ndim();
    all && dense && parts_of(input)[1] > 2 && folds_as_it_is(Kind::Min, input.dtype())
}

/// The elements of a part, and how many parts there are.
fn parts_of(input: &Tensor) -> [i64; 2] {
    let part = PART / input.dtype().size() as i64;
    [part, (input.numel() + part - 1) / part]
}

/// The least and the largest element over `dims`; NaN if there is any.
///
/// # Errors
/// If the dtype has no order, or memory cannot be had.
pub fn run(outs: &[Tensor], input: &Tensor, dims: &[usize]) -> Result<()> {
    let fold = |kind, out: &Tensor, from: &Tensor, dims: &[usize]| {
        run_kind(kind, out, from, dims, 0.0, Post::None)
    };
    let mut both = KINDS.into_iter().zip(outs);
    if !in_parts(input, dims) {
        return both.try_for_each(|(kind, out)| fold(kind, out, input, dims));
    }
    let [n, parts] = parts_of(input);
    let found = Tensor::empty(&[2, parts], input.dtype(), Device::CPU)?;
    let view = |t: &Tensor, start: i64, shape: &[i64]| {
        let strides = crate::dims::contiguous_strides(shape);
        t.view_with(Dims::new(shape), strides, t.offset() + start)
    };
    pool::parallel_items(parts as usize, |i| {
        let i = i as i64;
        let part = view(input, i * n, &[n.min(input.numel() - i * n)]);
        for (kind, row) in KINDS.into_iter().zip([0, parts]) {
            // What folds as it is fails nowhere.
            drop(fold(kind, &view(&found, row + i, &[]), &part, &[0]));
        }
    });
    let mut rows = both.zip([0, parts]);
    rows.try_for_each(|((kind, out), row)| fold(kind, out, &view(&found, row, &[parts]), &[0]))
}

/// What [`run`] takes.
///
/// # Errors
/// If a size overflows.
pub fn room(room: &mut Room, input: &Tensor, dims: &[usize]) -> Result<()> {
    if in_parts(input, dims) {
        let [_, parts] = parts_of(input);
        return room.empty(&[2, parts], input.dtype()).map(drop);
    }
    let mut kinds = KINDS.into_iter();
    kinds.try_for_each(|kind| room.within(|room| fold_room(room, kind, input)))
}
