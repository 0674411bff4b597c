//! The driver: devices, their contexts and streams, opened once and kept for the life of the process.

#![allow(unsafe_code, reason = "calls the CUDA driver")]

use super::alloc::Cache;
use super::module::Modules;
use crate::random::SharedGenerator;
use crate::{Device, Error, Result, bail, err};
use cudarc::driver::{DriverError, result, sys};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// One GPU.
pub struct Gpu {
    /// Its number.
    pub index: usize,
    /// The driver's handle.
    pub device: sys::CUdevice,
    /// The primary context, shared with everything else in the process.
    pub context: sys::CUcontext,
    /// The stream on which all work is ordered; it waits for the legacy default stream and that for it.
    pub stream: sys::CUstream,
    /// Compute capability.
    pub arch: (i32, i32),
    /// Multiprocessors.
    pub processors: u32,
    /// Threads that a multiprocessor holds.
    pub threads: u32,
    /// Where kernels say that an index was out of bounds.
    pub(super) flag: Flag,
    pub(super) cache: Mutex<Cache>,
    pub(super) modules: Mutex<Modules>,
    pub(super) blas: Mutex<Option<super::blas::Handle>>,
    pub(super) dnn: Mutex<Option<super::dnn::Dnn>>,
    pub(super) fft: Mutex<super::fft::Plans>,
    /// What draws without a generator go to.
    pub(super) generator: SharedGenerator,
}

// SAFETY: the handles are process-wide and the driver locks internally; the rest is behind mutexes.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

/// A word of host memory that kernels write; read once the device was waited for.
pub(super) struct Flag(*mut u32);

impl Flag {
    fn new() -> Result<Self> {
        // SAFETY: a context is current; the memory is never freed.
        let p = unsafe { result::malloc_host(4, sys::CU_MEMHOSTALLOC_DEVICEMAP) }
            .map_err(|e| failed("cuMemHostAlloc", e))?;
        // SAFETY: the block was just made and holds a word.
        unsafe { p.cast::<u32>().write_volatile(0) };
        Ok(Self(p.cast()))
    }

    /// Its address for kernels: the same, as addresses are unified.
    pub fn device(&self) -> u64 {
        self.0 as usize as u64
    }

    /// That an index was out of bounds since the last time that this was asked; the elements it named were left alone.
    fn check(&self) -> Result<()> {
        // SAFETY: a word that lives as long as the process; devices write it whole.
        if unsafe { self.0.read_volatile() } == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.0.write_volatile(0) };
        bail!(
            Runtime,
            "CUDA error: device-side assert triggered: an index was out of bounds in an earlier call"
        )
    }
}

/// A mutex's content, whatever happened to another holder.
pub(super) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn failed(what: &str, e: DriverError) -> Error {
    let name = e
        .error_name()
        .ok()
        .and_then(|s| s.to_str().ok())
        .unwrap_or("unknown error");
    let text = e
        .error_string()
        .ok()
        .and_then(|s| s.to_str().ok())
        .unwrap_or("");
    err!(Runtime, "CUDA error: {name} in {what}: {text}")
}

/// Whether a library can be opened, which is asked for once: one that is there but lacks a symbol would panic in the loader.
pub(super) fn opens(known: &OnceLock<bool>, ask: fn() -> bool) -> bool {
    *known.get_or_init(|| std::panic::catch_unwind(ask).unwrap_or(false))
}

/// The number of devices; 0 without a driver. Asked for once.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // A library that is there but lacks a symbol would panic in the loader.
        std::panic::catch_unwind(|| {
            // SAFETY: only asks if the library can be opened.
            if !unsafe { sys::is_culib_present() } || result::init().is_err() {
                return 0;
            }
            result::device::get_count().unwrap_or(0).max(0) as usize
        })
        .unwrap_or(0)
    })
}

fn slots() -> &'static [OnceLock<Result<Gpu>>] {
    static SLOTS: OnceLock<Vec<OnceLock<Result<Gpu>>>> = OnceLock::new();
    SLOTS.get_or_init(|| (0..count()).map(|_| OnceLock::new()).collect())
}

