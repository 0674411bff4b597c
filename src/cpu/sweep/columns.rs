//! The loops of a reduction down columns.

#![allow(unsafe_code, reason = "folds over raw, checked memory")]

use super::{FEW, Job, LANES, WIDTH, abreast, brief_runs, filled, run_count, run_start, unrolled};
use crate::cpu::folds::{Fold, Widen};
use crate::cpu::simd::Level;
use std::mem::MaybeUninit;

/// Rows that a column fold joins before it joins the wide results.
const ROWS: usize = 256;
/// Rows that a column fold takes at a time.
const DEEP: usize = 8;
/// Columns that are folded together, where there are as many.
const SOME: usize = 32;
/// Fewer columns leave lanes unused, or a part of them to be folded one by one.
const NARROW: usize = WIDTH / FEW;

/// `N` neighbouring columns of so many rows, `s` bytes apart.
#[inline(always)]
unsafe fn stacked<F: Fold, const N: usize, const LEVEL: u8>(
    (q, s, rows): (*const u8, isize, usize),
    e: f64,
) -> [F::Part; N] {
    let mut acc = [F::ZERO; N];
    for k in 0..rows as isize {
        // SAFETY: the caller gives N elements in each row.
        let x = unsafe { F::In::group::<N, LEVEL>(q.offset(k * s).cast()) };
        for l in 0..N {
            acc[l] = F::step(acc[l], x[l], e);
        }
    }
    acc
}

/// Joins them with what the columns have.
#[inline(always)]
unsafe fn deep<F: Fold, const N: usize, const LEVEL: u8>(
    parts: *mut F::Part,
    rows: (*const u8, isize, usize),
    e: f64,
) {
    // SAFETY: the caller gives N partial results and N elements in each row.
    unsafe {
        let acc = stacked::<F, N, LEVEL>(rows, e);
        let parts = parts.cast::<[F::Part; N]>();
        let mut all = parts.read();
        for l in 0..N {
            all[l] = F::join(all[l], acc[l]);
        }
        parts.write(all);
    }
}

/// So many rows of all columns, which are neighbours.
#[inline(always)]
unsafe fn rows_of<F: Fold, const LEVEL: u8>(
    parts: &mut [F::Part],
    (q, s, rows): (*const u8, isize, usize),
    e: f64,
) {
    let (item, m, to) = (size_of::<F::In>(), parts.len(), parts.as_mut_ptr());
    let mut j = 0;
    // SAFETY: the caller gives as many columns as there are parts, and is compiled for the level.
    unsafe {
        let pairs = rows.is_multiple_of(2);
        if let Some(written) = F::AVX2.filter(|_| LEVEL >= Level::Avx2 as u8 && pairs) {
            j = m / FEW * FEW;
            (written.columns)(to, j, q, s, rows);
        }
        while unrolled(LEVEL) && j + SOME <= m {
            deep::<F, SOME, LEVEL>(to.add(j), (q.add(j * item), s, rows), e);
            j += SOME;
        }
        while unrolled(LEVEL) && j + FEW <= m {
            deep::<F, FEW, LEVEL>(to.add(j), (q.add(j * item), s, rows), e);
            j += FEW;
        }
        while j < m {
            deep::<F, 1, LEVEL>(to.add(j), (q.add(j * item), s, rows), e);
            j += 1;
        }
    }
}

/// So many rows of all columns, which lie `step` bytes apart.
#[inline(never)]
unsafe fn rows_apart<F: Fold>(
    parts: &mut [F::Part],
    (q, step): (*const u8, isize),
    rows: (usize, isize),
    e: f64,
) {
    let at = |j: usize| (q.wrapping_offset(j as isize * step), step);
    let (some, rest) = parts.as_chunks_mut::<FEW>();
    let whole = some.len() * FEW;
    // SAFETY: the caller gives as many columns as there are parts.
    unsafe {
        for (j, parts) in some.iter_mut().enumerate() {
            let more = abreast::<F, FEW>(at(j * FEW), rows, e);
            for (part, more) in parts.iter_mut().zip(more) {
                *part = F::join(*part, more);
            }
        }
        for (j, part) in (whole..).zip(rest) {
            let [more] = abreast::<F, 1>(at(j), rows, e);
            *part = F::join(*part, more);
        }
    }
}

/// All outputs at once: the kept dimension is the one to run along.
#[inline(always)]
pub(super) unsafe fn cols_body<F: Fold, const LEVEL: u8>(job: Job, accs: &mut [F::Acc]) {
    let m = accs.len();
    let (&(n, s), outer) = job.red.split_first().unwrap_or((&(1, 0), &[]));
    let item = size_of::<F::In>() as isize;
    if unrolled(LEVEL) && outer.is_empty() && n <= DEEP {
        // SAFETY: the job stays within the tensor.
        return unsafe { shallow::<F, LEVEL>(job, (s, n), accs) };
    }
    // Narrow rows that follow each other are taken as wide ones, whose partial results are joined at last.
    let narrow = job.step == item && s == m as isize * item && m < NARROW;
    let beside = if unrolled(LEVEL) && narrow && !m.is_multiple_of(SOME) {
        FEW * (LANES / (FEW * m)).max(1)
    } else {
        1
    };
    let mut first = true;
    for k in 0..run_count(outer) {
        let base = run_start(job.base, outer, k);
        let whole = if beside > 1 { n / beside } else { 0 };
        let rest = n - whole * beside;
        let behind = base.wrapping_offset((n - rest) as isize * s);
        let wide = ((base, beside as isize * s, whole), (m * beside, item));
        for (rows, (width, step)) in [wide, ((behind, s, rest), (m, job.step))] {
            // SAFETY: the job stays within the tensor.
            unsafe { down::<F, LEVEL>(rows, (width, step, job.p), accs, &mut first) };
        }
    }
}

