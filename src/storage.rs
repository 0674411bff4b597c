//! The one shared, counted thing: a run of bytes on a device, or the promise of one.
//!
//! A meta storage has a size and perhaps a [`Source`] that can fill it, but no bytes. Becoming real swaps
//! what a storage holds, so every tensor on it, view or tie, is real in the same moment.

#![allow(unsafe_code, reason = "raw host memory is owned here")]

mod backed;
mod blank;
mod fake;
mod history;
mod hold;
#[cfg(unix)]
mod shared;
#[cfg(not(unix))]
#[path = "storage/unshared.rs"]
mod shared;
pub(crate) mod watch;

use crate::fake::FakeMode;
use crate::plan::ViewPlan;
use crate::tensor::Families;
use crate::{Device, DeviceKind, Result, bail, captured, wiring};
use std::any::Any;
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

pub use backed::Backed;
pub use fake::WeakStorage;
use hold::Hold;
pub use watch::Witness;

/// A counted reference to a storage.
#[derive(Clone)]
pub struct Storage(Arc<Cell>);

struct Cell {
    ptr: AtomicPtr<u8>,
    nbytes: AtomicUsize,
    /// The device, as [`Device::word`].
    device: AtomicU16,
    flags: AtomicU16,
    version: AtomicU32,
    /// How many of the references nodes of the graph keep.
    saved: AtomicU32,
    /// The number of the fake mode that made it, if that has one.
    maker: AtomicU32,
    /// The number of the function that made it, as `captured` counts them.
    born: u64,
    families: OnceLock<Box<Mutex<Families>>>,
    hold: Mutex<Hold>,
}

/// Who frees the bytes.
pub enum Owner {
    /// Nobody: a meta storage, or one without bytes.
    None,
    /// A block of the CPU allocator.
    Block(wiring::Block),
    /// Another owner, dropped with the storage: a mapped file, a NumPy array, a DLPack capsule.
    Foreign(Box<dyn Any + Send>),
    /// A block of a device's allocator.
    Device(Box<dyn Any + Send>),
}

/// The storage has a [`Source`].
pub(crate) const SOURCED: u8 = 1;
/// A fake mode made the storage.
pub(crate) const FAKE: u8 = 2;
/// The storage has [`Parts`].
const PARTS: u8 = 4;
/// Its parts are all it has: a sparse tensor.
pub(crate) const OPAQUE: u8 = 8;
/// The storage was made smaller: tensors on it may reach outside.
pub(crate) const SHRUNK: u8 = 16;
/// A tensor on it was written with a history that its views have to find.
pub(crate) const TRACKED: u8 = 64;

/// Flags that a layer always wants to see.
pub(crate) const WATCHED: u8 = SOURCED | FAKE | PARTS | OPAQUE | SHRUNK;

/// The flags from here on are the storage's own: the door does not look at them. This one: there are no bytes.
const HOLLOW: u16 = 1 << 8;
/// The bytes belong to another owner, or were shown to one, and cannot be resized.
const FOREIGN: u16 = 1 << 9;
/// Views were made while gradients or forward mode were on.
const FAMILIES: u16 = 1 << 10;
/// Somebody is told when it goes.
const TOLD: u16 = 1 << 11;
/// Made without values.
const BLANK: u16 = 1 << 12;
/// The bytes are a file's, as far as they were not written.
const BACKED: u16 = 1 << 13;
/// Those are told when it goes who are told of all such.
const TOLD_ALL: u16 = 1 << 14;

impl Drop for Storage {
    #[inline]
    fn drop(&mut self) {
        if self.flags() & TRACKED != 0 {
            self.forget_if_last();
        }
    }
}

impl Storage {
    fn make(
        p: *mut u8,
        nbytes: usize,
        at: Device,
        owner: Owner,
        fake: Option<Arc<FakeMode>>,
    ) -> Self {
        let flags = match owner {
            Owner::Foreign(_) => FOREIGN,
            Owner::None => HOLLOW | fake.as_ref().map_or(0, |_| u16::from(FAKE)),
            _ => 0,
        };
        Self(Arc::new(Cell {
            ptr: AtomicPtr::new(p),
            nbytes: AtomicUsize::new(nbytes),
            device: AtomicU16::new(at.word()),
            flags: AtomicU16::new(flags),
            version: AtomicU32::new(0),
            saved: AtomicU32::new(0),
            maker: AtomicU32::new(fake.as_ref().map_or(0, |mode| mode.number())),
            born: captured::number(),
            families: OnceLock::new(),
            hold: Mutex::new(Hold::of(owner, fake)),
        }))
    }

    /// A storage without bytes on the meta device.
    #[must_use]
    pub fn meta(nbytes: usize) -> Self {
        Self::hollow(nbytes, Device::META)
    }

    /// A storage without bytes that claims to be on a device.
    #[must_use]
    pub fn hollow(nbytes: usize, claim: Device) -> Self {
        Self::make(std::ptr::null_mut(), nbytes, claim, Owner::None, None)
    }

