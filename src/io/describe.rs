//! What a checkpoint holds besides tensors, as text for people: written like Python, and never run.

use super::tree::{CallKind, Object, Tree, Value};
use super::{Archive, TensorRef};
use std::fmt::Write;

impl Archive {
    /// Names and values of all that is neither a tensor nor a container with something in it, in the order of the file.
    #[must_use]
    pub fn values(&self) -> Vec<(String, Value)> {
        let tree = self.tree();
        let (mut out, mut path) = (Vec::new(), vec![(tree.root, String::new())]);
        let mut seen = vec![false; tree.objects.len()];
        while let Some((value, name)) = path.pop() {
            let mut below = |key: &str, value: Value| {
                path.push((
                    value,
                    match name.is_empty() {
                        true => key.to_owned(),
                        // Names are copied for each value below them, so that long keys must not multiply.
                        false if name.len() > 1000 => name.clone(),
                        false => format!("{name}.{key}"),
                    },
                ));
            };
            let children = tree.pairs(value).map(<[_]>::len);
            let children = children.or_else(|| listed(tree, value).map(<[_]>::len));
            if let (Value::Object(id), Some(1..)) = (value, children)
                && std::mem::replace(&mut seen[id.0 as usize], true)
            {
                continue;
            }
            if let (Some(pairs), Some(1..)) = (tree.pairs(value), children) {
                for &(key, value) in pairs.iter().rev() {
                    below(&key_text(tree, key), value);
                }
            } else if let (Some(items), Some(1..)) = (listed(tree, value), children) {
                for (i, &value) in items.iter().enumerate().rev() {
                    below(&i.to_string(), value);
                }
            } else if !is_tensor(tree, value) {
                out.push((name, value));
            }
        }
        out
    }
}

fn is_tensor(tree: &Tree, value: Value) -> bool {
    tree.tensor(value).is_some() || tree.composite(value).is_some()
}

fn listed(tree: &Tree, value: Value) -> Option<&[Value]> {
    match tree.object(value)? {
        Object::List(_) | Object::Tuple(_) => tree.items(value),
        _ => None,
    }
}

fn key_text(tree: &Tree, key: Value) -> String {
    tree.str(key).map_or_else(
        || render(tree, key, 40),
        |text| text.chars().take(200).collect(),
    )
}

/// A value as text of about `limit` characters at most.
#[must_use]
pub fn render(tree: &Tree, value: Value, limit: usize) -> String {
    let mut out = Renderer {
        tree,
        text: String::new(),
        limit,
        depth: 0,
    };
    out.value(value);
    if out.text.len() > limit {
        let end = (0..=limit).rev().find(|&i| out.text.is_char_boundary(i));
        out.text.truncate(end.unwrap_or(0));
        out.text.push_str("...");
    }
    out.text
}

/// Levels that are spelled out; a value within itself would have no end.
const LEVELS: usize = 20;

struct Renderer<'a> {
    tree: &'a Tree,
    text: String,
    limit: usize,
    depth: usize,
}

