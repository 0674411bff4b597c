//! Random numbers on a GPU: Philox 4x32-10, counters laid out as PyTorch lays them out.
//!
//! Thread `t` of a launch is Philox's subsequence `t` (the upper 64 bits of the counter); each block of 128 bits it draws
//! fills 4 elements (2 of float64 or 64-bit integers), `threads` elements apart. A call moves the offset on by 4 for each
//! block a thread draws. The grid (and with it, for large tensors, the result) depends on the number of multiprocessors, as
//! it does in PyTorch. float32 `uniform` and `normal` give the numbers that PyTorch prints for seed 0; the other transforms and
//! the rule for 64-bit integers follow the same layout but have not been compared. `randperm` draws on the host.

#![allow(unsafe_code, reason = "starts kernels over tensor memory")]

use super::driver;
use super::launch::{BLOCK, arg, launch};
use super::source;
use crate::plan::ViewPlan;
use crate::random::{Distribution, Philox, SharedGenerator, entropy};
use crate::{Device, Dims, Result, Tensor, err};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The seed of devices that are not opened yet.
static SEED: LazyLock<AtomicU64> = LazyLock::new(|| (entropy() & ((1 << 53) - 1)).into());

/// A device's own generator, as it is opened.
pub fn generator(device: Device) -> SharedGenerator {
    SharedGenerator::on_device(device, Philox::new(SEED.load(Relaxed)))
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

/// Seeds the generators of all devices, without opening those that nobody uses.
pub fn seed(seed: u64) {
    SEED.store(seed, Relaxed);
    driver::open().for_each(|gpu| gpu.generator.manual_seed(seed));
}

/// Fills a tensor from a distribution, by a generator of devices or the device's own.
///
/// # Errors
/// If the generator is the host's, there is no kernel for the dtype, or it cannot be started.
pub fn fill(d: &Distribution, by: Option<&SharedGenerator>, out: &Tensor) -> Result<()> {
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
            by,
            &out.look(&ViewPlan::reinterpret(real, shape, strides, first)),
        );
    }
    if !out.is_contiguous() {
        let dense = Tensor::empty(out.shape(), out.dtype(), out.device())?;
        fill(d, by, &dense)?;
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
    let state = by.unwrap_or(&gpu.generator).philox()?.take(moved);
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
