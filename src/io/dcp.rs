//! A folder that `torch.distributed.checkpoint` wrote: `.metadata`, a pickle of which tensor is cut into which pieces,
//! and `*.distcp`, in which each piece is a file of PyTorch's own.

mod nest;

use super::assembly::{Assembled, Piece, explained};
use super::origin::Origin;
use super::rebuild::resolve;
use super::sharded::finish;
use super::tree::{Object, Tree, Value};
use super::{Archive, Format, pickle};
use crate::{DType, Error, Result, bail, ensure, err};
use nest::Nest;
use std::collections::HashMap;
use std::path::{Component, Path};

/// The state of an object of this class.
fn state<'a>(tree: &'a Tree, value: Value, class: &str) -> Result<Vec<(&'a str, Value)>> {
    let bad = || err!(Checkpoint, ".metadata: an object that is no {class}");
    let call = tree.call(value).ok_or_else(bad)?;
    let global = tree.global(call.func).ok_or_else(bad)?;
    ensure!(
        global.module.starts_with("torch.distributed.") && &*global.name == class,
        Checkpoint,
        "{}, but {global}",
        bad()
    );
    let states = call.extra.as_deref().map_or(&[][..], |e| &e.states);
    let pairs = match states {
        [] => &[][..],
        [one] => tree.pairs(*one).ok_or_else(bad)?,
        _ => return Err(bad()),
    };
    Ok(pairs
        .iter()
        .filter_map(|&(k, v)| Some((tree.str(k)?, v)))
        .collect())
}

fn get(fields: &[(&str, Value)], name: &str) -> Value {
    fields
        .iter()
        .find(|f| f.0 == name)
        .map_or(Value::None, |f| f.1)
}

fn sizes(tree: &Tree, value: Value) -> Result<Vec<i64>> {
    let bad = || err!(Checkpoint, ".metadata: a size that is none");
    let items = match tree.object(value) {
        Some(Object::Size(_) | Object::Tuple(_)) => tree.items(value).ok_or_else(bad)?,
        _ => return Err(bad()),
    };
    ensure!(items.len() <= 64, Checkpoint, "{}", bad());
    items
        .iter()
        .map(|v| match v {
            Value::Int(n @ 0..) => Ok(*n),
            _ => Err(bad()),
        })
        .collect()
}

/// Where a piece is, by name and position.
type Places<'a> = HashMap<(&'a str, Option<Vec<i64>>), (&'a str, u64, u64)>;

fn places<'a>(tree: &'a Tree, table: Value) -> Result<Places<'a>> {
    let mut out = HashMap::new();
    for &(key, value) in tree.pairs(table).unwrap_or(&[]) {
        let index = state(tree, key, "MetadataIndex")?;
        let info = state(tree, value, "_StorageInfo")?;
        let name = tree.str(get(&index, "fqn"));
        let offset = match get(&index, "offset") {
            Value::None => None,
            offset => Some(sizes(tree, offset)?),
        };
        let path = tree.str(get(&info, "relative_path"));
        ensure!(
            get(&info, "transform_descriptors") == Value::None,
            Checkpoint,
            ".metadata: compressed or encrypted pieces, which are not supported"
        );
        let (Some(name), Some(path), Value::Int(start @ 0..), Value::Int(len @ 0..)) =
            (name, path, get(&info, "offset"), get(&info, "length"))
        else {
            bail!(Checkpoint, ".metadata: a piece without a place")
        };
        out.insert((name, offset), (path, start as u64, len as u64));
    }
    Ok(out)
}

struct Folder<'a> {
    path: &'a Path,
    files: HashMap<String, Origin>,
    shards: Vec<Archive>,
    opened: HashMap<(String, u64), usize>,
}

impl Folder<'_> {
    /// The number of the archive at this place.
    fn piece(&mut self, (name, start, len): (&str, u64, u64)) -> Result<usize> {
        let key = (name.to_owned(), start);
        if let Some(&n) = self.opened.get(&key) {
            return Ok(n);
        }
        let plain = Path::new(name)
            .components()
            .all(|c| matches!(c, Component::Normal(_)));
        ensure!(
            plain && !name.is_empty(),
            Checkpoint,
            ".metadata names '{name:.200}', which is not a file of the folder"
        );
        if !self.files.contains_key(name) {
            let path = self.path.join(name);
            ensure!(
                path.is_file(),
                Checkpoint,
                "the file '{name}' that .metadata names is missing: copy it into the folder"
            );
            self.files.insert(name.to_owned(), Origin::file(&path, 0)?);
        }
        let end = start
            .checked_add(len)
            .ok_or_else(|| err!(Checkpoint, "a place overflows"))?;
        let part = self.files[name]
            .part(start, end)
            .map_err(|e| err!(Checkpoint, "'{name}': {}: it is truncated", e.message()))?;
        let archive = Archive::of(part)
            .map_err(|e| Error::new(e.kind(), format!("'{name}' at {start}: {e}")))?;
        self.shards.push(archive);
        self.opened.insert(key, self.shards.len() - 1);
        Ok(self.shards.len() - 1)
    }
}

