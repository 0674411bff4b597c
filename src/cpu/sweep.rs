//! The loops of a reduction: along rows, or down columns.
//!
//! Long runs are folded in blocks of many lanes in the element's own precision, and the blocks joined in a wider one,
//! so that sums are both vectorised and accurate.

#![allow(unsafe_code, reason = "folds over raw, checked memory")]

mod columns;

use super::folds::{Fold, Plain, Widen};
use super::simd::Level;
use columns::cols_body;
use std::mem::MaybeUninit;

/// Elements that one block folds before it joins the wide result.
const BLOCK: usize = 16 * 1024;
/// Elements that a lane sums before they join what it has: long sums in one go would lose digits.
const DEPTH: usize = 16;
/// Elements that are brought together.
const ROOM: usize = 512;
/// Rows that are worth joining a slice's results for.
pub const SLICE_ROWS: usize = 128;
/// Outputs a task computes at most.
pub const WIDTH: usize = 1024;
/// Independent partial results of a contiguous run: enough vectors to hide an addition's latency, and few enough to
/// stay in registers for elements of every size.
pub const LANES: usize = 64;
/// The same for runs shorter than [`LANES`].
const FEW: usize = 8;

/// What a task folds: as many outputs as it is given accumulators, whose inputs start `step` bytes apart, each over
/// the dimensions `red` (size and step in bytes, innermost first).
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The first element of the first output.
    pub base: *const u8,
    /// Bytes from output to output.
    pub step: isize,
    /// Reduced dimensions.
    pub red: &'a [(usize, isize)],
    /// The exponent of powers.
    pub p: f64,
}

/// Folds the outputs of a job into accumulators, along rows if the first argument says so.
pub type Kernel<A> = unsafe fn(bool, Job, &mut [A]);

/// How many innermost runs a nest has.
#[inline(never)]
fn run_count(outer: &[(usize, isize)]) -> usize {
    outer.iter().map(|d| d.0).product()
}

/// The start of the `k`-th of them. (No callback: it would be compiled without the vector instructions.)
#[inline(always)]
fn run_start(base: *const u8, outer: &[(usize, isize)], k: usize) -> *const u8 {
    match outer {
        [] => base,
        [(_, s)] => base.wrapping_offset(k as isize * s),
        _ => far_start(base, outer, k),
    }
}

#[inline(never)]
fn far_start(base: *const u8, outer: &[(usize, isize)], k: usize) -> *const u8 {
    let (mut rest, mut q) = (k, base);
    for (n, s) in outer {
        q = q.wrapping_offset((rest % n) as isize * s);
        rest /= n;
    }
    q
}

/// Whether a level gets loops in lanes: machines without AVX2 have too few registers for many, and are too few themselves
/// for more code.
#[inline(always)]
const fn unrolled(level: u8) -> bool {
    level > Level::Baseline as u8 || cfg!(not(target_arch = "x86_64"))
}

/// A dense run in `N` lanes.
#[inline(always)]
unsafe fn lanes<F: Fold, const N: usize, const LEVEL: u8>(
    q: *const F::In,
    n: usize,
    e: f64,
) -> F::Part {
    if F::EXACT {
        let mut part = F::ZERO;
        for i in 0..n {
            // SAFETY: the caller gives n elements.
            part = F::step(part, unsafe { *q.add(i) }.widen(), e);
        }
        return part;
    }
    let mut lanes = [F::ZERO; N];
    let whole = n / N * N;
    let mut i = 0;
    // SAFETY: the caller gives n elements.
    unsafe {
        while i < whole {
            let stop = whole.min(i + DEPTH * N);
            let mut part = [F::ZERO; N];
            while i < stop {
                let x = F::In::group::<N, LEVEL>(q.add(i));
                for l in 0..N {
                    part[l] = F::step(part[l], x[l], e);
                }
                i += N;
            }
            for l in 0..N {
                lanes[l] = F::join(lanes[l], part[l]);
            }
        }
        macro_rules! rest {
            ($($m:expr),+) => { $(
                while N > $m && i + $m <= n {
                    let x = F::In::group::<{ $m }, LEVEL>(q.add(i));
                    for l in 0..$m {
                        lanes[l % N] = F::step(lanes[l % N], x[l], e);
                    }
                    i += $m;
                }
            )+ };
        }
        rest!(LANES / 2, FEW);
        for k in i..n {
            lanes[k - i] = F::step(lanes[k - i], (*q.add(k)).widen(), e);
        }
    }
    joined::<F, N>(lanes)
}

