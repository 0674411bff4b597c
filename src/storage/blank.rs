//! Which storages nobody has written yet.

use super::{BACKED, BLANK, FOREIGN, Storage};

impl Storage {
    /// Notes that what the storage holds is whatever lay there.
    pub(crate) fn leave_blank(&self) {
        self.set_flags(0u16, BLANK);
    }

    /// Notes a write that is not counted.
    pub(crate) fn written(&self) {
        self.set_flags(BLANK | BACKED, 0u16);
    }

    /// True if the storage was made without values, and nobody has written or was shown it since.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.all_flags() & (BLANK | FOREIGN) == BLANK && self.version() == 0
    }
}
