//! An inert pickle interpreter: every opcode of protocols 0 to 5, and not one import or call.
//!
//! A pickle is a program that builds values on a stack. This one runs the stack and records what would be
//! imported and called; giving some of those calls a meaning is the business of the formats.

mod fast;
mod ops;
mod text;
mod write;

pub use write::{Form, Used, write};

use super::tree::{Call, CallExtra, CallKind, Id, Object, Tree, Value};
use crate::{Result, bail, ensure, err};
use std::collections::HashMap;

/// Objects one pickle may make: far above real checkpoints, and below what ids can count.
const MAX_OBJECTS: usize = 1 << 28;
/// What the memo says of an entry that is no object; ids stay below [`MAX_OBJECTS`].
const ELSEWHERE: u32 = u32::MAX;
/// What it says of an entry whose object was not made, because nothing refers to it as a rule.
const LAZY: u32 = u32::MAX - 1;
/// Bytes of one pickle, whose strings must be countable in 32 bits; storages are not part of it.
pub(super) const MAX_LEN: usize = 1 << 30;
/// Characters in the name of a class and its module; real ones have tens.
const MAX_NAME: usize = 512;

/// Runs the pickle at the start of `data`; gives what it built and how many bytes it took.
///
/// # Errors
/// Of kind `Unpickling`, with the offset in the pickle and what is wrong there.
pub fn read(data: &[u8]) -> Result<(Tree, usize)> {
    read_as(data, false).map_err(|f| f.0)
}

/// As [`read`], with tensors that PyTorch wrote as [`Object::Proto`] each: what state dicts mostly consist of.
///
/// # Errors
/// As [`read`].
pub(super) fn read_tensors(data: &[u8]) -> Result<(Tree, usize)> {
    read_as(data, true).or_else(|failed| if failed.1 { read(data) } else { Err(failed.0) })
}

/// An error, and whether reading without shortcuts may help.
struct Failed(crate::Error, bool);

impl From<crate::Error> for Failed {
    fn from(e: crate::Error) -> Self {
        Self(e, false)
    }
}

fn read_as(data: &[u8], fast: bool) -> Result<(Tree, usize), Failed> {
    if data.len() > MAX_LEN {
        return Err(err!(
            Unpickling,
            "a pickle of {} bytes, more than {MAX_LEN}",
            data.len()
        )
        .into());
    }
    let mut machine = Machine::new(data);
    machine.fast = fast;
    machine.run().map_err(|e| {
        let e = err!(
            Unpickling,
            "damaged or unsupported pickle, byte {} of {}: {}",
            machine.at,
            data.len(),
            e.message()
        );
        Failed(e, machine.lazy)
    })?;
    Ok((machine.tree, machine.pos))
}

struct Machine<'a> {
    data: &'a [u8],
    pos: usize,
    /// Where the current opcode is.
    at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    /// Memo entries that are objects, as nearly all are; [`ELSEWHERE`] for the others.
    memo: Vec<u32>,
    /// Other memo entries, and those with an index beyond the dense ones, so that a large index costs nothing.
    far: HashMap<u64, Value>,
    /// How many different entries were stored.
    stored: u64,
    names: HashMap<Box<str>, Value>,
    /// Whether tensors may be taken in one step.
    fast: bool,
    /// The name of the function that makes them, once met.
    makes_tensors: Option<Id>,
    /// An object was asked for that was not made.
    lazy: bool,
    tree: Tree,
}

impl<'a> Machine<'a> {
    fn new(data: &'a [u8]) -> Self {
        let mut tree = Tree::new();
        // What a state dict needs, so that nothing large grows and moves; memory never touched costs nothing.
        // In the legacy format all storages follow the pickle, so the length says little about it.
        let len = data.len().min(16 << 20);
        tree.objects.reserve(len / 8);
        tree.pool.reserve(len / 5);
        tree.calls.reserve(len / 40);
        tree.text.reserve(len / 2);
        let memo = Vec::with_capacity(len / 10);
        let (stack, marks, far, names) = (Vec::new(), Vec::new(), HashMap::new(), HashMap::new());
        Self {
            data,
            pos: 0,
            at: 0,
            stack,
            marks,
            memo,
            far,
            stored: 0,
            names,
            fast: false,
            makes_tensors: None,
            lazy: false,
            tree,
        }
    }