/// The partial results of lanes as one.
#[inline(always)]
fn joined<F: Fold, const N: usize>(mut lanes: [F::Part; N]) -> F::Part {
    let mut width = N / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] = F::join(lanes[l], lanes[l + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// A long dense run; on its own, where the compiler keeps all lanes in registers.
#[inline(never)]
unsafe fn long_base<F: Fold>(q: *const F::In, n: usize, e: f64) -> F::Part {
    // SAFETY: as the caller promises.
    unsafe { lanes::<Plain<F>, LANES, { Level::Baseline as u8 }>(q, n, e) }
}
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn long_avx2<F: Fold>(q: *const F::In, n: usize, e: f64) -> F::Part {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(written) = F::AVX2 {
            return (written.run)(q, n);
        }
        if size_of::<F::Part>() >= 8 {
            lanes::<F, { LANES / 2 }, { Level::Avx2 as u8 }>(q, n, e)
        } else {
            lanes::<F, LANES, { Level::Avx2 as u8 }>(q, n, e)
        }
    }
}
#[inline(always)]
unsafe fn long<F: Fold, const LEVEL: u8>(q: *const F::In, n: usize, e: f64) -> F::Part {
    // SAFETY: as the caller promises.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if LEVEL == Level::Avx2 as u8 {
            return long_avx2::<F>(q, n, e);
        }
        long_base::<F>(q, n, e)
    }
}

/// A line's elements joined, in the type of partial results: for extremes, which are elements themselves.
#[must_use]
pub fn whole<F: Fold>(x: &[F::In]) -> F::Part {
    let mut part = F::ZERO;
    for block in x.chunks(BLOCK) {
        let (q, n) = (block.as_ptr(), block.len());
        #[cfg(target_arch = "x86_64")]
        if super::simd::level() != Level::Baseline {
            // SAFETY: the block's elements; the machine has these instructions.
            part = F::join(part, unsafe { long_avx2::<F>(q, n, 0.0) });
            continue;
        }
        // SAFETY: the block's elements.
        part = F::join(part, unsafe { long_base::<F>(q, n, 0.0) });
    }
    part
}

/// A dense run of at least [`FEW`] elements, or any of a fold that may take them in any order.
#[inline(always)]
unsafe fn dense<F: Fold, const LEVEL: u8>(q: *const F::In, n: usize, e: f64) -> F::Part {
    // SAFETY: as the caller promises.
    unsafe {
        if n >= LANES || F::EXACT || F::AVX2.is_some() && LEVEL >= Level::Avx2 as u8 {
            long::<F, LEVEL>(q, n, e)
        } else {
            lanes::<F, FEW, LEVEL>(q, n, e)
        }
    }
}

