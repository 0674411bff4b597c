//! Storages of a checkpoint: where their bytes are, and in which form.

use crate::io::mmap::Bytes;
use crate::{DType, Result, ensure, err};
use std::sync::Arc;

/// Where the bytes of a storage are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nowhere: a meta storage.
    Meta,
    /// In the file as they are, from this absolute offset on.
    Stored {
        /// The absolute offset.
        offset: u64,
    },
    /// In the file, compressed with deflate.
    Deflated {
        /// The absolute offset of the compressed bytes.
        offset: u64,
        /// How many compressed bytes.
        compressed: u64,
    },
    /// In the file in another form, which [`Coding`] turns into elements.
    Coded {
        /// The absolute offset.
        offset: u64,
        /// How many bytes of the file.
        len: u64,
        /// Which form.
        coding: Coding,
    },
    /// In one of the files of a sharded checkpoint.
    Shard {
        /// The number of the file.
        shard: u32,
        /// The number of the storage in it.
        storage: u32,
    },
    /// In pieces in several files; the number says which pieces.
    Assembled(u32),
    /// With whoever made the tree, who hands them to the writer.
    Given,
}

/// The form that elements have in a file, where it is not the one they have in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Blocks of quantised numbers, which become 32-bit floats.
    Blocks(crate::io::ggml::Kind),
    /// Numbers of so many bytes in big-endian order.
    Swapped(u8),
    /// Compressed with deflate after a header; then numbers of `unit` bytes, big-endian unless 1.
    Deflated {
        /// Bytes to leave out after inflating.
        skip: u32,
        /// As for `Swapped`.
        unit: u8,
    },
}

impl Coding {
    /// A name for people, if the form has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Blocks(kind) => Some(kind.name()),
            _ => None,
        }
    }

    /// From the bytes in the file to `nbytes` bytes of elements.
    ///
    /// # Errors
    /// If there is no way to, or the bytes are damaged.
    pub fn decode(self, bytes: Bytes, nbytes: u64) -> Result<Bytes> {
        let (mut out, unit) = match self {
            Self::Blocks(kind) => {
                let out = kind.dequantize(&bytes)?;
                ensure!(
                    out.len() as u64 == nbytes,
                    Checkpoint,
                    "{} bytes of {} blocks are not {nbytes} bytes of floats",
                    bytes.len(),
                    kind.name()
                );
                return Ok(Bytes::from(out));
            }
            Self::Swapped(unit) => (bytes.to_vec(), unit),
            Self::Deflated { skip, unit } => {
                let all = nbytes
                    .checked_add(skip.into())
                    .ok_or_else(|| err!(Checkpoint, "a size overflows"))?;
                let all = crate::io::zip::inflate(&bytes, 0, bytes.len() as u64, all)?;
                if unit <= 1 {
                    return all.slice(skip.into()..all.len() as u64);
                }
                (all.get(skip as usize..).unwrap_or(&[]).to_vec(), unit)
            }
        };
        if unit > 1 {
            out.chunks_exact_mut(unit.into()).for_each(<[u8]>::reverse);
        }
        Ok(Bytes::from(out))
    }
}

/// A storage: a run of bytes that tensors view.
#[derive(Clone, Debug)]
pub struct StorageRef {
    /// Its name in the file.
    pub key: Box<str>,
    /// The type it was saved with; `None` for untyped bytes.
    pub dtype: Option<DType>,
    /// The device it was on: `cpu`, `cuda:0`.
    pub location: Arc<str>,
    /// How many bytes.
    pub nbytes: u64,
    /// Where they are.
    pub data: Data,
    /// Their CRC-32, where the format has one.
    pub crc: Option<u32>,
}

impl StorageRef {
    /// How many bytes of a file it takes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        match self.data {
            Data::Meta => 0,
            Data::Deflated { compressed, .. } => compressed,
            Data::Coded { len, .. } => len,
            _ => self.nbytes,
        }
    }

    /// The name of the quantised form it has in the file, if it has one.
    #[must_use]
    pub fn coding(&self) -> Option<&'static str> {
        match self.data {
            Data::Coded { coding, .. } => coding.name(),
            _ => None,
        }
    }
}
