//! Sums of columns of matrices, a block of columns at a time: of a size that the compiler knows, so that their sums stay
//! in registers.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::Real;
use super::lines::Shared;
use super::pool;
use super::stored::Stored;
use crate::cpu::simd::simd_fn;

/// Columns of a block, whose numbers stay in registers while rows pass by.
pub const BLOCK: usize = 64;
/// Rows whose sums are taken over in double precision together.
const STEPS: usize = 128;
/// Elements of a part.
const PART: usize = 65536;

/// What an element adds to the two sums of its column.
pub trait Terms<T>: Copy + Sync {
    /// The terms of an element of two matrices, where `mean` belongs to its column.
    fn of(self, g: T, x: T, mean: T) -> [T; 2];
}

/// The elements of the first matrix.
#[derive(Clone, Copy)]
pub struct Plain;
/// Squares of distances of the second matrix from the mean.
#[derive(Clone, Copy)]
pub struct Squares;
/// The elements of the first matrix, and their products with distances of the second from the mean.
#[derive(Clone, Copy)]
pub struct Products;

impl<T: Real> Terms<T> for Plain {
    #[inline(always)]
    fn of(self, g: T, _: T, _: T) -> [T; 2] {
        [g, T::of(0.0)]
    }
}
impl<T: Real> Terms<T> for Squares {
    #[inline(always)]
    fn of(self, _: T, x: T, mean: T) -> [T; 2] {
        [(x - mean) * (x - mean), T::of(0.0)]
    }
}
impl<T: Real> Terms<T> for Products {
    #[inline(always)]
    fn of(self, g: T, x: T, mean: T) -> [T; 2] {
        [g, g * (x - mean)]
    }
}

/// The two sums of each column of matrices with rows of `mean.len()` elements. Parts of the rows are summed side by side, as
/// many as the size asks for, whatever the threads.
pub fn sums<E: Stored, O: Terms<E::Wide>>(
    g: &[E],
    x: &[E],
    mean: &[E::Wide],
    terms: O,
) -> [Vec<f64>; 2] {
    let n = mean.len();
    let rows = x.len().checked_div(n).unwrap_or(0);
    let parts = (x.len() / PART).clamp(1, 32).min(rows.max(1));
    let each = rows.div_ceil(parts);
    let mut all = vec![0f64; 2 * n * parts];
    let shared = Shared::new(&mut all);
    let alike = std::ptr::eq(g, x);
    pool::parallel_for(parts, 1, |range| {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for p in range {
            // SAFETY: every part has its own sums.
            let (a, b) = unsafe { shared.part(2 * n * p, 2 * n) }.split_at_mut(n);
            let rows = (p * each * n).min(rows * n)..((p + 1) * each * n).min(rows * n);
            let chunks = x[rows.clone()].chunks((n * STEPS).max(1));
            for (g, x) in g[rows].chunks((n * STEPS).max(1)).zip(chunks) {
                let g = E::wide(g, &mut first);
                let x = if alike { g } else { E::wide(x, &mut second) };
                add(g, x, mean, terms, a, b);
            }
        }
    });
    let mut sums = [vec![0.0; n], vec![0.0; n]];
    for part in all.chunks_exact((2 * n).max(1)) {
        for (sum, part) in sums.iter_mut().zip(part.chunks_exact(n)) {
            sum.iter_mut().zip(part).for_each(|(s, v)| *s += v);
        }
    }
    sums
}

simd_fn! { wide
    /// Adds up to [`STEPS`] rows.
    fn add<T: Real, O: Terms<T>>(g: &[T], x: &[T], mean: &[T], terms: O, a: &mut [f64], b: &mut [f64]) {
        let n = mean.len();
        let whole = n / BLOCK * BLOCK;
        for c in (0..whole).step_by(BLOCK) {
            let Some(m) = mean[c..].first_chunk::<BLOCK>() else { return };
            let (mut p, mut q) = ([T::of(0.0); BLOCK], [T::of(0.0); BLOCK]);
            for (g, x) in g.chunks_exact(n).zip(x.chunks_exact(n)) {
                let (Some(g), Some(x)) = (g[c..].first_chunk::<BLOCK>(), x[c..].first_chunk::<BLOCK>()) else { return };
                for l in 0..BLOCK {
                    let [s, t] = terms.of(g[l], x[l], m[l]);
                    p[l] += s;
                    q[l] += t;
                }
            }
            for l in 0..BLOCK {
                a[c + l] += p[l].f64_();
                b[c + l] += q[l].f64_();
            }
        }
        let (mut p, mut q) = ([T::of(0.0); BLOCK], [T::of(0.0); BLOCK]);
        for (g, x) in g.chunks_exact(n).zip(x.chunks_exact(n)) {
            for (l, ((&g, &x), &m)) in g[whole..].iter().zip(&x[whole..]).zip(&mean[whole..]).enumerate() {
                let [s, t] = terms.of(g, x, m);
                p[l] += s;
                q[l] += t;
            }
        }
        for l in 0..n - whole {
            a[whole + l] += p[l].f64_();
            b[whole + l] += q[l].f64_();
        }
    }
}
