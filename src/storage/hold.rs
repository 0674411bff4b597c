//! What a storage owns besides its address: who frees the bytes, where they would come from, and what few storages have.

use super::{OPAQUE, Owner, PARTS, SOURCED, Storage, Witness};
use crate::fake::FakeMode;
use crate::parts::Parts;
use crate::source::Source;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// What a storage owns.
pub(super) struct Hold {
    pub(super) owner: Owner,
    /// The fake mode that made the storage.
    pub(super) fake: Option<Arc<FakeMode>>,
    /// Apart, so that a storage without any of it is made and freed quickly.
    pub(super) rare: Option<Box<Rare>>,
}

/// What few storages have.
#[derive(Default)]
pub(super) struct Rare {
    source: Option<Source>,
    parts: Option<Arc<Parts>>,
    /// The one element of a fake storage, if it is known all the same, in host memory.
    pub(super) constant: Option<Storage>,
    pub(super) witnesses: Vec<Weak<dyn Witness>>,
}

impl Hold {
    /// An owner, and the fake mode that made the storage if one did.
    #[inline]
    pub(super) fn of(owner: Owner, fake: Option<Arc<FakeMode>>) -> Self {
        let rare = None;
        Self { owner, fake, rare }
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// What few storages have, made if it gets something: there is nothing to forget where it is not.
    pub(super) fn rare_for(&mut self, something: bool) -> Option<&mut Rare> {
        match something {
            true => Some(self.rare()),
            false => self.rare.as_deref_mut(),
        }
    }
}

impl Storage {
    pub(super) fn hold(&self) -> MutexGuard<'_, Hold> {
        self.0.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the data would come from.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        if self.is_sourced() {
            self.hold().rare.as_ref()?.source.clone()
        } else {
            None
        }
    }

    /// Sets or forgets where the data would come from.
    pub fn set_source(&self, source: Option<Source>) {
        let mut hold = self.hold();
        self.set_flags(SOURCED, if source.is_some() { SOURCED } else { 0 });
        if let Some(rare) = hold.rare_for(source.is_some()) {
            rare.source = source;
        }
    }

    /// What makes tensors on this storage more than strided views, if anything does.
    #[must_use]
    pub fn parts(&self) -> Option<Arc<Parts>> {
        if self.flags() & PARTS == 0 {
            return None;
        }
        self.hold().rare.as_ref()?.parts.clone()
    }

    /// Sets or forgets the parts.
    pub fn set_parts(&self, parts: Option<Arc<Parts>>) {
        let mut hold = self.hold();
        let bits = match &parts {
            None => 0,
            Some(p) if p.is_opaque() => PARTS | OPAQUE,
            Some(_) => PARTS,
        };
        self.set_flags(PARTS | OPAQUE, bits);
        if let Some(rare) = hold.rare_for(parts.is_some()) {
            rare.parts = parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cell;

    #[test]
    fn storages_are_moved_without_memcpy() {
        assert!(size_of::<Cell>() + 2 * size_of::<usize>() <= 128);
    }
}
