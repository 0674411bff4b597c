//! Tensors that are put together of pieces in several files.

use super::Archive;
use super::graft::Graft;
use super::mmap::Bytes;
use super::rebuild::extent;
use super::sharded::shard_storage;
use super::tree::{Data, StorageRef, TensorRef, Tree, Value};
use crate::{DType, Error, Result, ensure, err};
use std::sync::Arc;

/// Pieces of one tensor, which are compared with one another.
const MAX_PIECES: usize = 4096;

/// A tensor put together of pieces, row-major.
pub(super) struct Assembly {
    shape: Vec<i64>,
    item: usize,
    pieces: Vec<Piece>,
}

/// A box of a tensor that a file holds.
pub(super) struct Piece {
    /// The number of the file.
    pub shard: usize,
    /// Where its first element belongs.
    pub offsets: Vec<i64>,
    /// What the file holds.
    pub tensor: TensorRef,
}

impl Piece {
    /// True if the piece, of the sizes `part`, lies in a tensor of this shape.
    pub fn lies_inside(offsets: &[i64], part: &[i64], shape: &[i64]) -> bool {
        offsets.len() == shape.len()
            && part.len() == shape.len()
            && (offsets.iter().zip(part).zip(shape))
                .all(|((&o, &n), &all)| o.checked_add(n).is_some_and(|end| end <= all))
    }
}

/// A tree that is being made of others, and how its tensors are put together.
#[derive(Default)]
pub(super) struct Assembled {
    pub tree: Tree,
    pub assemblies: Vec<Assembly>,
}

impl Assembled {
    /// The object that file number `n` holds.
    pub fn object(&mut self, shard: &Archive, n: usize) -> Result<Value> {
        let from = shard.tree();
        Graft::new(from).copy(from.root, &mut self.tree, &mut |storage, tree| {
            shard_storage(shard, n, storage, tree)
        })
    }

    /// A tensor of these pieces, which have to cover it exactly.
    pub fn tensor(
        &mut self,
        name: &str,
        (shape, dtype): (&[i64], DType),
        pieces: Vec<Piece>,
        shards: &[Archive],
    ) -> Result<Value> {
        let stride = crate::dims::contiguous_strides(shape);
        let nbytes = extent(shape, &stride, 0, dtype)?;
        if let [piece] = &pieces[..]
            && piece.tensor.shape() == shape
        {
            let (shard, found) = (piece.shard, piece.tensor.clone());
            let storage = shard_storage(&shards[shard], shard, found.storage, &mut self.tree);
            return Ok(self.tree.push_tensor(TensorRef {
                storage,
                attrs: Value::None,
                ..found
            }));
        }
        ensure!(
            pieces.len() <= MAX_PIECES && !overlap(&pieces),
            Checkpoint,
            "its pieces overlap, or are more than {MAX_PIECES}"
        );
        let covered = covered(&pieces);
        ensure!(
            covered == elements(shape),
            Checkpoint,
            "its pieces do not cover it: {covered} elements of shape {shape:?}"
        );
        self.assemblies.push(Assembly {
            shape: shape.to_vec(),
            item: dtype.size(),
            pieces,
        });
        let storage = self.tree.push_storage(StorageRef {
            key: name.into(),
            dtype: Some(dtype),
            location: Arc::from("cpu"),
            nbytes,
            data: Data::Assembled((self.assemblies.len() - 1) as u32),
            crc: None,
        });
        let tensor = TensorRef::new(storage, dtype, shape, &stride, 0);
        Ok(self.tree.push_tensor(tensor))
    }
}

/// An error with the name of the tensor before it.
pub(super) fn explained(name: &str, e: &Error) -> Error {
    Error::new(e.kind(), format!("tensor '{name:.200}': {e}"))
}

/// True if two pieces share an element.
fn overlap(pieces: &[Piece]) -> bool {
    pieces.iter().enumerate().any(|(i, a)| {
        pieces[..i].iter().any(|b| {
            let (a_shape, b_shape) = (a.tensor.shape(), b.tensor.shape());
            (0..a_shape.len()).all(|d| {
                let (lo, hi) = (
                    a.offsets[d].max(b.offsets[d]),
                    (a.offsets[d] + a_shape[d]).min(b.offsets[d] + b_shape[d]),
                );
                lo < hi
            })
        })
    })
}

fn elements(shape: &[i64]) -> i128 {
    shape.iter().map(|&n| i128::from(n)).product()
}

/// Elements of all pieces.
fn covered(pieces: &[Piece]) -> i128 {
    pieces.iter().map(|p| elements(p.tensor.shape())).sum()
}

/// The bytes of a tensor, put together.
pub(super) fn assemble(archive: &Archive, number: u32) -> Result<Bytes> {
    let assembly = archive
        .assemblies
        .get(number as usize)
        .ok_or_else(|| err!(Checkpoint, "no tensor of pieces number {number}"))?;
    let stride = crate::dims::contiguous_strides(&assembly.shape);
    let total = crate::dims::storage_bytes(&assembly.shape, &stride, 0, assembly.item)?;
    let mut out = Vec::new();
    out.try_reserve_exact(total)
        .map_err(|_| err!(Memory, "no memory for {total} bytes"))?;
    out.resize(total, 0);
    for piece in &assembly.pieces {
        let shard = &archive.shards[piece.shard];
        let storage = &shard.tree().storages[piece.tensor.storage as usize];
        let bytes = shard.read_storage(storage)?;
        let steps = piece.offsets.iter().zip(&stride[..]);
        let at = steps.map(|(o, s)| o * s).sum();
        place(
            &bytes,
            &mut out,
            assembly.item,
            piece.tensor.shape(),
            (piece.tensor.stride(), piece.tensor.offset),
            (&stride, at),
        );
    }
    Ok(Bytes::from(out))
}

/// Copies a strided block; all has been proved to lie in `from` and `to`.
fn place(
    from: &[u8],
    to: &mut [u8],
    item: usize,
    shape: &[i64],
    source: (&[i64], i64),
    target: (&[i64], i64),
) {
    let ((from_stride, from_at), (to_stride, to_at)) = (source, target);
    let Some((&n, rest)) = shape.split_first() else {
        let (a, b) = (from_at as usize * item, to_at as usize * item);
        to[b..b + item].copy_from_slice(&from[a..a + item]);
        return;
    };
    if rest.is_empty() && from_stride == [1] && to_stride == [1] {
        let (a, b, len) = (
            from_at as usize * item,
            to_at as usize * item,
            n as usize * item,
        );
        to[b..b + len].copy_from_slice(&from[a..a + len]);
        return;
    }
    for i in 0..n {
        place(
            from,
            to,
            item,
            rest,
            (&from_stride[1..], from_at + i * from_stride[0]),
            (&to_stride[1..], to_at + i * to_stride[0]),
        );
    }
}
