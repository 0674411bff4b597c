//! Storages that tell others when they go.

use super::{Cell, Storage, TOLD, TOLD_ALL};
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Somebody who is told what becomes of storages, by their [`Storage::id`].
pub trait Witness: Send + Sync {
    /// A storage is gone.
    fn gone(&self, id: usize);
    /// A storage has another size, in bytes.
    fn resized(&self, id: usize, nbytes: usize);
}

/// Those who are told of every storage that says so, and know by its number whether it is theirs.
static ALL: Mutex<Vec<Weak<dyn Witness>>> = Mutex::new(Vec::new());

/// Adds somebody whom storages tell that [tell all](Storage::tell_all).
pub(crate) fn add(witness: Weak<dyn Witness>) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|w| w.strong_count() > 0);
    all.push(witness);
}

/// Whoever is told, as a list that nothing holds fast.
fn everybody() -> SmallVec<[Arc<dyn Witness>; 4]> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found = SmallVec::new();
    for witness in all.iter() {
        if let Some(witness) = witness.upgrade() {
            found.push(witness);
        }
    }
    found
}

impl Storage {
    /// Has those told who were [added](add) when the storage goes, or changes its size: this costs no memory.
    pub(crate) fn tell_all(&self) {
        self.set_flags(0u16, TOLD_ALL);
    }

    /// Has somebody told when the storage goes, or changes its size.
    pub(crate) fn tell(&self, witness: Weak<dyn Witness>) {
        let mut hold = self.hold();
        let witnesses = &mut hold.rare().witnesses;
        witnesses.retain(|w| w.strong_count() > 0);
        witnesses.push(witness);
        self.set_flags(0u16, TOLD);
    }

    /// Tells of another size.
    pub(super) fn tell_size(&self) {
        if self.all_flags() & TOLD_ALL != 0 {
            for witness in everybody() {
                witness.resized(self.id(), self.nbytes());
            }
        }
        if self.all_flags() & TOLD != 0 {
            let witnesses = self.hold().rare().witnesses.clone();
            for witness in witnesses.iter().filter_map(Weak::upgrade) {
                witness.resized(self.id(), self.nbytes());
            }
        }
    }
}

impl Drop for Cell {
    #[inline]
    fn drop(&mut self) {
        if self.flags.load(Relaxed) & (TOLD | TOLD_ALL) != 0 {
            farewell(self);
        }
    }
}

#[cold]
fn farewell(cell: &mut Cell) {
    let id = std::ptr::from_ref(cell) as usize;
    let flags = *cell.flags.get_mut();
    if flags & TOLD_ALL != 0 {
        for witness in everybody() {
            witness.gone(id);
        }
    }
    if flags & TOLD == 0 {
        return;
    }
    let hold = cell.hold.get_mut().unwrap_or_else(PoisonError::into_inner);
    for witness in hold.rare().witnesses.drain(..) {
        if let Some(witness) = witness.upgrade() {
            witness.gone(id);
        }
    }
}