    /// True if there are no bytes, whatever device the storage claims to be on.
    #[inline]
    #[must_use]
    pub fn is_hollow(&self) -> bool {
        self.all_flags() & HOLLOW != 0
    }

    /// True if the storage was made smaller, so that tensors on it may reach outside.
    #[inline]
    #[must_use]
    pub fn has_shrunk(&self) -> bool {
        self.flags() & SHRUNK != 0
    }

    /// The flags that the door looks at.
    #[inline]
    #[must_use]
    pub(crate) fn flags(&self) -> u8 {
        self.all_flags() as u8
    }

    #[inline]
    fn all_flags(&self) -> u16 {
        self.0.flags.load(Relaxed)
    }

    /// True if there is neither a foreign owner nor a source nor parts, nor the last reference to a fake mode.
    #[inline]
    #[must_use]
    pub(crate) fn owns_only_memory(&self) -> bool {
        let quiet = HOLLOW | u16::from(SHRUNK) | FAMILIES | TOLD | TOLD_ALL | BLANK;
        let more = self.all_flags() & !quiet;
        more == 0 || more == u16::from(FAKE) && self.mode_is_shared()
    }

    fn set_flags(&self, clear: impl Into<u16>, set: impl Into<u16>) {
        let kept = self.all_flags() & !clear.into();
        self.0.flags.store(kept | set.into(), Relaxed);
    }

    /// Uninitialised memory of `nbytes` bytes on `device`.
    ///
    /// # Errors
    /// If memory cannot be had, or the device is not there.
    #[inline]
    pub fn empty(nbytes: usize, device: Device) -> Result<Self> {
        match device.kind {
            DeviceKind::Meta => Ok(Self::meta(nbytes)),
            DeviceKind::Cpu => {
                let block = wiring::Block::new(nbytes)?;
                let (ptr, owner) = (block.ptr(), Owner::Block(block));
                Ok(Self::make(ptr, nbytes, Device::CPU, owner, None))
            }
            DeviceKind::Cuda => wiring::device_memory(nbytes, device),
        }
    }

    /// A storage over bytes that somebody else owns; `owner` is dropped with the last tensor.
    ///
    /// # Safety
    /// `ptr` must be valid for reads (and writes, unless the caller never hands out writable tensors) of
    /// `nbytes` bytes on `device` for as long as `owner` lives.
    #[must_use]
    pub unsafe fn foreign(
        ptr: *mut u8,
        nbytes: usize,
        device: Device,
        owner: Box<dyn Any + Send>,
    ) -> Self {
        Self::make(ptr, nbytes, device, Owner::Foreign(owner), None)
    }

    /// A storage over a block of a device's allocator, which may be replaced by a larger one.
    ///
    /// # Safety
    /// `ptr` must be the address of `nbytes` bytes on `device` for as long as `block` lives.
    #[must_use]
    pub unsafe fn on_device(
        ptr: *mut u8,
        nbytes: usize,
        device: Device,
        block: Box<dyn Any + Send>,
    ) -> Self {
        Self::make(ptr, nbytes, device, Owner::Device(block), None)
    }

