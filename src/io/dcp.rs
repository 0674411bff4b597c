//! A folder that `torch.distributed.checkpoint` wrote: `.metadata`, a pickle of which tensor is cut into which pieces,
//! and `*.distcp`, in which each piece is a file of PyTorch's own.

mod nest;

use super::graft::Graft;
use super::mmap::Bytes;
use super::origin::Origin;
use super::rebuild::{extent, resolve};
use super::sharded::{finish, shard_storage};
use super::tree::{Data, Object, StorageRef, TensorRef, Tree, Value};
use super::{Archive, Format, pickle};
use crate::{DType, Error, Result, bail, ensure, err};
use nest::Nest;
use std::collections::HashMap;
use std::path::{Component, Path};
use std::sync::Arc;

/// Pieces of one tensor, which are compared with one another.
const MAX_PIECES: usize = 4096;

/// A tensor put together of pieces, row-major.
pub(super) struct Assembly {
    shape: Vec<i64>,
    item: usize,
    pieces: Vec<Piece>,
}

struct Piece {
    shard: usize,
    /// Where it belongs.
    offsets: Vec<i64>,
    tensor: TensorRef,
}

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
    let (mut made, mut nest) = (Made::default(), Nest::default());
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
                    .and_then(|pieces| made.tensor(&tensor, pieces, &folder))
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
    let Made {
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

/// An error with the name of the tensor before it.
fn explained(name: &str, e: &Error) -> Error {
    Error::new(e.kind(), format!("tensor '{name:.200}': {e}"))
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
            lies_inside(&offsets, &part, shape),
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

fn lies_inside(offsets: &[i64], part: &[i64], shape: &[i64]) -> bool {
    offsets.len() == shape.len()
        && part.len() == shape.len()
        && (offsets.iter().zip(part).zip(shape))
            .all(|((&o, &n), &all)| o.checked_add(n).is_some_and(|end| end <= all))
}

/// The tree that is being made, and how its tensors are put together.
#[derive(Default)]
struct Made {
    tree: Tree,
    assemblies: Vec<Assembly>,
}

impl Made {
    /// The object that a file of its own holds.
    fn object(&mut self, shard: &Archive, n: usize) -> Result<Value> {
        let from = shard.tree();
        Graft::new(from).copy(from.root, &mut self.tree, &mut |storage, tree| {
            shard_storage(shard, n, storage, tree)
        })
    }

    /// A tensor of these pieces, which have to cover it exactly.
    fn tensor(&mut self, cut: &Cut, pieces: Vec<Piece>, folder: &Folder) -> Result<Value> {
        let (shape, dtype) = (&cut.shape, cut.dtype);
        let stride = crate::dims::contiguous_strides(shape);
        let nbytes = extent(shape, &stride, 0, dtype)?;
        if let [piece] = &pieces[..]
            && piece.tensor.shape() == &shape[..]
        {
            let (shard, found) = (piece.shard, piece.tensor.clone());
            let from = &folder.shards[shard];
            let storage = shard_storage(from, shard, found.storage, &mut self.tree);
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
            covered == shape.iter().map(|&n| n as i128).product::<i128>(),
            Checkpoint,
            "its pieces do not cover it: {covered} elements of shape {shape:?}"
        );
        self.assemblies.push(Assembly {
            shape: shape.clone(),
            item: dtype.size(),
            pieces,
        });
        let storage = self.tree.push_storage(StorageRef {
            key: cut.name.into(),
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

/// Elements of all pieces.
fn covered(pieces: &[Piece]) -> i128 {
    pieces
        .iter()
        .map(|p| {
            p.tensor
                .shape()
                .iter()
                .map(|&n| n as i128)
                .product::<i128>()
        })
        .sum()
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