    fn run(&mut self) -> Result<()> {
        loop {
            self.at = self.pos;
            let op = self
                .byte()
                .map_err(|_| err!(Unpickling, "it ends without STOP (truncated?)"))?;
            if op == b'.' {
                self.tree.root = self.pop()?;
                return Ok(());
            }
            self.step(op)?;
            ensure!(
                self.tree.objects.len() < MAX_OBJECTS,
                Unpickling,
                "more than {MAX_OBJECTS} objects"
            );
        }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let end = self
            .pos
            .checked_add(n)
            .filter(|&end| end <= self.data.len());
        let end = end.ok_or_else(|| {
            err!(
                Unpickling,
                "{n} bytes are due and {} are left",
                self.data.len() - self.pos
            )
        })?;
        let bytes = &self.data[self.pos..end];
        self.pos = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A length of `N` little-endian bytes, and as many bytes as it says.
    fn counted<const N: usize>(&mut self) -> Result<&'a [u8]> {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(&self.array::<N>()?);
        let n = u64::from_le_bytes(wide);
        let n = usize::try_from(n).map_err(|_| err!(Unpickling, "a length of {n} bytes"))?;
        self.take(n)
    }

    /// The text up to the next newline, which is consumed.
    fn line(&mut self, limit: usize) -> Result<&'a [u8]> {
        let rest = &self.data[self.pos..];
        let window = &rest[..rest.len().min(limit.saturating_add(1))];
        let n = window.iter().position(|&b| b == b'\n');
        let n = n.ok_or_else(|| {
            err!(
                Unpickling,
                "a line without an end, or of more than {limit} bytes"
            )
        })?;
        self.pos += n + 1;
        Ok(&window[..n])
    }

    fn fence(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Value> {
        ensure!(
            self.stack.len() > self.fence(),
            Unpickling,
            "the stack has no value to take"
        );
        self.stack
            .pop()
            .ok_or_else(|| err!(Unpickling, "the stack is empty"))
    }

    fn top(&self) -> Result<Value> {
        ensure!(
            self.stack.len() > self.fence(),
            Unpickling,
            "the stack has no value to use"
        );
        self.stack
            .last()
            .copied()
            .ok_or_else(|| err!(Unpickling, "the stack is empty"))
    }

    /// Where the values after the last mark begin; the mark is removed.
    fn mark(&mut self) -> Result<usize> {
        self.marks
            .pop()
            .ok_or_else(|| err!(Unpickling, "no mark on the stack"))
    }

    fn push(&mut self, object: Object) {
        let value = self.tree.push(object);
        self.stack.push(value);
    }

    /// Replaces the stack from `from` on by a tuple of it.
    fn tuple_from(&mut self, from: usize) -> Value {
        let span = self.tree.pool_span(&self.stack[from..]);
        self.stack.truncate(from);
        self.tree.push(Object::Tuple(span))
    }

    fn tuple(&mut self, n: usize) -> Result<()> {
        let from = self
            .stack
            .len()
            .checked_sub(n)
            .filter(|&from| from >= self.fence());
        let from = from.ok_or_else(|| {
            err!(
                Unpickling,
                "a tuple of {n} needs more values than the stack has"
            )
        })?;
        let tuple = self.tuple_from(from);
        self.stack.push(tuple);
        Ok(())
    }

    fn store(&mut self, index: u64) -> Result<()> {
        let value = self.top()?;
        let len = self.memo.len() as u64;
        let dense = if let Value::Object(id) = value {
            id.0
        } else {
            ELSEWHERE
        };
        // An entry is in exactly one of the two places, except that the dense one points to the other.
        let is_new = index >= len && !self.far.contains_key(&index);
        self.stored += u64::from(is_new);
        if index < len {
            self.memo[index as usize] = dense;
        } else if index == len && is_new {
            self.memo.push(dense);
        } else {
            self.far.insert(index, value);
            return Ok(());
        }
        if dense == ELSEWHERE {
            self.far.insert(index, value);
        }
        Ok(())
    }

    fn fetch(&mut self, index: u64) -> Result<()> {
        let dense = usize::try_from(index).ok().and_then(|i| self.memo.get(i));
        let value = match dense {
            Some(&LAZY) => {
                self.lazy = true;
                bail!(Unpickling, "memo entry {index} was not made")
            }
            Some(&id) if id != ELSEWHERE => Some(Value::Object(Id(id))),
            _ => self.far.get(&index).copied(),
        };
        let value = value.ok_or_else(|| err!(Unpickling, "memo entry {index} was never stored"))?;
        self.stack.push(value);
        self.tensor(value);
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) -> Result<()> {
        let object = match std::str::from_utf8(bytes) {
            Ok(text) => Object::Str(self.tree.text_span(text)),
            Err(_) if text::is_surrogate_utf8(bytes) => {
                Object::Surrogates(self.tree.blob_span(bytes))
            }
            Err(_) => bail!(Unpickling, "a string that is not UTF-8"),
        };
        self.push(object);
        Ok(())
    }

    /// Strings of Python 2 had no encoding: text if they are UTF-8, else bytes.
    fn old_string(&mut self, bytes: &[u8]) {
        let object = match std::str::from_utf8(bytes) {
            Ok(text) => Object::Str(self.tree.text_span(text)),
            Err(_) => Object::Bytes(self.tree.blob_span(bytes)),
        };
        self.push(object);
        if let Some(&Value::Object(id)) = self.stack.last() {
            self.tree.old.push(id);
        }
    }

    fn global(&mut self, module: &str, name: &str) -> Result<Value> {
        ensure!(
            !module.is_empty() && !name.is_empty(),
            Unpickling,
            "the name of a class is empty"
        );
        ensure!(
            module.len() + name.len() <= MAX_NAME,
            Unpickling,
            "the name of a class has more than {MAX_NAME} bytes"
        );
        let (module, name) = text::modern_name(module, name);
        // A newline cannot be part of a GLOBAL's module, so it separates the two without doubt.
        ensure!(
            !module.contains('\n'),
            Unpickling,
            "the name of a module with a newline"
        );
        let key = format!("{module}\n{name}");
        if let Some(&value) = self.names.get(key.as_str()) {
            return Ok(value);
        }
        let value = self.tree.push_global(module, name);
        self.names.insert(key.into(), value);
        Ok(value)
    }

    fn call(&mut self, kind: CallKind, func: Value, args: Value, kwargs: Value) -> Result<()> {
        // A callable is a name, or what a call or persistent id stands for; plain data cannot be called.
        let callable = matches!(
            self.tree.object(func),
            Some(Object::Global(_) | Object::Call(_) | Object::PersistentId(_))
        );
        ensure!(
            callable,
            Unpickling,
            "it calls something that is no function or class"
        );
        ensure!(
            self.tree.tuple(args).is_some(),
            Unpickling,
            "the arguments of a call are not a tuple"
        );
        let value = self.tree.push_call(Call {
            kind,
            func,
            args,
            kwargs,
            extra: None,
        });
        self.stack.push(value);
        Ok(())
    }

    fn extra(&mut self, target: Value) -> Option<&mut CallExtra> {
        let Some(Object::Call(c)) = self.tree.object(target) else {
            return None;
        };
        let c = *c as usize;
        self.tree
            .calls
            .get_mut(c)
            .map(|call| &mut **call.extra.get_or_insert_default())
    }

    /// Appends the stack from `from` on to the value below it.
    fn append(&mut self, from: usize) -> Result<()> {
        let items = self.stack.split_off(from);
        let target = self.top()?;
        if let Some(&Object::List(n)) = self.tree.object(target) {
            self.tree.lists[n as usize].extend_from_slice(&items);
        } else if let Some(extra) = self.extra(target) {
            extra.items.extend_from_slice(&items);
        } else {
            bail!(Unpickling, "it appends to something that is no list");
        }
        Ok(())
    }

    fn add(&mut self, from: usize) -> Result<()> {
        let items = self.stack.split_off(from);
        let target = self.top()?;
        if let Some(&Object::Set(n)) = self.tree.object(target) {
            self.tree.lists[n as usize].extend_from_slice(&items);
        } else if let Some(extra) = self.extra(target) {
            extra.items.extend_from_slice(&items);
        } else {
            bail!(Unpickling, "it adds to something that is no set");
        }
        Ok(())
    }

    fn set_items(&mut self, from: usize) -> Result<()> {
        ensure!(
            (self.stack.len() - from).is_multiple_of(2),
            Unpickling,
            "a key without a value"
        );
        let items = self.stack.split_off(from);
        let pairs = items.as_chunks::<2>().0.iter().map(|&[k, v]| (k, v));
        let target = self.top()?;
        if let Some(&Object::Dict(n)) = self.tree.object(target) {
            self.tree.dicts[n as usize].extend(pairs);
        } else if let Some(extra) = self.extra(target) {
            extra.pairs.extend(pairs);
        } else {
            bail!(
                Unpickling,
                "it sets an item of something that is no dictionary"
            );
        }
        Ok(())
    }

    fn build(&mut self) -> Result<()> {
        let state = self.pop()?;
        let target = self.top()?;
        let extra = self
            .extra(target)
            .ok_or_else(|| err!(Unpickling, "it gives a state to something that takes none"))?;
        extra.states.push(state);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
