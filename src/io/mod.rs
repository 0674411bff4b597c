//! Checkpoints as plain data: one [`Archive`] over all formats, opened by content and never by name.
//!
//! A file is mapped, parsed and *proved* before anything in it is believed: every range lies in the file, every
//! tensor in its storage, nothing is nested too deep. Reading executes nothing, whatever a file asks for; what
//! it names and we do not know stays in the [`Tree`] as a recorded [`Call`](tree::Call).
//!
//! A further format is one more file beside `torch_zip.rs` and one more line in `open_contents`.

mod assembly;
mod check;
pub mod compare;
pub mod convert;
mod dcp;
pub mod describe;
mod detect;
pub mod fetch;
pub mod fingerprint;
pub mod ggml;
mod ggml_grids;
mod gguf;
mod graft;
mod legacy;
mod list;
pub mod load;
pub mod mmap;
pub mod names;
mod npy;
mod origin;
pub mod pickle;
mod pieces;
mod rebuild;
mod safetensors;
mod save;
mod sharded;
mod tar;
mod torch_zip;
mod torchscript;
pub mod tree;
pub mod verify;
pub mod write;
pub mod zip;

pub use check::MAX_DEPTH;
pub use list::{NamedTensor, Totals};
pub use load::{Loaded, load};
pub use mmap::Bytes;
pub use names::{unsupported_global, weights_only_error};
pub use origin::{Origin, Part};
pub use rebuild::extent;
pub use save::save;
pub use torch_zip::assume_big_endian;
pub use tree::{
    Coding, Composite, CompositeKind, Data, Id, Object, StorageRef, TensorClass, TensorRef, Tree,
    Value,
};

use crate::{Error, ErrorKind, Result, bail, ensure, err};
use assembly::Assembly;
use std::path::Path;

/// The format of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// What `torch.save` writes since version 1.6.
    TorchZip,
    /// What it wrote before.
    TorchLegacy,
    /// What it wrote before 0.1.10.
    TorchTar,
    /// `torch.jit.save`.
    TorchScript,
    /// safetensors.
    Safetensors,
    /// Several files and an index of them.
    Sharded,
    /// A folder that `torch.distributed.checkpoint` wrote.
    Distributed,
    /// GGUF, as llama.cpp reads it.
    Gguf,
    /// Several NumPy arrays.
    Npz,
    /// One NumPy array.
    Npy,
}

impl Format {
    /// A name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TorchZip => "PyTorch zip",
            Self::TorchLegacy => "PyTorch legacy",
            Self::TorchTar => "PyTorch tar",
            Self::TorchScript => "TorchScript",
            Self::Sharded => "sharded",
            Self::Distributed => "PyTorch distributed",
            Self::Gguf => "GGUF",
            Self::Npz => "NumPy npz",
            Self::Npy => "NumPy npy",
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
    origin: Origin,
    contents: Contents,
    /// The files of a sharded checkpoint.
    shards: Vec<Archive>,
    /// Tensors put together of pieces in several files.
    assemblies: Vec<Assembly>,
    end: u64,
}

