//! Discrete Fourier transforms of dense lines, by `rustfft` and `realfft`, whose plans are kept.

use super::lines::{self, Shared};
use super::{copy, pool};
use crate::{DType, Device, Element, Result, Tensor, bail};
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftNum, FftPlanner};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A direction and a factor.
#[derive(Clone, Copy)]
pub struct How {
    /// The exponent is negative.
    pub forward: bool,
    /// What all results are multiplied by.
    pub scale: f64,
}

/// At most this many plans of a kind are kept.
const PLANS: usize = 64;

type Kept<K, P> = LazyLock<Mutex<HashMap<K, Arc<P>>>>;

/// A plan that is kept, or a new one.
fn kept<K: std::hash::Hash + Eq, P: ?Sized>(
    plans: &Kept<K, P>,
    key: K,
    make: impl FnOnce() -> Arc<P>,
) -> Arc<P> {
    let lock = || plans.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = lock().get(&key) {
        return plan.clone();
    }
    let plan = make();
    let mut all = lock();
    if all.len() >= PLANS {
        all.clear();
    }
    all.insert(key, plan.clone());
    plan
}

/// A real type that transforms have.
pub trait Real: Element + FftNum {
    /// The plan for complex lines of a length.
    fn complex(n: usize, forward: bool) -> Arc<dyn Fft<Self>>;
    /// The plan from real lines of a length.
    fn forward(n: usize) -> Arc<dyn RealToComplex<Self>>;
    /// The plan to real lines of a length.
    fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>>;
    /// Of a factor.
    fn of(x: f64) -> Self;
}

macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            fn complex(n: usize, forward: bool) -> Arc<dyn Fft<Self>> {
                static PLANS: Kept<(usize, bool), dyn Fft<$t>> = LazyLock::new(Mutex::default);
                kept(&PLANS, (n, forward), || match forward {
                    true => FftPlanner::new().plan_fft_forward(n),
                    false => FftPlanner::new().plan_fft_inverse(n),
                })
            }
            fn forward(n: usize) -> Arc<dyn RealToComplex<Self>> {
                static PLANS: Kept<usize, dyn RealToComplex<$t>> = LazyLock::new(Mutex::default);
                kept(&PLANS, n, || RealFftPlanner::new().plan_fft_forward(n))
            }
            fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>> {
                static PLANS: Kept<usize, dyn ComplexToReal<$t>> = LazyLock::new(Mutex::default);
                kept(&PLANS, n, || RealFftPlanner::new().plan_fft_inverse(n))
            }
            fn of(x: f64) -> Self {
                x as $t
            }
        }
    };
}
real!(f32);
real!(f64);

/// Lines that a task takes at a time: enough that plans pay, few enough that they stay in the caches.
fn grain(n: usize) -> usize {
    (super::iter::GRAIN / (4 * n.max(1))).max(1)
}

/// Transforms all lines of a dense slice.
fn rows<T: Real>(data: &mut [Complex<T>], n: usize, how: How) {
    let plan = T::complex(n, how.forward);
    let scale = T::of(how.scale);
    let count = data.len() / n.max(1);
    let shared = Shared::new(data);
    pool::parallel_for(count, grain(n), |range| {
        let zero = Complex::new(T::of(0.0), T::of(0.0));
        let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
        // SAFETY: every task has its own lines.
        #[allow(unsafe_code, reason = "lines are disjoint parts")]
        let part = unsafe { shared.part(range.start * n, range.len() * n) };
        plan.process_with_scratch(part, &mut scratch);
        if how.scale != 1.0 {
            part.iter_mut().for_each(|x| *x = *x * scale);
        }
    });
}

/// Transforms a tensor that is dense in some order of its dimensions along one of them, in place.
fn along<T: Real>(t: &Tensor, dim: usize, how: How) -> Result<()>
where
    Complex<T>: Element,
{
    let n = t.shape()[dim] as usize;
    if n == 1 && how.scale == 1.0 {
        return Ok(());
    }
    if let Some(blocks) = Blocks::of(t, dim) {
        by_blocks::<T>(&blocks, super::slice_mut::<Complex<T>>(&blocks.memory), how);
        return Ok(());
    }
    let written = lines::target(t, dim, t.dtype())?;
    if !written.shares_storage(t) {
        copy::copy(&written, &t.permuted(&lines::order(t.ndim(), &[dim])))?;
    }
    rows(super::slice_mut::<Complex<T>>(&written), n, how);
    lines::finish(t, dim, &written)
}

