//! A folder of safetensors files with pieces of tensors: what the ranks of `torch.distributed.checkpoint` write with a
//! `HuggingFaceStorageWriter`. The metadata of each file say where its pieces belong; how large a tensor is say its pieces.

use super::assembly::{Assembled, Piece, explained};
use super::mmap::Bytes;
use super::origin::Origin;
use super::sharded::finish;
use super::tree::Object;
use super::{Archive, Format};
use crate::{DType, Result, ensure, err};
use std::collections::HashMap;

/// The key of the metadata: a JSON object, `{name: {"saved_offsets": [..]}}`.
const KEY: &str = "DCP_SHARDING_INFO";

/// True for a file that says where its tensors belong.
pub(super) fn holds(archive: &Archive) -> bool {
    archive.format() == Format::Safetensors && archive.metadata().iter().any(|(k, _)| k == KEY)
}

/// A tensor of which pieces have been met.
struct Cut {
    name: String,
    shape: Vec<i64>,
    dtype: DType,
    pieces: Vec<Piece>,
}

impl Cut {
    /// Adds a piece, unless another file has the same one.
    fn add(&mut self, piece: Piece) -> Result<()> {
        let part = piece.tensor.shape();
        ensure!(
            piece.tensor.dtype == self.dtype && part.len() == self.shape.len(),
            Checkpoint,
            "a piece is of {} and shape {part:?}, another one of {} and {} dimensions",
            piece.tensor.dtype,
            self.dtype,
            self.shape.len()
        );
        for (size, (&at, &n)) in self.shape.iter_mut().zip(piece.offsets.iter().zip(part)) {
            let end = at.checked_add(n);
            *size = (*size).max(end.ok_or_else(|| err!(Checkpoint, "an offset overflows"))?);
        }
        let known = |p: &Piece| p.offsets == piece.offsets && p.tensor.shape() == part;
        if !self.pieces.iter().any(known) {
            self.pieces.push(piece);
        }
        Ok(())
    }
}

/// Puts the tensors of these files together.
pub(super) fn open(shards: Vec<Archive>) -> Result<Archive> {
    let mut cuts: Vec<Cut> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (shard, archive) in shards.iter().enumerate() {
        let places = places(archive)?;
        let tree = archive.tree();
        for &(key, value) in tree.pairs(tree.root).unwrap_or(&[]) {
            let (Some(name), Some(tensor)) = (tree.str(key), tree.tensor(value)) else {
                continue;
            };
            let offsets =
                offsets(&places, name, tensor.shape()).map_err(|e| explained(name, &e))?;
            let number = *numbers.entry(name.to_owned()).or_insert_with(|| {
                cuts.push(Cut {
                    name: name.to_owned(),
                    shape: vec![0; offsets.len()],
                    dtype: tensor.dtype,
                    pieces: Vec::new(),
                });
                cuts.len() - 1
            });
            let piece = Piece {
                shard,
                offsets,
                tensor: tensor.clone(),
            };
            cuts[number].add(piece).map_err(|e| explained(name, &e))?;
        }
    }
    let mut made = Assembled::default();
    let mut pairs = Vec::with_capacity(cuts.len());
    for cut in cuts {
        let (name, looks) = (&cut.name, (&cut.shape[..], cut.dtype));
        let value = made
            .tensor(name, looks, cut.pieces, &shards)
            .map_err(|e| explained(name, &e))?;
        pairs.push((made.tree.push_str(name), value));
    }
    let Assembled {
        mut tree,
        assemblies,
    } = made;
    tree.root = tree.push_dict(Object::Dict, pairs);
    super::check::check(&tree)?;
    let origin = Origin::memory(Bytes::from(Vec::new()));
    finish(
        origin,
        Format::Distributed,
        tree,
        shards,
        Vec::new(),
        assemblies,
    )
}

/// Where the pieces of a file belong, by name.
fn places(archive: &Archive) -> Result<serde_json::Value> {
    let path = || {
        archive
            .path()
            .map_or(String::new(), |p| p.display().to_string())
    };
    let found = archive.metadata().iter().find(|(k, _)| k == KEY);
    let (_, text) = found.ok_or_else(|| {
        err!(
            Checkpoint,
            "'{}' does not say where its tensors belong, as other files of the folder do",
            path()
        )
    })?;
    serde_json::from_str(text).map_err(|e| err!(Checkpoint, "'{}': {KEY} is not JSON: {e}", path()))
}

/// Where a piece of this shape belongs.
fn offsets(places: &serde_json::Value, name: &str, part: &[i64]) -> Result<Vec<i64>> {
    let found = places
        .get(name)
        .and_then(|p| p.get("saved_offsets")?.as_array());
    let numbers = |list: &Vec<serde_json::Value>| -> Option<Vec<i64>> {
        list.iter()
            .map(|n| n.as_i64().filter(|n| *n >= 0))
            .collect()
    };
    let offsets = found
        .and_then(numbers)
        .ok_or_else(|| err!(Checkpoint, "{KEY} does not say where it belongs"))?;
    ensure!(
        offsets.len() == part.len(),
        Checkpoint,
        "{} offsets of a piece of shape {part:?}",
        offsets.len()
    );
    Ok(offsets)
}
