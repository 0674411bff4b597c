//! Storages that a fake mode made, and references that keep no storage alive.

use super::{Cell, FAKE, Owner, Storage};
use crate::fake::{self, FakeMode};
use crate::{Device, Result};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

impl Storage {
    /// An uninitialised storage where this one is, of its fake mode if it has one.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn another(&self, nbytes: usize) -> Result<Self> {
        match self.fake_mode() {
            Some(mode) => Ok(Self::fake(nbytes, self.device(), &mode)),
            None => Self::empty(nbytes, self.device()),
        }
    }

    /// A storage without bytes that claims to be on a device, made by a mode.
    #[must_use]
    pub fn fake(nbytes: usize, claim: Device, mode: &Arc<FakeMode>) -> Self {
        let (at, fake) = (claim.canonical(), Some(mode.clone()));
        Self::make(null_mut(), nbytes, at, Owner::None, fake)
    }

    /// True if a fake mode made the storage.
    #[inline]
    #[must_use]
    pub fn is_fake(&self) -> bool {
        self.flags() & FAKE != 0
    }

    /// The mode that made the storage.
    #[must_use]
    pub fn fake_mode(&self) -> Option<Arc<FakeMode>> {
        if !self.is_fake() {
            return None;
        }
        self.hold().fake.clone()
    }

    /// True if the mode outlives the storage, and no bytes are remembered.
    pub(super) fn mode_is_shared(&self) -> bool {
        // Mostly the thread has it, which is seen without a lock.
        if fake::current_is(|mode| self.is_plainly_of(mode)) {
            return true;
        }
        let hold = self.hold();
        let known = hold.rare.as_ref().is_some_and(|r| r.constant.is_some());
        !known && (hold.fake.as_ref()).is_some_and(|mode| Arc::strong_count(mode) > 1)
    }

    /// The mode that made the storage, if it is another one than this.
    pub(crate) fn other_mode(&self, mode: &Arc<FakeMode>) -> Option<Arc<FakeMode>> {
        if mode.number() != 0 && self.0.maker.load(Relaxed) == mode.number() {
            return None;
        }
        let hold = self.hold();
        let own = hold.fake.as_ref()?;
        (!Arc::ptr_eq(own, mode)).then(|| own.clone())
    }

    /// True if a mode made the storage, and it is too large for its bytes to be known.
    #[inline]
    pub(crate) fn is_plainly_of(&self, mode: &FakeMode) -> bool {
        mode.number() != 0
            && self.0.maker.load(Relaxed) == mode.number()
            && self.nbytes() > Self::CONSTANT
    }

    /// The bytes of a fake storage of one element, if they are known all the same.
    #[must_use]
    pub fn constant(&self) -> Option<Storage> {
        if !self.is_fake() || self.nbytes() > Self::CONSTANT {
            return None;
        }
        let bytes = self.hold().rare.as_ref()?.constant.clone()?;
        // The storage may have another size since.
        (bytes.nbytes() == self.nbytes()).then_some(bytes)
    }

    /// Notes the bytes of a fake storage, or that they are not known any more.
    pub fn set_constant(&self, bytes: Option<Storage>) {
        let mut hold = self.hold();
        let rare = match hold.fake.is_some() {
            true => hold.rare_for(bytes.is_some()),
            false => None,
        };
        let old = match rare {
            Some(rare) => std::mem::replace(&mut rare.constant, bytes),
            None => bytes,
        };
        drop(hold);
        drop(old);
    }

    /// Notes the bytes of a fake storage, which are those of another one if that is as large.
    pub(crate) fn remember(&self, real: &Self) {
        if self.nbytes() == real.nbytes() {
            self.set_constant(Some(real.clone()));
        }
    }

    /// How many bytes the elements that are remembered have at most.
    const CONSTANT: usize = 16;

    /// A reference that does not keep the storage alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakStorage {
        WeakStorage(Arc::downgrade(&self.0))
    }
}

/// A reference that does not keep a storage alive.
#[derive(Clone)]
pub struct WeakStorage(Weak<Cell>);

impl WeakStorage {
    /// The storage, if it still lives.
    #[must_use]
    pub fn upgrade(&self) -> Option<Storage> {
        self.0.upgrade().map(Storage)
    }

    /// True if the storage still lives.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.0.strong_count() > 0
    }
}
