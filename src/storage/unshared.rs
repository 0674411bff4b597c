//! Where memory cannot be shared between processes.

use super::Storage;
use crate::{Result, bail};

impl Storage {
    /// Memory that other processes can map.
    ///
    /// # Errors
    /// Always: there is none here.
    pub fn in_shared_memory(_: usize) -> Result<Self> {
        bail!(
            NotImplemented,
            "memory that processes share is supported on Linux alone"
        )
    }

    /// The first bytes of a file that another process shares.
    ///
    /// # Errors
    /// Always: there is none here.
    pub fn from_shared(_: i32, nbytes: usize) -> Result<Self> {
        Self::in_shared_memory(nbytes)
    }

    /// Moves the bytes to memory that other processes can map.
    ///
    /// # Errors
    /// Always: there is none here.
    pub fn share(&self) -> Result<()> {
        Self::in_shared_memory(self.nbytes()).map(|_| ())
    }

    /// The file that other processes can map.
    #[must_use]
    pub fn shared_file(&self) -> Option<i32> {
        None
    }
}
