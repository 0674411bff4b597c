//! Folds over some dimensions of a tensor: sums, products, extremes, norms.
//!
//! A [`Fold`] says how one element joins a partial result, [`sweep`] runs over the elements; here the work is cut into
//! tasks.

#![allow(unsafe_code, reason = "folds over raw, checked memory")]

use super::folds::{
    AbsMax, AbsMin, AbsSum, All, Any, Fold, Max, Min, NanSum, NonZero, PowSum, Prod, SqSum, Sum,
};
use super::results::Number;
use super::room::Room;
use super::sweep::{self, Job, WIDTH, filled};
use super::{lines, nest::Nest, pool};
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
    /// 1 if any is not zero.
    Any,
    /// 1 if none is zero.
    All,
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

/// Elements of a slice of a long reduction; fixed, so that results do not depend on the number of threads.
const SLICE: usize = 16 * 1024;

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
fn store<A: Number>(out: *mut u8, step: isize, accs: &mut [A], post: Post, dtype: DType) {
    if post != Post::None {
        accs.iter_mut().for_each(|a| *a = a.post(post));
    }
    // SAFETY: the results of a task are elements of the output.
    unsafe { A::put(accs, out, step, dtype) };
}

fn drive<F: Fold>(task: &Task) {
    drive_with::<F::Acc>(task, sweep::kernel::<F>(), F::lift(F::ZERO), |to, more| {
        for (a, b) in to.iter_mut().zip(more) {
            *a = F::merge(*a, *b);
        }
    });
}

/// The loops of a fold, as [`drive_with`] needs them.
#[derive(Clone, Copy)]
struct Loops<A> {
    kernel: unsafe fn(bool, Job, &mut [A]),
    empty: A,
    merge: fn(&mut [A], &[A]),
}

/// How the outputs of a nest are cut into tasks: runs of at most `chunk` along the first kept dimension.
struct Cut<'a> {
    nest: &'a Nest,
    rows: bool,
    width: usize,
    step: isize,
    out_step: isize,
    chunk: usize,
    chunks: usize,
    /// Runs that follow each other before the next chunk.
    within: usize,
    tasks: usize,
}

impl<'a> Cut<'a> {
    fn new(nest: &'a Nest) -> Self {
        let rows = nest.rows_first();
        let (width, step, out_step) = nest.kept.first().copied().unwrap_or((1, 0, 0));
        let chunk = if rows {
            (super::iter::GRAIN / nest.depth().max(1)).clamp(1, WIDTH)
        } else {
            WIDTH
        };
        let chunks = width.div_ceil(chunk);
        let within = nest.kept.get(1).filter(|_| nest.turned).map_or(1, |d| d.0);
        Self {
            nest,
            rows,
            width,
            step,
            out_step,
            chunk,
            chunks,
            within,
            tasks: nest.outputs() / width * chunks,
        }
    }

    /// Where task `t` reads and writes, in bytes, and how many outputs it has.
    fn place(&self, t: usize) -> (isize, isize, usize) {
        let (t, first) = (t / self.within, t % self.within);
        let (i, o) = self.nest.place(t / self.chunks * self.within + first);
        let j = t % self.chunks * self.chunk;
        let m = self.chunk.min(self.width - j);
        (
            i + j as isize * self.step,
            o + j as isize * self.out_step,
            m,
        )
    }

    /// How many slices the outermost reduced dimension is cut into: several where there are few outputs.
    fn slices(&self) -> usize {
        let (outputs, depth) = (self.nest.outputs(), self.nest.depth());
        if self.tasks >= 4 || depth == 0 {
            return 1;
        }
        let longest = self.nest.red.last().map_or(1, |d| d.0);
        // Columns are joined for each slice: it has to be worth that.
        let most = if self.rows {
            longest
        } else {
            longest.div_ceil(sweep::SLICE_ROWS)
        };
        (outputs.saturating_mul(depth) / SLICE)
            .clamp(1, 64)
            .min(most)
    }
}

