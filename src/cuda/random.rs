//! Random numbers on a GPU: Philox 4x32-10, counters laid out as PyTorch lays them out.
//!
//! Thread `t` of a launch is Philox's subsequence `t` (the upper 64 bits of the counter); each block of 128 bits it draws
//! fills 4 elements (2 of float64 or 64-bit integers), `threads` elements apart. A call moves the offset on by 4 for each
//! block a thread draws. The grid (and with it, for large tensors, the result) depends on the number of multiprocessors, as
//! it does in PyTorch. float32 `uniform` and `normal` give the numbers that PyTorch prints for seed 0; the other transforms and
//! the rule for 64-bit integers follow the same layout but have not been compared. `randperm` draws on the host.

#![allow(unsafe_code, reason = "starts kernels over tensor memory")]

use super::driver::{self, lock};
use super::launch::{BLOCK, arg, launch};
use super::source;
use crate::plan::ViewPlan;
use crate::random::Distribution;
use crate::{Device, Dims, Result, Tensor, err};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device's default generator.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    /// The key.
    pub seed: u64,
    /// How many 32-bit numbers each subsequence has given.
    pub offset: u64,
}

/// The seed of devices that are not opened yet.
static SEED: AtomicU64 = AtomicU64::new(crate::random::DEFAULT_SEED);

impl Default for Philox {
    fn default() -> Self {
        Self {
            seed: SEED.load(Relaxed),
            offset: 0,
        }
    }
}

#[repr(C)]
struct Draw {
    n: i64,
    seed: u64,
    offset: u64,
    p0: f64,
    p1: f64,
    i0: i64,
    i1: u64,
}

/// Seeds the generator of one device, or of all, without opening those that nobody uses.
///
/// # Errors
/// If the device cannot be opened.
pub fn seed(device: Option<Device>, seed: u64) -> Result<()> {
    let fresh = Philox { seed, offset: 0 };
    if let Some(d) = device {
        *lock(&driver::gpu(d)?.philox) = fresh;
        return Ok(());
    }
    SEED.store(seed, Relaxed);
    driver::open().for_each(|gpu| *lock(&gpu.philox) = fresh);
    Ok(())
}

/// Fills a tensor from a distribution.
///
/// # Errors
/// If there is no kernel for the dtype, or it cannot be started.
pub fn fill(d: &Distribution, out: &Tensor) -> Result<()> {
    let n = out.numel();
    if n == 0 {
        return Ok(());
    }
    if out.dtype().is_complex() {
        // Real and imaginary parts are drawn one after the other.
        let shape = out.shape().concat(&[2]);
        let strides: Dims = out.strides().iter().map(|s| s * 2).chain([1]).collect();
        let (real, first) = (out.dtype().to_real(), out.offset() * 2);
        return fill(
            d,
            &out.look(&ViewPlan::reinterpret(real, shape, strides, first)),
        );
    }
    if !out.is_contiguous() {
        let dense = Tensor::empty(out.shape(), out.dtype(), out.device())?;
        fill(d, &dense)?;
        return super::copy::copy_into(out, &dense);
    }
    let gpu = driver::gpu(out.device())?;
    let recipe = source::random(d, out.dtype()).ok_or_else(|| {
        err!(
            NotImplemented,
            "no CUDA random numbers for dtype '{}'",
            out.dtype().scalar_type()
        )
    })?;
    let f = super::module::function(gpu, &recipe.text.head, recipe.text.file, "kernel")?;
    let block = u64::from(BLOCK);
    let most = u64::from(gpu.processors) * (u64::from(gpu.threads) / block);
    let grid = (n as u64).div_ceil(block).min(most.max(1));
    let moved = ((n as u64 - 1) / (block * grid * recipe.per_block) + 1) * 4;
    let state = {
        let mut g = lock(&gpu.philox);
        let now = *g;
        g.offset = g.offset.wrapping_add(moved);
        now
    };
    let mut draw = Draw {
        n,
        seed: state.seed,
        offset: state.offset,
        p0: recipe.p[0],
        p1: recipe.p[1],
        i0: recipe.i.0,
        i1: recipe.i.1,
    };
    let mut p = out.data_ptr() as usize as u64;
    // SAFETY: the values are the kernel's parameters in order; it writes the n elements of a contiguous tensor.
    unsafe { launch(gpu, f, (grid as u32, 1), &mut [arg(&mut p), arg(&mut draw)]) }
}
