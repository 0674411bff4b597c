//! One step of the interpreter: the opcodes.

use super::{Machine, text};
use crate::io::tree::{CallKind, Object, Span, Value};
use crate::{Result, bail, ensure, err};

/// Longest line of the text opcodes.
const MAX_LINE: usize = 1 << 30;
/// Longest line that holds the name of a module or class, or a persistent id.
const MAX_NAME_LINE: usize = 4096;
/// Longest line that holds the number of a memo entry.
const MAX_INDEX_LINE: usize = 64;

impl<'a> Machine<'a> {
    pub(super) fn step(&mut self, op: u8) -> Result<()> {
        match op {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.drop_top()?,
            b'1' => self.mark().map(|from| self.stack.truncate(from))?,
            b'2' => self.top().map(|top| self.stack.push(top))?,

            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'J' => self.array().map(|b| self.int(i32::from_le_bytes(b)))?,
            b'K' => self.byte().map(|n| self.int(n))?,
            b'M' => self.array().map(|b| self.int(u16::from_le_bytes(b)))?,
            b'G' => self.array().map(|b| self.float(f64::from_be_bytes(b)))?,
            0x8a => self.counted::<1>().map(|b| self.integer(b))?,
            0x8b => self.signed("an integer").map(|b| self.integer(b))?,
            b'I' | b'L' | b'F' => self
                .line(MAX_LINE)
                .and_then(|line| self.number_text(op, line))?,

            b'X' => self.counted::<4>().and_then(|b| self.string(b))?,
            0x8c => self.counted::<1>().and_then(|b| self.string(b))?,
            0x8d => self.counted::<8>().and_then(|b| self.string(b))?,
            b'V' => self.escaped()?,
            b'S' => self.quoted()?,
            b'T' => self.signed("a string").map(|b| self.old_string(b))?,
            b'U' => self.counted::<1>().map(|b| self.old_string(b))?,
            b'C' => self.counted::<1>().map(|b| self.bytes(Object::Bytes, b))?,
            b'B' => self.counted::<4>().map(|b| self.bytes(Object::Bytes, b))?,
            0x8e => self.counted::<8>().map(|b| self.bytes(Object::Bytes, b))?,
            0x96 => self
                .counted::<8>()
                .map(|b| self.bytes(Object::ByteArray, b))?,

            b')' => self.tuple(0)?,
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b't' => self.marked_tuple().map(|tuple| self.stack.push(tuple))?,
            b']' => self.list(Object::List, Vec::new()),
            b'}' => self.dict(),
            0x8f => self.list(Object::Set, Vec::new()),
            b'l' => self.marked().map(|items| self.list(Object::List, items))?,
            b'd' => self.marked().and_then(|items| self.filled_dict(&items))?,
            0x91 => self
                .marked()
                .map(|items| self.list(Object::FrozenSet, items))?,
            b'a' => self.append_one()?,
            b'e' => self.mark().and_then(|from| self.append(from))?,
            0x90 => self.mark().and_then(|from| self.add(from))?,
            b's' => self.set_one()?,
            b'u' => self.mark().and_then(|from| self.set_items(from))?,

            b'c' => self.named_global().map(|class| self.stack.push(class))?,
            0x93 => self.stacked_global()?,
            b'R' => self.called(CallKind::Reduce)?,
            0x81 => self.called(CallKind::New)?,
            0x92 => self.called_with_keywords()?,
            b'i' => self.instance()?,
            b'o' => self.object()?,
            b'b' => self.build()?,
            b'Q' => self.pop().map(|id| self.persistent(id))?,
            b'P' => self.persistent_name()?,

            b'q' => self.byte().and_then(|i| self.store(i.into()))?,
            b'r' => self.index().and_then(|i| self.store(i))?,
            b'p' => self.index_text().and_then(|i| self.store(i))?,
            0x94 => self.store(self.stored)?,
            b'h' => self.byte().and_then(|i| self.fetch(i.into()))?,
            b'j' => self.index().and_then(|i| self.fetch(i))?,
            b'g' => self.index_text().and_then(|i| self.fetch(i))?,

            0x80 => self.protocol()?,
            0x95 => self.frame()?,
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

    /// On a mark POP removes the mark, as in Python.
    fn drop_top(&mut self) -> Result<()> {
        if self.stack.len() == self.fence() {
            self.mark()?;
        } else {
            self.pop()?;
        }
        Ok(())
    }

    fn int(&mut self, n: impl Into<i64>) {
        self.stack.push(Value::Int(n.into()));
    }

    fn float(&mut self, f: f64) {
        self.stack.push(Value::Float(f));
    }

    /// A signed length, which may not be negative, and as many bytes as it says.
    fn signed(&mut self, what: &str) -> Result<&'a [u8]> {
        let n = i32::from_le_bytes(self.array()?);
        let n = usize::try_from(n).map_err(|_| err!(Unpickling, "{what} of {n} bytes"))?;
        self.take(n)
    }

    fn escaped(&mut self) -> Result<()> {
        let line = self.line(MAX_LINE)?;
        self.string(&text::raw_unicode_escape(line)?)
    }

    fn quoted(&mut self) -> Result<()> {
        let line = self.line(MAX_LINE)?;
        self.old_string(&text::quoted(line)?);
        Ok(())
    }

    /// The values after the last mark, which leave the stack.
    fn marked(&mut self) -> Result<Vec<Value>> {
        let from = self.mark()?;
        Ok(self.stack.split_off(from))
    }

    fn marked_tuple(&mut self) -> Result<Value> {
        let from = self.mark()?;
        Ok(self.tuple_from(from))
    }

    fn filled_dict(&mut self, items: &[Value]) -> Result<()> {
        self.dict();
        let at = self.stack.len();
        self.stack.extend_from_slice(items);
        self.set_items(at)
    }

    fn append_one(&mut self) -> Result<()> {
        self.top()?;
        self.append(self.stack.len() - 1)
    }

    fn set_one(&mut self) -> Result<()> {
        let from = self.stack.len().checked_sub(2);
        let from = from.filter(|&from| from >= self.fence());
        self.set_items(from.ok_or_else(|| err!(Unpickling, "no key and value on the stack"))?)
    }

    /// The class that two lines of text name.
    fn named_global(&mut self) -> Result<Value> {
        let module = text::name(self.line(MAX_NAME_LINE)?)?;
        let name = text::name(self.line(MAX_NAME_LINE)?)?;
        self.global(module, name)
    }

    fn stacked_global(&mut self) -> Result<()> {
        let (name, module) = (self.pop()?, self.pop()?);
        let texts = self.tree.str(module).zip(self.tree.str(name));
        let (module, name) =
            texts.ok_or_else(|| err!(Unpickling, "the name of a class is not a string"))?;
        let (module, name) = (module.to_owned(), name.to_owned());
        let value = self.global(&module, &name)?;
        self.stack.push(value);
        Ok(())
    }

    fn called(&mut self, kind: CallKind) -> Result<()> {
        let (args, func) = (self.pop()?, self.pop()?);
        self.call(kind, func, args, Value::None)
    }

    fn called_with_keywords(&mut self) -> Result<()> {
        let (kwargs, args, func) = (self.pop()?, self.pop()?, self.pop()?);
        ensure!(
            self.tree.pairs(kwargs).is_some(),
            Unpickling,
            "keyword arguments are not a dictionary"
        );
        self.call(CallKind::New, func, args, kwargs)
    }

    /// An instance of a class that is named in text, with the arguments after the mark.
    fn instance(&mut self) -> Result<()> {
        let func = self.named_global()?;
        let args = self.marked_tuple()?;
        self.call(CallKind::Reduce, func, args, Value::None)
    }

    /// An instance of the class after the mark, with the arguments after that.
    fn object(&mut self) -> Result<()> {
        let from = self.mark()?;
        ensure!(self.stack.len() > from, Unpickling, "OBJ without a class");
        let args = self.tuple_from(from + 1);
        let func = self.stack.pop().unwrap_or(Value::None);
        self.call(CallKind::Reduce, func, args, Value::None)
    }

    fn persistent_name(&mut self) -> Result<()> {
        let line = text::name(self.line(MAX_NAME_LINE)?)?;
        let id = self.tree.push_str(line);
        self.persistent(id);
        Ok(())
    }

    /// The number of a memo entry.
    fn index(&mut self) -> Result<u64> {
        Ok(u32::from_le_bytes(self.array()?).into())
    }

    fn index_text(&mut self) -> Result<u64> {
        text::index(self.line(MAX_INDEX_LINE)?)
    }

    fn protocol(&mut self) -> Result<()> {
        let version = self.byte()?;
        ensure!(
            version <= 5,
            Unpickling,
            "pickle protocol {version}; 0 to 5 are known"
        );
        Ok(())
    }

    fn frame(&mut self) -> Result<()> {
        let n = u64::from_le_bytes(self.array()?);
        let left = (self.data.len() - self.pos) as u64;
        ensure!(
            n <= left,
            Unpickling,
            "a frame of {n} bytes where {left} are left (truncated?)"
        );
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

    fn bytes(&mut self, kind: fn(Span) -> Object, bytes: &[u8]) {
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
