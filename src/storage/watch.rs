//! Storages that tell others when they go.

use super::{Cell, Storage, TOLD};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, Weak};

/// Somebody who is told what becomes of storages, by their [`Storage::id`].
pub trait Witness: Send + Sync {
    /// A storage is gone.
    fn gone(&self, id: usize);
    /// A storage has another size, in bytes.
    fn resized(&self, id: usize, nbytes: usize);
}

impl Storage {
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
        if self.flags.load(Relaxed) & TOLD != 0 {
            farewell(self);
        }
    }
}

#[cold]
fn farewell(cell: &mut Cell) {
    let id = std::ptr::from_ref(cell) as usize;
    let hold = cell.hold.get_mut().unwrap_or_else(PoisonError::into_inner);
    for witness in hold.rare().witnesses.drain(..) {
        if let Some(witness) = witness.upgrade() {
            witness.gone(id);
        }
    }
}