#[inline(always)]
unsafe fn run<F: Fold, const LEVEL: u8>(p: *const u8, step: isize, n: usize, e: f64) -> F::Acc {
    let item = size_of::<F::In>() as isize;
    // Elements that lie apart are brought together first: one by one they would wait for each other.
    let apart = unrolled(LEVEL) && step != item && n >= FEW;
    let (most, stride) = if apart { (ROOM, item) } else { (BLOCK, step) };
    let mut room = [MaybeUninit::<F::In>::uninit(); ROOM];
    let mut acc: Option<F::Acc> = None;
    let mut at = 0;
    while at < n {
        let m = most.min(n - at);
        // SAFETY: the caller gives n elements `step` bytes apart.
        let part = unsafe {
            let mut q = p.offset(at as isize * step);
            if apart {
                for (i, to) in room[..m].iter_mut().enumerate() {
                    to.write(*q.offset(i as isize * step).cast::<F::In>());
                }
                q = room.as_ptr().cast();
            }
            if unrolled(LEVEL) && stride == item && (m >= FEW || F::EXACT) {
                dense::<F, LEVEL>(q.cast(), m, e)
            } else {
                let mut part = F::ZERO;
                for i in 0..m as isize {
                    part = F::step(part, (*q.offset(i * stride).cast::<F::In>()).widen(), e);
                }
                part
            }
        };
        let lifted = F::lift(part);
        acc = Some(match acc {
            Some(a) => F::merge(a, lifted),
            None => lifted,
        });
        if F::done(part) {
            break;
        }
        at += m;
    }
    acc.unwrap_or(F::lift(F::ZERO))
}

/// The first `m` places of a buffer, set to `value`; the rest is never touched, as tiny reductions are frequent.
#[inline(always)]
pub fn filled<T: Copy>(room: &mut [MaybeUninit<T>; WIDTH], m: usize, value: T) -> &mut [T] {
    let used = &mut room[..m];
    used.iter_mut().for_each(|x| *x = MaybeUninit::new(value));
    // SAFETY: all of `used` has just been written, and MaybeUninit has the layout of what it holds.
    unsafe { &mut *(std::ptr::from_mut(used) as *mut [T]) }
}

/// Outputs one by one: the innermost reduced dimension is the one to run along.
#[inline(always)]
unsafe fn rows_body<F: Fold, const LEVEL: u8>(job: Job, accs: &mut [F::Acc]) {
    let Some((&(n, s), outer)) = job.red.split_first() else {
        return;
    };
    let runs = run_count(outer);
    if unrolled(LEVEL) && s == size_of::<F::In>() as isize && n < LANES && accs.len() < FEW {
        for (j, acc) in accs.iter_mut().enumerate() {
            let base = job.base.wrapping_offset(j as isize * job.step);
            // SAFETY: the job stays within the tensor.
            *acc = unsafe { short_runs::<F, LEVEL>(base, n, outer, job.p) };
        }
        return;
    }
    if unrolled(LEVEL) && n <= brief::<F>() {
        // SAFETY: the job stays within the tensor.
        unsafe { brief_runs::<F>(job, accs) };
        return;
    }
    for (j, acc) in accs.iter_mut().enumerate() {
        let mut total: Option<F::Acc> = None;
        let base = job.base.wrapping_offset(j as isize * job.step);
        for k in 0..runs {
            // SAFETY: the job stays within the tensor.
            let a = unsafe { run::<F, LEVEL>(run_start(base, outer, k), s, n, job.p) };
            total = Some(match total {
                Some(t) => F::merge(t, a),
                None => a,
            });
        }
        if let Some(t) = total {
            *acc = t;
        }
    }
}

/// One output of dense runs of `n` elements, fewer than fill many lanes: lanes are joined once for all of a block.
#[inline(always)]
unsafe fn short_runs<F: Fold, const LEVEL: u8>(
    base: *const u8,
    n: usize,
    outer: &[(usize, isize)],
    e: f64,
) -> F::Acc {
    let (runs, together) = (run_count(outer), (DEPTH * FEW).div_ceil(n.max(1)));
    let mut acc: Option<F::Acc> = None;
    for first in (0..runs).step_by(together) {
        let mut lanes = [F::ZERO; FEW];
        for k in first..runs.min(first + together) {
            let q = run_start(base, outer, k).cast::<F::In>();
            let mut i = 0;
            // SAFETY: the caller gives n elements of each run.
            unsafe {
                while i + FEW <= n {
                    let x = F::In::group::<FEW, LEVEL>(q.add(i));
                    for l in 0..FEW {
                        lanes[l] = F::step(lanes[l], x[l], e);
                    }
                    i += FEW;
                }
                for l in 0..n - i {
                    lanes[l] = F::step(lanes[l], (*q.add(i + l)).widen(), e);
                }
            }
        }
        let part = joined::<F, FEW>(lanes);
        let lifted = F::lift(part);
        acc = Some(acc.map_or(lifted, |acc| F::merge(acc, lifted)));
        if F::done(part) {
            break;
        }
    }
    acc.unwrap_or(F::lift(F::ZERO))
}