    /// A host storage with a copy of these bytes.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let s = Self::empty(bytes.len(), Device::CPU)?;
        if !bytes.is_empty() {
            // SAFETY: the storage was just made with this many bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), s.ptr(), bytes.len()) };
        }
        Ok(s)
    }

    /// This storage's bytes on a device: itself if they are there.
    ///
    /// # Errors
    /// If they cannot be copied.
    pub fn on(&self, device: Device) -> Result<Self> {
        if self.device() == device.canonical() {
            return Ok(self.clone());
        }
        let all = crate::Tensor::bytes_of(self);
        Ok(all.to_device(device)?.storage().clone())
    }

    /// Shows the bytes of a host storage to a function.
    ///
    /// # Errors
    /// What the function reports.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        if !self.device().is_cpu() {
            bail!(
                Runtime,
                "the bytes of a storage on {} cannot be read directly",
                self.device()
            );
        }
        if self.nbytes() == 0 {
            return f(&[]);
        }
        if self.is_hollow() {
            bail!(NotImplemented, "Cannot copy out of meta tensor; no data!");
        }
        // SAFETY: a host storage owns this many bytes; `self` keeps them for the length of the call.
        f(unsafe { std::slice::from_raw_parts(self.ptr(), self.nbytes()) })
    }

    /// The device the bytes are on.
    #[inline]
    #[must_use]
    pub fn device(&self) -> Device {
        Device::from_word(self.device_word())
    }

    /// The device, as [`Device::word`].
    #[inline]
    #[must_use]
    pub(crate) fn device_word(&self) -> u16 {
        self.0.device.load(Relaxed)
    }

    /// The address of the first byte, null on meta.
    #[inline]
    #[must_use]
    pub fn ptr(&self) -> *mut u8 {
        self.0.ptr.load(Relaxed)
    }

    /// The size in bytes.
    #[inline]
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.0.nbytes.load(Relaxed)
    }

    /// A number that tells this storage from every other living one.
    #[must_use]
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The number of the function that made it, as [`captured::number`] was then.
    #[must_use]
    pub(crate) fn born(&self) -> u64 {
        self.0.born
    }

    /// True if both are the same storage.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many references there are.
    #[must_use]
    pub fn use_count(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// How often the content was changed in place.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.0.version.load(Relaxed)
    }

    /// Others see the bytes where they are from now on: they stay there.
    pub fn lend(&self) {
        self.set_flags(0u16, FOREIGN);
    }

    /// True if the size can change: the bytes are the storage's own, and nobody else was shown them.
    #[must_use]
    pub fn is_resizable(&self) -> bool {
        self.all_flags() & FOREIGN == 0
    }

    /// Counts one change in place.
    #[inline]
    pub fn bump(&self) {
        self.0.version.fetch_add(1, Relaxed);
    }

    /// True if the storage knows how to become real.
    #[inline]
    #[must_use]
    pub fn is_sourced(&self) -> bool {
        self.flags() & SOURCED != 0
    }

    /// True for a sparse tensor, which no strided operation may touch.
    #[inline]
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        self.flags() & OPAQUE != 0
    }

    /// Takes over the bytes, size and device of `other`, which is left as it was only if shared.
    ///
    /// This is how a meta storage becomes real: every tensor on it follows. The other storage must not be resized
    /// after.
    pub(crate) fn become_like(&self, other: &Self) {
        if self.same(other) {
            return;
        }
        let keep: Box<dyn Any + Send> = Box::new(other.clone());
        let mut hold = self.hold();
        if other.nbytes() < self.nbytes() {
            self.set_flags(0u16, SHRUNK);
        }
        self.0.ptr.store(other.ptr(), Relaxed);
        self.0.nbytes.store(other.nbytes(), Relaxed);
        let device = other.device();
        self.0.device.store(device.word(), Relaxed);
        let hollow = other.all_flags() & HOLLOW;
        self.set_flags(HOLLOW, hollow);
        // The other storage stays the owner of the block: both see the same bytes while both live.
        hold.owner = Owner::Foreign(keep);
    }

    /// Gives up the bytes and becomes a meta storage of the same size.
    pub fn become_meta(&self) {
        let mut hold = self.hold();
        self.0.ptr.store(std::ptr::null_mut(), Relaxed);
        self.0.device.store(Device::META.word(), Relaxed);
        self.set_flags(0u16, HOLLOW);
        hold.owner = Owner::None;
    }

    /// Changes the size, keeping the bytes that fit; new bytes are uninitialised.
    ///
    /// # Errors
    /// If the bytes belong to another owner, or memory cannot be had.
    pub fn resize(&self, nbytes: usize) -> Result<()> {
        let device = self.device();
        let bare = self.all_flags() & (FOREIGN | HOLLOW) == 0;
        let larger = if device.kind == DeviceKind::Cuda && bare {
            Some(self.moved_on_device(nbytes, device)?)
        } else {
            None
        };
        let mut hold = self.hold();
        match device.kind {
            _ if self.is_hollow() => {}
            _ if self.all_flags() & FOREIGN != 0 => {
                bail!(Runtime, "Trying to resize storage that is not resizable")
            }
            DeviceKind::Cpu => {
                let block = wiring::Block::new(nbytes)?;
                let n = nbytes.min(self.nbytes());
                if n > 0 {
                    // SAFETY: both blocks hold at least n bytes and are distinct allocations.
                    unsafe { std::ptr::copy_nonoverlapping(self.ptr(), block.ptr(), n) };
                }
                self.0.ptr.store(block.ptr(), Relaxed);
                hold.owner = Owner::Block(block);
            }
            DeviceKind::Meta => {}
            DeviceKind::Cuda => {
                if let Some(larger) = larger {
                    self.0.ptr.store(larger.ptr(), Relaxed);
                    hold.owner = Owner::Device(Box::new(larger));
                }
            }
        }
        if nbytes < self.nbytes() {
            self.set_flags(0u16, SHRUNK);
        }
        self.0.nbytes.store(nbytes, Relaxed);
        drop(hold);
        self.tell_size();
        Ok(())
    }
}

impl Storage {
    /// Another block on the same device with the bytes that fit.
    fn moved_on_device(&self, nbytes: usize, device: Device) -> Result<Self> {
        let to = Self::empty(nbytes, device)?;
        let n = nbytes.min(self.nbytes()) as i64;
        let bytes = |s: &Self| {
            let all = crate::Tensor::bytes_of(s);
            all.look(&ViewPlan::of(&all).narrowed(0, 0, n))
        };
        wiring::device_copy(&bytes(&to), &bytes(self))?;
        Ok(to)
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Storage({} bytes on {})", self.nbytes(), self.device())
    }
}