/// True once a device was opened.
pub fn opened() -> bool {
    slots().iter().any(|s| s.get().is_some())
}

/// The devices that were opened.
pub fn open() -> impl Iterator<Item = &'static Gpu> {
    slots()
        .iter()
        .filter_map(|s| s.get().and_then(|g| g.as_ref().ok()))
}

/// The error for a number that no device has.
#[cold]
fn absent(device: Device) -> Error {
    err!(
        Runtime,
        "CUDA error: invalid device ordinal ({device}; there are {} CUDA devices)",
        count()
    )
}

/// A device, with its context current on this thread.
///
/// # Errors
/// If it is not there or cannot be opened.
pub fn gpu(device: Device) -> Result<&'static Gpu> {
    let index = device.canonical().index as usize;
    let Some(slot) = slots().get(index) else {
        return Err(absent(device));
    };
    let gpu = slot
        .get_or_init(|| start(index))
        .as_ref()
        .map_err(Clone::clone)?;
    // Other libraries may change the context behind our back, so ask rather than remember.
    if result::ctx::get_current().ok().flatten() != Some(gpu.context) {
        // SAFETY: the primary context is retained for the life of the process.
        unsafe { result::ctx::set_current(gpu.context) }
            .map_err(|e| failed("cuCtxSetCurrent", e))?;
    }
    Ok(gpu)
}

fn start(index: usize) -> Result<Gpu> {
    use sys::CUdevice_attribute as A;
    let device = result::device::get(index as i32).map_err(|e| failed("cuDeviceGet", e))?;
    // SAFETY: the device is valid; the context is never released.
    let context = unsafe { result::primary_ctx::retain(device) }
        .map_err(|e| failed("cuDevicePrimaryCtxRetain", e))?;
    // SAFETY: as above.
    unsafe { result::ctx::set_current(context) }.map_err(|e| failed("cuCtxSetCurrent", e))?;
    let stream = result::stream::create(result::stream::StreamKind::Default)
        .map_err(|e| failed("cuStreamCreate", e))?;
    let ask = |a| {
        // SAFETY: the device is valid.
        unsafe { result::device::get_attribute(device, a) }
            .map_err(|e| failed("cuDeviceGetAttribute", e))
    };
    Ok(Gpu {
        index,
        device,
        context,
        stream,
        arch: (
            ask(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            ask(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        processors: ask(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.max(1) as u32,
        threads: ask(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?.max(256) as u32,
        flag: Flag::new()?,
        cache: Mutex::default(),
        modules: Mutex::default(),
        blas: Mutex::default(),
        dnn: Mutex::default(),
        fft: Mutex::default(),
        generator: super::random::generator(Device::cuda(index as i8)),
    })
}

impl Gpu {
    /// Waits until all work on the stream is done.
    ///
    /// # Errors
    /// If a kernel failed.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the process.
        unsafe { result::stream::synchronize(self.stream) }
            .map_err(|e| failed("cuStreamSynchronize", e))?;
        self.flag.check()
    }

    /// The name for people.
    ///
    /// # Errors
    /// If the driver does not tell.
    pub fn name(&self) -> Result<String> {
        result::device::get_name(self.device).map_err(|e| failed("cuDeviceGetName", e))
    }

    /// The memory it has.
    ///
    /// # Errors
    /// If the driver does not tell.
    pub fn total_memory(&self) -> Result<usize> {
        // SAFETY: the device is valid.
        unsafe { result::device::total_mem(self.device) }.map_err(|e| failed("cuDeviceTotalMem", e))
    }

    /// Free and total memory, as the driver sees it.
    ///
    /// # Errors
    /// If the driver does not tell.
    pub fn memory(&self) -> Result<(usize, usize)> {
        result::mem_get_info().map_err(|e| failed("cuMemGetInfo", e))
    }
}

/// Refuses a device that is not there.
///
/// # Errors
/// PyTorch's texts.
pub fn check(device: Device) -> Result<()> {
    if count() == 0 {
        bail!(
            Runtime,
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from \
             http://www.nvidia.com/Download/index.aspx"
        );
    }
    if device.canonical().index as usize >= count() {
        return Err(absent(device));
    }
    Ok(())
}
