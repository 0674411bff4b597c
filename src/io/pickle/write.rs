//! From a tree to a pickle of protocol 2, as PyTorch writes and reads it.

mod composite;
mod tensor;

use crate::io::names;
use crate::io::tree::{CallKind, Id, Object, Tree, Value};
use crate::{DType, Result, ensure, err};

/// Levels of nesting; the same that reading allows.
const MAX_DEPTH: usize = crate::io::check::MAX_DEPTH as usize;

/// Which of PyTorch's formats a pickle is a part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The zip archive.
    Zip,
    /// The format before version 1.6, in which storages may be views of others.
    Legacy,
}

/// A storage that a pickle refers to.
pub struct Used {
    /// Its number in the tree.
    pub number: u32,
    /// Bytes of an element of the type that it has in the pickle.
    pub unit: u64,
}

/// Writes the pickle of a checkpoint, and gives the storages it refers to: the first has the
/// key `0`, the next `1`, and so on.
///
/// # Errors
/// If objects are nested too deep, or the tree is not whole.
pub fn write(tree: &Tree, form: Form) -> Result<(Vec<u8>, Vec<Used>)> {
    ensure!(
        !tree.overflow,
        Value,
        "cannot save more than 4 GiB of strings and bytes outside tensors"
    );
    let mut writer = Writer {
        tree,
        form,
        out: vec![0x80, 2],
        memo: vec![None; tree.objects.len()],
        next: 0,
        untyped: untyped(tree),
        keys: vec![None; tree.storages.len()],
        used: Vec::new(),
        constants: Vec::new(),
        depth: 0,
    };
    writer.value(tree.root)?;
    writer.out.push(b'.');
    Ok((writer.out, writer.used))
}

/// Which storages must be written untyped: those that tensors view as several types, or as one without a class.
fn untyped(tree: &Tree) -> Vec<bool> {
    let mut types: Vec<Option<DType>> = tree.storages.iter().map(|s| s.dtype).collect();
    let mut untyped = vec![false; types.len()];
    for tensor in &tree.tensors {
        let i = tensor.storage as usize;
        if let (Some(slot), Some(flag)) = (types.get_mut(i), untyped.get_mut(i)) {
            let whole = tree.storages[i]
                .nbytes
                .is_multiple_of(tensor.dtype.size() as u64);
            *flag |= !whole
                || names::storage_prefix(tensor.dtype).is_none()
                || slot.is_some_and(|d| d != tensor.dtype);
            *slot = Some(tensor.dtype);
        }
    }
    // PyTorch takes the type of a storage from where it first meets it, so one untyped mention decides.
    for object in &tree.objects {
        if let Object::Storage(i, dtype) = object
            && let (Some(slot), Some(flag)) = (types.get(*i as usize), untyped.get_mut(*i as usize))
        {
            *flag |= dtype.is_none() || slot.is_some_and(|d| Some(d) != *dtype);
        }
    }
    untyped
}

