//! Device memory. Freed blocks stay in a cache by size; as all work of a device is ordered on one stream, a block may
//! be handed out again at once. The cache lives as long as the process; [`empty_cache`] gives it back to the driver.

#![allow(unsafe_code, reason = "hands out device memory")]

use super::driver::{self, Gpu, failed, lock};
use crate::kernels::Stats;
use crate::{Device, Result, Storage, err};
use cudarc::driver::{result, sys};
use std::collections::BTreeMap;

/// Blocks are multiples of this.
const ROUND: usize = 512;
/// A request may take a cached block up to this much larger than itself (as a share of it, in eighths).
const SLACK_EIGHTHS: usize = 1;

/// Free blocks of a device by size, and counts of bytes.
#[derive(Default)]
pub struct Cache {
    free: BTreeMap<usize, Vec<u64>>,
    used: usize,
    reserved: usize,
    peak: usize,
}

/// A block of device memory; dropped, it goes back to the cache.
pub struct Block {
    gpu: &'static Gpu,
    ptr: u64,
    size: usize,
}

/// The size of the block that holds `n` bytes: the finer the smaller it is, so that blocks are found again.
fn rounded(n: usize) -> Option<usize> {
    let unit = if n > 1 << 20 { 1 << 17 } else { ROUND };
    n.max(1).checked_next_multiple_of(unit)
}

impl Block {
    /// A block of at least `n` bytes.
    ///
    /// # Errors
    /// If the device has no memory left, even after giving the cache back.
    pub fn new(gpu: &'static Gpu, n: usize) -> Result<Self> {
        let size = rounded(n).ok_or_else(|| {
            err!(
                DeviceMemory,
                "CUDA out of memory. Tried to allocate {n} bytes."
            )
        })?;
        let mut cache = lock(&gpu.cache);
        let limit = size + size / 8 * SLACK_EIGHTHS;
        let found = cache.free.range(size..=limit).next().map(|(&size, _)| size);
        if let Some(size) = found
            && let Some(list) = cache.free.get_mut(&size)
            && let Some(ptr) = list.pop()
        {
            if list.is_empty() {
                cache.free.remove(&size);
            }
            cache.count(size);
            return Ok(Self { gpu, ptr, size });
        }
        // SAFETY: the caller made the device's context current; size is not 0.
        let mut got = unsafe { result::malloc_sync(size) };
        if got.is_err() {
            gpu.wait()?;
            cache.release();
            // SAFETY: as above.
            got = unsafe { result::malloc_sync(size) };
        }
        let ptr = got.map_err(|e| {
            if e.0 == sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY {
                let (used, reserved) = (cache.used, cache.reserved);
                err!(Runtime, "CUDA out of memory. Tried to allocate {n} bytes. GPU {} has {used} bytes allocated and {reserved} bytes reserved.", gpu.index)
            } else {
                failed("cuMemAlloc", e)
            }
        })?;
        cache.reserved += size;
        cache.count(size);
        Ok(Self { gpu, ptr, size })
    }

    /// The address.
    #[must_use]
    pub fn ptr(&self) -> u64 {
        self.ptr
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut cache = lock(&self.gpu.cache);
        cache.used -= self.size;
        cache.free.entry(self.size).or_default().push(self.ptr);
    }
}

impl Cache {
    fn count(&mut self, size: usize) {
        self.used += size;
        self.peak = self.peak.max(self.used);
    }

    /// Gives free blocks back to the driver; the device must be idle.
    fn release(&mut self) {
        for (size, list) in std::mem::take(&mut self.free) {
            for ptr in list {
                // SAFETY: the block came from the driver and nobody holds it.
                if unsafe { result::free_sync(ptr) }.is_ok() {
                    self.reserved -= size;
                }
            }
        }
    }
}

/// Uninitialised device memory.
///
/// # Errors
/// If there is no such device or no memory.
pub fn empty_storage(nbytes: usize, device: Device) -> Result<Storage> {
    driver::check(device)?;
    let device = device.canonical();
    let gpu = driver::gpu(device)?;
    if nbytes == 0 {
        // SAFETY: there are no bytes to access.
        return Ok(unsafe { Storage::on_device(std::ptr::null_mut(), 0, device, Box::new(())) });
    }
    let block = Block::new(gpu, nbytes)?;
    let ptr = block.ptr as usize as *mut u8;
    // SAFETY: the block holds this many bytes on the device until it is dropped.
    Ok(unsafe { Storage::on_device(ptr, nbytes, device, Box::new(block)) })
}

/// Gives cached memory of all opened devices back.
///
/// # Errors
/// If a device cannot be waited for.
pub fn empty_cache() -> Result<()> {
    for gpu in driver::open() {
        let gpu = driver::gpu(Device::cuda(gpu.index as i8))?;
        gpu.wait()?;
        lock(&gpu.cache).release();
    }
    Ok(())
}

/// What a device's memory is used for.
#[must_use]
pub fn stats(index: usize) -> Stats {
    driver::open()
        .find(|g| g.index == index)
        .map_or_else(Stats::default, |g| {
            let c = lock(&g.cache);
            Stats {
                allocated: c.used,
                reserved: c.reserved,
                peak: c.peak,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn blocks_are_multiples_of_512_bytes() {
        assert_eq!(rounded(0), Some(512));
        assert_eq!(rounded(513), Some(1024));
        assert_eq!(rounded((1 << 20) + 1), Some((1 << 20) + (1 << 17)));
        assert_eq!(rounded(usize::MAX), None);
    }
}
