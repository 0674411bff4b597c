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
    /// What makes a vector of numbers 0, then what keeps them: by [`masked`](Real::masked).
    const KEPT: &'static [Self; 2 * STEP];

    /// The number whose bits are those that are set in both.
    fn masked(self, by: Self) -> Self;
}

macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            const LOWEST: Self = <$t>::NEG_INFINITY;
            const KEPT: &'static [Self; 2 * STEP] = &{
                let mut bits = [0.0; 2 * STEP];
                let mut l = STEP;
                while l < 2 * STEP {
                    bits[l] = <$t>::from_bits(!0);
                    l += 1;
                }
                bits
            };
            #[inline(always)]
            fn masked(self, by: Self) -> Self {
                Self::from_bits(self.to_bits() & by.to_bits())
            }
        }
    };
}
real!(f32);
real!(f64);

const LANES: usize = 64;
/// Elements behind the whole groups of a row that are taken at a time: a vector of single precision.
const STEP: usize = 16;
/// Rows that so many lanes are enough for.
const SHORT: usize = 8;

/// What an element adds to a sum. Short closures are terms; longer ones would stay functions of their own, compiled for the
/// baseline: those are types with an `#[inline(always)]` method.
pub trait Term<T>: Copy {
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
    let mut total = T::of(0.0);
    for block in x.chunks(4096) {
        total += sum2_by(block, block, First(f));
    }
    total
}

/// A term of the first of two elements.
#[derive(Clone, Copy)]
struct First<F>(F);

