//! Proofs about a whole tree: how deep it is, and that its keys can be keys.

use super::tree::{Id, Object, Tree, Value};
use crate::{Result, ensure, err};

/// Levels of nesting, beyond which Python's own recursion would end.
pub const MAX_DEPTH: u16 = 1000;
/// Parts of one key, counted as hashing meets them; sharing makes exponential keys out of few bytes.
const MAX_KEY: u32 = 100_000;
/// The weight of something that cannot be hashed.
const UNHASHABLE: u32 = u32::MAX;

/// Proves that whatever `root` reaches is nested at most [`MAX_DEPTH`] levels deep, and that what is used as
/// a key can be hashed, in reasonable time.
///
/// # Errors
/// Of kind `Checkpoint`.
pub fn check(tree: &Tree) -> Result<()> {
    let mut keys = Keys { weights: None };
    // 0: not seen; 1: being walked; else one more than the height.
    let mut heights = vec![0u16; tree.objects.len()];
    let mut path: Vec<(Id, usize, u16)> = Vec::new();
    let mut next = Some(tree.root);
    loop {
        if let Some(Value::Object(id)) = next {
            let slot = heights
                .get_mut(id.0 as usize)
                .ok_or_else(|| err!(Checkpoint, "a reference to no object"))?;
            if *slot == 0 {
                *slot = 1;
                keys.check(tree, id)?;
                path.push((id, 0, 0));
                ensure!(
                    path.len() <= MAX_DEPTH as usize,
                    Checkpoint,
                    "objects nested more than {MAX_DEPTH} levels deep"
                );
            } else if let (Some(top), 2..) = (path.last_mut(), *slot) {
                top.2 = top.2.max(*slot - 1);
            }
        }
        let Some(top) = path.last_mut() else {
            return Ok(());
        };
        next = tree.child(top.0, top.1);
        top.1 += 1;
        if next.is_none() {
            let (id, _, below) = *top;
            path.pop();
            let height = below + 1;
            ensure!(
                height <= MAX_DEPTH,
                Checkpoint,
                "objects nested more than {MAX_DEPTH} levels deep"
            );
            heights[id.0 as usize] = height + 1;
            if let Some(above) = path.last_mut() {
                above.2 = above.2.max(height);
            }
        }
    }
}

struct Keys {
    weights: Option<Vec<u32>>,
}

impl Keys {
    /// Checks the keys of a dictionary, or the items of a set.
    fn check(&mut self, tree: &Tree, id: Id) -> Result<()> {
        let value = Value::Object(id);
        if let Some(pairs) = tree.pairs(value) {
            pairs.iter().try_for_each(|kv| self.key(tree, kv.0))
        } else if let Some(Object::Set(_) | Object::FrozenSet(_)) = tree.object(value) {
            tree.items(value)
                .unwrap_or(&[])
                .iter()
                .try_for_each(|&v| self.key(tree, v))
        } else if let Some(extra) = tree.call(value).and_then(|c| c.extra.as_deref()) {
            extra.pairs.iter().try_for_each(|kv| self.key(tree, kv.0))
        } else {
            Ok(())
        }
    }

    fn key(&mut self, tree: &Tree, key: Value) -> Result<()> {
        let weight = match (key, tree.object(key)) {
            (
                Value::Object(id),
                Some(Object::Tuple(_) | Object::FrozenSet(_) | Object::Call(_)),
            ) => {
                let weights = self.weights.get_or_insert_with(|| weigh(tree));
                weights[id.0 as usize]
            }
            (_, Some(object)) => leaf(object),
            _ => 1,
        };
        ensure!(
            weight != UNHASHABLE,
            Checkpoint,
            "a list, dictionary or other container is used as a key"
        );
        ensure!(
            weight <= MAX_KEY,
            Checkpoint,
            "a key of more than {MAX_KEY} parts"
        );
        Ok(())
    }
}

fn leaf(object: &Object) -> u32 {
    match object {
        Object::List(_)
        | Object::Set(_)
        | Object::Dict(_)
        | Object::OrderedDict(_)
        | Object::Counter(_)
        | Object::ByteArray(_) => UNHASHABLE,
        _ => 1,
    }
}

/// How many parts hashing each object meets. Tuples hold only older objects, so one pass in order is enough.
fn weigh(tree: &Tree) -> Vec<u32> {
    let mut weights: Vec<u32> = Vec::with_capacity(tree.objects.len());
    for object in &tree.objects {
        let id = Value::Object(Id(weights.len() as u32));
        let items = match object {
            Object::Tuple(_) | Object::FrozenSet(_) => tree.items(id),
            Object::Call(_) => tree.call(id).and_then(|c| tree.items(c.args)),
            _ => None,
        };
        let Some(items) = items else {
            weights.push(leaf(object));
            continue;
        };
        let sum = items.iter().fold(1u32, |sum, v| {
            let part = match v {
                // An object that is not older can only be reached through something mutable.
                Value::Object(id) => weights.get(id.0 as usize).copied().unwrap_or(UNHASHABLE),
                _ => 1,
            };
            if sum == UNHASHABLE || part == UNHASHABLE {
                UNHASHABLE
            } else {
                sum.saturating_add(part).min(UNHASHABLE - 1)
            }
        });
        // An unknown object's arguments may be lists: its class decides whether it can be hashed.
        weights.push(if matches!(object, Object::Call(_)) && sum == UNHASHABLE {
            1
        } else {
            sum
        });
    }
    weights
}
