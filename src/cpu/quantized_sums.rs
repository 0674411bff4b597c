//! Sums of products of quantised numbers, less their zero points.

#![allow(
    unsafe_code,
    reason = "columns of one result are written by different tasks"
)]

use super::gemm::bytes::{self, TOGETHER};
use super::iter::GRAIN;
use super::lines::{self, Shared};
use super::simd::simd_fn;
use super::{copy, matrix, pool, slice, slice_mut};
use crate::{DType, Result, Tensor, bail};

/// Rows of the input that meet a row of weights while it is in registers.
const ROWS: usize = 4;
/// Rows up to which weights are best read as they are.
const FEW: usize = 8;

simd_fn! { wide
    /// The sum of products of a line of weights, less their zero point, with a line of shorts.
    fn dot(w: &[i8], x: &[i16], zero: i16) -> i32 {
        let mut sum = 0i32;
        for (&w, &x) in w.iter().zip(x) {
            sum = sum.wrapping_add(i32::from(i16::from(w) - zero) * i32::from(x));
        }
        sum
    }
}

simd_fn! { wide
    /// Sums of products of a line of weights, less their zero point, with lines of shorts.
    fn dots(w: &[i8], x: &[&[i16]; ROWS], zero: i16) -> [i32; ROWS] {
        let (mut s0, mut s1, mut s2, mut s3) = (0i32, 0i32, 0i32, 0i32);
        let n = w.len();
        let [x0, x1, x2, x3] = [&x[0][..n], &x[1][..n], &x[2][..n], &x[3][..n]];
        for i in 0..n {
            let v = i32::from(i16::from(w[i]) - zero);
            s0 = s0.wrapping_add(v * i32::from(x0[i]));
            s1 = s1.wrapping_add(v * i32::from(x1[i]));
            s2 = s2.wrapping_add(v * i32::from(x2[i]));
            s3 = s3.wrapping_add(v * i32::from(x3[i]));
        }
        [s0, s1, s2, s3]
    }
}

/// `out[i][j]` is the sum of `(x[i][k] - zero) * (w[j][k] - zeros[j])`, of bytes; `zeros` has one number, or one for each row of the
/// weight. The sums fit into 32 bits.
///
/// # Errors
/// If a zero point is farther from zero than a byte reaches, where sums of shorts would not be exact, or memory cannot be had.
pub fn sums(out: &Tensor, x: &Tensor, zero: i64, w: &Tensor, zeros: &Tensor) -> Result<()> {
    let zeros = copy::dense(zeros, DType::I64)?;
    let zeros = slice::<i64>(&zeros);
    if let Some(far) = zeros.iter().chain([&zero]).find(|z| z.unsigned_abs() > 255) {
        bail!(Runtime, "zero_point {far} is no byte");
    }
    let zeros: Vec<i32> = zeros.iter().map(|&z| z as i32).collect();
    let made = lines::results(out, DType::I32)?;
    let (x, w) = (copy::dense(x, x.dtype())?, copy::dense(w, DType::I8)?);
    if x.shape()[0] as usize <= FEW {
        if !few_bytes(&made, &x, zero as i32, &w, &zeros) {
            few_rows(&made, &x, zero as i16, &w, &zeros);
        }
    } else {
        many_rows(&made, &x, zero as i32, &w, &zeros)?;
    }
    lines::put(out, &made)
}

/// The integers of a matrix, row after row, as shorts less a zero point.
fn shorts(x: &Tensor, zero: i16) -> Vec<i16> {
    match x.dtype() {
        DType::U8 => slice::<u8>(x)
            .iter()
            .map(|&v| i16::from(v) - zero)
            .collect(),
        _ => slice::<i8>(x)
            .iter()
            .map(|&v| i16::from(v) - zero)
            .collect(),
    }
}

/// The sums of few rows of bytes by products of bytes, less what zero points add; false where the machine has none.
fn few_bytes(made: &Tensor, x: &Tensor, zero: i32, w: &Tensor, zeros: &[i32]) -> bool {
    let [m, k] = [0, 1].map(|d| x.shape()[d] as usize);
    let n = w.shape()[0] as usize;
    if x.dtype() != DType::U8 || !bytes::has_vectors() {
        return false;
    }
    let (weights, x) = (slice::<i8>(w), slice::<u8>(x));
    let rows: Vec<&[u8]> = (0..m).map(|i| &x[i * k..(i + 1) * k]).collect();
    // What a step of a weight's zero point takes from the sums of a row.
    let own: Vec<i32> = rows
        .iter()
        .map(|x| sum_of(x, false) - zero * k as i32)
        .collect();
    let to = Shared::new(slice_mut::<i32>(made));
    let line = |j: usize| &weights[j.min(n - 1) * k..][..k];
    let grain = (GRAIN * 4 / (k * m).max(1)).max(1);
    pool::parallel_for(n.div_ceil(TOGETHER), grain, |range| {
        for first in range.map(|i| i * TOGETHER) {
            let lines: [&[i8]; TOGETHER] = std::array::from_fn(|j| line(first + j));
            let put = |i: usize, j: usize, sum: i32, all: i32| {
                let j = first + j;
                if j < n {
                    let each = zeros[j % zeros.len()];
                    let sum = sum
                        .wrapping_sub(zero.wrapping_mul(all))
                        .wrapping_sub(each.wrapping_mul(own[i]));
                    // SAFETY: each column belongs to one task.
                    unsafe { to.part(i * n + j, 1)[0] = sum };
                }
            };
            let whole = m / ROWS * ROWS;
            for i in (0..whole).step_by(ROWS) {
                let rows: [&[u8]; ROWS] = std::array::from_fn(|r| rows[i + r]);
                if let Some((sums, all)) = bytes::dots(lines, rows) {
                    for (j, sums) in sums.iter().enumerate() {
                        (i..).zip(sums).for_each(|(i, &sum)| put(i, j, sum, all[j]));
                    }
                }
            }
            for i in whole..m {
                if let Some((sums, all)) = bytes::dots(lines, [rows[i]]) {
                    (0..TOGETHER).for_each(|j| put(i, j, sums[j][0], all[j]));
                }
            }
        }
    });
    true
}

