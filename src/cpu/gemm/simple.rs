//! Products of integers: rows of sums over rows of B, which are packed where they do not lie so.

#![allow(unsafe_code, reason = "matrices are walked by pointer")]

use super::{Mat, MatMut, PARALLEL_FROM, Shared};
use crate::cpu::pool;

/// Columns of sums kept at hand.
const WIDTH: usize = 256;

/// As [`gemm`](super::gemm), with the two operations passed in.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn run<T: Copy + Default + PartialEq>(
    m: usize,
    n: usize,
    k: usize,
    alpha: T,
    a: Mat<T>,
    b: Mat<T>,
    beta: T,
    c: MatMut<T>,
    bias: Option<*const T>,
    add: impl Fn(T, T) -> T + Copy,
    mul: impl Fn(T, T) -> T + Copy,
) {
    let zero = T::default();
    let rows = Shared(move |rows: std::ops::Range<usize>| {
        let mut sums = [zero; WIDTH];
        let mut packed = Vec::new();
        for j in (0..n).step_by(WIDTH) {
            let width = WIDTH.min(n - j);
            let sums = &mut sums[..width];
            // SAFETY: within B, or just behind it.
            let mut panel = unsafe { b.at(0, j) };
            if b.cs != 1 {
                packed.resize(k * width, zero);
                for (q, p) in (0..width).flat_map(|q| (0..k).map(move |p| (q, p))) {
                    // SAFETY: within B.
                    packed[p * width + q] = unsafe { *panel.at(p, q).ptr };
                }
                panel = Mat::new(packed.as_ptr(), width as isize, 1);
            }
            for i in rows.clone() {
                sums.fill(zero);
                for p in 0..k {
                    // SAFETY: the caller's; the element lies within A, and a row of the panel has as many as `sums`.
                    let (x, row) = unsafe {
                        let row = panel.at(p, 0).ptr;
                        (*a.at(i, p).ptr, std::slice::from_raw_parts(row, width))
                    };
                    sums.iter_mut()
                        .zip(row)
                        .for_each(|(s, &y)| *s = add(*s, mul(x, y)));
                }
                for (q, &s) in sums.iter().enumerate() {
                    // SAFETY: within C and the bias; rows of different threads are different.
                    unsafe {
                        let at = c.at(i, j + q).ptr;
                        let mut v = mul(alpha, s);
                        if beta != zero {
                            v = add(v, mul(beta, *at));
                        }
                        if let Some(bias) = bias {
                            v = add(v, *bias.add(j + q));
                        }
                        *at = v;
                    }
                }
            }
        }
    });
    let rows = &rows;
    let grain = (PARALLEL_FROM / 4)
        .div_ceil(n.saturating_mul(k).max(1))
        .max(1);
    pool::parallel_for(m, grain, |r| rows.call(r));
}
