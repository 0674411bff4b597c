//! One step for what state dicts consist of: the thirty opcodes by which PyTorch writes a tensor, or those of them that a
//! writer needs who remembers only what comes up again.
//!
//! The sequence is matched byte for byte; whatever deviates is left to the ordinary opcodes. The tuples in between are
//! not made, so their memo entries only say so: should a pickle refer to one, it is read again the ordinary way.

use super::{LAZY, Machine};
use crate::io::tree::{Global, Id, Object, Proto, Value};

/// Reads ahead without changing anything.
struct Cursor<'a, 'b> {
    machine: &'b Machine<'a>,
    pos: usize,
    /// The memo index that the next entry must have.
    next: u64,
}

impl<'a> Cursor<'a, '_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.machine.data.get(self.pos..)?.first_chunk::<N>()?;
        self.pos += N;
        Some(*bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn expect(&mut self, op: u8) -> Option<()> {
        (self.byte()? == op).then_some(())
    }

    /// A value from the memo.
    fn get(&mut self) -> Option<Value> {
        let index = match self.byte()? {
            b'h' => u32::from(self.byte()?),
            b'j' => u32::from_le_bytes(self.array()?),
            _ => return None,
        };
        let id = *self.machine.memo.get(index as usize)?;
        (id < LAZY).then_some(Value::Object(Id(id)))
    }

    /// An entry into the memo, at the index that is next; false if there is none.
    fn put(&mut self) -> Option<bool> {
        let index = match *self.machine.data.get(self.pos)? {
            b'q' => {
                self.pos += 1;
                u64::from(self.byte()?)
            }
            b'r' => {
                self.pos += 1;
                u64::from(u32::from_le_bytes(self.array()?))
            }
            _ => return Some(false),
        };
        let due = self.next;
        self.next += 1;
        (index == due).then_some(true)
    }

    /// An integer that is not negative.
    fn int(&mut self) -> Option<i64> {
        let n = match self.byte()? {
            b'K' => i64::from(self.byte()?),
            b'M' => i64::from(u16::from_le_bytes(self.array()?)),
            b'J' => i64::from(i32::from_le_bytes(self.array()?)),
            0x8a => {
                let len = usize::from(self.byte()?);
                let bytes = self.machine.data.get(self.pos..self.pos + len)?;
                self.pos += len;
                super::text::small_integer(bytes)?
            }
            _ => return None,
        };
        (n >= 0).then_some(n)
    }

    /// A tuple of integers, appended to `out`; how many.
    fn tuple(&mut self, out: &mut Vec<i64>) -> Option<usize> {
        let from = out.len();
        match *self.machine.data.get(self.pos)? {
            b')' => {
                self.pos += 1;
                return Some(0);
            }
            b'(' => {
                self.pos += 1;
                while *self.machine.data.get(self.pos)? != b't' {
                    out.push(self.int()?);
                    (out.len() - from <= 64).then_some(())?;
                }
                self.pos += 1;
            }
            _ => loop {
                out.push(self.int()?);
                let count = out.len() - from;
                let next = *self.machine.data.get(self.pos)?;
                if (0x85..=0x87).contains(&next) {
                    self.pos += 1;
                    (count == usize::from(next - 0x84)).then_some(())?;
                    break;
                }
                (count < 3).then_some(())?;
            },
        }
        self.put()?;
        Some(out.len() - from)
    }
}

/// The text of a storage's key: written here (and remembered, perhaps), or earlier.
enum Key<'a> {
    New(&'a str, bool),
    Old(Id),
}

/// A tensor that was recognised.
struct Match<'a> {
    proto: Proto,
    key: Key<'a>,
    /// Where its opcodes end.
    end: usize,
    /// How many of its tuples are remembered.
    tuples: usize,
    /// Whether it is itself.
    remembered: bool,
}

fn is(global: Option<&Global>, module: &str, name: &str) -> bool {
    global.is_some_and(|g| &*g.module == module && &*g.name == name)
}

