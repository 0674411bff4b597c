//! Writing a checkpoint as several files with an index that tells which tensor is in which.
//!
//! The index is what makes the new checkpoint the current one. Files of the old one keep their bytes until then, so
//! that whoever opens the index finds either the old checkpoint or the new.

use super::atomic::{AtomicFile, Flushed};
use super::flat::Flat;
use super::{Provider, safetensors, torch_zip};
use crate::io::tree::{Data, Object, StorageRef, TensorRef, Tree};
use crate::{Result, ensure, err};
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shards that are kept open until all are written, so that none is left behind by a process that is killed.
const MAX_OPEN: usize = 256;

/// What each shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// safetensors files.
    Safetensors,
    /// PyTorch zip files.
    TorchZip,
}

/// Writes named tensors to `path` if at most `max_bytes` are needed for them, else to files beside it, named like
/// `model-00001-of-00003.safetensors`, with `model.safetensors.index.json`. A tensor is never cut: one that is larger has a
/// file of its own. Gives the paths that were written, the index last.
///
/// # Errors
/// As [`save`](super::save), or if `max_bytes` is zero.
pub fn save(
    path: &Path,
    flat: &Flat,
    kind: Kind,
    max_bytes: u64,
    provider: &mut Provider<'_>,
) -> Result<Vec<PathBuf>> {
    ensure!(max_bytes > 0, Value, "shards of no bytes");
    flat.check()?;
    if kind == Kind::Safetensors {
        safetensors::check(flat)?;
    }
    let shards = assign(flat, max_bytes)?;
    if shards.len() <= 1 {
        let mut out = AtomicFile::create(path)?;
        shard(&mut out, path, flat, &flat.all(), kind, provider)?;
        out.flush()?.publish()?;
        return Ok(vec![path.to_owned()]);
    }
    let names = Names::of(path)?;
    let old = names.listed();
    let mut files: Vec<(PathBuf, Flushed)> = Vec::with_capacity(shards.len());
    let mut map = BTreeMap::new();
    let mut total = 0u64;
    let tag = names.tag(shards.len());
    for (i, members) in shards.iter().enumerate() {
        let name = names.shard(i, shards.len(), tag);
        let path = names.folder.join(&name);
        let mut out = AtomicFile::create(&path)?;
        shard(&mut out, &path, flat, members, kind, provider)?;
        let mut done = out.flush()?;
        if files.len() >= MAX_OPEN {
            done.close()?;
        }
        files.push((path, done));
        for (_, item) in flat.members(members) {
            if item.tied.is_none() {
                total += item.nbytes()?;
            }
            // A tied name in a safetensors file is one of its metadata, where no other reader looks.
            if item.tied.is_none() || kind == Kind::TorchZip {
                map.insert(item.name.as_str(), name.clone());
            }
        }
    }
    let mut metadata: Map<String, Json> = Map::new();
    metadata.insert("total_size".into(), total.into());
    let index = json!({"metadata": metadata, "weight_map": map});
    let text = serde_json::to_string_pretty(&index).map_err(|e| err!(Value, "{e}"))?;
    let mut out = AtomicFile::create(&names.index)?;
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    let index = out.flush()?;
    let mut paths = Vec::with_capacity(files.len() + 1);
    for (path, flushed) in files {
        flushed.publish()?;
        paths.push(path);
    }
    index.publish()?;
    // Shards of the checkpoint that was replaced, to which nothing points any more.
    for stale in old.iter().map(|n| names.folder.join(n)) {
        if !paths.contains(&stale) {
            let _ = fs::remove_file(stale);
        }
    }
    paths.push(names.index);
    Ok(paths)
}

/// Which items go to which file: in order, as long as they fit; tied ones with the one they are tied to.
fn assign(flat: &Flat, max_bytes: u64) -> Result<Vec<Vec<u32>>> {
    let mut shards: Vec<Vec<u32>> = Vec::new();
    let mut place = vec![0usize; flat.items.len()];
    let mut fill = 0u64;
    for (i, item) in flat.items.iter().enumerate() {
        if let Some(tied) = item.tied {
            place[i] = place[tied as usize];
        } else {
            let size = item.nbytes()?;
            if shards.is_empty() || (fill > 0 && fill.saturating_add(size) > max_bytes) {
                shards.push(Vec::new());
                fill = 0;
            }
            fill = fill.saturating_add(size);
            place[i] = shards.len() - 1;
        }
        shards[place[i]].push(i as u32);
    }
    Ok(shards)
}