impl<T, F: Term<T>> Two<T> for First<F> {
    #[inline(always)]
    fn of(self, x: T, _: T) -> T {
        self.0.term(x)
    }
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

/// Multiplies a row, the last elements as a whole vector with some before them.
#[inline(always)]
pub fn scale_by<T: Real>(row: &mut [T], factor: T) {
    let whole = match row.len() {
        n if n < STEP => n,
        n => n / STEP * STEP,
    };
    // Before those that it shares with the others become products.
    let last = row.last_chunk::<STEP>().copied();
    for v in &mut row[..whole] {
        *v = *v * factor;
    }
    if let (Some(last), true) = (last, whole < row.len())
        && let Some(to) = row.last_chunk_mut::<STEP>()
    {
        for l in 0..STEP {
            to[l] = last[l] * factor;
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

/// A function of two numbers: a short closure, or a type, as longer closures would stay functions of their own.
pub trait Two<T>: Copy {
    /// Its value.
    fn of(self, x: T, y: T) -> T;
}

impl<T, F: Fn(T, T) -> T + Copy> Two<T> for F {
    #[inline(always)]
    fn of(self, x: T, y: T) -> T {
        self(x, y)
    }
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
pub fn sum2_by<C: Cell>(x: &[C], y: &[C], f: impl Two<C::T>) -> C::T {
    let n = x.len().min(y.len());
    let (x, y) = (&x[..n], &y[..n]);
    let (Some(last_x), Some(last_y)) = (x.last_chunk::<STEP>(), y.last_chunk::<STEP>()) else {
        // The lanes that short rows do not reach would add nothing.
        return match n {
            ..=SHORT => sum2_of_few::<C, SHORT>(x, y, f),
            _ => sum2_of_few::<C, STEP>(x, y, f),
        };
    };
    let mut acc = [[<C::T as RealFns>::of(0.0); LANES]; 2];
    let lanes = LANES / C::N;
    let (mut xs, mut ys) = (x.chunks_exact(lanes), y.chunks_exact(lanes));
    for (a, b) in (&mut xs).zip(&mut ys) {
        for l in 0..lanes {
            for i in 0..C::N {
                acc[i][l] += f.of(a[l].get(i), b[l].get(i));
            }
        }
    }
    let (xs, ys) = (
        xs.remainder().chunks_exact(STEP),
        ys.remainder().chunks_exact(STEP),
    );
    for (a, b) in xs.zip(ys) {
        for l in 0..STEP {
            for i in 0..C::N {
                acc[i][l] += f.of(a[l].get(i), b[l].get(i));
            }
        }
    }
    if n % STEP > 0 {
        // The last ones as a vector, of which those before them become 0. A length that the compiler knows something of would
        // have it take lanes apart.
        let kept = &<C::T as Real>::KEPT[std::hint::black_box(n % STEP)..][..STEP];
        for l in 0..STEP {
            for i in 0..C::N {
                acc[i][l] += f.of(last_x[l].get(i), last_y[l].get(i)).masked(kept[l]);
            }
        }
    }
    together::<C, LANES>(acc)
}

/// The same of up to `N` cells.
#[inline(always)]
fn sum2_of_few<C: Cell, const N: usize>(x: &[C], y: &[C], f: impl Two<C::T>) -> C::T {
    let mut acc = [[<C::T as RealFns>::of(0.0); N]; 2];
    for (l, (x, y)) in x.iter().zip(y).take(N).enumerate() {
        for i in 0..C::N {
            acc[i][l] += f.of(x.get(i), y.get(i));
        }
    }
    together::<C, N>(acc)
}

/// The sum of the lanes of the numbers of cells.
#[inline(always)]
fn together<C: Cell, const N: usize>([mut sums, others]: [[C::T; N]; 2]) -> C::T {
    if C::N > 1 {
        for l in 0..N {
            sums[l] += others[l];
        }
    }
    across(sums, |a, b| a + b)
}

/// The largest value of a row; NaN are passed over.
#[inline(always)]
pub fn max_of<T: Real>(x: &[T]) -> T {
    let larger = |m, v| if v > m { v } else { m };
    let Some(last) = x.last_chunk::<STEP>() else {
        return x.iter().fold(T::LOWEST, |m, &v| larger(m, v));
    };
    let mut acc = [T::LOWEST; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for c in &mut chunks {
        for l in 0..LANES {
            acc[l] = larger(acc[l], c[l]);
        }
    }
    for x in chunks.remainder().chunks_exact(STEP) {
        for l in 0..STEP {
            acc[l] = larger(acc[l], x[l]);
        }
    }
    // Some of them a second time, which changes nothing.
    for l in 0..STEP {
        acc[l] = larger(acc[l], last[l]);
    }
    across(acc, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows whose whole vectors and rests are of all sizes; sums of whole numbers are exact in any order.
    fn of_every_length<T: Real + std::fmt::Debug>() {
        for n in 1..=150 {
            let x: Vec<T> = (0..n)
                .map(|i| T::of(f64::from((i * 37 + n) % 23) - 11.0))
                .collect();
            let total = x.iter().fold(T::of(0.0), |sum, &v| sum + v);
            assert_eq!(sum_by(&x, |v| v), total, "{n}");
            assert_eq!(
                sum2_by(&x, &x, |a, b| a + b + T::of(1.0)),
                total + total + T::of(f64::from(n))
            );
            let most = x.iter().fold(T::LOWEST, |m, &v| if v > m { v } else { m });
            assert_eq!(max_of(&x), most, "{n}");
            let (mut made, mut scaled) = (x.clone(), x.clone());
            map_by(&x, &mut made, |v| v * v);
            scale_by(&mut scaled, T::of(3.0));
            for (i, &v) in x.iter().enumerate() {
                assert_eq!([made[i], scaled[i]], [v * v, v * T::of(3.0)], "{i} of {n}");
            }
        }
    }

    #[test]
    fn rests_of_rows_count_once() {
        of_every_length::<f32>();
        of_every_length::<f64>();
    }

    #[test]
    fn nan_and_infinity_spread_to_sums_alone() {
        for (n, place) in [(20, 3), (20, 19), (43, 27), (100, 85), (9, 8)] {
            let mut x = vec![1.0f32; n];
            x[place] = f32::NAN;
            assert!(sum_by(&x, |v| v).is_nan());
            assert_eq!(max_of(&x), 1.0);
            x[place] = f32::INFINITY;
            assert_eq!(sum_by(&x, |v| v), f32::INFINITY);
            assert_eq!(max_of(&x), f32::INFINITY);
        }
    }
}
