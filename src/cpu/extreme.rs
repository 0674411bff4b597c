//! Extremes along lines, and their positions.

#![allow(unsafe_code, reason = "copies of loops per instruction set")]

use super::casts::{PIECE, Piece, Reader};
use super::folds::{Max, Min};
use super::turned::{LONGEST, Tile, WIDTH, turned};
use super::{lines, sweep};
use crate::cpu::simd::simd_fn;
use crate::{DType, Result, Tensor, bail};

/// An element that can be compared; NaN is beyond everything.
pub trait Ranked: Copy + Send + Sync + PartialOrd + Default + crate::Element {
    /// True for NaN.
    fn nan(self) -> bool;
    /// The largest or smallest element of a line that is not empty; NaN if there is one.
    fn extreme(line: &[Self], max: bool) -> Self;
}
macro_rules! ranked {
    ($($t:ty => |$x:ident| $e:expr;)+) => { $(impl Ranked for $t {
        #[inline(always)]
        fn nan(self) -> bool { let $x = self; $e }
        fn extreme(line: &[$t], max: bool) -> $t {
            if max { sweep::whole::<Max<$t>>(line) } else { sweep::whole::<Min<$t>>(line) }
        }
    })+ };
}
ranked! { u8 => |_x| false; i32 => |_x| false; i64 => |_x| false; f32 => |x| x.is_nan(); f64 => |x| x.is_nan(); }

/// The type that elements are compared in.
#[must_use]
pub fn compare_type(d: DType) -> DType {
    match d {
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::U16 => DType::I32,
        DType::F16 | DType::BF16 | DType::F32 => DType::F32,
        DType::F64 => DType::F64,
        _ => DType::I64,
    }
}

/// Calls a generic function for the type that elements are compared in: `by_type!(dtype, T => body)`.
macro_rules! by_type {
    ($d:expr, $T:ident => $body:expr) => {
        match $d {
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            d => bail!(NotImplemented, "no comparison of {d}"),
        }
    };
}
pub(super) use by_type;

#[inline(always)]
fn better<T: Ranked>(x: T, best: T, max: bool) -> bool {
    if max {
        (x > best) | (x.nan() & !best.nan())
    } else {
        (x < best) | (x.nan() & !best.nan())
    }
}

simd_fn! { stream
    /// The first position of a value (or of NaN) in a line, which has it.
    fn find<T: Ranked>(line: &[T], value: T) -> usize {
        const STEP: usize = 64;
        let is = |x: T| (x == value) | (x.nan() & value.nan());
        let mut start = 0;
        for chunk in line.chunks_exact(STEP) {
            if chunk.iter().fold(false, |found, &x| found | is(x)) {
                break;
            }
            start += STEP;
        }
        let at = line[start..].iter().position(|&x| is(x));
        at.map_or(0, |p| start + p)
    }
}

/// The first position of the extreme of a line that is not empty.
fn arg<T: Ranked>(line: &[T], max: bool) -> usize {
    if line.len() < 16 {
        // As long a line as the vectors' preparation is worth.
        let mut best = 0;
        for (i, &x) in line.iter().enumerate() {
            if better(x, line[best], max) {
                best = i;
            }
        }
        return best;
    }
    find(line, T::extreme(line, max))
}

/// The extreme of some elements, and where it is from the first of them on.
fn arg_part<T: Ranked>(
    from: &Reader<T>,
    start: usize,
    n: usize,
    max: bool,
    piece: &mut Piece<T>,
) -> (T, usize) {
    let each = if from.is_plain() { n } else { PIECE };
    let mut best = None;
    for at in (0..n).step_by(each) {
        let part = from.get(start + at..start + n.min(at + each), piece);
        let k = arg(part, max);
        if best.is_none_or(|(b, _)| better(part[k], b, max)) {
            best = Some((part[k], at + k));
        }
    }
    best.unwrap_or_default()
}

/// The position of the extreme of all elements, in slices on all threads.
fn arg_long<T: Ranked>(from: &Reader<T>, n: usize, max: bool) -> usize {
    const SLICE: usize = 64 * 1024;
    if n < 2 * SLICE {
        return arg_part(from, 0, n, max, &mut Piece::new()).1;
    }
    let mut tops = vec![(T::default(), 0usize); n.div_ceil(SLICE)];
    let shared = lines::Shared::new(&mut tops);
    super::pool::parallel_items(n.div_ceil(SLICE), |k| {
        let start = k * SLICE;
        let (top, at) = arg_part(from, start, SLICE.min(n - start), max, &mut Piece::new());
        // SAFETY: each slice has its own place.
        unsafe { shared.part(k, 1)[0] = (top, start + at) };
    });
    let best = tops
        .into_iter()
        .reduce(|a, b| if better(b.0, a.0, max) { b } else { a });
    best.map_or(0, |(_, at)| at)
}