impl Renderer<'_> {
    fn value(&mut self, value: Value) {
        if self.text.len() > self.limit {
            return;
        }
        if self.depth > LEVELS {
            self.text.push_str("...");
            return;
        }
        self.depth += 1;
        self.one(value);
        self.depth -= 1;
    }

    fn one(&mut self, value: Value) {
        let tree = self.tree;
        let text = &mut self.text;
        let room = self.limit.saturating_sub(text.len()) + 1;
        // Writing to a string cannot fail.
        let _ = match value {
            Value::None => write!(text, "None"),
            Value::Bool(b) => write!(text, "{}", if b { "True" } else { "False" }),
            Value::Int(n) => write!(text, "{n}"),
            Value::Float(f) => write!(text, "{f:?}"),
            Value::Object(_) => match tree.object(value) {
                None => write!(text, "<nothing>"),
                Some(Object::Str(_)) => {
                    let whole = tree.str(value).unwrap_or("");
                    let part: String = whole.chars().take(room).collect();
                    write!(text, "{part:?}")
                }
                Some(Object::Device(_)) => {
                    write!(text, "device({:?})", tree.str(value).unwrap_or(""))
                }
                Some(Object::Layout(_)) => write!(text, "{}", tree.str(value).unwrap_or("")),
                Some(Object::DType(d)) => write!(text, "torch.{}", d.name()),
                Some(Object::BigInt(_)) => {
                    let n = tree.bytes(value).map_or(0, <[u8]>::len);
                    write!(text, "<integer of {n} bytes>")
                }
                Some(Object::Bytes(_) | Object::ByteArray(_) | Object::Surrogates(_)) => {
                    let bytes = tree.bytes(value).unwrap_or(&[]);
                    let part = bytes.get(..bytes.len().min(room)).unwrap_or(&[]);
                    write!(text, "b\"{}\"", part.escape_ascii())
                }
                Some(Object::Complex(_)) => {
                    let (re, im) = tree.complex(value).unwrap_or_default();
                    write!(text, "({re:?}{im:+?}j)")
                }
                Some(Object::Storage(n, _)) => {
                    let nbytes = tree.storages.get(*n as usize).map_or(0, |s| s.nbytes);
                    write!(text, "<storage of {nbytes} bytes>")
                }
                Some(Object::Tensor(_)) => match tree.tensor(value) {
                    Some(t) => write!(text, "{}", tensor_text(t)),
                    None => write!(text, "<tensor>"),
                },
                Some(Object::Composite(_)) => match tree.composite(value) {
                    Some(c) => write!(text, "tensor({:?}, {:?})", c.kind, &c.shape[..]),
                    None => write!(text, "<tensor>"),
                },
                Some(Object::Global(_)) => match tree.global(value) {
                    Some(g) => write!(text, "{g}"),
                    None => write!(text, "<name>"),
                },
                Some(Object::Tuple(_)) => return self.list(value, "(", ")"),
                Some(Object::Size(_)) => return self.list(value, "Size(", ")"),
                Some(Object::List(_)) => return self.list(value, "[", "]"),
                Some(Object::Set(_)) => return self.list(value, "{", "}"),
                Some(Object::FrozenSet(_)) => return self.list(value, "frozenset(", ")"),
                Some(Object::Call(_)) => return self.call(value),
                Some(Object::PersistentId(_)) => {
                    text.push_str("<persistent id ");
                    self.value(tree.persistent_id(value).unwrap_or(Value::None));
                    self.text.push('>');
                    return;
                }
                Some(_) if tree.pairs(value).is_some() => return self.dict(value),
                Some(_) => write!(text, "<object>"),
            },
        };
    }

    fn list(&mut self, value: Value, open: &str, close: &str) {
        self.text.push_str(open);
        for (i, &item) in self.tree.items(value).unwrap_or(&[]).iter().enumerate() {
            if self.text.len() > self.limit {
                return;
            }
            if i > 0 {
                self.text.push_str(", ");
            }
            self.value(item);
        }
        self.text.push_str(close);
    }

    fn pairs(&mut self, pairs: &[(Value, Value)]) {
        self.text.push('{');
        for (i, &(key, value)) in pairs.iter().enumerate() {
            if self.text.len() > self.limit {
                return;
            }
            if i > 0 {
                self.text.push_str(", ");
            }
            self.value(key);
            self.text.push_str(": ");
            self.value(value);
        }
        self.text.push('}');
    }

    fn dict(&mut self, value: Value) {
        self.pairs(self.tree.pairs(value).unwrap_or(&[]));
    }

    fn call(&mut self, value: Value) {
        let tree = self.tree;
        let Some(call) = tree.call(value) else { return };
        self.value(call.func);
        if call.kind == CallKind::New {
            self.text.push_str(".__new__");
        }
        match tree.tuple(call.args) {
            Some(_) => self.list(call.args, "(", ")"),
            None => {
                self.text.push_str("(*");
                self.value(call.args);
                self.text.push(')');
            }
        }
        if let Some(extra) = call.extra.as_deref() {
            for &state in &extra.states {
                self.text.push_str(" with state ");
                self.value(state);
            }
            if !extra.items.is_empty() || !extra.pairs.is_empty() {
                let n = extra.items.len() + extra.pairs.len();
                let _ = write!(self.text, " with {n} items");
            }
        }
    }
}

/// `tensor(float32, [2, 3])`.
fn tensor_text(t: &TensorRef) -> String {
    format!("tensor({}, {:?})", t.dtype.name(), t.shape())
}
