//! Kernels by where the data is: the host's, or those of the device that is plugged in.
//!
//! A device beside the host is an [`Accelerator`]: it says what it can do, and `wiring` says which there is. Operators
//! ask here and name no device.

pub mod arrange;
pub mod attention;
pub mod batch_norm;
pub mod compact;
pub mod conv;
pub mod fft;
mod flash;
pub mod index;
pub mod job;
pub mod loss;
pub mod norm;
pub mod pool;
pub mod resize;
pub mod scan;
pub mod single_precision;
pub mod softmax;
pub mod sort;
mod tables;
pub mod update;

use crate::cpu::map::Ctx;
use crate::cpu::reduce::{Kind, Post};
use crate::cpu::rows::Operand;
use crate::random::{Distribution, SharedGenerator};
use crate::{DType, Device, DeviceKind, Result, Scalar, Storage, Tensor, cpu, err, mode, wiring};
use job::Job;

/// What can be said about a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// For people.
    pub name: String,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Bytes of memory.
    pub total_memory: usize,
    /// Multiprocessors.
    pub processors: u32,
    /// Threads a multiprocessor holds.
    pub threads: u32,
}

/// What a device's memory is used for, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// In blocks of living tensors.
    pub allocated: usize,
    /// Taken from the driver.
    pub reserved: usize,
    /// The most that was ever allocated.
    pub peak: usize,
}

/// What devices of a kind beside the host can do. All functions fail with an ordinary error if a device is not there, has
/// no memory left, or has no kernel for the dtype.
pub trait Accelerator: Sync {
    /// How many devices there are; 0 without a driver.
    fn count(&self) -> usize;
    /// True once a device was used.
    fn is_open(&self) -> bool;
    /// Refuses a device that is not there; in a fake mode there is every one.
    fn check(&self, device: Device) -> Result<()>;
    /// What can be said about a device.
    fn properties(&self, device: Device) -> Result<Properties>;
    /// Free and total memory, in bytes.
    fn memory(&self, device: Device) -> Result<(usize, usize)>;
    /// What the memory of the device of this number is used for.
    fn stats(&self, index: usize) -> Stats;
    /// Gives cached memory back to the driver.
    fn empty_cache(&self) -> Result<()>;
    /// Waits for all work of a device.
    fn synchronize(&self, device: Device) -> Result<()>;
    /// The generator that draws of a device without one go to.
    fn generator(&self, device: Device) -> Result<SharedGenerator>;
    /// Seeds the generators of all devices.
    fn seed(&self, seed: u64);
    /// Uninitialised memory.
    fn allocate(&self, nbytes: usize, device: Device) -> Result<Storage>;

    /// Starts a kernel with so many blocks of [`job::BLOCK`] threads.
    fn start(&self, job: &mut Job, device: Device, blocks: u32) -> Result<()>;
    /// Sets every element.
    fn fill(&self, t: &Tensor, value: Scalar) -> Result<()>;
    /// Copies `src` (broadcast, converted) into `dst`; one of them may be on the host.
    fn copy(&self, dst: &Tensor, src: &Tensor) -> Result<()>;
    /// A row-major copy in a dtype; the tensor itself if it is that already.
    fn dense(&self, t: &Tensor, dtype: DType) -> Result<Tensor>;
    /// Runs the expression of a pointwise row.
    fn map(
        &self,
        expression: &str,
        operands: &[Operand],
        compute: DType,
        ctx: &Ctx,
        out: &Tensor,
    ) -> Result<()>;
    /// The second operand where the first is true, else the third.
    fn choose(&self, out: &Tensor, operands: [Operand; 3]) -> Result<()>;
    /// Folds dimensions; see [`cpu::reduce::run_kind`].
    fn fold(
        &self,
        kind: Kind,
        out: &Tensor,
        input: &Tensor,
        dims: &[usize],
        p: f64,
        post: Post,
    ) -> Result<()>;
    /// Extremes and their positions; see [`cpu::extreme::arg_extreme`].
    fn arg_extreme(
        &self,
        values: Option<&Tensor>,
        indices: &Tensor,
        input: &Tensor,
        dims: &[usize],
        max: bool,
    ) -> Result<()>;
    /// Variance (or its root) and mean over dimensions of real numbers; see [`cpu::moments::variance`].
    fn moments(
        &self,
        var: &Tensor,
        mean: Option<&Tensor>,
        input: &Tensor,
        dims: &[usize],
        correction: f64,
        root: bool,
    ) -> Result<()>;
    /// `c = alpha a b + beta c + bias`; see [`cpu::matrix::product`].
    fn product(
        &self,
        c: &Tensor,
        a: &Tensor,
        b: &Tensor,
        alpha: Scalar,
        beta: Scalar,
        bias: Option<&Tensor>,
    ) -> Result<()>;
    /// Runs a convolution or one of its gradients by a library; false if there is none that does it.
    fn convolve(&self, work: &conv::Work) -> Result<bool>;
    /// Transforms the last `rank` dimensions of a row-major tensor, which may be written over, by a library; false if there is none
    /// that does it. Of real and complex numbers, these are the half of the last dimension.
    fn transform(&self, out: &Tensor, from: &Tensor, rank: usize, forward: bool) -> Result<bool>;
    /// Fills a tensor from a distribution, by a generator of devices, or the device's own.
    fn draw(&self, d: &Distribution, by: Option<&SharedGenerator>, out: &Tensor) -> Result<()>;
}