fn shard(
    out: &mut AtomicFile,
    path: &Path,
    flat: &Flat,
    members: &[u32],
    kind: Kind,
    provider: &mut Provider<'_>,
) -> Result<()> {
    match kind {
        Kind::Safetensors => safetensors::part(out, flat, members, provider),
        Kind::TorchZip => {
            let (tree, numbers) = tree_of(flat, members)?;
            torch_zip::write(out, &tree, torch_zip::root_of(path), &mut |n, sink| {
                let item = numbers.get(n as usize);
                provider(*item.ok_or_else(|| err!(Value, "no storage {n}"))?, sink)
            })
        }
    }
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut stride = vec![1i64; shape.len()];
    for d in (1..stride.len()).rev() {
        stride[d - 1] = stride[d].saturating_mul(shape[d].max(1));
    }
    stride
}

/// A dictionary of these items, and which item each of its storages is.
pub(crate) fn tree_of(flat: &Flat, members: &[u32]) -> Result<(Tree, Vec<u32>)> {
    let mut tree = Tree::new();
    let (mut pairs, mut numbers) = (Vec::new(), Vec::new());
    let mut storages = vec![None; flat.items.len()];
    let location: Arc<str> = Arc::from("cpu");
    for (i, item) in flat.members(members) {
        let owner = item.tied.unwrap_or(i);
        let storage = *storages[owner as usize].get_or_insert_with(|| {
            numbers.push(owner);
            numbers.len() as u32 - 1
        });
        if storage as usize == tree.storages.len() {
            tree.push_storage(StorageRef {
                key: storage.to_string().into(),
                dtype: Some(item.dtype),
                location: Arc::clone(&location),
                nbytes: item.nbytes()?,
                data: Data::Given,
                crc: None,
            });
        }
        let stride = row_major(&item.shape);
        let name = tree.push_str(&item.name);
        let tensor = TensorRef::new(storage, item.dtype, &item.shape, &stride, 0);
        pairs.push((name, tree.push_tensor(tensor)));
    }
    tree.root = tree.push_dict(Object::OrderedDict, pairs);
    Ok((tree, numbers))
}

/// The names of the files.
struct Names {
    folder: PathBuf,
    stem: String,
    extension: String,
    index: PathBuf,
}

impl Names {
    fn of(path: &Path) -> Result<Self> {
        let bad = || err!(Value, "'{}' is no name for shards", path.display());
        let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(bad)?;
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) => (stem.to_owned(), format!(".{extension}")),
            None => (name.to_owned(), String::new()),
        };
        Ok(Self {
            folder: path.parent().unwrap_or(Path::new("")).to_owned(),
            index: path.with_file_name(format!("{name}.index.json")),
            stem,
            extension,
        })
    }

    fn shard(&self, i: usize, of: usize, tag: u32) -> String {
        let tag = if tag == 0 {
            String::new()
        } else {
            format!("-{tag}")
        };
        format!(
            "{}{tag}-{:05}-of-{of:05}{}",
            self.stem,
            i + 1,
            self.extension
        )
    }

    /// The first number with which no shard replaces a file that is there: an index may point to it.
    fn tag(&self, of: usize) -> u32 {
        (0..u32::MAX)
            .find(|&tag| (0..of).all(|i| !self.folder.join(self.shard(i, of, tag)).exists()))
            .unwrap_or(0)
    }

    /// The files of our pattern that the present index lists.
    fn listed(&self) -> BTreeSet<String> {
        let text = fs::read(&self.index).unwrap_or_default();
        let json: Json = serde_json::from_slice(&text).unwrap_or_default();
        let map = json.get("weight_map").and_then(Json::as_object);
        let names = map
            .into_iter()
            .flat_map(Map::values)
            .filter_map(Json::as_str);
        names
            .filter(|n| {
                n.starts_with(&format!("{}-", self.stem))
                    && n.ends_with(&self.extension)
                    && n.contains("-of-")
                    && !n.contains(['/', '\\'])
            })
            .map(str::to_owned)
            .collect()
    }
}
