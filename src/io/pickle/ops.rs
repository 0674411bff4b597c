//! One step of the interpreter: the opcodes.

use super::{Machine, text};
use crate::io::tree::{CallKind, Object, Value};
use crate::{Result, bail, ensure, err};

/// Longest line of the text opcodes.
const MAX_LINE: usize = 1 << 30;

impl Machine<'_> {
    pub(super) fn step(&mut self, op: u8) -> Result<()> {
        match op {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => {
                // On a mark POP removes the mark, as in Python.
                if self.stack.len() == self.fence() {
                    self.mark()?;
                } else {
                    self.pop()?;
                }
            }
            b'1' => {
                let from = self.mark()?;
                self.stack.truncate(from);
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' => {
                let n = i32::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(n.into()));
            }
            b'K' => {
                let n = self.byte()?;
                self.stack.push(Value::Int(n.into()));
            }
            b'M' => {
                let n = u16::from_le_bytes(self.array()?);
                self.stack.push(Value::Int(n.into()));
            }
            b'G' => {
                let f = f64::from_be_bytes(self.array()?);
                self.stack.push(Value::Float(f));
            }
            0x8a => {
                let bytes = self.counted::<1>()?;
                self.integer(bytes);
            }
            0x8b => {
                let n = i32::from_le_bytes(self.array()?);
                let n =
                    usize::try_from(n).map_err(|_| err!(Unpickling, "an integer of {n} bytes"))?;
                let bytes = self.take(n)?;
                self.integer(bytes);
            }
            b'I' | b'L' | b'F' => {
                let line = self.line(MAX_LINE)?;
                self.number_text(op, line)?;
            }
            b'X' => {
                let bytes = self.counted::<4>()?;
                self.string(bytes)?;
            }
            0x8c => {
                let bytes = self.counted::<1>()?;
                self.string(bytes)?;
            }
            0x8d => {
                let bytes = self.counted::<8>()?;
                self.string(bytes)?;
            }
            b'V' => {
                let line = self.line(MAX_LINE)?;
                let bytes = text::raw_unicode_escape(line)?;
                self.string(&bytes)?;
            }
            b'S' => {
                let line = self.line(MAX_LINE)?;
                let bytes = text::quoted(line)?;
                self.old_string(&bytes);
            }
            b'T' => {
                let n = i32::from_le_bytes(self.array()?);
                let n =
                    usize::try_from(n).map_err(|_| err!(Unpickling, "a string of {n} bytes"))?;
                let bytes = self.take(n)?;
                self.old_string(bytes);
            }
            b'U' => {
                let bytes = self.counted::<1>()?;
                self.old_string(bytes);
            }
            b'C' => {
                let bytes = self.counted::<1>()?;
                self.bytes(Object::Bytes, bytes);
            }
            b'B' => {
                let bytes = self.counted::<4>()?;
                self.bytes(Object::Bytes, bytes);
            }
            0x8e => {
                let bytes = self.counted::<8>()?;
                self.bytes(Object::Bytes, bytes);
            }
            0x96 => {
                let bytes = self.counted::<8>()?;
                self.bytes(Object::ByteArray, bytes);
            }
            b')' => self.tuple(0)?,
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b't' => {
                let from = self.mark()?;
                let tuple = self.tuple_from(from);
                self.stack.push(tuple);
            }
            b']' => self.list(Object::List, Vec::new()),
            b'}' => self.dict(),
            0x8f => self.list(Object::Set, Vec::new()),
            b'l' => {
                let from = self.mark()?;
                let items = self.stack.split_off(from);
                self.list(Object::List, items);
            }
            b'd' => {
                let from = self.mark()?;
                let items = self.stack.split_off(from);
                self.dict();
                let at = self.stack.len();
                self.stack.extend_from_slice(&items);
                self.set_items(at)?;
            }
            0x91 => {
                let from = self.mark()?;
                let items = self.stack.split_off(from);
                self.list(Object::FrozenSet, items);
            }
            b'a' => {
                self.top()?;
                let from = self.stack.len() - 1;
                self.append(from)?;
            }
            b'e' => {
                let from = self.mark()?;
                self.append(from)?;
            }
            0x90 => {
                let from = self.mark()?;
                self.add(from)?;
            }
            b's' => {
                let from = self
                    .stack
                    .len()
                    .checked_sub(2)
                    .filter(|&from| from >= self.fence());
                self.set_items(
                    from.ok_or_else(|| err!(Unpickling, "no key and value on the stack"))?,
                )?;
            }
            b'u' => {
                let from = self.mark()?;
                self.set_items(from)?;
            }
            b'c' => {
                let (module, name) = (text::name(self.line(4096)?)?, text::name(self.line(4096)?)?);
                let value = self.global(module, name)?;
                self.stack.push(value);
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let texts = self.tree.str(module).zip(self.tree.str(name));
                let (module, name) =
                    texts.ok_or_else(|| err!(Unpickling, "the name of a class is not a string"))?;
                let (module, name) = (module.to_owned(), name.to_owned());
                let value = self.global(&module, &name)?;
                self.stack.push(value);
            }
            b'R' => {
                let (args, func) = (self.pop()?, self.pop()?);
                self.call(CallKind::Reduce, func, args, Value::None)?;
            }
            0x81 => {
                let (args, func) = (self.pop()?, self.pop()?);
                self.call(CallKind::New, func, args, Value::None)?;
            }
            0x92 => {
                let (kwargs, args, func) = (self.pop()?, self.pop()?, self.pop()?);
                ensure!(
                    self.tree.pairs(kwargs).is_some(),
                    Unpickling,
                    "keyword arguments are not a dictionary"
                );
                self.call(CallKind::New, func, args, kwargs)?;
            }
            b'i' => {
                let (module, name) = (text::name(self.line(4096)?)?, text::name(self.line(4096)?)?);
                let func = self.global(module, name)?;
                let from = self.mark()?;
                let args = self.tuple_from(from);
                self.call(CallKind::Reduce, func, args, Value::None)?;
            }
            b'o' => {
                let from = self.mark()?;
                ensure!(self.stack.len() > from, Unpickling, "OBJ without a class");
                let args = self.tuple_from(from + 1);
                let func = self.stack.pop().unwrap_or(Value::None);
                self.call(CallKind::Reduce, func, args, Value::None)?;
            }
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                self.persistent(id);
            }
            b'P' => {
                let line = text::name(self.line(4096)?)?;
                let id = self.tree.push_str(line);
                self.persistent(id);
            }
            b'q' => {
                let i = self.byte()?;
                self.store(i.into())?;
            }
            b'r' => {
                let i = u32::from_le_bytes(self.array()?);
                self.store(i.into())?;
            }
            b'p' => {
                let i = text::index(self.line(64)?)?;
                self.store(i)?;
            }
            0x94 => self.store(self.stored)?,
            b'h' => {
                let i = self.byte()?;
                self.fetch(i.into())?;
            }
            b'j' => {
                let i = u32::from_le_bytes(self.array()?);
                self.fetch(i.into())?;
            }
            b'g' => {
                let i = text::index(self.line(64)?)?;
                self.fetch(i)?;
            }
            0x80 => {
                let version = self.byte()?;
                ensure!(
                    version <= 5,
                    Unpickling,
                    "pickle protocol {version}; 0 to 5 are known"
                );
            }
            0x95 => {
                let n = u64::from_le_bytes(self.array()?);
                let left = (self.data.len() - self.pos) as u64;
                ensure!(
                    n <= left,
                    Unpickling,
                    "a frame of {n} bytes where {left} are left (truncated?)"
                );
            }
            0x82..=0x84 => bail!(
                Unpickling,
                "extension codes need a registry, which a checkpoint does not carry"
            ),
            0x97 | 0x98 => bail!(
                Unpickling,
                "out-of-band buffers, which a checkpoint does not carry"
            ),
            other => bail!(Unpickling, "unknown opcode {other:#04x}"),
        }
        Ok(())
    }

    fn list(&mut self, kind: fn(u32) -> Object, items: Vec<Value>) {
        let value = self.tree.push_list(kind, items);
        self.stack.push(value);
    }

    fn dict(&mut self) {
        let value = self.tree.push_dict(Object::Dict, Vec::new());
        self.stack.push(value);
    }

    fn persistent(&mut self, id: Value) {
        let value = self.tree.push_items(Object::PersistentId, &[id]);
        self.stack.push(value);
    }

    fn bytes(&mut self, kind: fn(crate::io::tree::Span) -> Object, bytes: &[u8]) {
        let span = self.tree.blob_span(bytes);
        self.push(kind(span));
    }

    fn integer(&mut self, bytes: &[u8]) {
        match text::small_integer(bytes) {
            Some(n) => self.stack.push(Value::Int(n)),
            None => self.bytes(Object::BigInt, bytes),
        }
    }

    fn number_text(&mut self, op: u8, line: &[u8]) -> Result<()> {
        match (op, line) {
            (b'I', b"00") => self.stack.push(Value::Bool(false)),
            (b'I', b"01") => self.stack.push(Value::Bool(true)),
            (b'F', _) => {
                let float = std::str::from_utf8(line)
                    .ok()
                    .and_then(|s| s.trim().parse::<f64>().ok());
                let float = float.ok_or_else(|| err!(Unpickling, "a number that is none"))?;
                self.stack.push(Value::Float(float));
            }
            _ => {
                let digits = line
                    .strip_suffix(b"L")
                    .filter(|_| op == b'L')
                    .unwrap_or(line);
                self.integer(&text::decimal(digits)?);
            }
        }
        Ok(())
    }
}
