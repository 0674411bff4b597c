//! Checkpoints as plain data: one [`Archive`] over all formats, opened by content and never by name.
//!
//! A file is mapped, parsed and *proved* before anything in it is believed: every range lies in the file, every
//! tensor in its storage, nothing is nested too deep. Reading executes nothing, whatever a file asks for; what
//! it names and we do not know stays in the [`Tree`] as a recorded [`Call`](tree::Call).
//!
//! A further format is one more file beside `torch_zip.rs` and one more line in `open_contents`.

mod check;
pub mod compare;
pub mod convert;
pub mod describe;
mod detect;
pub mod fingerprint;
mod legacy;
mod list;
pub mod mmap;
pub mod names;
pub mod pickle;
mod rebuild;
mod safetensors;
mod torch_zip;
pub mod tree;
pub mod verify;
pub mod write;
pub mod zip;

pub use check::MAX_DEPTH;
pub use list::{NamedTensor, Totals};
pub use mmap::Bytes;
pub use names::{unsupported_global, weights_only_error};
pub use rebuild::extent;
pub use tree::{Data, Id, Object, StorageRef, TensorClass, TensorRef, Tree, Value};

use crate::{DType, Error, ErrorKind, Result, bail, ensure, err};
use std::path::{Path, PathBuf};

/// The format of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// What `torch.save` writes since version 1.6.
    TorchZip,
    /// What it wrote before.
    TorchLegacy,
    /// safetensors.
    Safetensors,
}

impl Format {
    /// A name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TorchZip => "PyTorch zip",
            Self::TorchLegacy => "PyTorch legacy",
            Self::Safetensors => "safetensors",
        }
    }
}

/// What a format makes of a file.
struct Contents {
    format: Format,
    tree: Tree,
    big_endian: bool,
    metadata: Vec<(String, String)>,
}

/// An open checkpoint.
pub struct Archive {
    path: Option<PathBuf>,
    bytes: Bytes,
    contents: Contents,
}

impl Archive {
    /// Opens the file at `path`. The time it takes depends on the number of tensors and not on their size.
    ///
    /// # Errors
    /// `NotFound`, `Io`, `Eof` (an empty file), `Checkpoint` or `Unpickling`, naming the path, the offset and the reason.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let named = |e: Error| match e.kind() {
            ErrorKind::NotFound => err!(
                NotFound,
                "[Errno 2] No such file or directory: '{}'",
                path.display()
            ),
            kind => Error::new(kind, format!("'{}': {}", path.display(), e.message())),
        };
        let bytes = Bytes::map(path).map_err(named)?;
        let contents = open_contents(&bytes).map_err(named)?;
        Ok(Self {
            path: Some(path.to_owned()),
            bytes,
            contents,
        })
    }

    /// Opens a checkpoint in memory.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        let bytes = bytes.into();
        let contents = open_contents(&bytes)?;
        Ok(Self {
            path: None,
            bytes,
            contents,
        })
    }

    /// The path it was opened from.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.contents.format
    }

    /// Everything in it, as plain data.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.contents.tree
    }

    /// Bytes of the whole file.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// True if elements are big-endian in the file; [`Archive::read_storage`] swaps them.
    #[must_use]
    pub fn is_big_endian(&self) -> bool {
        self.contents.big_endian
    }

    /// The format's own metadata (`__metadata__` of safetensors).
    #[must_use]
    pub fn metadata(&self) -> &[(String, String)] {
        &self.contents.metadata
    }

    /// The bytes of a storage of this archive in little-endian order: a slice of the mapped file if they are
    /// there as they are, else in memory of their own.
    ///
    /// # Errors
    /// If it is a meta storage, or its compressed bytes are damaged.
    pub fn read_storage(&self, storage: &StorageRef) -> Result<Bytes> {
        let bytes = self.raw(storage)?;
        // An untyped storage of a big-endian file is left as it is, as PyTorch leaves it.
        let unit = storage.dtype.map_or(1, |d| DType::to_real(d).size());
        if !self.contents.big_endian || unit == 1 {
            return Ok(bytes);
        }
        let mut swapped = bytes.to_vec();
        swapped.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        Ok(Bytes::from(swapped))
    }

    fn raw(&self, storage: &StorageRef) -> Result<Bytes> {
        match storage.data {
            Data::Stored { offset } => {
                let end = offset
                    .checked_add(storage.nbytes)
                    .ok_or_else(|| err!(Checkpoint, "a storage beyond the file"))?;
                self.bytes.slice(offset..end)
            }
            Data::Deflated { offset, compressed } => {
                zip::inflate(&self.bytes, offset, compressed, storage.nbytes)
                    .map_err(|e| err!(Checkpoint, "storage '{}': {e}", storage.key))
            }
            Data::Meta => bail!(Checkpoint, "a meta storage has no bytes in the file"),
            Data::Given => bail!(Checkpoint, "a storage that is not of this file"),
        }
    }
}

fn open_contents(bytes: &Bytes) -> Result<Contents> {
    ensure!(
        !bytes.is_empty(),
        Eof,
        "the file is empty (0 bytes): the download or save never finished; fetch it again"
    );
    if bytes.starts_with(b"PK") {
        return torch_zip::open(bytes);
    }
    if safetensors::looks_like(bytes) {
        return safetensors::open(bytes);
    }
    if legacy::looks_like(bytes) {
        return legacy::open(bytes);
    }
    Err(err!(Checkpoint, "{}", detect::describe(bytes)))
}

#[cfg(test)]
mod tests;