/// Lines that do not lie in one piece, side by side: a block of neighbours is brought together at a time.
struct Blocks {
    /// The tensor, its dimensions in the order in which they lie.
    memory: Tensor,
    /// Elements of a line, and from one to the next.
    length: usize,
    step: usize,
    /// Neighbouring lines.
    width: usize,
    /// Where the first of them begins.
    starts: Vec<usize>,
}

impl Blocks {
    /// Neighbouring lines that are brought together at a time: whole cache lines.
    const WIDE: usize = 16;

    fn of(t: &Tensor, dim: usize) -> Option<Self> {
        let mut order: Vec<usize> = (0..t.ndim()).collect();
        order.sort_by_key(|&d| std::cmp::Reverse((t.strides()[d], t.shape()[d])));
        let memory = t.permuted(&order);
        let inner = (0..t.ndim()).find(|&d| t.strides()[d] == 1 && t.shape()[d] > 1)?;
        if inner == dim || !memory.is_contiguous() || t.is_lazy() {
            return None;
        }
        let size = |d: usize| (t.shape()[d] as usize, t.strides()[d] as usize);
        let mut starts = vec![0];
        for d in (0..t.ndim()).filter(|&d| d != dim && d != inner) {
            let (count, step) = size(d);
            let further = |i: usize| starts.iter().map(move |s| s + i * step);
            starts = (0..count).flat_map(further).collect();
        }
        let (length, step) = size(dim);
        Some(Self {
            memory,
            length,
            step,
            width: size(inner).0,
            starts,
        })
    }
}

/// Transforms all lines, block by block.
fn by_blocks<T: Real>(blocks: &Blocks, data: &mut [Complex<T>], how: How) {
    let (n, wide) = (blocks.length, Blocks::WIDE);
    let plan = T::complex(n, how.forward);
    let scale = T::of(how.scale);
    let across = blocks.width.div_ceil(wide);
    let shared = Shared::new(data);
    // Lines lie a little apart, so that those of a power of two do not meet in the same places of a cache.
    let apart = n + 8;
    pool::parallel_for(blocks.starts.len() * across, grain(n * wide), |range| {
        let zero = Complex::new(T::of(0.0), T::of(0.0));
        let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
        let mut lines = vec![zero; apart * wide];
        for task in range {
            let first = task % across * wide;
            let count = wide.min(blocks.width - first);
            let start = blocks.starts[task / across] + first;
            // SAFETY: every task has its own lines.
            #[allow(unsafe_code, reason = "blocks are disjoint parts")]
            let row = |k: usize| unsafe { shared.part(start + k * blocks.step, count) };
            for k in 0..n {
                for (line, &x) in lines.chunks_exact_mut(apart).zip(row(k).iter()) {
                    line[k] = x;
                }
            }
            for line in lines.chunks_exact_mut(apart).take(count) {
                plan.process_with_scratch(&mut line[..n], &mut scratch);
            }
            for k in 0..n {
                for (line, x) in lines.chunks_exact(apart).zip(row(k)) {
                    *x = line[k] * scale;
                }
            }
        }
    });
}

/// Complex transforms along some dimensions; `out` is dense in some order of its dimensions.
///
/// # Errors
/// If memory cannot be had.
pub fn complex(out: &Tensor, input: &Tensor, dims: &[usize], how: How) -> Result<()> {
    copy::copy(out, input)?;
    if out.numel() == 0 {
        return Ok(());
    }
    // The last dimension first, as it lies best.
    for (i, &dim) in dims.iter().rev().enumerate() {
        let scale = if i == 0 { how.scale } else { 1.0 };
        let how = How { scale, ..how };
        match out.dtype() {
            DType::C64 => along::<f32>(out, dim, how)?,
            DType::C128 => along::<f64>(out, dim, how)?,
            d => return Err(no_type(d)),
        }
    }
    Ok(())
}

/// PyTorch's text for types that transforms on the host do not have.
fn no_type(d: DType) -> crate::Error {
    let name = d.to_real().scalar_type();
    crate::err!(Runtime, "MKL FFT doesn't support tensors of type: {name}")
}

/// Transforms of real numbers along some dimensions, the last of them first. `out` has the half of the last dimension that
/// says all if `onesided`.
///
/// # Errors
/// If memory cannot be had.
pub fn real(out: &Tensor, input: &Tensor, dims: &[usize], scale: f64) -> Result<()> {
    let Some((&last, others)) = dims.split_last() else {
        bail!(Runtime, "a transform needs a dimension");
    };
    if out.numel() == 0 {
        return Ok(());
    }
    match out.dtype() {
        DType::C64 => real_lines::<f32>(out, input, last, scale)?,
        DType::C128 => real_lines::<f64>(out, input, last, scale)?,
        d => return Err(no_type(d)),
    }
    let how = How {
        forward: true,
        scale: 1.0,
    };
    for &dim in others.iter().rev() {
        match out.dtype() {
            DType::C64 => along::<f32>(out, dim, how)?,
            _ => along::<f64>(out, dim, how)?,
        }
    }
    Ok(())
}

