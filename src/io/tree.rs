//! What a checkpoint contains, as plain data: an arena of objects that refer to one another by number.
//!
//! Two references to one number are one object, so identity, ties and cycles are kept, and nothing is
//! ever walked or dropped recursively.

mod child;
mod storage;
mod tensor;

pub use storage::{Coding, Data, StorageRef};
pub use tensor::{Channels, Composite, CompositeKind, Quant, TensorClass, TensorRef};

use crate::DType;

/// The number of an [`Object`] in its [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u32);

/// A value: a small one as it is, any other by the number of its object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// True or false.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// A double.
    Float(f64),
    /// An object of the arena.
    Object(Id),
}

/// A range of one of the tree's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn of(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// One object of a checkpoint: twelve bytes, for there are many.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Object {
    /// A string; see [`Tree::str`].
    Str(Span),
    /// A string with lone surrogates, as UTF-8 that encodes them too; see [`Tree::bytes`].
    Surrogates(Span),
    /// An integer beyond 64 bits, little-endian two's complement; see [`Tree::bytes`].
    BigInt(Span),
    /// `bytes`; see [`Tree::bytes`].
    Bytes(Span),
    /// `bytearray`; see [`Tree::bytes`].
    ByteArray(Span),
    /// A complex number; see [`Tree::complex`].
    Complex(Span),
    /// A tuple; see [`Tree::items`].
    Tuple(Span),
    /// `torch.Size`: integers, none negative; see [`Tree::items`].
    Size(Span),
    /// A list: its number in [`Tree::lists`]; see [`Tree::items`].
    List(u32),
    /// A set, likewise.
    Set(u32),
    /// A frozen set, likewise.
    FrozenSet(u32),
    /// A dictionary in insertion order: its number in [`Tree::dicts`]; see [`Tree::pairs`]. A key may come
    /// twice: the later value holds.
    Dict(u32),
    /// A `collections.OrderedDict`; its attributes (`_metadata`) are in [`Tree::attrs`].
    OrderedDict(u32),
    /// A `collections.Counter`.
    Counter(u32),
    /// A dtype.
    DType(DType),
    /// A `torch.device`, as text: `cuda:1`.
    Device(Span),
    /// A `torch.layout`, as text: `torch.sparse_coo`.
    Layout(Span),
    /// A storage saved as such; typed if a dtype is given.
    Storage(u32, Option<DType>),
    /// A tensor or parameter: its number in [`Tree::tensors`].
    Tensor(u32),
    /// A sparse or nested tensor: its number in [`Tree::composites`].
    Composite(u32),
    /// The name of a class or function, imported by nobody: its number in [`Tree::globals`].
    Global(u32),
    /// A call that was recorded and not made, an object of an unknown class among them: its number in [`Tree::calls`].
    Call(u32),
    /// A tensor as PyTorch describes it, before its storage is found; trees that archives give have none.
    Proto(u32),
    /// A persistent id that no format has given a meaning yet: a span of the one value it is.
    PersistentId(Span),
}

/// A tensor as PyTorch describes it in a pickle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proto {
    /// The class of its storage.
    pub class: Id,
    /// The key of its storage.
    pub key: Id,
    /// The device it was on.
    pub location: Id,
    /// Elements of its storage.
    pub numel: i64,
    /// Elements before its first.
    pub offset: i64,
    /// Where its sizes and strides begin in the tree's `proto_dims`.
    pub dims: u32,
    /// How many of each.
    pub ndim: u8,
    /// Whether it requires a gradient.
    pub grad: bool,
}

/// The name of a class or function in a pickle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Global {
    /// The module: `torch._utils`.
    pub module: Box<str>,
    /// The name in it: `_rebuild_tensor_v2`.
    pub name: Box<str>,
}

impl std::fmt::Display for Global {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)
    }
}

/// How a pickle asks for an object to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// `func(*args)`.
    Reduce,
    /// `cls.__new__(cls, *args, **kwargs)`.
    New,
}

/// A call, or object construction, that a pickle asks for. It is never made: this is what is known of it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Function call or object construction.
    pub kind: CallKind,
    /// What would be called; mostly a [`Object::Global`].
    pub func: Value,
    /// A tuple of arguments.
    pub args: Value,
    /// A dictionary of keyword arguments, or `None`.
    pub kwargs: Value,
    /// What is done to the result.
    pub extra: Option<Box<CallExtra>>,
}

/// What a pickle does to the result of a [`Call`].
#[derive(Clone, Debug, Default)]
pub struct CallExtra {
    /// Items appended or added to it.
    pub items: Vec<Value>,
    /// Items set in it.
    pub pairs: Vec<(Value, Value)>,
    /// States given to it (`__setstate__` or attributes), mostly one.
    pub states: Vec<Value>,
}

