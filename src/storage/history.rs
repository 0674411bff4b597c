//! What a storage notes for the history of gradients; see `tensor/family.rs`.

use super::{FAMILIES, Storage, TRACKED};
use crate::tensor::Families;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

impl Storage {
    /// Says how often it was written, where what was written is what had been there.
    pub fn set_version(&self, version: u32) {
        self.0.version.store(version, Relaxed);
    }

    /// One more, or less, of the references is a node's.
    pub(crate) fn count_saved(&self, more: bool) {
        if more {
            self.0.saved.fetch_add(1, Relaxed);
        } else {
            self.0.saved.fetch_sub(1, Relaxed);
        }
    }

    /// The last reference but those of nodes gives up the history, which would keep itself alive by what its nodes saved.
    #[cold]
    pub(super) fn forget_if_last(&self) {
        let saved = self.0.saved.load(Relaxed) as usize;
        if Arc::strong_count(&self.0) <= saved + 1 {
            self.set_flags(TRACKED, 0u8);
            self.forget_heads();
        }
    }

    /// True if views were made while gradients were on.
    #[inline]
    pub(crate) fn has_families(&self) -> bool {
        self.all_flags() & FAMILIES != 0
    }

    /// Views were made while gradients were on.
    pub(crate) fn note_views(&self) {
        self.set_flags(0u16, FAMILIES);
    }

    /// The families of tensors that lie here.
    pub(crate) fn families(&self) -> &Mutex<Families> {
        self.0.families.get_or_init(Box::default)
    }

    /// The families of tensors that lie here, if there are any.
    pub(crate) fn known_families(&self) -> Option<&Mutex<Families>> {
        self.0.families.get().map(|f| &**f)
    }

    /// True if something was written here with a history that views have to find.
    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        self.flags() & TRACKED != 0
    }

    /// Something was written here with a history.
    pub(crate) fn track(&self) {
        self.set_flags(0u8, TRACKED);
    }
}