impl Archive {
    /// Opens the file at `path`, or the checkpoint in the folder. The time it takes depends on the number of tensors
    /// and not on their size.
    ///
    /// # Errors
    /// `NotFound`, `Io`, `Eof` (an empty file), `Checkpoint` or `Unpickling`, naming the path, the offset and the reason.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return sharded::open_folder(path).map_err(|e| named(path, e));
        }
        Self::open_at(path, 0)
    }

    /// Opens a checkpoint that begins at `offset` in the file at `path`.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn open_at(path: impl AsRef<Path>, offset: u64) -> Result<Self> {
        let path = path.as_ref();
        let origin = Origin::file(path, offset).map_err(|e| named(path, e))?;
        if sharded::is_index(&origin.bytes) {
            return sharded::open_index(origin, path).map_err(|e| named(path, e));
        }
        Self::of(origin).map_err(|e| named(path, e))
    }

    /// Opens a checkpoint that is the `len` bytes from `offset` on of the file at `path`.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn open_part(path: impl AsRef<Path>, offset: u64, len: u64) -> Result<Self> {
        let path = path.as_ref();
        let open = || {
            let end = offset.saturating_add(len);
            Self::of(Origin::file(path, 0)?.part(offset, end)?)
        };
        open().map_err(|e| named(path, e))
    }

    /// Opens a file that must be a checkpoint itself, and no index of others.
    fn open_file(path: &Path) -> Result<Self> {
        let open = || {
            let origin = Origin::file(path, 0)?;
            ensure!(
                !sharded::is_index(&origin.bytes),
                Checkpoint,
                "an index among the files of an index"
            );
            Self::of(origin)
        };
        open().map_err(|e| named(path, e))
    }

    /// Opens a checkpoint in memory.
    ///
    /// # Errors
    /// As [`Archive::open`].
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        Self::of(Origin::memory(bytes.into()))
    }

    fn of(origin: Origin) -> Result<Self> {
        let mut end = origin.bytes.len() as u64;
        let contents = open_contents(&origin.bytes, &mut end)?;
        Ok(Self {
            origin,
            contents,
            shards: Vec::new(),
            assemblies: Vec::new(),
            end,
        })
    }

    /// A TorchScript archive with its module's own tree, in place of tensors by path.
    ///
    /// # Errors
    /// `Checkpoint`, if it is of another format or damaged.
    pub fn script(mut self) -> Result<Self> {
        ensure!(
            self.contents.format == Format::TorchScript,
            Checkpoint,
            "a file of the format {} is no TorchScript archive",
            self.contents.format.name()
        );
        self.contents.tree = torchscript::whole(&self.origin.bytes)?;
        Ok(self)
    }

    /// The path it was opened from.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.origin.path()
    }

    /// Where the next checkpoint begins if one follows in the same file, counted from the start of this one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The files it is spread over; none if it is one file.
    #[must_use]
    pub fn shards(&self) -> &[Archive] {
        &self.shards
    }

    /// The file or memory it was opened from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
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

    /// Bytes of the whole file, or of all files.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        let own = self.origin.bytes.len() as u64;
        let shards = self.shards.iter().map(Self::file_size);
        shards.fold(own, u64::saturating_add)
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
        let (archive, storage) = origin::locate(self, storage);
        let bytes = archive.raw(storage)?;
        // An untyped storage of a big-endian file is left as it is, as PyTorch leaves it.
        let unit = match storage.data {
            Data::Coded { coding, .. } => {
                return coding.decode(bytes, storage.nbytes).map_err(|e| {
                    let key = &storage.key;
                    Error::new(e.kind(), format!("storage '{key:.64}': {}", e.message()))
                });
            }
            _ => storage.dtype.map_or(1, |d| d.to_real().size()),
        };
        if !archive.contents.big_endian || unit == 1 {
            return Ok(bytes);
        }
        let mut swapped = bytes.to_vec();
        swapped.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        Ok(Bytes::from(swapped))
    }

    /// The bytes of a storage as they are in the file, inflated but in the file's byte order and coding.
    fn raw(&self, storage: &StorageRef) -> Result<Bytes> {
        let (archive, storage) = origin::locate(self, storage);
        let stored = |offset: u64, len: u64| {
            let end = offset
                .checked_add(len)
                .ok_or_else(|| err!(Checkpoint, "a storage beyond the file"))?;
            archive.origin.bytes.slice(offset..end)
        };
        match storage.data {
            Data::Stored { offset } => stored(offset, storage.nbytes),
            Data::Coded { offset, len, .. } => stored(offset, len),
            Data::Deflated { offset, compressed } => {
                zip::inflate(&archive.origin.bytes, offset, compressed, storage.nbytes)
                    .map_err(|e| err!(Checkpoint, "storage '{}': {e}", storage.key))
            }
            Data::Assembled(number) => assembly::assemble(archive, number),
            Data::Meta => bail!(Checkpoint, "a meta storage has no bytes in the file"),
            Data::Given | Data::Shard { .. } => {
                bail!(Checkpoint, "a storage that is not of this file")
            }
        }
    }
}

fn named(path: &Path, e: Error) -> Error {
    let shown = path.display();
    match e.kind() {
        ErrorKind::NotFound => err!(NotFound, "[Errno 2] No such file or directory: '{shown}'"),
        _ if e.message().starts_with('\'') => e,
        kind => Error::new(kind, format!("'{shown}': {}", e.message())),
    }
}

fn open_contents(bytes: &Bytes, end: &mut u64) -> Result<Contents> {
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
        return legacy::open(bytes, end);
    }
    if gguf::looks_like(bytes) {
        return gguf::open(bytes);
    }
    if npy::looks_like(bytes) {
        return npy::open(bytes);
    }
    if tar::looks_like(bytes) {
        return tar::open(bytes);
    }
    Err(err!(Checkpoint, "{}", detect::describe(bytes)))
}

#[cfg(test)]
mod tests;