/// Everything a checkpoint contains.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The outermost value.
    pub root: Value,
    /// The arena.
    pub objects: Vec<Object>,
    /// What lists and sets hold.
    pub lists: Vec<Vec<Value>>,
    /// What dictionaries hold.
    pub dicts: Vec<Vec<(Value, Value)>>,
    /// Strided tensors.
    pub tensors: Vec<TensorRef>,
    /// Sparse and nested tensors.
    pub composites: Vec<Composite>,
    /// Storages.
    pub storages: Vec<StorageRef>,
    /// Names of classes and functions, in the order of the file, each once.
    pub globals: Vec<Global>,
    /// Numbers of the names that the formats before zip gave with their source text: classes of modules.
    pub containers: Vec<u32>,
    /// Calls that were recorded; those that got a meaning are no longer referred to.
    pub calls: Vec<Call>,
    /// Attribute dictionaries of objects that are not tensors.
    pub attrs: std::collections::HashMap<Id, Value>,
    /// Strings of Python 2, which had no encoding, in the order of the file.
    pub(crate) old: Vec<Id>,
    pub(crate) protos: Vec<Proto>,
    pub(crate) proto_dims: Vec<i64>,
    pub(crate) text: String,
    pub(crate) blob: Vec<u8>,
    pub(crate) pool: Vec<Value>,
    /// Set once a buffer is beyond what spans can count; such a tree is not to be used.
    pub(crate) overflow: bool,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree whose root is `None`.
    #[must_use]
    pub fn new() -> Self {
        Self {
            root: Value::None,
            objects: Vec::new(),
            lists: Vec::new(),
            dicts: Vec::new(),
            tensors: Vec::new(),
            composites: Vec::new(),
            storages: Vec::new(),
            globals: Vec::new(),
            containers: Vec::new(),
            calls: Vec::new(),
            attrs: std::collections::HashMap::new(),
            old: Vec::new(),
            protos: Vec::new(),
            proto_dims: Vec::new(),
            text: String::new(),
            blob: Vec::new(),
            pool: Vec::new(),
            overflow: false,
        }
    }

    /// The object a value refers to, if it does.
    #[must_use]
    pub fn object(&self, value: Value) -> Option<&Object> {
        match value {
            Value::Object(Id(i)) => self.objects.get(i as usize),
            _ => None,
        }
    }

    /// The text of a string, device or layout.
    #[must_use]
    pub fn str(&self, value: Value) -> Option<&str> {
        match self.object(value)? {
            Object::Str(s) | Object::Device(s) | Object::Layout(s) => self.text.get(s.of()),
            _ => None,
        }
    }

    /// The bytes of `bytes`, a bytearray, a big integer or a string with surrogates.
    #[must_use]
    pub fn bytes(&self, value: Value) -> Option<&[u8]> {
        match self.object(value)? {
            Object::Bytes(s) | Object::ByteArray(s) | Object::BigInt(s) | Object::Surrogates(s) => {
                self.blob.get(s.of())
            }
            _ => None,
        }
    }

    /// The items of a tuple, size, list or set.
    #[must_use]
    pub fn items(&self, value: Value) -> Option<&[Value]> {
        match self.object(value)? {
            Object::Tuple(s) | Object::Size(s) => self.pool.get(s.of()),
            Object::List(n) | Object::Set(n) | Object::FrozenSet(n) => {
                self.lists.get(*n as usize).map(Vec::as_slice)
            }
            _ => None,
        }
    }

    /// The items of a tuple, and of nothing else.
    #[must_use]
    pub fn tuple(&self, value: Value) -> Option<&[Value]> {
        matches!(self.object(value)?, Object::Tuple(_))
            .then(|| self.items(value))
            .flatten()
    }

    /// The pairs of a dictionary of any kind.
    #[must_use]
    pub fn pairs(&self, value: Value) -> Option<&[(Value, Value)]> {
        match self.object(value)? {
            Object::Dict(n) | Object::OrderedDict(n) | Object::Counter(n) => {
                self.dicts.get(*n as usize).map(Vec::as_slice)
            }
            _ => None,
        }
    }

    /// The parts of a complex number.
    #[must_use]
    pub fn complex(&self, value: Value) -> Option<(f64, f64)> {
        let Object::Complex(span) = self.object(value)? else {
            return None;
        };
        match self.pool.get(span.of())? {
            &[Value::Float(re), Value::Float(im)] => Some((re, im)),
            _ => None,
        }
    }

    /// What a persistent id is.
    #[must_use]
    pub fn persistent_id(&self, value: Value) -> Option<Value> {
        let Object::PersistentId(span) = self.object(value)? else {
            return None;
        };
        self.pool.get(span.of())?.first().copied()
    }

    /// The tensor a value is, if it is one.
    #[must_use]
    pub fn tensor(&self, value: Value) -> Option<&TensorRef> {
        match self.object(value)? {
            Object::Tensor(t) => self.tensors.get(*t as usize),
            _ => None,
        }
    }

    /// The sparse or nested tensor a value is, if it is one.
    #[must_use]
    pub fn composite(&self, value: Value) -> Option<&Composite> {
        match self.object(value)? {
            Object::Composite(n) => self.composites.get(*n as usize),
            _ => None,
        }
    }

    /// The recorded call a value is, if it is one.
    #[must_use]
    pub fn call(&self, value: Value) -> Option<&Call> {
        match self.object(value)? {
            Object::Call(c) => self.calls.get(*c as usize),
            _ => None,
        }
    }

    /// The name of a class or function that a value is, if it is one.
    #[must_use]
    pub fn global(&self, value: Value) -> Option<&Global> {
        match self.object(value)? {
            Object::Global(g) => self.globals.get(*g as usize),
            _ => None,
        }
    }

    /// Adds an object.
    pub fn push(&mut self, object: Object) -> Value {
        self.objects.push(object);
        // Arenas of four billion objects need a file of as many bytes; the interpreter's limit is lower.
        Value::Object(Id((self.objects.len() - 1) as u32))
    }

    /// The bytes of a string of Python 2.
    #[must_use]
    pub fn old_string(&self, id: Id) -> Option<&[u8]> {
        self.old.binary_search_by_key(&id.0, |i| i.0).ok()?;
        let v = Value::Object(id);
        self.str(v).map(str::as_bytes).or_else(|| self.bytes(v))
    }

    /// Adds a string.
    pub fn push_str(&mut self, text: &str) -> Value {
        let span = self.text_span(text);
        self.push(Object::Str(span))
    }

    /// Adds an object made of text: `push_text(Object::Device, "cuda:1")`.
    pub fn push_text(&mut self, kind: fn(Span) -> Object, text: &str) -> Value {
        let span = self.text_span(text);
        self.push(kind(span))
    }

    /// Adds an object made of bytes: `push_bytes(Object::ByteArray, data)`.
    pub fn push_bytes(&mut self, kind: fn(Span) -> Object, bytes: &[u8]) -> Value {
        let span = self.blob_span(bytes);
        self.push(kind(span))
    }

    /// Adds a tuple or size: `push_items(Object::Size, &[Value::Int(3)])`.
    pub fn push_items(&mut self, kind: fn(Span) -> Object, items: &[Value]) -> Value {
        let span = self.pool_span(items);
        self.push(kind(span))
    }

    /// Adds a list or set: `push_list(Object::List, items)`.
    pub fn push_list(&mut self, kind: fn(u32) -> Object, items: Vec<Value>) -> Value {
        let number = self.add_list(items);
        self.push(kind(number))
    }

    /// Adds a dictionary: `push_dict(Object::OrderedDict, pairs)`.
    pub fn push_dict(&mut self, kind: fn(u32) -> Object, pairs: Vec<(Value, Value)>) -> Value {
        let number = self.add_dict(pairs);
        self.push(kind(number))
    }

    pub(crate) fn add_list(&mut self, items: Vec<Value>) -> u32 {
        self.lists.push(items);
        (self.lists.len() - 1) as u32
    }

    pub(crate) fn add_dict(&mut self, pairs: Vec<(Value, Value)>) -> u32 {
        self.dicts.push(pairs);
        (self.dicts.len() - 1) as u32
    }

    /// Adds a tensor.
    pub fn push_tensor(&mut self, tensor: TensorRef) -> Value {
        self.tensors.push(tensor);
        self.push(Object::Tensor((self.tensors.len() - 1) as u32))
    }

    /// Adds a sparse or nested tensor.
    pub fn push_composite(&mut self, composite: Composite) -> Value {
        self.composites.push(composite);
        self.push(Object::Composite((self.composites.len() - 1) as u32))
    }

    /// Adds a storage and returns its number.
    pub fn push_storage(&mut self, storage: StorageRef) -> u32 {
        self.storages.push(storage);
        (self.storages.len() - 1) as u32
    }

    /// Adds the name of a class or function.
    pub fn push_global(&mut self, module: &str, name: &str) -> Value {
        self.globals.push(Global {
            module: module.into(),
            name: name.into(),
        });
        self.push(Object::Global((self.globals.len() - 1) as u32))
    }

    /// Adds a call; see [`Call`].
    pub fn push_call(&mut self, call: Call) -> Value {
        self.calls.push(call);
        self.push(Object::Call((self.calls.len() - 1) as u32))
    }

    pub(crate) fn text_span(&mut self, text: &str) -> Span {
        let start = self.text.len();
        self.text.push_str(text);
        self.span(start, text.len())
    }

    pub(crate) fn blob_span(&mut self, bytes: &[u8]) -> Span {
        let start = self.blob.len();
        self.blob.extend_from_slice(bytes);
        self.span(start, bytes.len())
    }

    pub(crate) fn pool_span(&mut self, items: &[Value]) -> Span {
        let start = self.pool.len();
        self.pool.extend_from_slice(items);
        self.span(start, items.len())
    }

    fn span(&mut self, start: usize, len: usize) -> Span {
        match (u32::try_from(start), u32::try_from(len)) {
            (Ok(start), Ok(len)) => Span { start, len },
            _ => {
                self.overflow = true;
                Span { start: 0, len: 0 }
            }
        }
    }
}