/// The longest row that is folded one element after the other, beside those of other rows: shorter ones than fill vectors well.
#[inline(always)]
const fn brief<F: Fold>() -> usize {
    match size_of::<F::In>() {
        // Such as are widened in vectors.
        size if size < size_of::<<F::In as Widen>::Wide>() => FEW - 1,
        8.. => 32,
        4.. => 24,
        _ => 16,
    }
}

/// `N` outputs side by side, `step` bytes apart, of so many elements, `s` bytes apart: none waits for another's.
#[inline(always)]
unsafe fn abreast<F: Fold, const N: usize>(
    (q, step): (*const u8, isize),
    (n, s): (usize, isize),
    e: f64,
) -> [F::Part; N] {
    let mut parts = [F::ZERO; N];
    for k in 0..n as isize {
        let q = q.wrapping_offset(k * s);
        for l in 0..N {
            // SAFETY: the caller gives n elements of each.
            let x = unsafe { *q.offset(l as isize * step).cast::<F::In>() };
            parts[l] = F::step(parts[l], x.widen(), e);
        }
    }
    parts
}

/// The outputs of a job whose runs are short, [`FEW`] at a time: single elements need no instructions of a level.
#[inline(never)]
unsafe fn brief_runs<F: Fold>(job: Job, accs: &mut [F::Acc]) {
    let Some((&run, outer)) = job.red.split_first() else {
        return;
    };
    let runs = run_count(outer);
    let mut first = 0;
    while first < accs.len() {
        let base = job.base.wrapping_offset(first as isize * job.step);
        let some = FEW.min(accs.len() - first);
        for k in 0..runs {
            let q = run_start(base, outer, k);
            let accs = accs[first..][..some].iter_mut().enumerate();
            let join = |acc: &mut F::Acc, part: F::Part| {
                let lifted = F::lift(part);
                *acc = if k == 0 {
                    lifted
                } else {
                    F::merge(*acc, lifted)
                };
            };
            // SAFETY: as the caller promises.
            unsafe {
                if some == FEW {
                    let parts = abreast::<F, FEW>((q, job.step), run, job.p);
                    accs.zip(parts).for_each(|((_, acc), part)| join(acc, part));
                } else {
                    for (j, acc) in accs {
                        let q = q.wrapping_offset(j as isize * job.step);
                        let [part] = abreast::<F, 1>((q, job.step), run, job.p);
                        join(acc, part);
                    }
                }
            }
        }
        first += some;
    }
}

#[inline(always)]
unsafe fn body<F: Fold, const LEVEL: u8>(rows: bool, job: Job, accs: &mut [F::Acc]) {
    // SAFETY: as the caller promises.
    unsafe {
        if rows {
            rows_body::<F, LEVEL>(job, accs)
        } else {
            cols_body::<F, LEVEL>(job, accs)
        }
    }
}

unsafe fn base<F: Fold>(rows: bool, job: Job, accs: &mut [F::Acc]) {
    // SAFETY: as the caller promises.
    unsafe { body::<Plain<F>, { Level::Baseline as u8 }>(rows, job, accs) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<F: Fold>(rows: bool, job: Job, accs: &mut [F::Acc]) {
    // SAFETY: as the caller promises.
    unsafe { body::<F, { Level::Avx2 as u8 }>(rows, job, accs) }
}

/// The kernel for this machine. 512-bit vectors gain nothing where memory is the limit.
#[must_use]
pub fn kernel<F: Fold>() -> Kernel<F::Acc> {
    #[cfg(target_arch = "x86_64")]
    if super::simd::level() != Level::Baseline {
        return avx2::<F>;
    }
    base::<F>
}