fn real_lines<T: Real>(out: &Tensor, input: &Tensor, dim: usize, scale: f64) -> Result<()>
where
    Complex<T>: Element,
{
    let n = input.shape()[dim] as usize;
    let m = out.shape()[dim] as usize;
    let from = lines::read(input, &[dim], T::DTYPE)?;
    let from = super::slice::<T>(&from);
    let written = lines::target(out, dim, out.dtype())?;
    let plan = T::forward(n);
    let factor = T::of(scale);
    let to = super::slice_mut::<Complex<T>>(&written);
    let count = to.len() / m;
    let to = Shared::new(to);
    pool::parallel_for(count, grain(n), |range| {
        let mut scratch = plan.make_scratch_vec();
        // Plans write over what they read.
        let mut line = plan.make_input_vec();
        for i in range {
            // SAFETY: every line is one task's.
            #[allow(unsafe_code, reason = "lines are disjoint parts")]
            let to = unsafe { to.part(i * m, m) };
            line.copy_from_slice(&from[i * n..(i + 1) * n]);
            let half = n / 2 + 1;
            // The lengths are the plan's own, all that it checks.
            let _ = plan.process_with_scratch(&mut line, &mut to[..half], &mut scratch);
            if scale != 1.0 {
                to[..half].iter_mut().for_each(|x| *x = *x * factor);
            }
            for k in half..m {
                to[k] = to[n - k].conj();
            }
        }
    });
    lines::finish(out, dim, &written)
}

/// Transforms to real numbers: backwards along all dimensions, the last of which holds the half that says all.
///
/// # Errors
/// If memory cannot be had.
pub fn inverse(out: &Tensor, input: &Tensor, dims: &[usize], scale: f64) -> Result<()> {
    let Some((&last, others)) = dims.split_last() else {
        bail!(Runtime, "a transform needs a dimension");
    };
    if out.numel() == 0 {
        return Ok(());
    }
    let how = How {
        forward: false,
        scale: 1.0,
    };
    let dtype = out.dtype().to_complex();
    let half = out.shape()[last] / 2 + 1;
    let narrow = input.shape().with(last, half);
    let input = input.view_with(narrow, input.strides().clone(), input.offset());
    // As the input, with the last of the dimensions last in memory.
    let order = lines::order(input.ndim(), &[last]);
    let work = Tensor::empty(input.permuted(&order).shape(), dtype, Device::CPU)?;
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, d)| back[*d] = i);
    let work = work.permuted(&back);
    complex(&work, &input, others, how)?;
    match out.dtype() {
        DType::F32 => inverse_lines::<f32>(out, &work, last, scale),
        DType::F64 => inverse_lines::<f64>(out, &work, last, scale),
        d => Err(no_type(d)),
    }
}

fn inverse_lines<T: Real>(out: &Tensor, work: &Tensor, dim: usize, scale: f64) -> Result<()>
where
    Complex<T>: Element,
{
    let n = out.shape()[dim] as usize;
    let m = work.shape()[dim] as usize;
    let written = lines::target(out, dim, out.dtype())?;
    let plan = T::inverse(n);
    let factor = T::of(scale);
    let from = work.permuted(&lines::order(work.ndim(), &[dim]));
    let from = Shared::new(super::slice_mut::<Complex<T>>(&from));
    let to = super::slice_mut::<T>(&written);
    let count = to.len() / n;
    let to = Shared::new(to);
    pool::parallel_for(count, grain(n), |range| {
        let mut scratch = plan.make_scratch_vec();
        for i in range {
            // SAFETY: every line is one task's.
            #[allow(unsafe_code, reason = "lines are disjoint parts")]
            let (line, to) = unsafe { (from.part(i * m, m), to.part(i * n, n)) };
            // What is real of real signals' spectra; what is there beside is not looked at.
            line[0].im = T::of(0.0);
            if n % 2 == 0 {
                line[m - 1].im = T::of(0.0);
            }
            let _ = plan.process_with_scratch(line, to, &mut scratch);
            if scale != 1.0 {
                to.iter_mut().for_each(|x| *x = *x * factor);
            }
        }
    });
    lines::finish(out, dim, &written)
}
