//! Checksums of all tensors, in parallel.

use super::tree::{CompositeKind, Data, StorageRef, Value};
use super::{Archive, Bytes, origin};
use crate::parts::Parts;
use crate::parts::nested::Components;
use crate::{Result, Storage, Tensor, err};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Is told how many more bytes are done, from any thread.
pub type Progress<'a> = dyn Fn(u64) + Sync + 'a;

/// Bytes that one thread takes at a time.
const CHUNK: usize = 4 << 20;

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Storages whose checksum is right.
    pub checked: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Storages for which the format has no checksum.
    pub without: u64,
}

impl Archive {
    /// Reads every storage and compares its checksum, where the format has one; then proves the parts of sparse and nested tensors.
    ///
    /// # Errors
    /// Of kind `Checkpoint`, naming the first damaged storage of the file and a tensor in it.
    pub fn verify(&self) -> Result<Verified> {
        self.verify_with(&|_| ())
    }

    /// [`Archive::verify`], telling how far it is.
    ///
    /// # Errors
    /// As [`Archive::verify`].
    pub fn verify_with(&self, progress: &Progress<'_>) -> Result<Verified> {
        let storages = &self.tree().storages;
        // The first bad one counts, so what lies behind one that is known need not be read.
        let first = AtomicUsize::new(usize::MAX);
        let bad = storages.par_iter().enumerate().find_map_first(|(i, s)| {
            let crc = origin::locate(self, s).1.crc?;
            if i > first.load(Ordering::Relaxed) {
                return None;
            }
            let found = self.checksum(s, progress);
            if matches!(found, Ok(found) if found == crc) {
                return None;
            }
            first.fetch_min(i, Ordering::Relaxed);
            Some((i, crc, found))
        });
        let Some((i, crc, found)) = bad else {
            self.verify_indices()?;
            let mut done = Verified::default();
            for s in storages.iter().filter(|s| s.data != Data::Meta) {
                if origin::locate(self, s).1.crc.is_some() {
                    done.checked += 1;
                    done.bytes = done.bytes.saturating_add(s.nbytes);
                } else {
                    done.without += 1;
                }
            }
            return Ok(done);
        };
        let named = self
            .tensors()
            .into_iter()
            .find(|t| t.tensor.storage as usize == i);
        let of = named
            .map(|t| format!(" of tensor '{}'", t.name))
            .unwrap_or_default();
        let why = match found {
            Ok(found) => format!("its checksum is {found:08x} and should be {crc:08x}"),
            Err(e) => e.message().to_owned(),
        };
        Err(err!(
            Checkpoint,
            "storage '{}'{of} is damaged: {why}",
            storages[i].key
        ))
    }

    /// Proves that the indices of sparse tensors lie within their shapes, and nested tensors within their buffers.
    fn verify_indices(&self) -> Result<()> {
        let tree = self.tree();
        for c in tree
            .composites
            .iter()
            .filter(|c| c.kind != CompositeKind::Packed)
        {
            let mut tensors = Vec::with_capacity(c.parts.len());
            for (&part, &name) in c.parts.iter().zip(c.part_names()) {
                tensors.push(self.part(part, matches!(name, "values" | "buffer"))?);
            }
            let parts = match (c.kind, &tensors[..]) {
                (CompositeKind::Coo(coalesced), [indices, values]) => Parts::Coo {
                    indices: indices.clone(),
                    values: values.clone(),
                    coalesced,
                },
                (CompositeKind::Compressed(kind), [compressed, plain, values]) => {
                    Parts::Compressed {
                        kind,
                        compressed: compressed.clone(),
                        plain: plain.clone(),
                        values: values.clone(),
                    }
                }
                (CompositeKind::Nested, [buffer, sizes, strides, offsets]) => {
                    // A skeleton has nothing to prove.
                    if ![sizes, strides, offsets].iter().any(|t| t.is_meta()) {
                        Components::read(sizes, strides, offsets)?.check(buffer)?;
                    }
                    continue;
                }
                _ => return Err(err!(Checkpoint, "a tensor with too few parts")),
            };
            parts.check(&c.shape)?;
        }
        Ok(())
    }

    /// A part of a sparse tensor; of values the layout is enough.
    fn part(&self, part: Value, layout_only: bool) -> Result<Tensor> {
        let tree = self.tree();
        let (t, storage) = tree
            .tensor(part)
            .and_then(|t| Some((t, tree.storages.get(t.storage as usize)?)))
            .ok_or_else(|| err!(Checkpoint, "a sparse tensor of parts that are no tensors"))?;
        let held = if layout_only || storage.data == Data::Meta {
            let nbytes = usize::try_from(storage.nbytes).map_err(|_| {
                err!(
                    Checkpoint,
                    "a storage of {} bytes is too large",
                    storage.nbytes
                )
            })?;
            Storage::meta(nbytes)
        } else {
            Storage::from_bytes(&self.read_storage(storage)?)?
        };
        let (shape, stride) = (t.shape().into(), t.stride().into());
        Tensor::checked(held, shape, stride, t.offset, t.dtype)
    }

    fn checksum(&self, storage: &StorageRef, progress: &Progress<'_>) -> Result<u32> {
        let bytes = self.raw(storage)?;
        Ok(crc(&bytes, progress))
    }
}

/// The CRC-32 of many bytes, by several threads.
fn crc(bytes: &Bytes, progress: &Progress<'_>) -> u32 {
    let part = |range: std::ops::Range<usize>| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[range.clone()]);
        if let Ok(done) = bytes.slice(range.start as u64..range.end as u64) {
            done.release();
        }
        progress(range.len() as u64);
        hasher
    };
    (0..bytes.len().div_ceil(CHUNK))
        .into_par_iter()
        .map(|i| part(i * CHUNK..((i + 1) * CHUNK).min(bytes.len())))
        .reduce(crc32fast::Hasher::new, |mut a, b| {
            a.combine(&b);
            a
        })
        .finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole_checksum() {
        for n in [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 17] {
            let bytes: Vec<u8> = (0..n).map(|i| (i * 7 % 253) as u8).collect();
            let want = crc32fast::hash(&bytes);
            assert_eq!(crc(&Bytes::from(bytes), &|_| ()), want, "{n} bytes");
        }
    }
}
