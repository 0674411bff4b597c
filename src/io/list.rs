//! The tensors of a checkpoint by name, which of them share storage, and how much there is.

use super::tree::{Data, Id, StorageRef, TensorRef, Tree, Value};
use super::{Archive, Object};
use std::collections::HashSet;

/// Bytes of a name up to which keys are spelled out.
const MAX_NAME: usize = 1000;

/// A tensor with the name it has in its checkpoint.
#[derive(Clone, Debug)]
pub struct NamedTensor<'a> {
    /// Keys and positions from the root on, joined by dots.
    pub name: String,
    /// The value in the tree.
    pub value: Value,
    /// The tensor.
    pub tensor: &'a TensorRef,
    /// Its storage.
    pub storage: &'a StorageRef,
}

/// How much a checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Names of tensors.
    pub names: u64,
    /// Different tensor objects.
    pub tensors: u64,
    /// Elements of those.
    pub elements: u64,
    /// Storages they view, each once.
    pub storages: u64,
    /// Bytes of those, without meta storages.
    pub bytes: u64,
}

impl Archive {
    /// All tensors with their names, in the order of the file. A container that occurs twice is listed where it
    /// first occurs; a tensor is listed wherever it does.
    #[must_use]
    pub fn tensors(&self) -> Vec<NamedTensor<'_>> {
        named_tensors(self.tree())
    }

    /// Groups of names that share a storage, in the order of the file.
    #[must_use]
    pub fn ties(&self) -> Vec<Vec<String>> {
        let mut groups: Vec<Vec<String>> = vec![Vec::new(); self.tree().storages.len()];
        let mut order = Vec::new();
        for t in self.tensors() {
            let group = &mut groups[t.tensor.storage as usize];
            if group.len() == 1 {
                order.push(t.tensor.storage as usize);
            }
            group.push(t.name);
        }
        order.sort_unstable();
        order
            .into_iter()
            .map(|i| std::mem::take(&mut groups[i]))
            .collect()
    }

    /// How much there is.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let (mut values, mut storages) = (HashSet::new(), HashSet::new());
        for t in self.tensors() {
            totals.names += 1;
            if let Value::Object(id) = t.value
                && values.insert(id)
            {
                totals.tensors += 1;
                totals.elements = totals.elements.saturating_add(t.tensor.numel() as u64);
            }
            if storages.insert(t.tensor.storage) {
                totals.storages += 1;
                if t.storage.data != Data::Meta {
                    totals.bytes = totals.bytes.saturating_add(t.storage.nbytes);
                }
            }
        }
        totals
    }
}

pub(super) fn named_tensors(tree: &Tree) -> Vec<NamedTensor<'_>> {
    let mut out = Vec::new();
    let mut seen = vec![false; tree.objects.len()];
    // The name so far is shared by all levels; each level remembers how long it was before.
    let mut name = String::new();
    let mut path: Vec<(Id, usize, usize)> = Vec::new();
    let mut next = Some((tree.root, 0));
    loop {
        if let Some((value, before)) = next.take() {
            if let (Some(tensor), Value::Object(_)) = (tree.tensor(value), value) {
                if let Some(storage) = tree.storages.get(tensor.storage as usize) {
                    out.push(NamedTensor {
                        name: name.clone(),
                        value,
                        tensor,
                        storage,
                    });
                }
                name.truncate(before);
            } else if let Value::Object(id) = value
                && let Some(slot @ false) = seen.get_mut(id.0 as usize)
            {
                *slot = true;
                path.push((id, 0, before));
            } else {
                name.truncate(before);
            }
        }
        let Some((id, i, before)) = path.last_mut() else {
            return out;
        };
        let here = name.len();
        match step(tree, *id, *i, &mut name) {
            Some(value) => {
                *i += 1;
                next = Some((value, here));
            }
            None => {
                name.truncate(*before);
                path.pop();
            }
        }
    }
}

/// The `i`-th part of a container, with its key added to the name.
fn step(tree: &Tree, id: Id, i: usize, name: &mut String) -> Option<Value> {
    use std::fmt::Write;
    let value = Value::Object(id);
    let dot = if name.is_empty() { "" } else { "." };
    if let Some(pairs) = tree.pairs(value) {
        let &(key, value) = pairs.get(i)?;
        if is_registry(tree, key) && is_module(tree, pairs) {
            return Some(value);
        }
        let _ = match (key, tree.str(key)) {
            // Names are copied for each tensor below them, so that long keys must not multiply.
            (_, Some(text)) if name.len() + text.len() > MAX_NAME => {
                write!(name, "{dot}<long key {i}>")
            }
            (_, Some(text)) => write!(name, "{dot}{text}"),
            (Value::Int(n), _) => write!(name, "{dot}{n}"),
            (Value::Bool(b), _) => write!(name, "{dot}{b}"),
            (Value::Float(f), _) => write!(name, "{dot}{f}"),
            _ => write!(name, "{dot}<key {i}>"),
        };
        return Some(value);
    }
    match tree.object(value)? {
        Object::Tuple(_) | Object::List(_) => {
            let value = *tree.items(value)?.get(i)?;
            let _ = write!(name, "{dot}{i}");
            Some(value)
        }
        Object::Composite(_) => {
            let parts = tree.composite(value)?;
            let (part, label) = (*parts.parts.get(i)?, *parts.part_names().get(i)?);
            let _ = write!(name, "{dot}{label}");
            Some(part)
        }
        // The parts of an object of an unknown class: function, arguments, items, states.
        Object::Call(_) => {
            let value = tree.child(id, i)?;
            if !tree.pairs(value).is_some_and(|p| is_module(tree, p)) {
                let _ = write!(name, "{dot}<part {i}>");
            }
            Some(value)
        }
        _ => None,
    }
}

/// True for the attributes of a whole saved module that hold what its state dict names without them.
fn is_registry(tree: &Tree, key: Value) -> bool {
    matches!(tree.str(key), Some("_parameters" | "_buffers" | "_modules"))
}

/// True if these are the attributes of a module.
fn is_module(tree: &Tree, pairs: &[(Value, Value)]) -> bool {
    // A module has about twenty; a large dictionary is none, and is not looked through for each of its keys.
    pairs.len() < 1000 && pairs.iter().filter(|kv| is_registry(tree, kv.0)).count() == 3
}