struct Writer<'a> {
    tree: &'a Tree,
    form: Form,
    out: Vec<u8>,
    memo: Vec<Option<u32>>,
    next: u32,
    untyped: Vec<bool>,
    /// The key of each storage, given when it is first written.
    keys: Vec<Option<usize>>,
    used: Vec<Used>,
    /// Names and words that occur again and again, with their memo index.
    constants: Vec<(String, u32)>,
    depth: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: Value) -> Result<()> {
        match value {
            Value::None => self.out.push(b'N'),
            Value::Bool(b) => self.out.push(if b { 0x88 } else { 0x89 }),
            Value::Int(n) => self.int(n),
            Value::Float(f) => {
                self.out.push(b'G');
                self.out.extend_from_slice(&f.to_be_bytes());
            }
            Value::Object(id) => {
                self.depth += 1;
                ensure!(
                    self.depth <= MAX_DEPTH,
                    Value,
                    "cannot save objects nested more than {MAX_DEPTH} levels deep"
                );
                self.object(id)?;
                self.depth -= 1;
            }
        }
        Ok(())
    }

    fn int(&mut self, n: i64) {
        if let Ok(n) = u8::try_from(n) {
            self.out.extend_from_slice(&[b'K', n]);
        } else if let Ok(n) = u16::try_from(n) {
            self.out.push(b'M');
            self.out.extend_from_slice(&n.to_le_bytes());
        } else if let Ok(n) = i32::try_from(n) {
            self.out.push(b'J');
            self.out.extend_from_slice(&n.to_le_bytes());
        } else {
            self.out.extend_from_slice(&[0x8a, 8]);
            self.out.extend_from_slice(&n.to_le_bytes());
        }
    }

    fn get(&mut self, index: u32) {
        if let Ok(i) = u8::try_from(index) {
            self.out.extend_from_slice(&[b'h', i]);
        } else {
            self.out.push(b'j');
            self.out.extend_from_slice(&index.to_le_bytes());
        }
    }

    fn put(&mut self) -> u32 {
        let index = self.next;
        self.next += 1;
        if let Ok(i) = u8::try_from(index) {
            self.out.extend_from_slice(&[b'q', i]);
        } else {
            self.out.push(b'r');
            self.out.extend_from_slice(&index.to_le_bytes());
        }
        index
    }

    fn remember(&mut self, id: Id) {
        let index = self.put();
        self.memo[id.0 as usize] = Some(index);
    }

    fn unicode(&mut self, bytes: &[u8]) -> Result<()> {
        let n = u32::try_from(bytes.len())
            .map_err(|_| err!(Value, "cannot save a string of 4 GiB or more"))?;
        self.out.push(b'X');
        self.out.extend_from_slice(&n.to_le_bytes());
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// A word that the format itself needs, memoised by its text.
    fn word(&mut self, word: &str) -> Result<()> {
        if let Some(index) = self.constant(word) {
            self.get(index);
            return Ok(());
        }
        self.unicode(word.as_bytes())?;
        let index = self.put();
        self.constants.push((word.to_owned(), index));
        Ok(())
    }

    fn constant(&self, key: &str) -> Option<u32> {
        self.constants.iter().find(|c| c.0 == key).map(|c| c.1)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let line = format!("{module}\n{name}\n");
        if let Some(index) = self.constant(&line) {
            self.get(index);
            return Ok(());
        }
        ensure!(
            line.matches('\n').count() == 2,
            Value,
            "cannot save a class whose name has a newline"
        );
        self.out.push(b'c');
        self.out.extend_from_slice(line.as_bytes());
        let index = self.put();
        self.constants.push((line, index));
        Ok(())
    }

    fn ints(&mut self, items: &[i64]) {
        self.out
            .extend_from_slice(if items.is_empty() { b")" } else { b"(" });
        for &n in items {
            self.int(n);
        }
        if !items.is_empty() {
            self.out.push(b't');
        }
    }

    /// `collections.OrderedDict()`: the hooks that no file has.
    fn no_hooks(&mut self) -> Result<()> {
        self.global("collections", "OrderedDict")?;
        self.out.extend_from_slice(b")R");
        Ok(())
    }

    fn values(&mut self, items: &[Value]) -> Result<()> {
        items.iter().try_for_each(|&v| self.value(v))
    }

    fn set_items(&mut self, pairs: &[(Value, Value)]) -> Result<()> {
        for batch in pairs.chunks(1000) {
            self.out.push(b'(');
            for &(k, v) in batch {
                self.value(k)?;
                self.value(v)?;
            }
            self.out.push(b'u');
        }
        Ok(())
    }

    fn append(&mut self, items: &[Value]) -> Result<()> {
        for batch in items.chunks(1000) {
            self.out.push(b'(');
            self.values(batch)?;
            self.out.push(b'e');
        }
        Ok(())
    }

    fn object(&mut self, id: Id) -> Result<()> {
        let slot = self
            .memo
            .get(id.0 as usize)
            .ok_or_else(|| err!(Value, "the tree refers to an object it does not have"))?;
        if let Some(index) = *slot {
            self.get(index);
            return Ok(());
        }
        let tree = self.tree;
        match &tree.objects[id.0 as usize] {
            // These may contain themselves, or are remembered by their text: they see to the memo.
            Object::Tuple(_) => return self.tuple(id),
            Object::List(_) => return self.list(id),
            Object::Dict(_) => return self.dict(id),
            Object::OrderedDict(_) => return self.ordered_dict(id),
            Object::Call(_) => return self.call(id),
            Object::DType(dtype) => return self.global("torch", dtype.name()),
            Object::Global(number) => {
                let global = numbered(&tree.globals, *number, "name")?;
                return self.global(&global.module, &global.name);
            }

            Object::Storage(number, dtype) => self.storage(*number, *dtype)?,
            Object::Tensor(number) => {
                self.tensor(numbered(&tree.tensors, *number, "tensor")?)?;
            }
            Object::Composite(number) => {
                self.composite(numbered(&tree.composites, *number, "tensor")?)?;
            }
            Object::Proto(_) => {
                return Err(err!(Value, "the tree has tensors without storages"));
            }
            plain => self.plain(plain, Value::Object(id))?,
        }
        self.remember(id);
        Ok(())
    }

    /// An object that is written whole before it is remembered.
    fn plain(&mut self, object: &Object, value: Value) -> Result<()> {
        let tree = self.tree;
        let bytes = tree.bytes(value).unwrap_or(&[]);
        match object {
            Object::Surrogates(_) => self.unicode(bytes),
            Object::BigInt(_) => self.big_int(bytes),
            Object::Bytes(_) => self.latin1(bytes),
            Object::ByteArray(_) => {
                self.global("builtins", "bytearray")?;
                self.latin1(bytes)?;
                self.reduce(1)
            }
            Object::Complex(_) => self.complex(tree.complex(value).unwrap_or_default()),
            Object::Size(_) => {
                self.global("torch", "Size")?;
                self.out.push(b'(');
                self.values(tree.items(value).unwrap_or(&[]))?;
                self.out.push(b't');
                self.reduce(1)
            }
            Object::Set(_) => self.set("set", value),
            Object::FrozenSet(_) => self.set("frozenset", value),
            Object::Counter(_) => {
                self.global("collections", "Counter")?;
                self.out.push(b'}');
                self.set_items(tree.pairs(value).unwrap_or(&[]))?;
                self.reduce(1)
            }
            Object::Device(_) => self.device(tree.str(value).unwrap_or("cpu")),
            Object::Layout(_) => {
                self.global("torch.serialization", "_get_layout")?;
                self.word(tree.str(value).unwrap_or("torch.strided"))?;
                self.reduce(1)
            }
            Object::PersistentId(_) => {
                self.value(tree.persistent_id(value).unwrap_or(Value::None))?;
                self.out.push(b'Q');
                Ok(())
            }
            // All that has bytes, items or numbers is listed: what is left is text.
            _ => self.unicode(tree.str(value).unwrap_or("").as_bytes()),
        }
    }

    /// A call of what lies below the last `n` values with them.
    fn reduce(&mut self, n: u8) -> Result<()> {
        self.out.extend_from_slice(&[0x84 + n, b'R']);
        Ok(())
    }

    fn complex(&mut self, (re, im): (f64, f64)) -> Result<()> {
        self.global("builtins", "complex")?;
        self.value(Value::Float(re))?;
        self.value(Value::Float(im))?;
        self.reduce(2)
    }

    fn list(&mut self, id: Id) -> Result<()> {
        self.out.push(b']');
        self.remember(id);
        self.append(self.tree.items(Value::Object(id)).unwrap_or(&[]))
    }

    fn set(&mut self, class: &str, value: Value) -> Result<()> {
        self.global("builtins", class)?;
        self.out.push(b']');
        self.append(self.tree.items(value).unwrap_or(&[]))?;
        self.reduce(1)
    }

    fn dict(&mut self, id: Id) -> Result<()> {
        self.out.push(b'}');
        self.remember(id);
        self.set_items(self.tree.pairs(Value::Object(id)).unwrap_or(&[]))
    }

    fn ordered_dict(&mut self, id: Id) -> Result<()> {
        self.no_hooks()?;
        self.remember(id);
        self.set_items(self.tree.pairs(Value::Object(id)).unwrap_or(&[]))?;
        if let Some(&attrs) = self.tree.attrs.get(&id) {
            self.value(attrs)?;
            self.out.push(b'b');
        }
        Ok(())
    }

    fn device(&mut self, text: &str) -> Result<()> {
        self.global("torch", "device")?;
        let numbered = text
            .split_once(':')
            .and_then(|(kind, index)| Some((kind, index.parse().ok()?)));
        let Some((kind, index)) = numbered else {
            self.word(text)?;
            return self.reduce(1);
        };
        self.word(kind)?;
        self.int(index);
        self.reduce(2)
    }

    fn tuple(&mut self, id: Id) -> Result<()> {
        let items = self.tree.items(Value::Object(id)).unwrap_or(&[]);
        if items.len() > 3 {
            self.out.push(b'(');
        }
        self.values(items)?;
        // A tuple that contains itself by way of a list has been written meanwhile: use that one.
        if let Some(index) = self.memo[id.0 as usize] {
            if items.len() > 3 {
                self.out.push(b'1');
            } else {
                self.out.extend(std::iter::repeat_n(b'0', items.len()));
            }
            self.get(index);
            return Ok(());
        }
        self.out.push(match items.len() {
            0 => b')',
            n @ 1..=3 => 0x84 + n as u8,
            _ => b't',
        });
        if !items.is_empty() {
            self.remember(id);
        }
        Ok(())
    }

    fn big_int(&mut self, bytes: &[u8]) -> Result<()> {
        if let Ok(n) = u8::try_from(bytes.len()) {
            self.out.extend_from_slice(&[0x8a, n]);
        } else {
            let n = i32::try_from(bytes.len())
                .map_err(|_| err!(Value, "cannot save an integer of 2 GiB or more"))?;
            self.out.push(0x8b);
            self.out.extend_from_slice(&n.to_le_bytes());
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Protocol 2 has no bytes: they are written as text and encoded again on reading.
    fn latin1(&mut self, bytes: &[u8]) -> Result<()> {
        self.global("_codecs", "encode")?;
        let text: String = bytes.iter().map(|&b| char::from(b)).collect();
        self.unicode(text.as_bytes())?;
        self.word("latin1")?;
        self.out.extend_from_slice(b"\x86R");
        Ok(())
    }

    fn call(&mut self, id: Id) -> Result<()> {
        let tree = self.tree;
        let call = tree
            .call(Value::Object(id))
            .ok_or_else(|| err!(Value, "a call number out of range"))?;
        ensure!(
            call.kwargs == Value::None,
            NotImplemented,
            "cannot save an object made with keyword arguments"
        );
        self.value(call.func)?;
        self.value(call.args)?;
        self.out.push(if call.kind == CallKind::Reduce {
            b'R'
        } else {
            0x81
        });
        self.remember(id);
        if let Some(extra) = call.extra.as_deref() {
            self.append(&extra.items)?;
            self.set_items(&extra.pairs)?;
            for &state in &extra.states {
                self.value(state)?;
                self.out.push(b'b');
            }
        }
        Ok(())
    }
}

/// An entry of a table of the tree.
fn numbered<'t, T>(table: &'t [T], number: u32, what: &str) -> Result<&'t T> {
    table
        .get(number as usize)
        .ok_or_else(|| err!(Value, "a {what} number out of range"))
}
