//! From what a pickle asks for to what a checkpoint means: tensors, parameters, storages, containers.
//!
//! Objects of a pickle refer only to earlier ones when they are made, so one pass in order resolves them all
//! without recursion. Every tensor is proved to lie within its storage.

mod composite;
mod container;
mod storage;

use super::names::{Known, classify};
use super::tree::{
    Call, CallExtra, CallKind, Data, Id, Object, StorageRef, TensorClass, TensorRef, Tree, Value,
};
use crate::{DType, Device, ErrorKind, Result, bail, ensure, err};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a persistent id says about a storage.
pub(super) struct StorageRequest<'a> {
    pub key: &'a str,
    pub dtype: Option<DType>,
    pub location: &'a str,
    pub nbytes: u64,
    /// In the legacy format: the key of a part of the storage, where it begins, and its bytes.
    pub view: Option<(&'a str, u64, u64)>,
}

/// Finds or makes the storage that a persistent id names.
pub(super) type StorageFinder<'a> =
    dyn FnMut(&StorageRequest<'_>, &mut Vec<StorageRef>) -> Result<u32> + 'a;

/// Gives the recorded calls and persistent ids of `tree` their meaning, in place. What has none stays recorded.
pub(super) fn resolve(tree: &mut Tree, storages: &mut StorageFinder<'_>) -> Result<()> {
    resolve_as(tree, storages, false)
}

/// As [`resolve`], with the persistent ids of the formats before zip: classes with their source text, and views.
pub(super) fn resolve_legacy(tree: &mut Tree, storages: &mut StorageFinder<'_>) -> Result<()> {
    resolve_as(tree, storages, true)
}

fn resolve_as(tree: &mut Tree, storages: &mut StorageFinder<'_>, legacy: bool) -> Result<()> {
    let known = tree.globals.iter().map(classify).collect();
    let budget = (1 << 20) + tree.text.len() + tree.pool.len() + 4 * tree.objects.len();
    let mut resolver = Resolver {
        known,
        budget,
        no_pairs: None,
        legacy,
        tree,
    };
    let ids = resolver
        .tree
        .objects
        .iter()
        .filter(|o| matches!(o, Object::PersistentId(_) | Object::Proto(_)))
        .count();
    resolver.tree.storages.reserve(ids);
    resolver.tree.tensors.reserve(ids);
    // Storages first: a state, unlike an argument, may be younger than the tensor that takes it.
    for i in 0..resolver.tree.objects.len() {
        if let Object::Proto(n) = resolver.tree.objects[i] {
            resolver.tree.objects[i] = resolver.proto(n, storages)?;
        } else if let Object::PersistentId(_) = resolver.tree.objects[i] {
            let id = resolver
                .tree
                .persistent_id(Value::Object(Id(i as u32)))
                .unwrap_or(Value::None);
            let object = resolver.storage(id, storages)?;
            if let Object::Global(g) = object {
                resolver.tree.containers.push(g);
            }
            resolver.tree.objects[i] = object;
        }
    }
    for i in 0..resolver.tree.objects.len() {
        let replacement = match resolver.tree.objects[i] {
            Object::Global(g) => match resolver.known[g as usize] {
                Known::DType(d) => Some(Object::DType(d)),
                _ => None,
            },
            Object::Call(c) => {
                let call = &mut resolver.tree.calls[c as usize];
                let extra = call.extra.take();
                let call = Call {
                    extra: None,
                    ..call.clone()
                };
                let (object, extra) = resolver.call(Id(i as u32), &call, extra)?;
                resolver.tree.calls[c as usize].extra = extra;
                object
            }
            _ => None,
        };
        if let Some(object) = replacement {
            resolver.tree.objects[i] = object;
        }
    }
    Ok(())
}

type Extra = Option<Box<CallExtra>>;

struct Resolver<'a> {
    tree: &'a mut Tree,
    known: Vec<Known>,
    /// How much may still be copied out of shared objects, so that sharing cannot multiply memory.
    budget: usize,
    no_pairs: Option<u32>,
    legacy: bool,
}

