//! Folds over some dimensions of a tensor: sums, products, extremes, norms.
//!
//! A [`Fold`] says how one element joins a partial result. Long runs are folded in blocks of many lanes in the
//! element's own precision, and the blocks joined in a wider one, so that sums are both vectorised and accurate.

#![allow(unsafe_code, reason = "folds over raw, checked memory")]

use super::folds::{
    AbsMax, AbsMin, AbsSum, Fold, Max, Min, NanSum, NonZero, Number, PowSum, Prod, SqSum, Sum,
};
use super::{nest::Nest, pool, simd};
use crate::{DType, Result, Tensor, bail};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::mem::MaybeUninit;

/// A reduction of elements to one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Sum.
    Sum,
    /// Sum without NaN.
    NanSum,
    /// Product.
    Prod,
    /// Largest; NaN if any.
    Max,
    /// Smallest; NaN if any.
    Min,
    /// Sum of magnitudes.
    AbsSum,
    /// Sum of squared magnitudes.
    SqSum,
    /// Largest magnitude.
    AbsMax,
    /// Smallest magnitude.
    AbsMin,
    /// Sum of powers of magnitudes.
    PowSum,
    /// How many are not zero.
    NonZero,
}

/// What happens to the folded number before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Post {
    /// Nothing.
    None,
    /// Division by a count.
    Over(f64),
    /// Square root.
    Sqrt,
    /// Power with this exponent.
    Pow(f64),
}

/// Elements that one block folds before it joins the wide result.
const BLOCK: usize = 1024;
/// Rows that a column fold joins before it joins the wide results.
const ROWS: usize = 64;
/// Outputs a task computes at most.
const WIDTH: usize = 512;
/// Independent partial results of a contiguous run.
const LANES: usize = 32;
/// Elements of a slice of a long reduction; fixed, so that results do not depend on the number of threads.
const SLICE: usize = 64 * 1024;

/// What a task folds: `accs.len()` outputs whose inputs start `step` bytes apart, each over the dimensions `red`
/// (size and step in bytes, innermost first).
#[derive(Clone, Copy)]
struct Job<'a> {
    base: *const u8,
    step: isize,
    red: &'a [(usize, isize)],
    p: f64,
}

