//! Helpers of row kernels: sums and maxima in independent lanes, which the compiler turns into vectors.

use super::math::RealFns;

/// Numbers that row kernels compute with.
pub trait Real:
    RealFns
    + crate::Element
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
{
    /// The smallest value.
    const LOWEST: Self;
}
impl Real for f32 {
    const LOWEST: Self = f32::NEG_INFINITY;
}
impl Real for f64 {
    const LOWEST: Self = f64::NEG_INFINITY;
}

const LANES: usize = 64;
/// Elements behind the whole groups of a row that are taken at a time: a vector of single precision.
const STEP: usize = 16;
/// Rows that so many lanes are enough for.
pub const SHORT: usize = 8;

/// What an element adds to a sum. Short closures are terms; longer ones would stay functions of their own, compiled for the
/// baseline: those are types with an `#[inline(always)]` method.
pub trait Term<T>: Copy {
    /// Whether it takes so long that the elements behind the last whole vector are worth being laid out as one.
    const LONG: bool = false;
    /// The term of an element.
    fn term(self, v: T) -> T;
}

impl<T, F: Fn(T) -> T + Copy> Term<T> for F {
    #[inline(always)]
    fn term(self, v: T) -> T {
        self(v)
    }
}

/// The sum of `f` over a row, in lanes; long rows are summed in blocks, which keeps f32 sums exact enough.
#[inline(always)]
pub fn sum_by<T: Real>(x: &[T], f: impl Term<T>) -> T {
    // The lanes that short rows do not reach would add nothing.
    if x.len() <= SHORT {
        return sum_in::<T, _, SHORT>(x, f);
    }
    let mut total = T::of(0.0);
    for block in x.chunks(4096) {
        total += sum_in::<T, _, LANES>(block, f);
    }
    total
}

#[inline(always)]
fn sum_in<T: Real, F: Term<T>, const N: usize>(x: &[T], f: F) -> T {
    let mut acc = [T::of(0.0); N];
    let mut chunks = x.chunks_exact(N);
    for c in &mut chunks {
        for l in 0..N {
            acc[l] += f.term(c[l]);
        }
    }
    let mut rest = chunks.remainder().chunks_exact(STEP);
    for (x, acc) in (&mut rest).zip(acc.chunks_exact_mut(STEP)) {
        for l in 0..STEP {
            acc[l] += f.term(x[l]);
        }
    }
    let tail = rest.remainder();
    let first = x.len() % N - tail.len();
    match x.last_chunk::<STEP>() {
        Some(last) if F::LONG && N >= STEP && !tail.is_empty() => {
            let mut terms = *last;
            for v in &mut terms {
                *v = f.term(*v);
            }
            for (acc, &v) in acc[first..].iter_mut().zip(&terms[STEP - tail.len()..]) {
                *acc += v;
            }
        }
        _ => {
            for (acc, &v) in acc[first..].iter_mut().zip(tail) {
                *acc += f.term(v);
            }
        }
    }
    across(acc, |a, b| a + b)
}

/// Writes the terms of a row, the last ones as a whole vector with some before them.
#[inline(always)]
pub fn map_by<T: Real>(x: &[T], out: &mut [T], f: impl Term<T>) {
    let n = out.len();
    let whole = n / STEP * STEP;
    let (from, to) = (x.chunks_exact(STEP), out.chunks_exact_mut(STEP));
    for (x, o) in from.zip(to) {
        for l in 0..STEP {
            o[l] = f.term(x[l]);
        }
    }
    match (x.last_chunk::<STEP>(), out.last_chunk_mut::<STEP>()) {
        (Some(x), Some(o)) if whole < n => {
            for l in 0..STEP {
                o[l] = f.term(x[l]);
            }
        }
        _ => {
            for (o, &v) in out[whole..].iter_mut().zip(&x[whole..]) {
                *o = f.term(v);
            }
        }
    }
}

/// Lanes brought together by halves: one after the other they would wait for each other.
#[inline(always)]
pub fn across<T: Copy, const N: usize>(mut acc: [T; N], join: impl Fn(T, T) -> T) -> T {
    let mut width = N / 2;
    while width > 0 {
        for l in 0..width {
            acc[l] = join(acc[l], acc[l + width]);
        }
        width /= 2;
    }
    acc[0]
}

/// What loops read at a time: a number, or [several that share a word](super::halves::Pair).
pub trait Cell: Copy {
    /// What is computed with.
    type T: Real;
    /// How many numbers.
    const N: usize;
    /// Number `i`.
    fn get(self, i: usize) -> Self::T;
    /// The cell of what a function makes of each of its numbers and that of another cell.
    fn zip(self, other: Self, f: impl Two<Self::T>) -> Self;
}

/// A function of two numbers: a type, as longer closures would stay functions of their own.
pub trait Two<T>: Copy {
    /// Its value.
    fn of(self, x: T, y: T) -> T;
}

impl<T: Real> Cell for T {
    type T = T;
    const N: usize = 1;
    #[inline(always)]
    fn get(self, _: usize) -> T {
        self
    }
    #[inline(always)]
    fn zip(self, other: T, f: impl Two<T>) -> T {
        f.of(self, other)
    }
}

/// The sum of `f` over two rows.
#[inline(always)]
pub fn sum2_by<C: Cell>(x: &[C], y: &[C], f: impl Fn(C::T, C::T) -> C::T) -> C::T {
    let mut acc = [[<C::T as RealFns>::of(0.0); LANES]; 2];
    let n = x.len().min(y.len());
    let (x, y) = (&x[..n], &y[..n]);
    let lanes = LANES / C::N;
    let (mut xs, mut ys) = (x.chunks_exact(lanes), y.chunks_exact(lanes));
    for (a, b) in (&mut xs).zip(&mut ys) {
        for l in 0..lanes {
            for i in 0..C::N {
                acc[i][l] += f(a[l].get(i), b[l].get(i));
            }
        }
    }
    for (l, (&a, &b)) in xs.remainder().iter().zip(ys.remainder()).enumerate() {
        for i in 0..C::N {
            acc[i][l] += f(a.get(i), b.get(i));
        }
    }
    let [mut sums, others] = acc;
    if C::N > 1 {
        for l in 0..lanes {
            sums[l] += others[l];
        }
    }
    across(sums, |a, b| a + b)
}

/// The largest value of a row; NaN are passed over.
#[inline(always)]
pub fn max_of<T: Real>(x: &[T]) -> T {
    if x.len() <= SHORT {
        return x.iter().fold(T::LOWEST, |m, &v| if v > m { v } else { m });
    }
    let mut acc = [T::LOWEST; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for c in &mut chunks {
        for l in 0..LANES {
            acc[l] = if c[l] > acc[l] { c[l] } else { acc[l] };
        }
    }
    let mut rest = chunks.remainder().chunks_exact(STEP);
    for x in &mut rest {
        for l in 0..STEP {
            acc[l] = if x[l] > acc[l] { x[l] } else { acc[l] };
        }
    }
    for (l, &v) in rest.remainder().iter().enumerate() {
        acc[l] = if v > acc[l] { v } else { acc[l] };
    }
    across(acc, |m, v| if v > m { v } else { m })
}
