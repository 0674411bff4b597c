//! Checkpoints of several files: an index that says which tensor is in which file, or a folder of files.

use super::assembly::Assembly;
use super::graft::Graft;
use super::mmap::Bytes;
use super::origin::Origin;
use super::tree::{Data, Object, StorageRef, Tree, Value};
use super::{Archive, Contents, Format, dcp, pieces};
use crate::{Result, bail, ensure, err};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Bytes of an index; real ones have a few megabytes.
const MAX_INDEX: usize = 64 << 20;
/// Files of one checkpoint.
const MAX_SHARDS: usize = 10_000;

/// True for JSON that seems to be an index.
pub(super) fn is_index(bytes: &Bytes) -> bool {
    let head = &bytes[..bytes.len().min(4096)];
    let start = head.iter().find(|b| !b.is_ascii_whitespace());
    let word = b"\"weight_map\"";
    start == Some(&b'{')
        && (head.windows(word.len()).any(|w| w == word)
            || (bytes.len() <= MAX_INDEX && bytes.windows(word.len()).any(|w| w == word)))
}

/// Opens an index and all files it names.
pub(super) fn open_index(origin: Origin, path: &Path) -> Result<Archive> {
    ensure!(
        origin.bytes.len() <= MAX_INDEX,
        Checkpoint,
        "an index of {} bytes, where at most {MAX_INDEX} are allowed",
        origin.bytes.len()
    );
    let json: serde_json::Value = serde_json::from_slice(&origin.bytes)
        .map_err(|e| err!(Checkpoint, "the index is not valid JSON: {e}"))?;
    let map = json
        .get("weight_map")
        .and_then(serde_json::Value::as_object)
        .ok_or_else(|| err!(Checkpoint, "the weight_map of the index is not an object"))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let (mut files, mut numbers) = (Vec::new(), HashMap::new());
    let mut wanted = Vec::with_capacity(map.len());
    for (name, file) in map {
        let file = file.as_str().ok_or_else(|| {
            err!(
                Checkpoint,
                "the index gives no file name for tensor '{name:.200}'"
            )
        })?;
        let number = match numbers.get(file) {
            Some(&n) => n,
            None => {
                ensure!(
                    is_plain(file),
                    Checkpoint,
                    "the index names '{file:.200}', which is not a file beside it"
                );
                ensure!(
                    files.len() < MAX_SHARDS,
                    Checkpoint,
                    "an index of more than {MAX_SHARDS} files"
                );
                files.push(folder.join(file));
                numbers.insert(file, files.len() - 1);
                files.len() - 1
            }
        };
        wanted.push((name.as_str(), number));
    }
    let missing: Vec<_> = files.iter().filter(|f| !f.is_file()).collect();
    if let Some(first) = missing.first() {
        bail!(
            Checkpoint,
            "{} of the {} files that the index names {} missing, the first is '{}': download {} into the folder of the index",
            missing.len(),
            files.len(),
            if missing.len() == 1 { "is" } else { "are" },
            first.display(),
            if missing.len() == 1 { "it" } else { "them" },
        );
    }
    let metadata = json
        .get("metadata")
        .and_then(serde_json::Value::as_object)
        .map(|m| {
            let text = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), Into::into);
            m.iter().map(|(k, v)| (k.clone(), text(v))).collect()
        });
    let shards = open_all(&files)?;
    merge(origin, shards, &wanted, metadata.unwrap_or_default())
}

/// True for a relative path that does not leave its folder.
fn is_plain(name: &str) -> bool {
    let path = Path::new(name);
    !name.is_empty()
        && !name.contains(['\\', '\0'])
        && path.components().all(|c| matches!(c, Component::Normal(_)))
}

