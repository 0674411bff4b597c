//! Memory that shows a file: as long as it was not written, the file has the same bytes.

use super::{BACKED, Owner, Storage};
use crate::source::{Provider, Span};
use std::any::Any;
use std::sync::Arc;

/// The owner of memory that shows part of a file.
pub struct Backed {
    /// The whole file.
    pub file: Arc<dyn Provider>,
    /// Where in it the memory begins.
    pub start: u64,
    /// What keeps the memory: a map, or the storage that this one is a part of.
    pub memory: Box<dyn Any + Send>,
}

impl Storage {
    /// Notes that the owner of the bytes is a [`Backed`].
    pub(crate) fn with_file(self) -> Self {
        self.set_flags(0u16, BACKED);
        self
    }

    /// What has the `nbytes` bytes from `start` on outside of this process, if they are a file's and were not written through
    /// this storage or the one that it is a part of.
    #[must_use]
    pub fn behind(&self, start: u64, nbytes: u64) -> Option<Arc<dyn Provider>> {
        if nbytes == 0 {
            return None;
        }
        let (file, at) = self.backing()?;
        Some(Arc::new(Span::new(file, at.checked_add(start)?, nbytes)))
    }

    /// The file that the bytes are of, and where in it they begin.
    pub(crate) fn backing(&self) -> Option<(Arc<dyn Provider>, u64)> {
        if self.all_flags() & BACKED == 0 || self.version() != 0 {
            return None;
        }
        let hold = self.hold();
        let Owner::Foreign(owner) = &hold.owner else {
            return None;
        };
        let backed = owner.downcast_ref::<Backed>()?;
        if let Some(whole) = backed.memory.downcast_ref::<Self>() {
            whole.backing()?;
        }
        Some((Arc::clone(&backed.file), backed.start))
    }
}