/// Cuts the work into tasks and runs them.
fn drive_with<A: Number>(
    task: &Task,
    kernel: unsafe fn(bool, Job, &mut [A]),
    empty: A,
    merge: fn(&mut [A], &[A]),
) {
    if task.nest.outputs() == 0 {
        return;
    }
    let loops = Loops {
        kernel,
        empty,
        merge,
    };
    let cut = Cut::new(task.nest);
    match cut.slices() {
        0 | 1 => whole(task, &cut, loops),
        slices => sliced(task, &cut, loops, slices),
    }
}

/// Each output by one task.
fn whole<A: Number>(task: &Task, cut: &Cut, loops: Loops<A>) {
    let (nest, depth) = (task.nest, task.nest.depth());
    let per_task = (depth * cut.chunk.min(cut.width)).max(1);
    let grain = (super::iter::GRAIN / per_task).max(1);
    pool::parallel_for(cut.tasks, grain, |range| {
        let mut room = [MaybeUninit::<A>::uninit(); WIDTH];
        for t in range {
            let (i, o, m) = cut.place(t);
            let accs = filled(&mut room, m, loops.empty);
            if depth > 0 {
                let job = Job {
                    base: task.input.wrapping_offset(i),
                    step: cut.step,
                    red: &nest.red,
                    p: task.p,
                };
                // SAFETY: the nest lies within the input.
                unsafe { (loops.kernel)(cut.rows, job, accs) };
            }
            let out = task.out.wrapping_offset(o);
            store(out, cut.out_step, accs, task.post, task.dtype);
        }
    });
}

/// Few outputs: the outermost reduced dimension is cut, and the slices are joined in order.
fn sliced<A: Number>(task: &Task, cut: &Cut, loops: Loops<A>, slices: usize) {
    let (nest, tasks, chunk) = (task.nest, cut.tasks, cut.chunk);
    let last = nest.red.len() - 1;
    let (len, stride) = nest.red[last];
    let slice = len.div_ceil(slices);
    let slice = match (last, cut.rows) {
        (0, true) => slice.next_multiple_of(sweep::LANES),
        (0, false) => slice.next_multiple_of(sweep::SLICE_ROWS),
        _ => slice,
    };
    let slices = len.div_ceil(slice);
    let mut partial = vec![loops.empty; slices * tasks * chunk];
    let shared = lines::Shared::new(&mut partial);
    pool::parallel_for(slices * tasks, 1, |range| {
        let mut red = nest.red.clone();
        for k in range {
            let (s, t) = (k / tasks, k % tasks);
            let (i, _, m) = cut.place(t);
            red[last].0 = slice.min(len - s * slice);
            let job = Job {
                base: task
                    .input
                    .wrapping_offset(i + (s * slice) as isize * stride),
                step: cut.step,
                red: &red,
                p: task.p,
            };
            // SAFETY: the buffer has `chunk` places for each of the slices * tasks.
            unsafe { (loops.kernel)(cut.rows, job, shared.part(k * chunk, m)) };
        }
    });
    for t in 0..tasks {
        let (_, o, m) = cut.place(t);
        let (first, others) = partial.split_at_mut(tasks * chunk);
        let total = &mut first[t * chunk..][..m];
        for other in others.chunks_exact(tasks * chunk) {
            (loops.merge)(total, &other[t * chunk..][..m]);
        }
        let out = task.out.wrapping_offset(o);
        store(out, cut.out_step, total, task.post, task.dtype);
    }
}