/// Columns of few rows: their results need no place in between.
#[inline(always)]
unsafe fn shallow<F: Fold, const LEVEL: u8>(job: Job, (s, n): (isize, usize), accs: &mut [F::Acc]) {
    let at = |j: usize| job.base.wrapping_offset(j as isize * job.step);
    let dense = job.step == size_of::<F::In>() as isize;
    let mut done = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while dense && done + SOME <= accs.len() {
            let parts = stacked::<F, SOME, LEVEL>((at(done), s, n), job.p);
            for (acc, part) in accs[done..].iter_mut().zip(parts) {
                *acc = F::lift(part);
            }
            done += SOME;
        }
        let base = at(done);
        brief_runs::<F>(Job { base, ..job }, &mut accs[done..]);
    }
}

/// Joins rows, `s` bytes apart and so many, of `width` elements, `step` bytes apart, with the results of columns: as many, or a
/// part of a row after the other. The first ones take the results' place.
#[inline(always)]
unsafe fn down<F: Fold, const LEVEL: u8>(
    (base, s, n): (*const u8, isize, usize),
    (width, step, e): (usize, isize, f64),
    accs: &mut [F::Acc],
    first: &mut bool,
) {
    let dense = step == size_of::<F::In>() as isize;
    let mut at = 0;
    while at < n {
        let rows = ROWS.min(n - at);
        let mut room = [MaybeUninit::<F::Part>::uninit(); WIDTH];
        let parts = filled(&mut room, width, F::ZERO);
        let mut r = 0;
        while r < rows {
            let q = base.wrapping_offset((at + r) as isize * s);
            let deep = unrolled(LEVEL) && r + DEEP <= rows;
            let deep = if deep { DEEP } else { 1 };
            // SAFETY: the rows are there, and `parts` has as many places.
            unsafe {
                if dense {
                    rows_of::<F, LEVEL>(parts, (q, s, deep), e);
                } else {
                    rows_apart::<F>(parts, (q, step), (deep, s), e);
                }
            }
            r += deep;
        }
        for parts in parts.chunks_exact(accs.len()) {
            for (a, p) in accs.iter_mut().zip(parts) {
                let lifted = F::lift(*p);
                *a = if *first { lifted } else { F::merge(*a, lifted) };
            }
            *first = false;
        }
        at += rows;
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::copy::converted;
    use crate::cpu::reduce::{Kind, Post, run_kind};
    use crate::{DType, Device, Tensor};

    /// What a kind makes of numbers.
    fn plain(kind: Kind, x: impl Iterator<Item = f64>) -> f64 {
        match kind {
            Kind::Sum => x.sum(),
            Kind::Max => x.fold(f64::NEG_INFINITY, f64::max),
            Kind::Min => x.fold(f64::INFINITY, f64::min),
            Kind::Any => f64::from(x.fold(false, |any, v| any | (v != 0.0))),
            _ => f64::from(x.fold(true, |all, v| all & (v != 0.0))),
        }
    }

    /// The reduction over the second dimension, of views with these steps, agrees with a plain loop.
    fn check(kind: Kind, d: DType, [kept, n]: [i64; 2], steps: [i64; 2]) {
        let values: Vec<f64> = (0..7000).map(|i| f64::from((i * 37) % 23)).collect();
        let wide = Tensor::from_slice(&values, &[7000]).expect("a tensor");
        let all = converted(&wide, d).expect("a conversion");
        let view = all.view_with([kept, n].into(), steps.into(), 3);
        let truth = matches!(kind, Kind::Any | Kind::All);
        let made = if truth { DType::Bool } else { d };
        let out = Tensor::empty(&[kept], made, Device::CPU).expect("memory");
        run_kind(kind, &out, &view, &[1], 0.0, Post::None).expect("a fold");
        let got = converted(&out, DType::F64).expect("a conversion");
        let got = got.to_vec::<f64>().expect("numbers");
        for (j, got) in got.into_iter().enumerate() {
            let at = |k: i64| values[(3 + j as i64 * steps[0] + k * steps[1]) as usize];
            let want = plain(kind, (0..n).map(at));
            assert_eq!(got, want, "{kind:?} {d} {kept}x{n} {steps:?} {j}");
        }
    }

    #[test]
    fn few_elements_or_outputs_in_any_layout() {
        use DType::{Bool, F16, F32, F64, I8, I16, I32, I64, U8};
        for kind in [Kind::Sum, Kind::Max, Kind::Min, Kind::Any, Kind::All] {
            for d in [U8, I8, I16, I32, I64, F16, F32, F64, Bool] {
                // What does not fit, and what is no number.
                let fits = !matches!(
                    (kind, d),
                    (Kind::Sum, U8 | I8) | (Kind::Sum | Kind::Max | Kind::Min, Bool)
                );
                if !fits {
                    continue;
                }
                for (kept, n) in [
                    (1, 3),
                    (7, 1),
                    (9, 2),
                    (33, 7),
                    (41, 8),
                    (70, 9),
                    (3, 17),
                    (40, 16),
                ] {
                    for steps in [
                        [n, 1],
                        [1, kept],
                        [2 * n, 2],
                        [2, 2 * kept],
                        [0, 1],
                        [1, 0],
                        [n + 1, 1],
                    ] {
                        check(kind, d, [kept, n], steps);
                    }
                }
            }
        }
    }
}