/// Opens files, several at a time.
fn open_all(files: &[PathBuf]) -> Result<Vec<Archive>> {
    let open = |path: &PathBuf| {
        ensure!(
            path.is_file(),
            Checkpoint,
            "'{}' is not a file",
            path.display()
        );
        Archive::open_file(path)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(files.len() / 4 + 1).min(8);
    if threads == 1 {
        return files.iter().map(open).collect();
    }
    let each = files.len().div_ceil(threads);
    std::thread::scope(|s| {
        let parts: Vec<_> = files
            .chunks(each)
            .map(|part| s.spawn(move || part.iter().map(open).collect::<Result<Vec<_>>>()))
            .collect();
        let mut all = Vec::with_capacity(files.len());
        for part in parts {
            let part = part.join().map_err(|_| err!(Io, "a reading thread died"))?;
            all.extend(part?);
        }
        Ok(all)
    })
}

/// One tree of the named tensors of all shards.
fn merge(
    origin: Origin,
    shards: Vec<Archive>,
    wanted: &[(&str, usize)],
    metadata: Vec<(String, String)>,
) -> Result<Archive> {
    let mut tree = Tree::new();
    let mut pairs = Vec::with_capacity(wanted.len());
    let entries: Vec<HashMap<&str, Value>> = shards
        .iter()
        .map(|s| Ok(names(s)?.into_iter().collect()))
        .collect::<Result<_>>()?;
    let mut grafts: Vec<_> = shards.iter().map(|s| Graft::new(s.tree())).collect();
    for &(name, number) in wanted {
        let shard = &shards[number];
        let path = || {
            shard
                .path()
                .map_or(String::new(), |p| p.display().to_string())
        };
        let value = entries[number].get(name).copied().ok_or_else(|| {
            err!(
                Checkpoint,
                "tensor '{name:.200}' is not in '{}', where the index says it is",
                path()
            )
        })?;
        let key = tree.push_str(name);
        let value = grafts[number].copy(value, &mut tree, &mut |storage, tree| {
            shard_storage(shard, number, storage, tree)
        })?;
        pairs.push((key, value));
    }
    drop(grafts);
    drop(entries);
    tree.root = tree.push_dict(Object::Dict, pairs);
    super::check::check(&tree)?;
    finish(origin, Format::Sharded, tree, shards, metadata, Vec::new())
}

/// A storage of the common tree for one of a shard.
pub(super) fn shard_storage(shard: &Archive, number: usize, storage: u32, tree: &mut Tree) -> u32 {
    let found = &shard.tree().storages[storage as usize];
    tree.push_storage(StorageRef {
        data: if found.data == Data::Meta {
            Data::Meta
        } else {
            Data::Shard {
                shard: number as u32,
                storage,
            }
        },
        ..found.clone()
    })
}

pub(super) fn finish(
    origin: Origin,
    format: Format,
    tree: Tree,
    shards: Vec<Archive>,
    metadata: Vec<(String, String)>,
    assemblies: Vec<Assembly>,
) -> Result<Archive> {
    ensure!(!tree.overflow, Checkpoint, "the names are too long");
    let end = origin.bytes.len() as u64;
    let contents = Contents {
        format,
        tree,
        big_endian: false,
        metadata,
    };
    Ok(Archive {
        origin,
        contents,
        shards,
        assemblies,
        end,
    })
}

/// The entries of a shard by name.
fn names(shard: &Archive) -> Result<Vec<(&str, Value)>> {
    let tree = shard.tree();
    let pairs = tree.pairs(tree.root).ok_or_else(|| {
        err!(
            Checkpoint,
            "'{}' is not a dictionary of tensors",
            shard
                .path()
                .map_or(String::new(), |p| p.display().to_string())
        )
    })?;
    Ok(pairs
        .iter()
        .filter_map(|&(k, v)| Some((tree.str(k)?, v)))
        .collect())
}

/// Opens the checkpoint in a folder: a distributed one, an index, or files without one.
pub(super) fn open_folder(folder: &Path) -> Result<Archive> {
    if folder.join(".metadata").is_file() {
        return dcp::open(folder);
    }
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    let known = [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
        "model.safetensors",
        "pytorch_model.bin",
    ];
    for name in known {
        if names.iter().any(|n| n == name) {
            return Archive::open(folder.join(name));
        }
    }
    let ending =
        |end: &str| -> Vec<&String> { names.iter().filter(|n| n.ends_with(end)).collect() };
    if let [index] = ending(".index.json")[..] {
        return Archive::open(folder.join(index));
    }
    for end in [".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf"] {
        match &ending(end)[..] {
            [] => {}
            [one] => return Archive::open(folder.join(one)),
            many => return open_files(folder, many),
        }
    }
    bail!(
        Io,
        "is a directory, and not a checkpoint: it has no index, no .metadata, and no weight files"
    )
}

/// Opens the files `name-00001-of-00003.safetensors` and so on of a folder without an index.
fn open_files(folder: &Path, names: &[&String]) -> Result<Archive> {
    let paths = || names.iter().map(|n| folder.join(n)).collect::<Vec<_>>();
    let first = folder.join(names[0]);
    let tensors = names[0].ends_with(".safetensors");
    if tensors && Archive::open_file(&first).is_ok_and(|a| pieces::holds(&a)) {
        return pieces::open(open_all(&paths())?);
    }
    let parts: Option<Vec<(&str, u64, u64)>> = names.iter().map(|n| numbered(n)).collect();
    let parts = parts.filter(|p| p.iter().all(|x| (x.0, x.2) == (p[0].0, p[0].2)));
    let Some(parts) = parts else {
        bail!(
            Io,
            "is a directory of {} checkpoints, and not one: name one of them ('{}', ...)",
            names.len(),
            names[0]
        );
    };
    let total = parts[0].2;
    if let Some(missing) = (1..=total).find(|n| !parts.iter().any(|p| p.1 == *n)) {
        bail!(
            Checkpoint,
            "part {missing} of {total} is missing: download it into the folder"
        );
    }
    let shards = open_all(&paths())?;
    let entries: Vec<(String, usize)> = shards
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let names = self::names(s)?.into_iter();
            Ok(names.map(|(k, _)| (k.to_owned(), i)).collect::<Vec<_>>())
        })
        .collect::<Result<Vec<_>>>()?
        .concat();
    let mut seen = HashMap::new();
    for (name, i) in &entries {
        ensure!(
            seen.insert(name, i).is_none(),
            Checkpoint,
            "tensor '{name:.200}' is in two of the files"
        );
    }
    let wanted: Vec<(&str, usize)> = entries.iter().map(|(n, i)| (n.as_str(), *i)).collect();
    let origin = Origin::memory(Bytes::from(Vec::new()));
    merge(origin, shards, &wanted, Vec::new())
}

/// `("model", 1, 3)` of `model-00001-of-00003.safetensors`.
fn numbered(name: &str) -> Option<(&str, u64, u64)> {
    let (stem, _) = name.split_once('.')?;
    let (rest, total) = stem.rsplit_once("-of-")?;
    let (name, part) = rest.rsplit_once('-')?;
    Some((name, part.parse().ok()?, total.parse().ok()?))
}
