//! Host memory that other processes can map: files without a name, which nobody has to remove.
//!
//! The system frees such memory with the last process that holds it, however that process ends.

#![allow(unsafe_code, reason = "shared files are mapped into memory")]

use super::{FOREIGN, Owner, Storage};
use crate::{Device, Result, bail, err};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;

/// A mapped file, and who owned the bytes before they moved there: others may still look at those.
struct Shared {
    file: File,
    map: memmap2::MmapMut,
    _before: Option<Owner>,
}

impl Shared {
    fn map(file: File, nbytes: usize, before: Option<Owner>) -> Result<Self> {
        let length = file.metadata()?.len();
        if length < nbytes as u64 {
            bail!(
                Runtime,
                "a shared file of {length} bytes cannot be a storage of {nbytes} bytes"
            );
        }
        // SAFETY: the file is at least this long, and those made here are sealed against becoming shorter. Other
        // processes may write it at any time: that is what it is for, as for every tensor that threads share.
        let map = unsafe {
            memmap2::MmapOptions::new()
                .len(nbytes.max(1))
                .map_mut(&file)
        };
        Ok(Self {
            map: map.map_err(|e| err!(Runtime, "unable to mmap {nbytes} bytes: {e}"))?,
            file,
            _before: before,
        })
    }
}

/// A file of so many bytes that has no name.
#[cfg(target_os = "linux")]
fn nameless(nbytes: usize) -> Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let failed = |e| {
        err!(
            Runtime,
            "unable to make {nbytes} bytes of shared memory: {e}"
        )
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("torchlike", flags).map_err(failed)?;
    ftruncate(&file, nbytes.max(1) as u64).map_err(failed)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(failed)?;
    Ok(File::from(file))
}

#[cfg(not(target_os = "linux"))]
fn nameless(_: usize) -> Result<File> {
    bail!(
        NotImplemented,
        "memory that processes share is supported on Linux alone"
    )
}

impl Storage {
    /// Memory of so many bytes, all zero, that other processes can map.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn in_shared_memory(nbytes: usize) -> Result<Self> {
        Self::of_shared(Shared::map(nameless(nbytes)?, nbytes, None)?, nbytes)
    }

    /// The first bytes of a file that another process shares; the descriptor stays the caller's.
    ///
    /// # Errors
    /// If there is no such file, it is shorter, or it cannot be mapped.
    pub fn from_shared(file: RawFd, nbytes: usize) -> Result<Self> {
        if file < 0 {
            bail!(Runtime, "{file} is no descriptor of a file");
        }
        // SAFETY: the number is only asked for a second descriptor here; if nothing is open under it, the system says so.
        let file = unsafe { BorrowedFd::borrow_raw(file) }.try_clone_to_owned()?;
        Self::of_shared(Shared::map(File::from(file), nbytes, None)?, nbytes)
    }

    fn of_shared(mut shared: Shared, nbytes: usize) -> Result<Self> {
        let ptr = shared.map.as_mut_ptr();
        // SAFETY: the mapping has at least this many bytes, and lives as long as its owner.
        Ok(unsafe { Self::foreign(ptr, nbytes, Device::CPU, Box::new(shared)) })
    }

    /// Moves the bytes to memory that other processes can map; all tensors on them follow. They cannot be resized after.
    ///
    /// # Errors
    /// If the storage is not on the host, or such memory cannot be had.
    pub fn share(&self) -> Result<()> {
        if !self.device().is_cpu() {
            bail!(Runtime, "_share_fd_: only available on CPU");
        }
        if self.is_opaque() {
            bail!(
                NotImplemented,
                "share_memory_(): tensors of other layouts than strided cannot be shared"
            );
        }
        if self.shared_file().is_some() {
            return Ok(());
        }
        let nbytes = self.nbytes();
        let mut shared = Shared::map(nameless(nbytes)?, nbytes, None)?;
        let mut hold = self.hold();
        if nbytes > 0 {
            // SAFETY: both hold this many bytes, and the mapping is new.
            unsafe {
                std::ptr::copy_nonoverlapping(self.ptr(), shared.map.as_mut_ptr(), nbytes);
            }
        }
        self.0.ptr.store(shared.map.as_mut_ptr(), Relaxed);
        shared._before = Some(std::mem::replace(&mut hold.owner, Owner::None));
        hold.owner = Owner::Foreign(Box::new(shared));
        self.set_flags(0u16, FOREIGN);
        Ok(())
    }

    /// The file that other processes can map, if there is one; the storage keeps it open.
    #[must_use]
    pub fn shared_file(&self) -> Option<RawFd> {
        if self.all_flags() & FOREIGN == 0 {
            return None;
        }
        match &self.hold().owner {
            Owner::Foreign(owner) => owner
                .downcast_ref::<Shared>()
                .map(|shared| shared.file.as_raw_fd()),
            _ => None,
        }
    }
}
