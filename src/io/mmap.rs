//! Bytes that are either a mapped file or owned memory, shared by counting and sliced without copying.

#![allow(unsafe_code, reason = "files are mapped into memory")]

use super::fetch;
use super::origin::Origin;
use crate::source::Provider;
use crate::storage::Backed;
use crate::{Device, Result, Storage, ensure, err};
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

enum Owner {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

/// A cheaply cloned range of a mapped file or of owned memory.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    start: usize,
    len: usize,
}

/// What is no regular file cannot be mapped.
fn refuse_others(meta: &std::fs::Metadata) -> Result<()> {
    ensure!(
        !meta.is_dir(),
        Io,
        "is a directory, and not a checkpoint file"
    );
    ensure!(meta.is_file(), Io, "is not a regular file");
    Ok(())
}

impl Bytes {
    /// Maps the whole of a file, read only. An empty file gives empty bytes.
    ///
    /// # Errors
    /// If the path cannot be opened, is a folder, or cannot be mapped.
    pub fn map(path: &Path) -> Result<Self> {
        Self::map_with(path).map(|(bytes, _)| bytes)
    }

    /// The same, with what the system says of the file.
    pub(super) fn map_with(path: &Path) -> Result<(Self, std::fs::Metadata)> {
        // Who opens a pipe waits for somebody who writes: it is asked what is there first.
        refuse_others(&std::fs::metadata(path)?)?;
        let file = File::open(path)?;
        let meta = file.metadata()?;
        refuse_others(&meta)?;
        if meta.len() == 0 {
            return Ok((Self::from(Vec::new()), meta));
        }
        // SAFETY: the map is private and read only, and lives as long as any slice of it. Should another
        // process shorten the file meanwhile the kernel signals the access, as for every mapped reader.
        let map =
            unsafe { memmap2::Mmap::map(&file) }.map_err(|e| err!(Io, "cannot be mapped: {e}"))?;
        let len = map.len();
        let bytes = Self {
            owner: Arc::new(Owner::Mapped(map)),
            start: 0,
            len,
        };
        Ok((bytes, meta))
    }

    /// The part of these bytes at `range`, sharing their memory.
    ///
    /// # Errors
    /// If the range does not lie within these bytes.
    pub fn slice(&self, range: Range<u64>) -> Result<Self> {
        let (start, end) = (
            usize::try_from(range.start).ok(),
            usize::try_from(range.end).ok(),
        );
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.len => Ok(Self {
                owner: Arc::clone(&self.owner),
                start: self.start + start,
                len: end - start,
            }),
            _ => Err(err!(
                Checkpoint,
                "bytes {}..{} lie outside the {} bytes there are",
                range.start,
                range.end,
                self.len
            )),
        }
    }

    /// Tells the system that these bytes are not needed soon, so that reading a whole file once takes no memory.
    /// They are read from the file again if they are needed after all.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Owner::Mapped(map) = &*self.owner {
            // SAFETY: the map is read only and backed by the file, so a dropped page comes back as it was.
            let _ = unsafe {
                map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.start, self.len)
            };
        }
    }

    /// Tells the system whether single places far from one another are about to be read, so that it need not read
    /// what lies around them.
    pub(super) fn scattered(&self, yes: bool) {
        #[cfg(unix)]
        if let Owner::Mapped(map) = &*self.owner {
            let advice = if yes {
                memmap2::Advice::Random
            } else {
                memmap2::Advice::Normal
            };
            // Only a hint: reading is right without it.
            let _ = map.advise(advice);
        }
        #[cfg(not(unix))]
        let _ = yes;
    }

    /// True if these bytes are part of a mapped file.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(*self.owner, Owner::Mapped(_))
    }
}

/// A whole file mapped privately: readable and writable, while writes stay in this process.
#[derive(Clone)]
pub struct Private(Arc<PrivateMap>);

struct PrivateMap {
    ptr: *mut u8,
    map: memmap2::MmapMut,
    origin: Origin,
}

// SAFETY: the pointer is into the map, which may be sent and shared; who writes through it takes care of races,
// as with any tensor memory.
unsafe impl Send for PrivateMap {}
// SAFETY: as above.
unsafe impl Sync for PrivateMap {}

