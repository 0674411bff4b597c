//! Fingerprints: what tells whether two checkpoints hold the same tensors, whatever their formats.
//!
//! The digest of a tensor is the SHA-256 of its elements in row-major order, little-endian. Its line is
//! `name, dtype, shape, digest`; the fingerprint of a checkpoint is the SHA-256 of all lines, sorted by name. Strides, ties,
//! order, devices and values that are no tensors do not count.

use super::tree::Data;
use super::verify::Progress;
use super::write::flat::elements;
use super::{Archive, NamedTensor};
use crate::{Result, ensure};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;

/// 32 bytes of a SHA-256.
pub type Hash = [u8; 32];

/// A digest as text.
#[must_use]
pub fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// The fingerprint of a checkpoint.
pub struct Fingerprint {
    /// That of the whole.
    pub whole: Hash,
    /// Name and digest of the elements of each tensor, in the order of the file; none for meta tensors.
    pub tensors: Vec<(String, Option<Hash>)>,
}

impl Archive {
    /// Reads all tensors and takes the fingerprint.
    ///
    /// # Errors
    /// If a storage cannot be read.
    pub fn fingerprint(&self, progress: &Progress<'_>) -> Result<Fingerprint> {
        let tensors = self.tensors();
        // Tied tensors are read once.
        let mut first = HashMap::new();
        let owner: Vec<usize> = (0..tensors.len())
            .map(|i| *first.entry(identity(&tensors[i])).or_insert(i))
            .collect();
        let digests: Vec<Option<Hash>> = tensors
            .par_iter()
            .zip(&owner)
            .enumerate()
            .map(|(i, (t, &owner))| {
                if owner == i {
                    self.digest(t, progress)
                } else {
                    Ok(None)
                }
            })
            .collect::<Result<_>>()?;
        let mut lines: Vec<(&str, String)> = Vec::with_capacity(tensors.len());
        let mut named = Vec::with_capacity(tensors.len());
        for (t, &owner) in tensors.iter().zip(&owner) {
            let digest = digests[owner];
            let text = digest.as_ref().map_or_else(|| "meta".to_owned(), hex);
            let line = format!(
                "{}\0{:?}\0{text}\n",
                t.tensor.dtype.name(),
                t.tensor.shape()
            );
            lines.push((name_of(t), line));
            named.push((t.name.clone(), digest));
        }
        lines.sort_unstable();
        let mut whole = Sha256::new();
        for (name, line) in lines {
            whole.update(name.as_bytes());
            whole.update([0]);
            whole.update(line.as_bytes());
        }
        Ok(Fingerprint {
            whole: whole.finalize().into(),
            tensors: named,
        })
    }

    /// The SHA-256 of a tensor's elements in row-major order, little-endian; none for a meta tensor.
    ///
    /// # Errors
    /// If its storage cannot be read.
    pub fn digest(&self, t: &NamedTensor<'_>, progress: &Progress<'_>) -> Result<Option<Hash>> {
        if t.storage.data == Data::Meta {
            return Ok(None);
        }
        ensure!(
            t.storage.data != Data::Given,
            Value,
            "tensor '{}' has no bytes in the file",
            t.name
        );
        let bytes = self.read_storage(t.storage)?;
        let mut hasher = Sha256::new();
        elements(&bytes, t.tensor, &mut |piece| {
            hasher.update(piece);
            progress(piece.len() as u64);
            Ok(())
        })?;
        bytes.release();
        Ok(Some(hasher.finalize().into()))
    }
}

/// The name of a tensor where each must have one: a file that is one tensor gives it none.
pub(super) fn name_of<'a>(t: &'a NamedTensor<'_>) -> &'a str {
    if t.name.is_empty() { "tensor" } else { &t.name }
}

/// What two tensors have in common if they have the same elements of the same storage.
pub(super) type Identity<'a> = (u32, i64, crate::DType, &'a [i64], &'a [i64], bool, bool);

pub(super) fn identity<'a>(t: &NamedTensor<'a>) -> Identity<'a> {
    let r = t.tensor;
    (
        r.storage,
        r.offset,
        r.dtype,
        r.shape(),
        r.stride(),
        r.conj,
        r.neg,
    )
}
