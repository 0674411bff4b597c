//! Where a meta storage's data would come from: the promise that it can become real.

use crate::{Device, Result, Storage, bail, ensure};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Something outside the program that can fill a storage, such as a byte range of a file.
pub trait Provider: Send + Sync {
    /// What it is, for people: `file 'model.pt' bytes 64..4160`.
    fn describe(&self) -> String;
    /// How many bytes.
    fn nbytes(&self) -> u64;
    /// The bytes, as a real storage on `device`.
    ///
    /// # Errors
    /// If the bytes cannot be had (any more).
    fn fetch(&self, device: Device) -> Result<Storage>;
    /// Some of the bytes, as a host storage of their own; none if only all can be had.
    ///
    /// # Errors
    /// As [`Provider::fetch`].
    fn fetch_range(&self, start: u64, nbytes: u64) -> Result<Option<Storage>> {
        let _ = (start, nbytes);
        Ok(None)
    }
}

/// Part of what another provider has.
pub struct Span {
    of: Arc<dyn Provider>,
    start: u64,
    nbytes: u64,
}

impl Span {
    /// `nbytes` bytes of a provider that has ranges, from `start` on.
    #[must_use]
    pub fn new(of: Arc<dyn Provider>, start: u64, nbytes: u64) -> Self {
        Self { of, start, nbytes }
    }
}

impl Provider for Span {
    fn describe(&self) -> String {
        let end = self.start.saturating_add(self.nbytes);
        format!("{}, bytes {}..{end}", self.of.describe(), self.start)
    }

    fn nbytes(&self) -> u64 {
        self.nbytes
    }

    fn fetch(&self, device: Device) -> Result<Storage> {
        match self.of.fetch_range(self.start, self.nbytes)? {
            Some(bytes) => bytes.on(device),
            None => bail!(Runtime, "{} has no ranges", self.of.describe()),
        }
    }

    fn fetch_range(&self, start: u64, nbytes: u64) -> Result<Option<Storage>> {
        let end = start.checked_add(nbytes);
        ensure!(
            end.is_some_and(|end| end <= self.nbytes),
            Runtime,
            "{nbytes} bytes from {start} on are not all of {}",
            self.describe()
        );
        self.of.fetch_range(self.start + start, nbytes)
    }
}

/// A recorded history that can be replayed.
pub trait Recipe: Any + Send + Sync {
    /// The operator that made the newest write.
    fn op_name(&self) -> &'static str;
    /// Which storage it writes, told apart over the storage's whole life.
    fn key(&self) -> u64;
    /// The bytes that the history makes, in host memory.
    ///
    /// # Errors
    /// If a recorded call fails, or a real input was changed since.
    fn replay(self: Arc<Self>, nbytes: usize) -> Result<Storage>;
    /// Itself, for the layer that recorded it.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// How a meta storage becomes real.
#[derive(Clone)]
pub enum Source {
    /// Bytes from outside.
    File(Arc<dyn Provider>),
    /// A recorded history of operations, of which this is the newest.
    Recipe(Arc<dyn Recipe>),
}

impl Source {
    /// The bytes, in host memory.
    ///
    /// # Errors
    /// If they cannot be read or replayed.
    pub fn fetch(&self, nbytes: usize) -> Result<Storage> {
        match self {
            Self::File(p) => p.fetch(Device::CPU),
            Self::Recipe(r) => r.clone().replay(nbytes),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(p) => f.write_str(&p.describe()),
            Self::Recipe(e) => write!(f, "recipe ending in {}", e.op_name()),
        }
    }
}