impl<'a> Machine<'a> {
    /// After `func` was taken from the memo: the whole call that makes a tensor, if it follows and `func` makes tensors.
    pub(super) fn tensor(&mut self, func: Value) -> bool {
        if !self.fast || self.data.get(self.pos..self.pos + 2) != Some(b"((") {
            return false;
        }
        let Value::Object(id) = func else {
            return false;
        };
        if self.makes_tensors != Some(id) {
            if !is(self.tree.global(func), "torch._utils", "_rebuild_tensor_v2") {
                return false;
            }
            self.makes_tensors = Some(id);
        }
        self.matched().is_some()
    }

    fn matched(&mut self) -> Option<()> {
        // The numbers of a failed match are left out again.
        let mut dims = std::mem::take(&mut self.tree.proto_dims);
        let start = dims.len();
        let found = self.look(&mut dims);
        if found.is_none() {
            dims.truncate(start);
        }
        self.tree.proto_dims = dims;
        let found = found?;
        let mut proto = found.proto;
        proto.dims = u32::try_from(start).ok()?;
        let before = self.memo.len();
        proto.key = match found.key {
            Key::Old(id) => id,
            Key::New(text, remembered) => {
                let Value::Object(id) = self.tree.push_str(text) else {
                    return None;
                };
                if remembered {
                    self.memo.push(id.0);
                }
                id
            }
        };
        self.memo.extend(std::iter::repeat_n(LAZY, found.tuples));
        self.tree.protos.push(proto);
        let made = self
            .tree
            .push(Object::Proto((self.tree.protos.len() - 1) as u32));
        if let (true, Value::Object(id)) = (found.remembered, made) {
            self.memo.push(id.0);
        }
        self.stored += (self.memo.len() - before) as u64;
        // The function itself is on the stack, where the result takes its place.
        if let Some(top) = self.stack.last_mut() {
            *top = made;
        }
        self.pos = found.end;
        Some(())
    }

    fn look(&self, dims: &mut Vec<i64>) -> Option<Match<'a>> {
        // Entries beyond the dense memo would make the next index another one.
        self.far.is_empty().then_some(())?;
        let mut c = Cursor {
            machine: self,
            pos: self.pos + 2,
            next: self.memo.len() as u64,
        };
        let word = c.get()?;
        (self.tree.str(word)? == "storage").then_some(())?;
        let class = c.get()?;
        self.tree.global(class)?;
        let data: &'a [u8] = self.data;
        let key = if *data.get(c.pos)? == b'X' {
            c.pos += 1;
            let len = u32::from_le_bytes(c.array()?) as usize;
            let text = data.get(c.pos..c.pos.checked_add(len)?)?;
            c.pos += len;
            let text = std::str::from_utf8(text).ok()?;
            Key::New(text, c.put()?)
        } else {
            let Value::Object(id) = c.get()? else {
                return None;
            };
            self.tree.str(Value::Object(id))?;
            Key::Old(id)
        };
        let location = c.get()?;
        self.tree.str(location)?;
        let numel = c.int()?;
        c.expect(b't')?;
        let first_tuple = c.next;
        c.put()?;
        c.expect(b'Q')?;
        let offset = c.int()?;
        let ndim = c.tuple(dims)?;
        (c.tuple(dims)? == ndim).then_some(())?;
        let grad = match c.byte()? {
            0x88 => true,
            0x89 => false,
            _ => return None,
        };
        let hooks = c.get()?;
        is(self.tree.global(hooks), "collections", "OrderedDict").then_some(())?;
        c.expect(b')')?;
        c.expect(b'R')?;
        c.put()?;
        c.expect(b't')?;
        c.put()?;
        let tuples = (c.next - first_tuple) as usize;
        c.expect(b'R')?;
        let remembered = c.put()?;
        let (Value::Object(class), Value::Object(location)) = (class, location) else {
            return None;
        };
        let proto = Proto {
            class,
            key: class,
            location,
            numel,
            offset,
            dims: 0,
            ndim: ndim as u8,
            grad,
        };
        Some(Match {
            proto,
            key,
            end: c.pos,
            tuples,
            remembered,
        })
    }
}