/// What launchers compile for a dtype, for checks without a device.
#[must_use]
pub fn samples(d: DType) -> Vec<Job> {
    let families = [
        arrange::samples,
        attention::samples,
        compact::samples,
        conv::samples,
        index::samples,
        loss::samples,
        norm::samples,
        pool::samples,
        resize::samples,
        scan::samples,
        softmax::samples,
        sort::samples,
        update::samples,
    ];
    families.iter().flat_map(|of| of(d)).collect()
}

/// The devices that this build has beside the host.
///
/// # Errors
/// PyTorch's text if it has none.
pub fn accelerator() -> Result<&'static dyn Accelerator> {
    wiring::accelerator().ok_or_else(|| err!(Assertion, "Torch not compiled with CUDA enabled"))
}

/// How many devices there are beside the host.
#[must_use]
pub fn device_count() -> usize {
    wiring::accelerator().map_or(0, Accelerator::count)
}

/// Refuses a device that is not there.
///
/// # Errors
/// PyTorch's texts for a build without such devices, a machine without a driver, and a number that is too high.
pub fn check(device: Device) -> Result<()> {
    match device.kind {
        DeviceKind::Cpu | DeviceKind::Meta => Ok(()),
        DeviceKind::Cuda if mode::layers() & mode::FAKING != 0 => Ok(()),
        DeviceKind::Cuda => accelerator()?.check(device),
    }
}

#[inline]
fn on_host(t: &Tensor) -> bool {
    t.device().kind != DeviceKind::Cuda
}

/// A row-major tensor with the same elements; itself if it is that.
fn dense(t: &Tensor) -> Result<Tensor> {
    accelerator()?.dense(t, t.dtype())
}

/// Has a row-major result filled, and brought to its place if that lies otherwise.
fn placed(out: &Tensor, fill: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    if out.is_contiguous() && !out.is_lazy() {
        return fill(out);
    }
    let made = Tensor::empty(out.shape(), out.dtype(), out.device())?;
    fill(&made)?;
    copy(out, &made)
}

/// How many neighbours of rows of `n` elements can be read at once, of 16 bytes at most; all tensors are row-major.
fn pack(n: i64, all: &[&Tensor]) -> i64 {
    let widest = all.iter().map(|t| t.dtype().size()).max().unwrap_or(16);
    let mut pack = (16 / widest as i64).max(1);
    let whole =
        |t: &&Tensor, pack: i64| t.data_ptr() as usize % (t.dtype().size() * pack as usize) == 0;
    while pack > 1 && (n % pack != 0 || !all.iter().all(|t| whole(t, pack))) {
        pack /= 2;
    }
    pack
}

/// How neighbouring threads share a line.
struct Shares {
    /// How many do: a power of two of at most a block.
    width: i64,
    /// How many packs of it each keeps in registers; 0 if the line is too long.
    held: i64,
}

impl Shares {
    /// Elements that a thread keeps at most.
    const KEPT: i64 = 32;

