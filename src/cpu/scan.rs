//! Running sums and products.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::casts::{PIECE, Piece, Reader, Writer};
use super::lines;
use super::reduce::bytes;
use super::room::Room;
use crate::{DType, Element, Result, Tensor};
use num_complex::{Complex32, Complex64};
use num_traits::{One, WrappingAdd, WrappingMul};
use std::ops::Range;

/// What runs along a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Sums.
    Sum,
    /// Products.
    Prod,
    /// Logarithms of sums of exponentials.
    LogSumExp,
}

impl Kind {
    /// Refuses types of results that have no kernel, as PyTorch does on the host alone.
    fn check(self, d: DType) -> Result<()> {
        use DType::{I8, I16, I32, I64, U8};
        let kernel = match self {
            Self::Sum => "cumsum_out_cpu",
            Self::Prod => "cumprod_out_cpu",
            Self::LogSumExp => "logcumsumexp_out_cpu",
        };
        let float = matches!(d, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        let complex = matches!(d, DType::C64 | DType::C128);
        let int = matches!(d, U8 | I8 | I16 | I32 | I64);
        let has = float || complex || int && self != Self::LogSumExp;
        d.check_kernel(has, kernel)
    }
}

/// Elements up to which lines that lie apart cost less than their copies.
const FEW: i64 = 4096;

/// The type that results are computed in.
fn summed_in(out: DType) -> DType {
    match out {
        d if d.is_integral(true) => DType::I64,
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// How many lines lie side by side.
pub(super) fn inner(input: &Tensor, dim: usize) -> usize {
    let behind = input.shape().iter().skip(dim + 1);
    behind.map(|&n| n as usize).product()
}

/// Whether neighbouring lines of a dense tensor run side by side; others are laid out one after the other.
fn run_beside(out: &Tensor, input: &Tensor, dim: usize) -> bool {
    let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy();
    let inner = inner(input, dim);
    let few = inner > 1 && input.numel() <= FEW;
    (inner >= 4 || few) && dense(input) && dense(out)
}

/// What elements are converted to before all else: of what is summed up in a wider type than the result's, to that of the
/// result. Integers are the same in any type that holds fewer of their bits.
fn rounded_to(out: DType, input: DType) -> DType {
    let integers = out.is_integral(true) && input.is_integral(true);
    match summed_in(out) == out || integers {
        true => input,
        false => out,
    }
}

/// What [`scan`] takes besides its result.
///
/// # Errors
/// If a size overflows.
pub fn scan_room(room: &mut Room, out: &Tensor, input: &Tensor, dim: usize) -> Result<()> {
    let (d, first);
    d = rounded_to(out.dtype(), input.dtype());
    let input = if d == input.dtype() {
        input
    } else {
        first = room.converted(input, d)?;
        &first
    };
    if run_beside(out, input, dim) {
        return Ok(());
    }
    room.lines(input, &[dim], d)?;
    room.lines(out, &[dim], out.dtype()).map(drop)
}

/// Results so far along `dim`; elements are converted to the result's type first.
///
/// # Errors
/// If the type of the result has no kernel, or memory cannot be had.
pub fn scan(out: &Tensor, input: &Tensor, dim: usize, kind: Kind) -> Result<()> {
    kind.check(out.dtype())?;
    let (d, first);
    d = rounded_to(out.dtype(), input.dtype());
    let input = if d == input.dtype() {
        input
    } else {
        first = super::copy::converted(input, d)?;
        &first
    };
    let n = input.shape().get(dim).map_or(1, |&n| n as usize);
    if run_beside(out, input, dim) {
        return by_kind(kind, input, out, [n, inner(input, dim)]);
    }
    let to = lines::target(out, dim, out.dtype())?;
    // Lines of one element lie side by side too.
    let sizes = if n == 1 {
        [1, out.numel() as usize]
    } else {
        [n, 1]
    };
    by_kind(kind, &lines::read(input, &[dim], d)?, &to, sizes)?;
    lines::finish(out, dim, &to)
}

/// Runs along `n` elements of lines of which so many lie side by side.
fn by_kind(kind: Kind, from: &Tensor, to: &Tensor, sizes: [usize; 2]) -> Result<()> {
    let half = matches!(to.dtype(), DType::F16 | DType::BF16);
    if from.dtype() == to.dtype() {
        match to.dtype() {
            DType::U8 => return integers::<u8>(kind, from, to, sizes),
            DType::I8 => return integers::<u8>(kind, &bytes(from), &bytes(to), sizes),
            DType::I16 => return integers::<i16>(kind, from, to, sizes),
            DType::I32 => return integers::<i32>(kind, from, to, sizes),
            _ => {}
        }
    }
    match (summed_in(to.dtype()), kind) {
        (DType::I64, _) => integers::<i64>(kind, from, to, sizes),
        (DType::F32, Kind::Sum) if half => {
            run::<f32, f32>(from, to, sizes, 0.0, |a, x| a + x, |a| a)
        }
        (DType::F32, Kind::Prod) if half => {
            run::<f32, f32>(from, to, sizes, 1.0, |a, x| a * x, |a| a)
        }
        (DType::F32, Kind::Sum) if sizes[1] == 1 => sums(from, to, sizes[0]),
        (DType::F32, Kind::Sum) => {
            run::<f32, f64>(from, to, sizes, 0.0, |a, x| a + f64::from(x), |a| a as f32)
        }
        (DType::F32, Kind::Prod) => {
            run::<f32, f64>(from, to, sizes, 1.0, |a, x| a * f64::from(x), |a| a as f32)
        }
        (DType::F32, Kind::LogSumExp) => {
            let step = |a, x| log_add(a, f64::from(x));
            run::<f32, f64>(from, to, sizes, f64::NEG_INFINITY, step, |a| a as f32)
        }
        (DType::F64, Kind::Sum) => run::<f64, f64>(from, to, sizes, 0.0, |a, x| a + x, |a| a),
        (DType::F64, Kind::Prod) => run::<f64, f64>(from, to, sizes, 1.0, |a, x| a * x, |a| a),
        (DType::F64, Kind::LogSumExp) => {
            run::<f64, f64>(from, to, sizes, f64::NEG_INFINITY, log_add, |a| a)
        }
        (DType::C64, _) => {
            let narrow = |a: Complex64| Complex32::new(a.re as f32, a.im as f32);
            let wide = |x: Complex32| Complex64::new(f64::from(x.re), f64::from(x.im));
            complex::<Complex32>(kind, from, to, sizes, wide, narrow)
        }
        _ => complex::<Complex64>(kind, from, to, sizes, |x| x, |a| a),
    }
}

/// Sums or products of integers, in any type that holds their last bits.
fn integers<T: Element + WrappingAdd + WrappingMul + One>(
    kind: Kind,
    from: &Tensor,
    to: &Tensor,
    sizes: [usize; 2],
) -> Result<()> {
    match kind {
        Kind::Sum => run(
            from,
            to,
            sizes,
            T::default(),
            |a, x| a.wrapping_add(&x),
            |a| a,
        ),
        _ => run(from, to, sizes, T::one(), |a, x| a.wrapping_mul(&x), |a| a),
    }
}

fn complex<T: Element>(
    kind: Kind,
    from: &Tensor,
    to: &Tensor,
    sizes: [usize; 2],
    wide: impl Fn(T) -> Complex64 + Sync,
    narrow: impl Fn(Complex64) -> T + Sync,
) -> Result<()> {
    let start = |re| Complex64::new(re, 0.0);
    match kind {
        Kind::Sum => run(from, to, sizes, start(0.0), |a, x| a + wide(x), narrow),
        Kind::Prod => run(from, to, sizes, start(1.0), |a, x| a * wide(x), narrow),
        Kind::LogSumExp => {
            let step = |a, x| log_add_complex(a, wide(x));
            run(from, to, sizes, start(f64::NEG_INFINITY), step, narrow)
        }
    }
}

/// Lines that run at once: steps of one wait for each other.
const ABREAST: usize = 4;

fn run<T: Element, A: Copy + Sync>(
    from: &Tensor,
    to: &Tensor,
    [n, inner]: [usize; 2],
    start: A,
    step: impl Fn(A, T) -> A + Sync,
    out: impl Fn(A) -> T + Sync,
) -> Result<()> {
    let (ends, all) = (Ends::<T>::new(from, to)?, to.numel() as usize);
    if inner > 1 {
        columns(&ends, all, [n, inner], start, step, out);
        return Ok(());
    }
    let part = |acc: &mut A, x: &[T], to: &mut [T]| {
        for (o, &x) in to.iter_mut().zip(x) {
            *acc = step(*acc, x);
            *o = out(*acc);
        }
    };
    let several = |x: &[T], to: &mut [T]| {
        let mut acc = [start; ABREAST];
        let x: [&[T]; ABREAST] = std::array::from_fn(|k| &x[k * n..][..n]);
        let (first, second) = to.split_at_mut(2 * n);
        let ((a, b), (c, d)) = (first.split_at_mut(n), second.split_at_mut(n));
        let to = [a, b, c, d].map(|line| &mut line[..n]);
        for i in 0..n {
            for k in 0..ABREAST {
                acc[k] = step(acc[k], x[k][i]);
                to[k][i] = out(acc[k]);
            }
        }
    };
    ends.lines(all, n, start, &part, &several);
    Ok(())
}

/// Running sums of the lines of f32: eight elements are summed by themselves first, so that lines advance by eight
/// elements with one dependent addition.
fn sums(from: &Tensor, to: &Tensor, n: usize) -> Result<()> {
    const GROUP: usize = 8;
    let part = |acc: &mut f64, x: &[f32], to: &mut [f32]| {
        let (mut x, mut o) = (x.chunks_exact(GROUP), to.chunks_exact_mut(GROUP));
        for (x, o) in (&mut x).zip(&mut o) {
            let mut part = [0f64; GROUP];
            part[0] = f64::from(x[0]);
            for i in 1..GROUP {
                part[i] = part[i - 1] + f64::from(x[i]);
            }
            for i in 0..GROUP {
                o[i] = (*acc + part[i]) as f32;
            }
            *acc += part[GROUP - 1];
        }
        for (&x, o) in x.remainder().iter().zip(o.into_remainder()) {
            *acc += f64::from(x);
            *o = *acc as f32;
        }
    };
    let several = |x: &[f32], to: &mut [f32]| {
        let lines = x.chunks_exact(n).zip(to.chunks_exact_mut(n));
        lines.for_each(|(x, to)| part(&mut 0.0, x, to));
    };
    Ends::new(from, to)?.lines(to.numel() as usize, n, 0.0, &part, &several);
    Ok(())
}

/// What runs along a part of a line, and along several lines at once.
type Part<'a, A, T> = &'a (dyn Fn(&mut A, &[T], &mut [T]) + Sync);
type Several<'a, T> = &'a (dyn Fn(&[T], &mut [T]) + Sync);

/// Where elements come from and results go.
struct Ends<T> {
    from: Reader<T>,
    to: Writer<T>,
}

impl<T: Element> Ends<T> {
    fn new(from: &Tensor, to: &Tensor) -> Result<Self> {
        let (from, to) = (Reader::new(from)?, Writer::new(to)?);
        Ok(Self { from, to })
    }

    fn are_plain(&self) -> bool {
        self.from.is_plain() && self.to.is_plain()
    }

    /// Runs along lines of `n` of `all` elements.
    fn lines<A: Copy + Sync>(
        &self,
        all: usize,
        n: usize,
        start: A,
        part: Part<'_, A, T>,
        several: Several<'_, T>,
    ) {
        let lines = all.checked_div(n).unwrap_or(0);
        let grain = (super::iter::GRAIN / n.max(1)).max(1);
        super::pool::parallel_for(lines, grain, |range| {
            let (mut read, mut write) = (Piece::new(), Piece::new());
            // SAFETY: every task has its own lines.
            let mut run = |at: Range<usize>, f: &mut dyn FnMut(&[T], &mut [T])| unsafe {
                let x = self.from.get(at.clone(), &mut read);
                self.to.fill(at, &mut write, |to| f(x, to));
            };
            let short = self.are_plain() || ABREAST * n <= PIECE;
            let mut line = range.start;
            while short && line + ABREAST <= range.end {
                run(line * n..(line + ABREAST) * n, &mut |x, to| several(x, to));
                line += ABREAST;
            }
            let most = if self.are_plain() { n } else { PIECE };
            for line in line..range.end {
                let (mut acc, end) = (start, (line + 1) * n);
                for at in (line * n..end).step_by(most) {
                    run(at..end.min(at + most), &mut |x, to| part(&mut acc, x, to));
                }
            }
        });
    }
}

/// Runs down the columns of `[n, inner]` blocks.
fn columns<T: Element, A: Copy + Sync>(
    ends: &Ends<T>,
    all: usize,
    [n, inner]: [usize; 2],
    start: A,
    step: impl Fn(A, T) -> A + Sync,
    out: impl Fn(A) -> T + Sync,
) {
    const WIDTH: usize = 256;
    let chunks = inner.div_ceil(WIDTH);
    let blocks = all.checked_div(n * inner).unwrap_or(0);
    let grain = (super::iter::GRAIN / (n * inner.min(WIDTH)).max(1)).max(1);
    // Rows that lie one after the other are converted together.
    let rows = match (chunks, ends.are_plain()) {
        (1, true) => n,
        (1, false) => PIECE / inner,
        _ => 1,
    };
    super::pool::parallel_for(blocks * chunks, grain, |range| {
        let (mut read, mut write) = (Piece::new(), Piece::new());
        let mut acc = [start; WIDTH];
        for k in range {
            let j = k % chunks * WIDTH;
            let w = WIDTH.min(inner - j);
            acc[..w].fill(start);
            for r in (0..n).step_by(rows) {
                let at = (k / chunks * n + r) * inner + j;
                let at = at..at + rows.min(n - r) * w;
                let x = ends.from.get(at.clone(), &mut read);
                let each = |to: &mut [T]| {
                    for (x, to) in x.chunks_exact(w).zip(to.chunks_exact_mut(w)) {
                        for ((a, &x), o) in acc[..w].iter_mut().zip(x).zip(to) {
                            *a = step(*a, x);
                            *o = out(*a);
                        }
                    }
                };
                // SAFETY: every task has its own columns.
                unsafe { ends.to.fill(at, &mut write, each) };
            }
        }
    });
}

fn log_add(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let (lo, hi) = (a.min(b), a.max(b));
    if lo != hi || lo.is_finite() {
        (lo - hi).exp().ln_1p() + hi
    } else {
        a
    }
}

fn log_add_complex(a: Complex64, b: Complex64) -> Complex64 {
    if a.is_nan() || b.is_nan() {
        return Complex64::new(f64::NAN, f64::NAN);
    }
    let (lo, hi) = if a.re < b.re { (a, b) } else { (b, a) };
    if lo.re == f64::NEG_INFINITY {
        return hi;
    }
    if !lo.re.is_finite() && lo.re == hi.re {
        return (lo.exp() + hi.exp()).ln();
    }
    (Complex64::new(1.0, 0.0) + (lo - hi).exp()).ln() + hi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_run_along_every_dimension() {
        let (a, b, c) = (3usize, 37usize, 11usize);
        let v: Vec<f32> = (0..a * b * c)
            .map(|i| ((i * 31) % 17) as f32 - 8.0)
            .collect();
        let shape = [a as i64, b as i64, c as i64];
        let t = Tensor::from_slice(&v, &shape).unwrap();
        for (dim, step) in [(0, b * c), (1, c), (2, 1)] {
            let out = Tensor::empty(&shape, DType::F32, crate::Device::CPU).unwrap();
            scan(&out, &t, dim, Kind::Sum).unwrap();
            let got = out.to_vec::<f32>().unwrap();
            for i in 0..v.len() {
                let at_start = i / step % shape[dim] as usize == 0;
                let before = if at_start { 0.0 } else { got[i - step] };
                assert_eq!(got[i], before + v[i], "{dim} {i}");
            }
        }
    }
}