impl Private {
    /// Maps a file.
    ///
    /// # Errors
    /// If it cannot be opened or mapped.
    pub fn map(path: &Path) -> Result<Self> {
        let origin = Origin::file(path, 0)?;
        let file = File::open(path)?;
        // SAFETY: as for `Bytes::map`; the map is copy-on-write.
        let mut map = unsafe { memmap2::MmapOptions::new().map_copy(&file) }
            .map_err(|e| err!(Io, "cannot be mapped: {e}"))?;
        Ok(Self(Arc::new(PrivateMap {
            ptr: map.as_mut_ptr(),
            map,
            origin,
        })))
    }

    /// Address and length of a range.
    ///
    /// # Errors
    /// If it does not lie in the file.
    pub fn range(&self, offset: u64, nbytes: u64) -> Result<(*mut u8, usize)> {
        match offset.checked_add(nbytes) {
            Some(end) if end <= self.0.map.len() as u64 => {
                Ok((self.0.ptr.wrapping_add(offset as usize), nbytes as usize))
            }
            _ => Err(err!(
                Checkpoint,
                "bytes {offset}..+{nbytes} lie outside the file"
            )),
        }
    }
}

impl Provider for PrivateMap {
    fn describe(&self) -> String {
        self.origin.describe()
    }

    fn nbytes(&self) -> u64 {
        self.map.len() as u64
    }

    fn fetch(&self, device: Device) -> Result<Storage> {
        fetch::filled(self.nbytes(), |to| self.origin.copy(0, to))?.on(device)
    }

    fn fetch_range(&self, start: u64, nbytes: u64) -> Result<Option<Storage>> {
        fetch::filled(nbytes, |to| self.origin.copy(start, to)).map(Some)
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &*self.owner {
            Owner::Mapped(map) => map,
            Owner::Owned(vec) => vec,
        };
        &all[self.start..self.start + self.len]
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(vec: Vec<u8>) -> Self {
        let len = vec.len();
        Self {
            owner: Arc::new(Owner::Owned(vec)),
            start: 0,
            len,
        }
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Bytes({} bytes{})",
            self.len,
            if self.is_mapped() { ", mapped" } else { "" }
        )
    }
}

impl Storage {
    /// A host storage on part of a privately mapped file: written pages are this process's own.
    ///
    /// # Errors
    /// If the range is not in the file.
    pub fn from_private(map: &Private, offset: u64, nbytes: u64) -> Result<Self> {
        let (ptr, n) = map.range(offset, nbytes)?;
        let owner = Backed {
            file: map.0.clone(),
            start: offset,
            memory: Box::new(map.clone()),
        };
        // SAFETY: the range lies in the map, which is writable and kept alive by the clone.
        Ok(unsafe { Self::foreign(ptr, n, Device::CPU, Box::new(owner)) }.with_file())
    }

    /// Some of the bytes of a host storage as a storage of its own over the same memory; neither changes its size any more.
    ///
    /// # Errors
    /// If the bytes are not in host memory, or outside of the storage.
    pub fn part(&self, start: usize, nbytes: usize) -> Result<Self> {
        ensure!(
            self.device().is_cpu() && !self.is_hollow(),
            NotImplemented,
            "parts of storages that are not in the memory of the host"
        );
        let end = start.checked_add(nbytes);
        ensure!(
            end.is_some_and(|end| end <= self.nbytes()),
            Runtime,
            "{nbytes} bytes from {start} on lie outside of a storage of {}",
            self.nbytes()
        );
        self.lend();
        let memory = Box::new(self.clone());
        let file = self.backing();
        let owner: Box<dyn std::any::Any + Send> = match &file {
            Some((file, at)) => Box::new(Backed {
                file: file.clone(),
                start: at + start as u64,
                memory,
            }),
            None => memory,
        };
        // SAFETY: the range lies in the storage, which the owner keeps and which was just barred from moving its bytes.
        let made =
            unsafe { Self::foreign(self.ptr().wrapping_add(start), nbytes, Device::CPU, owner) };
        Ok(if file.is_some() {
            made.with_file()
        } else {
            made
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_are_checked() {
        let b = Bytes::from(b"hello world".to_vec());
        let w = b.slice(6..11).unwrap();
        assert_eq!(&*w, b"world");
        assert_eq!(&*w.slice(1..3).unwrap(), b"or");
        assert!(w.slice(0..6).is_err());
        assert!(w.slice(u64::MAX..u64::MAX).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = w.slice(3..1);
        assert!(backwards.is_err());
    }
}