    /// A line of `n` elements that are read `pack` at a time.
    fn of(n: i64, pack: i64) -> Self {
        let (packs, most) = (n / pack, (Self::KEPT / pack).clamp(1, 8));
        let up = |n: i64| (n.max(1) as u64).next_power_of_two() as i64;
        // A warp needs no shared memory: as few threads as can keep the line, from there on.
        let width = match packs {
            ..=32 => up(packs),
            _ if packs <= 32 * most => 32,
            _ => up((packs + most - 1) / most).min(256),
        };
        let held = (packs + width - 1) / width;
        Self {
            width,
            held: if held <= most { held } else { 0 },
        }
    }

    /// Lines whose neighbours are read by neighbouring threads.
    fn alone(n: i64) -> Self {
        Self {
            width: 1,
            held: if n <= 16 { n } else { 0 },
        }
    }
}

/// Sets every element.
///
/// # Errors
/// If a kernel cannot be had.
pub fn fill(t: &Tensor, value: Scalar) -> Result<()> {
    if on_host(t) {
        cpu::fill(t, value)
    } else {
        accelerator()?.fill(t, value)
    }
}

/// Copies `src` (broadcast, converted) into `dst`.
///
/// # Errors
/// If there is no conversion.
pub fn copy(dst: &Tensor, src: &Tensor) -> Result<()> {
    if on_host(dst) && on_host(src) {
        cpu::copy::copy(dst, src)
    } else {
        accelerator()?.copy(dst, src)
    }
}

/// A number as a tensor of one element, of the type and device of `like`.
///
/// # Errors
/// If memory cannot be had.
pub fn number(s: Scalar, like: &Tensor) -> Result<Tensor> {
    let t = Tensor::empty(&[], like.dtype(), like.device())?;
    fill(&t, s)?;
    Ok(t)
}

/// The number in a tensor of one element.
///
/// # Errors
/// If it cannot be had.
pub fn read(t: &Tensor) -> Result<Scalar> {
    if on_host(t) {
        return cpu::read_scalar(t, 0);
    }
    let host = Tensor::empty(t.shape(), t.dtype(), Device::CPU)?;
    copy(&host, t)?;
    cpu::read_scalar(&host, 0)
}

/// A copy in another dtype.
///
/// # Errors
/// If there is no conversion.
pub fn converted(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if on_host(t) {
        cpu::copy::converted(t, dtype)
    } else {
        accelerator()?.dense(t, dtype)
    }
}

/// Magnitudes for a norm: folds of other devices take complex elements as they are.
///
/// # Errors
/// If memory cannot be had.
pub fn magnitudes(t: &Tensor) -> Result<Tensor> {
    if on_host(t) {
        cpu::magnitudes::of(t)
    } else {
        Ok(t.clone())
    }
}

/// Folds dimensions; see [`cpu::reduce::run_kind`].
///
/// # Errors
/// If there is no fold of the dtype.
pub fn fold(
    kind: Kind,
    out: &Tensor,
    input: &Tensor,
    dims: &[usize],
    p: f64,
    post: Post,
) -> Result<()> {
    if on_host(input) {
        cpu::reduce::run_kind(kind, out, input, dims, p, post)
    } else {
        accelerator()?.fold(kind, out, input, dims, p, post)
    }
}

/// The least and the largest element; see [`cpu::range::run`].
///
/// # Errors
/// If there is no fold of the dtype.
pub fn range(outs: &[Tensor], input: &Tensor, dims: &[usize]) -> Result<()> {
    if on_host(input) {
        return cpu::range::run(outs, input, dims);
    }
    let mut kinds = [Kind::Min, Kind::Max].into_iter().zip(outs);
    kinds.try_for_each(|(kind, out)| fold(kind, out, input, dims, 0.0, Post::None))
}

/// True if an element is 0, as far as the host can say at once: GPUs divide by such integers without an error, as in PyTorch.
#[must_use]
pub fn any_zero(t: &Tensor) -> bool {
    on_host(t) && cpu::any_zero(t)
}

/// Extremes and their positions; see [`cpu::extreme::arg_extreme`].
///
/// # Errors
/// If memory cannot be had.
pub fn arg_extreme(
    values: Option<&Tensor>,
    indices: &Tensor,
    input: &Tensor,
    dims: &[usize],
    max: bool,
) -> Result<()> {
    if on_host(input) {
        cpu::extreme::arg_extreme(values, indices, input, dims, max)
    } else {
        accelerator()?.arg_extreme(values, indices, input, dims, max)
    }
}
