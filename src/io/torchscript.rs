//! TorchScript archives (`torch.jit.save`): the tensors of the module by their paths, and the constants of its code; or
//! the module's own tree. The code itself is not read.

use super::check::check;
use super::mmap::Bytes;
use super::pickle;
use super::rebuild::{StorageRequest, resolve};
use super::torch_zip::Finder;
use super::tree::{Id, Object, StorageRef, Tree, Value};
use super::zip::Zip;
use super::{Contents, Format, graft::Graft};
use crate::{Result, ensure, err};
use std::collections::HashSet;

/// The tree of one pickle of the archive, its storages resolved in the folder beside it.
fn part(zip: &Zip, root: &str, name: &str, folder: &str) -> Result<Tree> {
    let missing = || err!(Checkpoint, "a TorchScript archive without {name}");
    let entry = zip
        .find(format!("{root}/{name}").as_bytes())
        .ok_or_else(missing)?;
    let data = super::torch_zip::read_pickle(zip, entry)?;
    let (mut tree, _) = pickle::read(&data)?;
    let mut finder = Finder::new(zip, format!("{root}/{folder}/"));
    resolve(
        &mut tree,
        &mut |request: &StorageRequest<'_>, storages: &mut Vec<StorageRef>| {
            finder.find(request, storages)
        },
    )?;
    check(&tree)?;
    Ok(tree)
}

/// Reads a TorchScript archive: an ordered dictionary of tensors by path.
pub(super) fn open(bytes: &Bytes, zip: &Zip, root: &str, big_endian: bool) -> Result<Contents> {
    ensure!(
        bytes.starts_with(b"PK"),
        Checkpoint,
        "a TorchScript archive that is no zip archive"
    );
    let module = part(zip, root, "data.pkl", "data")?;
    let constants = part(zip, root, "constants.pkl", "constants")?;
    let (mut tree, mut pairs) = (Tree::new(), Vec::new());
    let mut walk = Walk {
        from: &module,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    walk.all(module.root);
    let mut graft = Graft::new(&module);
    let mut found = std::mem::take(&mut walk.found);
    let mut add =
        |from: &Tree, graft: &mut Graft<'_>, found: &mut Vec<(String, Value)>, tree: &mut Tree| {
            for (name, value) in found.drain(..) {
                let value = graft.copy(value, tree, &mut |n, tree| {
                    tree.push_storage(from.storages[n as usize].clone())
                })?;
                let key = tree.push_str(&name);
                pairs.push((key, value));
            }
            Ok::<(), crate::Error>(())
        };
    add(&module, &mut graft, &mut found, &mut tree)?;
    let items = constants.items(constants.root).unwrap_or(&[]);
    let mut found: Vec<_> = items
        .iter()
        .enumerate()
        .filter(|(_, v)| constants.tensor(**v).is_some())
        .map(|(i, &v)| (format!("CONSTANTS.c{i}"), v))
        .collect();
    let mut graft = Graft::new(&constants);
    add(&constants, &mut graft, &mut found, &mut tree)?;
    ensure!(!tree.overflow, Checkpoint, "the names are too long");
    tree.root = tree.push_dict(Object::OrderedDict, pairs);
    Ok(Contents {
        format: Format::TorchScript,
        tree,
        big_endian,
        metadata: Vec::new(),
    })
}

/// The module's own tree beside the constants of its code: a pair.
pub(super) fn whole(bytes: &Bytes) -> Result<Tree> {
    let zip = Zip::open(bytes.clone())?;
    let root = super::torch_zip::root_of(&zip).unwrap_or_default();
    let module = part(&zip, &root, "data.pkl", "data")?;
    let constants = part(&zip, &root, "constants.pkl", "constants")?;
    let mut tree = Tree::new();
    let mut both = Vec::new();
    for from in [&module, &constants] {
        let storage =
            &mut |n: u32, tree: &mut Tree| tree.push_storage(from.storages[n as usize].clone());
        both.push(Graft::new(from).copy(from.root, &mut tree, storage)?);
    }
    ensure!(!tree.overflow, Checkpoint, "the names are too long");
    tree.root = tree.push_items(Object::Tuple, &both);
    check(&tree)?;
    Ok(tree)
}

/// Collects tensors with their paths.
struct Walk<'a> {
    from: &'a Tree,
    seen: HashSet<Id>,
    found: Vec<(String, Value)>,
}

impl Walk<'_> {
    fn all(&mut self, root: Value) {
        // Last in, first out, so parts are pushed backwards to come out in order.
        let mut stack = vec![(String::new(), root)];
        while let Some((name, value)) = stack.pop() {
            let Value::Object(id) = value else { continue };
            if self.from.tensor(value).is_some() {
                self.found.push((name, value));
                continue;
            }
            if !self.seen.insert(id) {
                continue;
            }
            let dot = if name.is_empty() { "" } else { "." };
            let mut parts: Vec<(String, Value)> = Vec::new();
            let mut named = |pairs: &[(Value, Value)]| {
                for &(k, v) in pairs {
                    let key = match (k, self.from.str(k)) {
                        (_, Some(key)) => key.to_owned(),
                        (Value::Int(n), _) => n.to_string(),
                        _ => continue,
                    };
                    // Names are copied for each part, so that they must not grow without end.
                    if name.len() + key.len() < 1000 {
                        parts.push((format!("{name}{dot}{key}"), v));
                    }
                }
            };
            if let Some(pairs) = self.from.pairs(value) {
                named(pairs);
            } else if let Some(call) = self.from.call(value) {
                for &state in call.extra.as_deref().map_or(&[][..], |e| &e.states) {
                    if let Some(pairs) = self.from.pairs(state) {
                        named(pairs);
                    }
                }
                // Typed lists and dictionaries are wrapped in calls.
                if let Some(items) = self.from.tuple(call.args) {
                    for &item in items {
                        parts.push((name.clone(), item));
                    }
                }
            } else if let Some(items) = self.from.items(value)
                && !matches!(self.from.object(value), Some(Object::Size(_)))
            {
                for (i, &item) in items.iter().enumerate() {
                    parts.push((format!("{name}{dot}{i}"), item));
                }
            }
            stack.extend(parts.into_iter().rev());
        }
    }
}