/// Whether a kind folds elements of a dtype as they are; others are converted first.
fn native(kind: Kind, d: DType) -> Option<fn(&Task)> {
    use DType::*;
    let kind = match (kind, d) {
        (Kind::Sum, Bool) => Kind::NonZero,
        _ => kind,
    };
    macro_rules! pick {
        ($($F:ident: $($v:ident $t:ty),+;)+) => {
            match (kind, d) {
                $($((Kind::$F, $v) => Some(drive::<$F<$t>> as fn(&Task)),)+)+
                _ => None,
            }
        };
    }
    pick! {
        Sum: U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, U16 u16, U32 u32, U64 u64, F16 f16, BF16 bf16, F32 f32, F64 f64, C64 Complex32, C128 Complex64;
        NanSum: F16 f16, BF16 bf16, F32 f32, F64 f64;
        Prod: I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64, C64 Complex32, C128 Complex64;
        Max: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64;
        Min: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64;
        AbsSum: F16 f16, BF16 bf16, F32 f32, F64 f64;
        SqSum: F16 f16, BF16 bf16, F32 f32, F64 f64;
        AbsMax: F32 f32, F64 f64;
        AbsMin: F32 f32, F64 f64;
        PowSum: F32 f32, F64 f64;
        NonZero: Bool u8, U8 u8, I8 u8, I32 i32, I64 i64, F32 f32, F64 f64;
        Any: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64;
        All: Bool u8, U8 u8, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32, F64 f64;
    }
}

/// Whether nothing is converted for a fold.
pub(super) fn folds_as_it_is(kind: Kind, d: DType) -> bool {
    native(kind, d).is_some()
}

/// The dtype that elements are converted to if a kind cannot fold them as they are.
fn detour(kind: Kind, d: DType) -> DType {
    match d {
        _ if matches!(kind, Kind::Any | Kind::All | Kind::NonZero) => DType::Bool,
        DType::C32 => DType::C64,
        DType::C64 => DType::C128,
        d if d.is_float() => DType::F32,
        d if d.is_integral(true) => DType::I64,
        d => d,
    }
}

/// The dtype that a kind folds elements of a dtype in, and how.
fn folded_as(kind: Kind, mut d: DType) -> Result<(DType, fn(&Task))> {
    loop {
        match native(kind, d) {
            Some(f) => return Ok((d, f)),
            None if detour(kind, d) == d => bail!(NotImplemented, "no fold of {d}"),
            None => d = detour(kind, d),
        }
    }
}

/// What [`run_kind`] takes.
///
/// # Errors
/// As [`run_kind`].
pub fn fold_room(room: &mut Room, kind: Kind, input: &Tensor) -> Result<()> {
    let (d, _) = folded_as(kind, input.dtype())?;
    if d != input.dtype() {
        room.converted(input, d)?;
    }
    Ok(())
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
    let (d, f) = folded_as(kind, input.dtype())?;
    let converted;
    let input = if d == input.dtype() {
        input
    } else {
        converted = super::copy::converted(input, d)?;
        &converted
    };
    let nest = Nest::new(input, dims, out);
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

/// The memory of truth values as bytes, for folds that write numbers.
#[must_use]
pub fn bytes(t: &Tensor) -> Tensor {
    t.reinterpret(
        DType::U8,
        t.shape().clone(),
        t.strides().clone(),
        t.offset(),
    )
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
                let shape = crate::dims::reduced_shape(x.shape(), &dims, true);
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
    fn truth_is_found_in_any_place() {
        for n in [1i64, 7, 64, 1000, 70_000] {
            for place in [0, n / 2, n - 1] {
                for (value, rest) in [(1.0, 0.0), (0.0, f64::NAN), (0.0, 1.0)] {
                    let mut v = vec![rest; n as usize];
                    v[place as usize] = value;
                    let wide = Tensor::from_slice(&v, &[n]).unwrap();
                    for d in [DType::F64, DType::F32, DType::F16, DType::I64, DType::U8] {
                        if rest.is_nan() && !d.is_float() {
                            continue;
                        }
                        let t = super::super::copy::converted(&wide, d).unwrap();
                        let out = Tensor::empty(&[], DType::U8, Device::CPU).unwrap();
                        let run = |kind| {
                            run_kind(kind, &out, &t, &[0], 0.0, Post::None).unwrap();
                            out.to_vec::<u8>().unwrap()[0] == 1
                        };
                        let (this, others) = (value != 0.0, n == 1 || rest != 0.0);
                        assert_eq!(run(Kind::Any), this || n > 1 && rest != 0.0, "{d} {n}");
                        assert_eq!(run(Kind::All), this && others, "{d} {n}");
                    }
                }
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