simd_fn! { stream
    /// The positions of the extremes of lines of up to [`LONGEST`] elements, side by side.
    fn short_lines<T: Ranked>(lines: &[T], n: usize, at: &mut [i64], max: bool) {
        let mut tile: Tile<T> = [T::default(); LONGEST * WIDTH];
        let (mut best, mut places) = ([T::default(); WIDTH], [0; WIDTH]);
        for (lines, at) in lines.chunks(n * WIDTH).zip(at.chunks_mut(WIDTH)) {
            let width = turned(lines, n, &mut tile);
            let (best, places) = (&mut best[..width], &mut places[..width]);
            cols_body(&tile[..n * width], width, best, places, max);
            at.copy_from_slice(&places[..at.len()]);
        }
    }
}

/// Extremes of the columns of `[rows, width]` blocks of which `best` and `at` hold one row each.
#[inline(always)]
fn cols_body<T: Ranked>(block: &[T], width: usize, best: &mut [T], at: &mut [i64], max: bool) {
    for (r, row) in block.chunks_exact(width).enumerate() {
        if r == 0 {
            best.copy_from_slice(row);
            at.fill(0);
            continue;
        }
        for ((b, i), &x) in best.iter_mut().zip(at.iter_mut()).zip(row) {
            let wins = better(x, *b, max);
            *b = if wins { x } else { *b };
            *i = if wins { r as i64 } else { *i };
        }
    }
}

simd_fn! { stream
    fn cols<T: Ranked>(block: &[T], width: usize, best: &mut [T], at: &mut [i64], max: bool) {
        cols_body(block, width, best, at, max);
    }
}

/// The extremes along a dimension with others inside it, without moving the elements.
fn arg_columns(
    values: Option<&Tensor>,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    max: bool,
) -> Result<()> {
    let d = input.dtype();
    let (rows, width) = (
        input.shape()[dim] as usize,
        input.shape()[dim + 1..].iter().product::<i64>() as usize,
    );
    let at = lines::results(indices, DType::I64)?;
    let best = match values {
        Some(v) => lines::results(v, d)?,
        None => Tensor::empty(indices.shape(), d, crate::Device::CPU)?,
    };
    by_type!(d, T => {
        let best = lines::Shared::new(super::slice_mut::<T>(&best));
        lines::for_each(super::slice::<T>(input), rows * width, super::slice_mut::<i64>(&at), width, |k, block, at| {
            // SAFETY: every block has its own part.
            cols(block, width, unsafe { best.part(k * width, width) }, at, max);
        });
    });
    if let Some(v) = values {
        lines::put(v, &best)?;
    }
    lines::put(indices, &at)
}

/// How extremes over dimensions are found.
pub(super) enum Way {
    /// Lines have one element.
    Single,
    /// Down this dimension, without moving the elements.
    Columns(usize),
    /// Along lines where they lie.
    Dense,
    /// Along lines that are brought together.
    Lines,
}

impl Way {
    pub(super) fn of(
        values: Option<&Tensor>,
        indices: &Tensor,
        input: &Tensor,
        dims: &[usize],
    ) -> Self {
        if !dims.is_empty() && indices.numel() == input.numel() {
            return Self::Single;
        }
        let inner = |dim: usize| -> i64 { input.shape()[dim + 1..].iter().product() };
        if let [dim] = *dims
            && input.is_contiguous()
            && input.numel() > 0
            && dim < input.ndim()
            && inner(dim) >= 8
        {
            return Self::Columns(dim);
        }
        let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy();
        let at_end = dims.len() == input.ndim() || *dims == [input.ndim().wrapping_sub(1)];
        let placed = dense(indices) && values.is_none_or(dense);
        if dense(input) && input.numel() > 0 && at_end && placed {
            return Self::Dense;
        }
        Self::Lines
    }
}

/// Extremes over `dims` and their positions along them (counted row-major over `dims`).
///
/// # Errors
/// If memory cannot be had.
pub fn arg_extreme(
    values: Option<&Tensor>,
    indices: &Tensor,
    input: &Tensor,
    dims: &[usize],
    max: bool,
) -> Result<()> {
    let d = compare_type(input.dtype());
    match Way::of(values, indices, input, dims) {
        Way::Single => {
            super::fill(indices, crate::Scalar::Int(0))?;
            let alike = |v: &Tensor| {
                let strides = strides_of(v, input, dims);
                input.view_with(v.shape().clone(), strides, input.offset())
            };
            return values.map_or(Ok(()), |v| super::copy::copy(v, &alike(v)));
        }
        Way::Columns(dim) => {
            return arg_columns(values, indices, &super::copy::dense(input, d)?, dim, max);
        }
        Way::Dense => return arg_lines(values, indices, input, max),
        Way::Lines => {}
    }
    let from = lines::read(input, dims, d)?;
    let at = lines::results(indices, DType::I64)?;
    let v = values.map(|v| lines::results(v, d)).transpose()?;
    arg_lines(v.as_ref(), &at, &from, max)?;
    if let (Some(values), Some(v)) = (values, v) {
        lines::put(values, &v)?;
    }
    lines::put(indices, &at)
}