/// The sums of few rows: weights are read as they are.
fn few_rows(made: &Tensor, x: &Tensor, zero: i16, w: &Tensor, zeros: &[i32]) {
    let [m, k] = [0, 1].map(|d| x.shape()[d] as usize);
    let n = w.shape()[0] as usize;
    let shorts = shorts(x, zero);
    let weights = slice::<i8>(w);
    let to = Shared::new(slice_mut::<i32>(made));
    let grain = (GRAIN * 4 / (k * m).max(1)).max(1);
    pool::parallel_for(n, grain, |range| {
        for j in range {
            let line = &weights[j * k..(j + 1) * k];
            let zero = zeros[j % zeros.len()] as i16;
            let row = |i: usize| &shorts[i * k..(i + 1) * k];
            // SAFETY: each column belongs to one task.
            let put = |i: usize, sum: i32| unsafe { to.part(i * n + j, 1)[0] = sum };
            let whole = m / ROWS * ROWS;
            for i in (0..whole).step_by(ROWS) {
                let sums = dots(line, &std::array::from_fn(|r| row(i + r)), zero);
                (i..).zip(sums).for_each(|(i, sum)| put(i, sum));
            }
            (whole..m).for_each(|i| put(i, dot(line, row(i), zero)));
        }
    });
}

simd_fn! { wide
    /// The sum of a line of bytes.
    fn sum_of(x: &[u8], signed: bool) -> i32 {
        if signed {
            x.iter().map(|&v| i32::from(v as i8)).sum()
        } else {
            x.iter().map(|&v| i32::from(v)).sum()
        }
    }
}

simd_fn! { wide
    /// Products of a row with all weights become those of what is less the zero points: `own` is what this takes from all, and
    /// `each` from every column, `row` times as much.
    fn less(sums: &mut [i32], own: &[i32], each: &[i32], row: i32) {
        for ((sum, &own), &each) in sums.iter_mut().zip(own).zip(each) {
            *sum = sum.wrapping_sub(own).wrapping_sub(each.wrapping_mul(row));
        }
    }
}

/// The sums of many rows: the product of the bytes, less what zero points add to it.
fn many_rows(made: &Tensor, x: &Tensor, zero: i32, w: &Tensor, zeros: &[i32]) -> Result<()> {
    let k = x.shape()[1] as usize;
    let n = w.shape()[0] as usize;
    let bytes = |t: &Tensor| {
        // SAFETY: a dense tensor of bytes.
        unsafe { std::slice::from_raw_parts(t.data_ptr().cast_const(), t.numel() as usize) }
    };
    matrix::product_of_bytes(made, x, &w.swapped(0, 1))?;
    let (of_x, of_w) = (bytes(x), bytes(w));
    let signed = x.dtype() == DType::I8;
    let each: Vec<i32> = (0..n).map(|j| zeros[j % zeros.len()]).collect();
    // What the input's zero point takes, but for the product of both: that is part of every row's sum.
    let mut own = vec![0; n];
    let to = Shared::new(&mut own);
    let grain = (GRAIN * 8 / k.max(1)).max(1);
    pool::parallel_for(n, grain, |range| {
        for j in range {
            // SAFETY: each sum belongs to one task.
            unsafe { to.part(j, 1)[0] = zero * sum_of(&of_w[j * k..][..k], true) };
        }
    });
    let to = Shared::new(slice_mut::<i32>(made));
    let rows = x.shape()[0] as usize;
    pool::parallel_for(rows, (GRAIN * 8 / (k + n).max(1)).max(1), |range| {
        for i in range {
            let row = sum_of(&of_x[i * k..][..k], signed) - zero * k as i32;
            // SAFETY: each row belongs to one task.
            less(unsafe { to.part(i * n, n) }, &own, &each, row);
        }
    });
    Ok(())
}