/// Calls `f` with the start of each innermost run of a nest.
#[inline(always)]
fn each_run(base: *const u8, outer: &[(usize, isize)], mut f: impl FnMut(*const u8)) {
    match outer {
        [] => f(base),
        [(n, s)] => (0..*n as isize).for_each(|i| f(base.wrapping_offset(i * s))),
        [inner @ .., (n, s)] => {
            for i in 0..*n as isize {
                let base = base.wrapping_offset(i * s);
                let total: usize = inner.iter().map(|d| d.0).product();
                for k in 0..total {
                    let (mut rest, mut q) = (k, base);
                    for (m, t) in inner {
                        q = q.wrapping_offset((rest % m) as isize * t);
                        rest /= m;
                    }
                    f(q);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn run<F: Fold>(p: *const u8, step: isize, n: usize, e: f64) -> F::Acc {
    let item = size_of::<F::In>();
    let mut acc: Option<F::Acc> = None;
    let mut at = 0;
    while at < n {
        let m = BLOCK.min(n - at);
        let mut part = F::ZERO;
        // SAFETY: the caller gives n elements `step` bytes apart.
        unsafe {
            if step == item as isize && m >= LANES {
                let q = p.cast::<F::In>().add(at);
                let mut lanes = [F::ZERO; LANES];
                let whole = m / LANES * LANES;
                let mut i = 0;
                while i < whole {
                    for l in 0..LANES {
                        lanes[l] = F::step(lanes[l], *q.add(i + l), e);
                    }
                    i += LANES;
                }
                for k in whole..m {
                    lanes[k - whole] = F::step(lanes[k - whole], *q.add(k), e);
                }
                let mut width = LANES / 2;
                while width > 0 {
                    for l in 0..width {
                        lanes[l] = F::join(lanes[l], lanes[l + width]);
                    }
                    width /= 2;
                }
                part = lanes[0];
            } else {
                let q = p.offset(at as isize * step);
                for i in 0..m as isize {
                    part = F::step(part, *q.offset(i * step).cast::<F::In>(), e);
                }
            }
        }
        let lifted = F::lift(part);
        acc = Some(acc.map_or(lifted, |a| F::merge(a, lifted)));
        at += m;
    }
    acc.unwrap_or_else(|| F::lift(F::ZERO))
}

/// The first `m` places of a buffer, set to `value`; the rest is never touched, as tiny reductions are frequent.
#[inline(always)]
fn filled<T: Copy>(room: &mut [MaybeUninit<T>; WIDTH], m: usize, value: T) -> &mut [T] {
    let used = &mut room[..m];
    used.iter_mut().for_each(|x| *x = MaybeUninit::new(value));
    // SAFETY: all of `used` has just been written, and MaybeUninit has the layout of what it holds.
    unsafe { &mut *(std::ptr::from_mut(used) as *mut [T]) }
}

/// Outputs one by one: the innermost reduced dimension is the one to run along.
#[inline(always)]
unsafe fn rows_body<F: Fold>(job: Job, accs: &mut [F::Acc]) {
    let Some((&(n, s), outer)) = job.red.split_first() else {
        return;
    };
    for (j, acc) in accs.iter_mut().enumerate() {
        let mut total: Option<F::Acc> = None;
        each_run(
            job.base.wrapping_offset(j as isize * job.step),
            outer,
            |p| {
                // SAFETY: the job stays within the tensor.
                let a = unsafe { run::<F>(p, s, n, job.p) };
                total = Some(total.map_or(a, |t| F::merge(t, a)));
            },
        );
        if let Some(t) = total {
            *acc = t;
        }
    }
}

/// All outputs at once: the kept dimension is the one to run along.
#[inline(always)]
unsafe fn cols_body<F: Fold>(job: Job, accs: &mut [F::Acc]) {
    let m = accs.len();
    let (&(n, s), outer) = job.red.split_first().unwrap_or((&(1, 0), &[]));
    let dense = job.step == size_of::<F::In>() as isize;
    let mut first = true;
    each_run(job.base, outer, |base| {
        let mut at = 0;
        while at < n {
            let rows = ROWS.min(n - at);
            let mut room = [MaybeUninit::<F::Part>::uninit(); WIDTH];
            let parts = filled(&mut room, m, F::ZERO);
            let start = base.wrapping_offset(at as isize * s);
            // SAFETY: the job stays within the tensor.
            unsafe {
                let mut r = 0;
                if dense {
                    while r + 4 <= rows {
                        let q: [*const F::In; 4] =
                            std::array::from_fn(|k| start.offset((r + k) as isize * s).cast());
                        for (j, part) in parts.iter_mut().enumerate() {
                            let x = F::step(*part, *q[0].add(j), job.p);
                            let x = F::step(x, *q[1].add(j), job.p);
                            let x = F::step(x, *q[2].add(j), job.p);
                            *part = F::step(x, *q[3].add(j), job.p);
                        }
                        r += 4;
                    }
                }
                while r < rows {
                    let q = start.offset(r as isize * s);
                    for (j, part) in parts.iter_mut().enumerate() {
                        *part = F::step(
                            *part,
                            *q.offset(j as isize * job.step).cast::<F::In>(),
                            job.p,
                        );
                    }
                    r += 1;
                }
            }
            if first {
                accs.iter_mut()
                    .zip(parts.iter())
                    .for_each(|(a, p)| *a = F::lift(*p));
            } else {
                accs.iter_mut()
                    .zip(parts.iter())
                    .for_each(|(a, p)| *a = F::merge(*a, F::lift(*p)));
            }
            first = false;
            at += rows;
        }
    });
}

unsafe fn base<F: Fold>(rows: bool, job: Job, accs: &mut [F::Acc]) {
    // SAFETY: as the caller promises.
    unsafe {
        if rows {
            rows_body::<F>(job, accs)
        } else {
            cols_body::<F>(job, accs)
        }
    }
}
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<F: Fold>(rows: bool, job: Job, accs: &mut [F::Acc]) {
    // SAFETY: as the caller promises.
    unsafe {
        if rows {
            rows_body::<F>(job, accs)
        } else {
            cols_body::<F>(job, accs)
        }
    }
}

/// The plan of a reduction, without its element types.
struct Task<'a> {
    nest: &'a Nest,
    input: *const u8,
    out: *mut u8,
    dtype: DType,
    p: f64,
    post: Post,
}
// SAFETY: tasks write disjoint outputs.
unsafe impl Sync for Task<'_> {}

/// Stores a run of results.
fn store<A: Number>(out: *mut u8, step: isize, accs: &[A], post: Post, dtype: DType) {
    for (j, a) in accs.iter().enumerate() {
        let a = if post == Post::None { *a } else { a.post(post) };
        a.put(out.wrapping_offset(j as isize * step), dtype);
    }
}

fn drive<F: Fold>(task: &Task) {
    #[cfg(target_arch = "x86_64")]
    let kernel = if simd::level() == simd::Level::Baseline {
        base::<F>
    } else {
        avx2::<F>
    };
    #[cfg(not(target_arch = "x86_64"))]
    let kernel = base::<F>;
    drive_with::<F::Acc>(task, kernel, F::lift(F::ZERO), F::merge);
}

/// Cuts the work into tasks and runs them.
fn drive_with<A: Number>(
    task: &Task,
    kernel: unsafe fn(bool, Job, &mut [A]),
    empty: A,
    merge: fn(A, A) -> A,
) {
    let nest = task.nest;
    let (outputs, depth) = (nest.outputs(), nest.depth());
    if outputs == 0 {
        return;
    }
    let rows = nest.rows_first();
    let (width, step, out_step) = nest.kept.first().copied().unwrap_or((1, 0, 0));
    let chunk = if rows {
        (super::iter::GRAIN / depth.max(1)).clamp(1, WIDTH)
    } else {
        WIDTH
    };
    let chunks = width.div_ceil(chunk);
    let tasks = outputs / width * chunks;
    let place = |t: usize| {
        let (i, o) = nest.place(t / chunks);
        let j = t % chunks * chunk;
        let m = chunk.min(width - j);
        (i + j as isize * step, o + j as isize * out_step, m)
    };
    let per_task = (depth * chunk.min(width)).max(1);
    let slices = if tasks < 8 && depth > 0 {
        let longest = nest.red.last().map_or(1, |d| d.0);
        (outputs.saturating_mul(depth) / SLICE)
            .clamp(1, 64)
            .min(longest)
    } else {
        1
    };
    if slices <= 1 {
        pool::parallel_for(tasks, (super::iter::GRAIN / per_task).max(1), |range| {
            let mut room = [MaybeUninit::<A>::uninit(); WIDTH];
            for t in range {
                let (i, o, m) = place(t);
                let accs = filled(&mut room, m, empty);
                if depth > 0 {
                    let job = Job {
                        base: task.input.wrapping_offset(i),
                        step,
                        red: &nest.red,
                        p: task.p,
                    };
                    // SAFETY: the nest lies within the input.
                    unsafe { kernel(rows, job, accs) };
                }
                store(
                    task.out.wrapping_offset(o),
                    out_step,
                    accs,
                    task.post,
                    task.dtype,
                );
            }
        });
        return;
    }
    // Few outputs: cut the outermost reduced dimension, then join the slices in order.
    let last = nest.red.len() - 1;
    let (len, stride) = nest.red[last];
    let slice = len.div_ceil(slices);
    let slice = if last == 0 && rows {
        slice.next_multiple_of(LANES)
    } else {
        slice
    };
    let slices = len.div_ceil(slice);
    let mut partial = vec![empty; slices * tasks * chunk];
    struct Shared<A>(*mut A);
    // SAFETY: each task writes its own part of the buffer.
    unsafe impl<A> Sync for Shared<A> {}
    let shared = Shared(partial.as_mut_ptr());
    pool::parallel_for(slices * tasks, 1, |range| {
        let shared = &shared;
        for k in range {
            let (s, t) = (k / tasks, k % tasks);
            let (i, _, m) = place(t);
            let mut red = nest.red.clone();
            red[last].0 = slice.min(len - s * slice);
            let job = Job {
                base: task
                    .input
                    .wrapping_offset(i + (s * slice) as isize * stride),
                step,
                red: &red,
                p: task.p,
            };
            // SAFETY: the buffer has `chunk` places for each of the slices * tasks.
            unsafe {
                kernel(
                    rows,
                    job,
                    std::slice::from_raw_parts_mut(shared.0.add(k * chunk), m),
                )
            };
        }
    });
    for t in 0..tasks {
        let (_, o, m) = place(t);
        for s in 1..slices {
            for j in 0..m {
                let b = partial[(s * tasks + t) * chunk + j];
                let a = &mut partial[t * chunk + j];
                *a = merge(*a, b);
            }
        }
        store(
            task.out.wrapping_offset(o),
            out_step,
            &partial[t * chunk..t * chunk + m],
            task.post,
            task.dtype,
        );
    }
}

/// Whether a kind folds elements of a dtype as they are; others are converted first.
fn native(kind: Kind, d: DType) -> Option<fn(&Task)> {
    use DType::*;
    macro_rules! pick {
        ($($F:ident: $($v:ident $t:ty),+;)+) => {
            match (kind, d) {
                $($((Kind::$F, $v) => Some(drive::<$F<$t>> as fn(&Task)),)+)+
                _ => None,
            }
        };
    }
    pick! {
        Sum: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, U16 u16, U32 u32, U64 u64, F16 f16, BF16 bf16, F32 f32, F64 f64, C64 Complex32, C128 Complex64;
        NanSum: F16 f16, BF16 bf16, F32 f32, F64 f64;
        Prod: I64 i64, F32 f32, F64 f64, C128 Complex64;
        Max: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64;
        Min: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64;
        AbsSum: F16 f16, BF16 bf16, F32 f32, F64 f64;
        SqSum: F16 f16, BF16 bf16, F32 f32, F64 f64;
        AbsMax: F32 f32, F64 f64;
        AbsMin: F32 f32, F64 f64;
        PowSum: F32 f32, F64 f64;
        NonZero: F32 f32, F64 f64;
    }
}

/// The dtype that elements are converted to if a kind cannot fold them as they are.
fn detour(d: DType) -> DType {
    match d {
        DType::C32 => DType::C64,
        DType::C64 => DType::C128,
        d if d.is_float() => DType::F32,
        d if d.is_integral(true) => DType::I64,
        d => d,
    }
}

/// Folds the dimensions `dims` of `input` into `out`, whose shape is the input's without them (or with size 1).
/// `p` is the exponent of [`Kind::PowSum`].
///
/// # Errors
/// If the input's dtype cannot be folded, or memory for a conversion cannot be had.
pub fn run_kind(
    kind: Kind,
    out: &Tensor,
    input: &Tensor,
    dims: &[usize],
    p: f64,
    post: Post,
) -> Result<()> {
    let mut d = input.dtype();
    let mut input = input.clone();
    let f = loop {
        match native(kind, d) {
            Some(f) => break f,
            None if detour(d) == d => bail!(NotImplemented, "no fold of {d}"),
            None => d = detour(d),
        }
    };
    if d != input.dtype() {
        input = super::copy::converted(&input, d)?;
    }
    let nest = Nest::new(&input, dims, out);
    f(&Task {
        nest: &nest,
        input: input.data_ptr(),
        out: out.data_ptr(),
        dtype: out.dtype(),
        p,
        post,
    });
    Ok(())
}

/// The magnitudes of complex elements.
///
/// # Errors
/// If memory cannot be had.
pub fn magnitudes(t: &Tensor) -> Result<Tensor> {
    let wide = super::copy::dense(
        t,
        if t.dtype() == DType::C128 {
            DType::C128
        } else {
            DType::C64
        },
    )?;
    let out = Tensor::empty(t.shape(), wide.dtype().to_real(), crate::Device::CPU)?;
    if wide.dtype() == DType::C128 {
        let from = super::slice::<Complex64>(&wide);
        super::slice_mut::<f64>(&out)
            .iter_mut()
            .zip(from)
            .for_each(|(o, z)| *o = z.norm());
    } else {
        let from = super::slice::<Complex32>(&wide);
        super::slice_mut::<f32>(&out)
            .iter_mut()
            .zip(from)
            .for_each(|(o, z)| *o = z.norm());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn sums_match_a_plain_loop_on_any_layout() {
        let v: Vec<f32> = (0..3 * 70 * 40)
            .map(|i| ((i * 37) % 101) as f32 - 50.0)
            .collect();
        let t = Tensor::from_slice(&v, &[3, 70, 40]).unwrap();
        for perm in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]] {
            let x = t.permuted(&perm);
            for dims in [
                vec![0],
                vec![1],
                vec![2],
                vec![0, 1],
                vec![0, 2],
                vec![1, 2],
                vec![0, 1, 2],
            ] {
                let shape = crate::ops::rules::reduced_shape(x.shape(), &dims, true);
                let out = Tensor::empty(&shape, DType::F32, Device::CPU).unwrap();
                run_kind(Kind::Sum, &out, &x, &dims, 0.0, Post::None).unwrap();
                let dense = x.contiguous().unwrap().to_vec::<f32>().unwrap();
                let mut want = vec![0f32; out.numel() as usize];
                let (s, o) = (x.shape().clone(), crate::dims::contiguous_strides(&shape));
                for (k, &e) in dense.iter().enumerate() {
                    let k = k as i64;
                    let idx = [k / (s[1] * s[2]), k / s[2] % s[1], k % s[2]];
                    let at: i64 = (0..3)
                        .filter(|d| !dims.contains(d))
                        .map(|d| idx[d] * o[d])
                        .sum();
                    want[at as usize] += e;
                }
                assert_eq!(out.to_vec::<f32>().unwrap(), want, "{perm:?} {dims:?}");
            }
        }
    }

    #[test]
    fn long_sums_are_accurate_and_nan_wins() {
        let mut v = vec![0.1f32; 1_000_003];
        let t = Tensor::from_slice(&v, &[1_000_003]).unwrap();
        let out = Tensor::empty(&[], DType::F32, Device::CPU).unwrap();
        run_kind(Kind::Sum, &out, &t, &[0], 0.0, Post::None).unwrap();
        assert!((out.to_vec::<f32>().unwrap()[0] - 100_000.3).abs() < 0.1);
        v[777_777] = f32::NAN;
        let t = Tensor::from_slice(&v, &[1_000_003]).unwrap();
        run_kind(Kind::Max, &out, &t, &[0], 0.0, Post::None).unwrap();
        assert!(out.to_vec::<f32>().unwrap()[0].is_nan());
    }
}