/// Opens a folder.
pub(super) fn open(path: &Path) -> Result<Archive> {
    let origin = Origin::file(&path.join(".metadata"), 0)?;
    ensure!(
        origin.bytes.len() <= 1 << 30,
        Checkpoint,
        ".metadata of {} bytes is too large",
        origin.bytes.len()
    );
    let (mut meta, _) = pickle::read(&origin.bytes)?;
    resolve(&mut meta, &mut |_, _| {
        Err(err!(Checkpoint, ".metadata refers to a storage"))
    })?;
    super::check::check(&meta)?;
    let root = state(&meta, meta.root, "Metadata")?;
    let places = places(&meta, get(&root, "storage_data"))?;
    let paths: HashMap<&str, Value> = meta
        .pairs(get(&root, "planner_data"))
        .unwrap_or(&[])
        .iter()
        .filter_map(|&(k, v)| Some((meta.str(k)?, v)))
        .collect();
    let mut folder = Folder {
        path,
        files: HashMap::new(),
        shards: Vec::new(),
        opened: HashMap::new(),
    };
    let (mut made, mut nest) = (Assembled::default(), Nest::default());
    let entries = meta
        .pairs(get(&root, "state_dict_metadata"))
        .ok_or_else(|| err!(Checkpoint, ".metadata names no tensors"))?;
    for &(key, entry) in entries {
        let name = meta
            .str(key)
            .ok_or_else(|| err!(Checkpoint, ".metadata: a name that is no string"))?;
        let value = match state(&meta, entry, "TensorStorageMetadata") {
            Ok(fields) => {
                let tensor = Cut::new(&meta, name, &fields)?;
                tensor
                    .read(&meta, &places, &mut folder)
                    .and_then(|pieces| {
                        let looks = (&tensor.shape[..], tensor.dtype);
                        made.tensor(name, looks, pieces, &folder.shards)
                    })
                    .map_err(|e| explained(name, &e))?
            }
            Err(_) => {
                state(&meta, entry, "BytesStorageMetadata")?;
                let place = places
                    .get(&(name, None))
                    .ok_or_else(|| err!(Checkpoint, "'{name:.200}' has no place in a file"))?;
                let n = folder.piece(*place)?;
                made.object(&folder.shards[n], n)?
            }
        };
        nest.add(&meta, paths.get(name).copied(), name, value)?;
    }
    let Assembled {
        mut tree,
        assemblies,
    } = made;
    tree.root = nest.build(&mut tree);
    super::check::check(&tree)?;
    finish(
        origin,
        Format::Distributed,
        tree,
        folder.shards,
        Vec::new(),
        assemblies,
    )
}

/// What the metadata say of a tensor that was cut into pieces.
struct Cut<'a> {
    name: &'a str,
    shape: Vec<i64>,
    dtype: DType,
    chunks: &'a [Value],
}

impl<'a> Cut<'a> {
    fn new(meta: &'a Tree, name: &'a str, fields: &[(&str, Value)]) -> Result<Self> {
        let explained = |e: Error| explained(name, &e);
        Ok(Self {
            name,
            shape: sizes(meta, get(fields, "size")).map_err(explained)?,
            dtype: properties(meta, get(fields, "properties")).map_err(explained)?,
            chunks: meta.items(get(fields, "chunks")).unwrap_or(&[]),
        })
    }

    /// Finds all pieces, and proves that each is what the metadata say.
    fn read(
        &self,
        meta: &Tree,
        places: &Places<'_>,
        folder: &mut Folder<'_>,
    ) -> Result<Vec<Piece>> {
        let mut pieces = Vec::with_capacity(self.chunks.len());
        for &chunk in self.chunks {
            pieces.push(self.piece(meta, chunk, places, folder)?);
        }
        Ok(pieces)
    }

    fn piece(
        &self,
        meta: &Tree,
        chunk: Value,
        places: &Places<'_>,
        folder: &mut Folder<'_>,
    ) -> Result<Piece> {
        let (shape, dtype) = (&self.shape, self.dtype);
        let chunk = state(meta, chunk, "ChunkStorageMetadata")?;
        let offsets = sizes(meta, get(&chunk, "offsets"))?;
        let part = sizes(meta, get(&chunk, "sizes"))?;
        ensure!(
            Piece::lies_inside(&offsets, &part, shape),
            Checkpoint,
            "a piece lies outside of it"
        );
        let place = places
            .get(&(self.name, Some(offsets.clone())))
            .or_else(|| places.get(&(self.name, None)))
            .ok_or_else(|| err!(Checkpoint, "a piece has no place in a file"))?;
        let shard = folder.piece(*place)?;
        let found = folder.shards[shard].tree();
        let found = found.tensor(found.root);
        let found = found.ok_or_else(|| err!(Checkpoint, "a piece is no tensor"))?;
        ensure!(
            found.dtype == dtype && found.shape() == part,
            Checkpoint,
            "a piece is of {} and shape {:?} where {dtype} and {part:?} are due",
            found.dtype,
            found.shape()
        );
        Ok(Piece {
            shard,
            offsets,
            tensor: found.clone(),
        })
    }
}

/// The dtype in the properties of a tensor: a tuple, or fields by name.
fn properties(meta: &Tree, value: Value) -> Result<DType> {
    let bad = || err!(Checkpoint, "it has no dtype");
    let call = meta.call(value).ok_or_else(bad)?;
    let state = call
        .extra
        .as_deref()
        .and_then(|e| e.states.first())
        .copied()
        .ok_or_else(bad)?;
    let dtype = match (meta.tuple(state), meta.pairs(state)) {
        (Some(items), _) => items.first().copied(),
        (_, Some(pairs)) => pairs
            .iter()
            .find(|kv| meta.str(kv.0) == Some("dtype"))
            .map(|kv| kv.1),
        _ => None,
    };
    match dtype.and_then(|d| meta.object(d)) {
        Some(Object::DType(dtype)) => Ok(*dtype),
        _ => Err(bad()),
    }
}
