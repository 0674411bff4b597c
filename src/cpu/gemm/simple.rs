//! Products of complex numbers and integers: rows of sums, no packing.

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
        for j in (0..n).step_by(WIDTH) {
            let sums = &mut sums[..WIDTH.min(n - j)];
            for i in rows.clone() {
                sums.fill(zero);
                for p in 0..k {
                    // SAFETY: the caller's; the element lies within A.
                    let (x, row) = unsafe { (*a.at(i, p).ptr, b.at(p, j)) };
                    if row.cs == 1 {
                        // SAFETY: as many elements as `sums` follow in this row of B.
                        let row = unsafe { std::slice::from_raw_parts(row.ptr, sums.len()) };
                        sums.iter_mut()
                            .zip(row)
                            .for_each(|(s, &y)| *s = add(*s, mul(x, y)));
                    } else {
                        for (q, s) in sums.iter_mut().enumerate() {
                            // SAFETY: within B.
                            *s = add(*s, mul(x, unsafe { *row.at(0, q).ptr }));
                        }
                    }
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