/// The strides of the input's elements as those of a result, which has the dimensions `dims` no more or with size 1.
fn strides_of(result: &Tensor, input: &Tensor, dims: &[usize]) -> crate::Dims {
    let kept = |d: &usize| result.ndim() == input.ndim() || !dims.contains(d);
    (0..input.ndim())
        .filter(kept)
        .map(|d| input.strides()[d])
        .collect()
}

/// The extremes of dense lines, as many as there are results. Values have the lines' type.
fn arg_lines(values: Option<&Tensor>, indices: &Tensor, from: &Tensor, max: bool) -> Result<()> {
    let count = indices.numel() as usize;
    let n = (from.numel() as usize).checked_div(count).unwrap_or(0);
    if n == 0 {
        return Ok(());
    }
    let at = super::slice_mut::<i64>(indices);
    by_type!(compare_type(from.dtype()), T => find_places(&Reader::<T>::new(from)?, n, at, max));
    let Some(values) = values else {
        return Ok(());
    };
    lines::by_size!(from.dtype().size(), E => {
        let (data, v) = (from.data_ptr().cast::<E>(), values.data_ptr().cast::<E>());
        for (i, &k) in at.iter().enumerate() {
            // SAFETY: there are as many values as lines of `n` elements, all of this size.
            unsafe { *v.add(i) = *data.add(i * n + k as usize) };
        }
    });
    Ok(())
}

/// The positions of the extremes of lines of `n` elements.
fn find_places<T: Ranked>(from: &Reader<T>, n: usize, to: &mut [i64], max: bool) {
    let lines = to.len();
    if let [to] = to {
        *to = arg_long(from, n, max) as i64;
        return;
    }
    let shared = lines::Shared::new(to);
    super::pool::parallel_for(lines, (super::iter::GRAIN / n).max(1), |range| {
        // SAFETY: every task has its own results.
        let at = unsafe { shared.part(range.start, range.len()) };
        let mut piece = Piece::new();
        if n > LONGEST {
            for (line, at) in range.zip(at) {
                *at = arg_part(from, line * n, n, max, &mut piece).1 as i64;
            }
            return;
        }
        // As many whole tiles as a piece holds, or all.
        let each = if from.is_plain() {
            range.len()
        } else {
            PIECE / n / WIDTH * WIDTH
        };
        for (k, at) in at.chunks_mut(each).enumerate() {
            let start = (range.start + k * each) * n;
            short_lines(
                from.get(start..start + at.len() * n, &mut piece),
                n,
                at,
                max,
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_lines_agree() {
        let v: Vec<f32> = (0..2 * 30 * 16)
            .map(|i| {
                if i == 100 {
                    f32::NAN
                } else {
                    ((i * 37) % 23) as f32
                }
            })
            .collect();
        let t = Tensor::from_slice(&v, &[2, 30, 16]).unwrap();
        for (dtype, max) in [
            (DType::F32, false),
            (DType::F32, true),
            (DType::BF16, true),
            (DType::F16, false),
        ] {
            let t = crate::cpu::copy::converted(&t, dtype).unwrap();
            // The same values in another layout take the other way.
            let other = t
                .permuted(&[0, 2, 1])
                .contiguous()
                .unwrap()
                .permuted(&[0, 2, 1]);
            let outs: Vec<Vec<i64>> = [&t, &other]
                .map(|x| {
                    let (values, at) = (
                        Tensor::empty(&[2, 16], dtype, crate::Device::CPU).unwrap(),
                        Tensor::empty(&[2, 16], DType::I64, crate::Device::CPU).unwrap(),
                    );
                    arg_extreme(Some(&values), &at, x, &[1], max).unwrap();
                    let values = crate::cpu::copy::converted(&values, DType::F64).unwrap();
                    let bits = values.to_vec::<f64>().unwrap();
                    let bits = bits.iter().map(|v| v.to_bits() as i64);
                    bits.chain(at.to_vec::<i64>().unwrap()).collect()
                })
                .to_vec();
            assert_eq!(outs[0], outs[1], "{dtype}");
        }
    }
}