impl Resolver<'_> {
    fn known(&self, value: Value) -> Known {
        match self.tree.object(value) {
            Some(Object::Global(g)) => self.known[*g as usize],
            Some(Object::DType(d)) => Known::DType(*d),
            _ => Known::Unknown,
        }
    }

    fn spend(&mut self, n: usize) -> Result<()> {
        let left = self.budget.checked_sub(n);
        self.budget =
            left.ok_or_else(|| err!(Checkpoint, "the pickle copies one object over and over"))?;
        Ok(())
    }

    /// The object that a call means, or none; and what is left to be done to it.
    fn call(&mut self, id: Id, call: &Call, extra: Extra) -> Result<(Option<Object>, Extra)> {
        let args: SmallVec<[Value; 8]> = self.tree.tuple(call.args).unwrap_or(&[]).into();
        let known = self.known(call.func);
        if let Known::Reconstructor | Known::NewObj | Known::NewObjEx = known {
            self.construct(id, known, call.kind, &args)?;
            return Ok((None, extra));
        }
        let callable = known != Known::Unknown
            || matches!(
                self.tree.object(call.func),
                Some(Object::Global(_) | Object::Call(_))
            );
        ensure!(
            callable,
            Checkpoint,
            "it calls something that is no function or class"
        );
        if let Known::OrderedDict
        | Known::Counter
        | Known::Dict
        | Known::List
        | Known::Set
        | Known::FrozenSet = known
        {
            return self.container(id, known, &args, extra);
        }
        if let (Known::TypedTensor(dtype), Some(e)) = (known, &extra)
            && let (CallKind::New | CallKind::Reduce, [], [state], true) = (
                call.kind,
                &args[..],
                &e.states[..],
                e.items.is_empty() && e.pairs.is_empty(),
            )
        {
            let fields = self.tree.tuple(*state).unwrap_or(&[]).to_vec();
            let [storage, offset, size, stride] = fields[..] else {
                bail!(Checkpoint, "the state of a tensor is not of four parts")
            };
            let tensor = self.tensor(storage, offset, size, stride, Some(dtype))?;
            return Ok((Some(self.add(tensor)), None));
        }
        if call.kind == CallKind::New && known != Known::Unknown && !matches!(known, Known::Size) {
            bail!(
                Checkpoint,
                "it makes a {} in a way that is not supported",
                self.name(call.func)
            );
        }
        let object = self.rebuild(known, &args)?;
        if object.is_some() && extra.is_some() {
            bail!(
                Checkpoint,
                "it changes the result of {}, which takes no items or state",
                self.name(call.func)
            );
        }
        Ok((object, extra))
    }

    fn name(&self, func: Value) -> String {
        self.tree
            .global(func)
            .map_or_else(|| "an unnamed function".into(), ToString::to_string)
    }

    fn rebuild(&mut self, known: Known, args: &[Value]) -> Result<Option<Object>> {
        let few = || {
            err!(
                Checkpoint,
                "a call of a known function ({known:?}) with {} arguments of the wrong kind or number",
                args.len()
            )
        };
        Ok(Some(match (known, args) {
            (Known::RebuildTensor, &[storage, offset, size, stride]) => {
                let tensor = self.tensor(storage, offset, size, stride, None)?;
                self.add(tensor)
            }
            (
                Known::RebuildTensorV2,
                &[storage, offset, size, stride, grad, _hooks, ref rest @ ..],
            ) if rest.len() <= 1 => {
                let tensor = self.tensor(storage, offset, size, stride, None)?;
                self.finish(tensor, grad, rest.first().copied())?
            }
            (
                Known::RebuildTensorV3,
                &[
                    storage,
                    offset,
                    size,
                    stride,
                    grad,
                    _hooks,
                    dtype,
                    ref rest @ ..,
                ],
            ) if rest.len() <= 1 => {
                let Some(&Object::DType(dtype)) = self.tree.object(dtype) else {
                    return Err(few());
                };
                let tensor = self.tensor(storage, offset, size, stride, Some(dtype))?;
                self.finish(tensor, grad, rest.first().copied())?
            }
            (Known::RebuildParameter, &[data, grad, _hooks]) => {
                return self.parameter(data, grad, Value::None);
            }
            (Known::RebuildParameterWithState, &[data, grad, _hooks, state]) => {
                return self.parameter(data, grad, state);
            }
            (Known::RebuildMeta, &[dtype, size, stride, grad]) => {
                let Some(&Object::DType(dtype)) = self.tree.object(dtype) else {
                    return Err(few());
                };
                let (shape, stride) = (self.sizes(size)?, self.sizes(stride)?);
                let nbytes = extent(&shape, &stride, 0, dtype)?;
                let (location, data) = (Arc::from("meta"), Data::Meta);
                let storage = StorageRef {
                    key: "".into(),
                    dtype: Some(dtype),
                    location,
                    nbytes,
                    data,
                    crc: None,
                };
                let storage = self.tree.push_storage(storage);
                self.finish(
                    TensorRef::new(storage, dtype, &shape, &stride, 0),
                    grad,
                    None,
                )?
            }
            (Known::RebuildSparse, &[layout, data]) => self.sparse(layout, data)?,
            (Known::RebuildNested, &[_, _, _, _]) => self.nested(args)?,
            (Known::RebuildQuantized, &[storage, offset, size, stride, params, grad, _hooks]) => {
                self.quantized([storage, offset, size, stride, params, grad])?
            }
            (Known::RebuildFromTypeV2, &[func, class, inner, state]) => {
                return self.of_type(func, class, inner, state);
            }
            (Known::RebuildDeviceFromCpu, &[data, dtype, _device, grad]) => {
                let tensor = self.tree.tensor(data).ok_or_else(few)?.clone();
                if !matches!(self.tree.object(dtype), Some(Object::DType(d)) if *d == tensor.dtype)
                {
                    return Ok(None);
                }
                self.finish(tensor, grad, None)?
            }
            (Known::Size, &[sizes]) => {
                let ok = self.sizes(sizes).is_ok();
                match self.tree.object(sizes) {
                    Some(&Object::Tuple(span) | &Object::Size(span)) if ok => Object::Size(span),
                    _ => return Err(few()),
                }
            }
            (Known::Size, []) => Object::Size(self.tree.pool_span(&[])),
            (Known::Device, &[kind, ref rest @ ..]) if rest.len() <= 1 => {
                let text = self.tree.str(kind).ok_or_else(few)?;
                let text = match rest {
                    [Value::Int(index)] => format!("{text}:{index}"),
                    [] | [Value::None] => text.to_owned(),
                    _ => return Err(few()),
                };
                match Device::parse(&text) {
                    // A device of a kind we cannot compute on is still a name in a file.
                    Err(e) if e.kind() != ErrorKind::NotImplemented => {
                        bail!(Checkpoint, "{}", e.message())
                    }
                    _ => Object::Device(self.tree.text_span(&text)),
                }
            }
            (Known::GetLayout, &[name]) => {
                let known = [
                    "strided",
                    "sparse_coo",
                    "sparse_csr",
                    "sparse_csc",
                    "sparse_bsr",
                    "sparse_bsc",
                    "_mkldnn",
                    "jagged",
                ];
                let text = self.tree.str(name).and_then(|n| n.strip_prefix("torch."));
                match (
                    text.is_some_and(|t| known.contains(&t)),
                    self.tree.object(name),
                ) {
                    (true, Some(&Object::Str(span))) => Object::Layout(span),
                    _ => bail!(Checkpoint, "an unknown tensor layout"),
                }
            }
            (Known::Complex, &[re, im]) => match (re, im) {
                (Value::Float(_), Value::Float(_)) => {
                    Object::Complex(self.tree.pool_span(&[re, im]))
                }
                _ => return Err(few()),
            },
            (Known::Encode, &[text, ref rest @ ..]) => {
                ensure!(
                    matches!(rest, [codec] if self.tree.str(*codec) == Some("latin1")),
                    Checkpoint,
                    "a codec other than latin1"
                );
                let text = self.tree.str(text).ok_or_else(few)?;
                let bytes: Option<Vec<u8>> = text
                    .chars()
                    .map(|c| u8::try_from(u32::from(c)).ok())
                    .collect();
                let bytes = bytes.ok_or_else(|| {
                    err!(
                        Checkpoint,
                        "bytes written as text have a character above 255"
                    )
                })?;
                self.spend(bytes.len())?;
                Object::Bytes(self.tree.blob_span(&bytes))
            }
            (Known::Bytes, []) => Object::Bytes(self.tree.blob_span(&[])),
            (Known::ByteArray, []) => Object::ByteArray(self.tree.blob_span(&[])),
            (Known::ByteArray, &[bytes]) => match self.tree.object(bytes) {
                Some(&Object::Bytes(span) | &Object::ByteArray(span)) => Object::ByteArray(span),
                _ => return Err(few()),
            },
            (Known::ByteArray, &[text, codec]) => {
                let codec = self.latin1(codec)?;
                let bytes = self.rebuild(Known::Encode, &[text, codec])?;
                let Some(Object::Bytes(span)) = bytes else {
                    return Err(few());
                };
                Object::ByteArray(span)
            }
            (Known::Unknown, _) => return Ok(None),
            _ => return Err(few()),
        }))
    }

    /// `bytearray` spells the codec with a hyphen.
    fn latin1(&mut self, codec: Value) -> Result<Value> {
        ensure!(
            matches!(self.tree.str(codec), Some("latin-1" | "latin1")),
            Checkpoint,
            "a codec other than latin-1"
        );
        Ok(if self.tree.str(codec) == Some("latin1") {
            codec
        } else {
            self.tree.push_str("latin1")
        })
    }

    fn add(&mut self, tensor: TensorRef) -> Object {
        self.tree.tensors.push(tensor);
        Object::Tensor((self.tree.tensors.len() - 1) as u32)
    }

    fn sizes(&self, value: Value) -> Result<SmallVec<[i64; 8]>> {
        let bad = || {
            err!(
                Checkpoint,
                "the shape or stride of a tensor is not a tuple of at most 64 integers, none negative"
            )
        };
        let items = match self.tree.object(value) {
            Some(Object::Tuple(_) | Object::Size(_) | Object::List(_)) => self.tree.items(value),
            _ => None,
        };
        let items = items.filter(|i| i.len() <= 64).ok_or_else(bad)?;
        items
            .iter()
            .map(|v| {
                if let Value::Int(n @ 0..) = v {
                    Ok(*n)
                } else {
                    Err(bad())
                }
            })
            .collect()
    }

    fn tensor(
        &self,
        storage: Value,
        offset: Value,
        size: Value,
        stride: Value,
        dtype: Option<DType>,
    ) -> Result<TensorRef> {
        let Some(&Object::Storage(number, typed)) = self.tree.object(storage) else {
            bail!(Checkpoint, "a tensor whose storage is no storage");
        };
        // Without a dtype of its own an untyped storage is one of bytes.
        let dtype = dtype.or(typed).unwrap_or(DType::U8);
        let Value::Int(offset @ 0..) = offset else {
            bail!(
                Checkpoint,
                "a tensor whose offset is no integer of 0 to 2^63"
            )
        };
        let (shape, stride) = (self.sizes(size)?, self.sizes(stride)?);
        self.view(number, &shape, &stride, offset, Some(dtype))
    }

    /// A tensor proved to lie in its storage.
    fn view(
        &self,
        number: u32,
        shape: &[i64],
        stride: &[i64],
        offset: i64,
        dtype: Option<DType>,
    ) -> Result<TensorRef> {
        let dtype = dtype.unwrap_or(DType::U8);
        let needed = extent(shape, stride, offset, dtype)?;
        let have = self.tree.storages[number as usize].nbytes;
        ensure!(
            needed <= have,
            Checkpoint,
            "a tensor of shape {:?}, stride {:?} and offset {offset} needs {needed} bytes of its storage '{}', which has {have}",
            shape,
            stride,
            self.tree.storages[number as usize].key
        );
        Ok(TensorRef::new(number, dtype, shape, stride, offset))
    }

    fn finish(
        &mut self,
        mut tensor: TensorRef,
        grad: Value,
        metadata: Option<Value>,
    ) -> Result<Object> {
        let Value::Bool(grad) = grad else {
            bail!(Checkpoint, "requires_grad of a tensor is not true or false")
        };
        Self::require(&mut tensor, grad)?;
        if let Some(metadata) = metadata.filter(|m| *m != Value::None) {
            let pairs = self
                .tree
                .pairs(metadata)
                .ok_or_else(|| err!(Checkpoint, "the metadata of a tensor are no dictionary"))?;
            for &(key, value) in pairs {
                match (self.tree.str(key), value) {
                    (Some("conj"), Value::Bool(b)) if !b || tensor.dtype.is_complex() => {
                        tensor.conj = b
                    }
                    (Some("neg"), Value::Bool(b)) => tensor.neg = b,
                    _ => bail!(Checkpoint, "unknown metadata of a tensor"),
                }
            }
        }
        Ok(self.add(tensor))
    }

    fn require(tensor: &mut TensorRef, grad: bool) -> Result<()> {
        ensure!(
            !grad || tensor.dtype.is_float() || tensor.dtype.is_complex(),
            Checkpoint,
            "a {} tensor that requires grad",
            tensor.dtype
        );
        tensor.requires_grad = grad;
        Ok(())
    }

    fn parameter(&mut self, data: Value, grad: Value, state: Value) -> Result<Option<Object>> {
        if let Some(&Object::Composite(n)) = self.tree.object(data) {
            let (Value::Bool(requires_grad), attrs) = (grad, self.attributes(state)?) else {
                bail!(Checkpoint, "requires_grad of a tensor is not true or false")
            };
            let tensor = self.tree.composites[n as usize].clone();
            self.tree.composites.push(super::tree::Composite {
                class: TensorClass::Parameter,
                requires_grad,
                attrs,
                ..tensor
            });
            let number = (self.tree.composites.len() - 1) as u32;
            return Ok(Some(Object::Composite(number)));
        }
        let Some(tensor) = self.tree.tensor(data) else {
            // A parameter of a tensor kind that has no meaning yet stays recorded with it.
            ensure!(
                self.tree.call(data).is_some(),
                Checkpoint,
                "a Parameter of something that is no tensor"
            );
            return Ok(None);
        };
        let tensor = TensorRef {
            class: TensorClass::Parameter,
            attrs: self.attributes(state)?,
            ..tensor.clone()
        };
        self.finish(tensor, grad, None).map(Some)
    }

    /// Proves that a state is attributes of a tensor.
    fn attributes(&self, state: Value) -> Result<Value> {
        let is_dict = |v: Value| {
            v == Value::None
                || self
                    .tree
                    .pairs(v)
                    .is_some_and(|p| p.iter().all(|kv| self.tree.str(kv.0).is_some()))
        };
        let ok = is_dict(state)
            || matches!(self.tree.tuple(state), Some(&[a, b]) if is_dict(a) && is_dict(b));
        ensure!(
            ok,
            Checkpoint,
            "the attributes of a tensor are not a dictionary of strings"
        );
        Ok(state)
    }

    fn of_type(
        &mut self,
        func: Value,
        class: Value,
        inner: Value,
        state: Value,
    ) -> Result<Option<Object>> {
        let class = match self.known(class) {
            Known::Tensor => TensorClass::Tensor,
            Known::Parameter => TensorClass::Parameter,
            Known::Unknown if self.tree.global(class).is_some() => return Ok(None),
            _ => bail!(Checkpoint, "a tensor whose class is no class of tensors"),
        };
        let known = self.known(func);
        let is_rebuilder = matches!(
            known,
            Known::RebuildTensor
                | Known::RebuildTensorV2
                | Known::RebuildTensorV3
                | Known::RebuildParameter
                | Known::RebuildMeta
                | Known::RebuildSparse
                | Known::RebuildNested
                | Known::RebuildQuantized
        );
        if !is_rebuilder {
            ensure!(
                known == Known::Unknown && self.tree.global(func).is_some(),
                Checkpoint,
                "a tensor made by {}",
                self.name(func)
            );
            return Ok(None);
        }
        let args = self.tree.tuple(inner).map(<[Value]>::to_vec);
        let args =
            args.ok_or_else(|| err!(Checkpoint, "the arguments of a tensor are not a tuple"))?;
        let state = self.attributes(state)?;
        let made = self.rebuild(known, &args)?;
        match made {
            Some(Object::Tensor(n)) => {
                let tensor = &mut self.tree.tensors[n as usize];
                (tensor.class, tensor.attrs) = (class, state);
            }
            Some(Object::Composite(n)) => {
                let tensor = &mut self.tree.composites[n as usize];
                (tensor.class, tensor.attrs) = (class, state);
            }
            _ => bail!(Checkpoint, "a tensor that is none"),
        }
        Ok(made)
    }
}

/// How many bytes of a storage a tensor of this layout reaches.
///
/// # Errors
/// If shape and stride differ in length or number more than 64, or a size, an offset or the count of elements
/// or bytes is negative or does not fit into 64 bits.
pub fn extent(shape: &[i64], stride: &[i64], offset: i64, dtype: DType) -> Result<u64> {
    let too_large = || {
        err!(
            Checkpoint,
            "a tensor of shape {shape:?}, stride {stride:?} and offset {offset} is impossible"
        )
    };
    ensure!(
        shape.len() == stride.len() && shape.len() <= 64,
        Checkpoint,
        "{}",
        too_large()
    );
    ensure!(
        offset >= 0 && shape.iter().chain(stride).all(|&n| n >= 0),
        Checkpoint,
        "{}",
        too_large()
    );
    if shape.contains(&0) {
        return Ok(0);
    }
    let numel = shape.iter().try_fold(1i64, |n, &s| n.checked_mul(s));
    let last = shape.iter().zip(stride).try_fold(offset, |at, (&n, &s)| {
        at.checked_add((n - 1).checked_mul(s)?)
    });
    let bytes = last
        .and_then(|at| at.checked_add(1))
        .and_then(|n| n.checked_mul(dtype.size() as i64));
    let whole = numel.and_then(|n| n.checked_mul(dtype.size() as i64));
    bytes
        .zip(whole)
        .map(|(b, _)| b as u64)
        .ok_or_else(too_large)
}
