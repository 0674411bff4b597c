//! Copying a value from one tree into another.

use super::tree::{CallExtra, Composite, Id, Object, TensorRef, Tree, Value};
use crate::{Result, ensure, err};
use std::collections::HashMap;

/// Copies values of a tree into another; what is shared stays shared within one grafter.
pub(super) struct Graft<'a> {
    from: &'a Tree,
    made: HashMap<Id, Value>,
    /// The number in the new tree of each storage that was met.
    storages: HashMap<u32, u32>,
    depth: u16,
}

impl<'a> Graft<'a> {
    pub(super) fn new(from: &'a Tree) -> Self {
        Self {
            from,
            made: HashMap::new(),
            storages: HashMap::new(),
            depth: 0,
        }
    }

    /// The value in `to`; `storage` makes a storage there for one of this tree.
    ///
    /// # Errors
    /// If the value is nested too deep, or is a call without a meaning.
    pub(super) fn copy(
        &mut self,
        value: Value,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Value> {
        let Value::Object(id) = value else {
            return Ok(value);
        };
        if let Some(&done) = self.made.get(&id) {
            return Ok(done);
        }
        self.depth += 1;
        // Trees are proved to be less deep than this, so it only guards the stack.
        ensure!(
            self.depth <= super::MAX_DEPTH,
            Checkpoint,
            "objects nested too deep"
        );
        let made = self.object(id, to, storage)?;
        self.depth -= 1;
        self.made.insert(id, made);
        Ok(made)
    }

    fn all(
        &mut self,
        values: &[Value],
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Vec<Value>> {
        values.iter().map(|&v| self.copy(v, to, storage)).collect()
    }

    fn pairs(
        &mut self,
        pairs: &[(Value, Value)],
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Vec<(Value, Value)>> {
        let mut copies = Vec::with_capacity(pairs.len());
        for &(k, v) in pairs {
            copies.push((self.copy(k, to, storage)?, self.copy(v, to, storage)?));
        }
        Ok(copies)
    }

    fn object(
        &mut self,
        id: Id,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Value> {
        let from = self.from;
        let value = Value::Object(id);
        let object = from
            .object(value)
            .copied()
            .ok_or_else(|| err!(Checkpoint, "a reference to no object"))?;
        Ok(match object {
            Object::Tuple(_) => {
                let items = self.all(from.items(value).unwrap_or(&[]), to, storage)?;
                to.push_items(Object::Tuple, &items)
            }
            Object::Size(_) => {
                let items = self.all(from.items(value).unwrap_or(&[]), to, storage)?;
                to.push_items(Object::Size, &items)
            }
            Object::List(_) => self.list(id, Object::List, to, storage)?,
            Object::Set(_) => self.list(id, Object::Set, to, storage)?,
            Object::FrozenSet(_) => self.list(id, Object::FrozenSet, to, storage)?,
            Object::Dict(_) => self.dict(id, Object::Dict, to, storage)?,
            Object::OrderedDict(_) => self.dict(id, Object::OrderedDict, to, storage)?,
            Object::Counter(_) => self.dict(id, Object::Counter, to, storage)?,
            Object::Storage(n, dtype) => {
                let n = self.storage(n, to, storage);
                to.push(Object::Storage(n, dtype))
            }
            Object::Tensor(n) => self.tensor(&from.tensors[n as usize], to, storage)?,
            Object::Composite(n) => {
                let c = &from.composites[n as usize];
                let parts = self.all(&c.parts, to, storage)?;
                let attrs = self.copy(c.attrs, to, storage)?;
                to.push_composite(Composite {
                    parts: parts.into(),
                    attrs,
                    ..c.clone()
                })
            }
            Object::Call(_) => self.call(id, to, storage)?,
            Object::PersistentId(_) | Object::Proto(_) => {
                return Err(err!(Checkpoint, "a persistent id without a meaning"));
            }
            plain => self.plain(value, plain, to),
        })
    }

    /// An object without other objects in it.
    fn plain(&self, value: Value, object: Object, to: &mut Tree) -> Value {
        let from = self.from;
        let text = from.str(value).unwrap_or("");
        let bytes = from.bytes(value).unwrap_or(&[]);
        match object {
            Object::Str(_) => to.push_str(text),
            Object::Device(_) => to.push_text(Object::Device, text),
            Object::Layout(_) => to.push_text(Object::Layout, text),
            Object::Surrogates(_) => to.push_bytes(Object::Surrogates, bytes),
            Object::BigInt(_) => to.push_bytes(Object::BigInt, bytes),
            Object::Bytes(_) => to.push_bytes(Object::Bytes, bytes),
            Object::ByteArray(_) => to.push_bytes(Object::ByteArray, bytes),
            Object::Complex(_) => {
                let (re, im) = from.complex(value).unwrap_or_default();
                to.push_items(Object::Complex, &[Value::Float(re), Value::Float(im)])
            }
            Object::Global(n) => {
                let g = &from.globals[n as usize];
                to.push_global(&g.module, &g.name)
            }
            // A dtype is all there is to it.
            same => to.push(same),
        }
    }

    fn list(
        &mut self,
        id: Id,
        kind: fn(u32) -> Object,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Value> {
        let number = to.add_list(Vec::new());
        let made = to.push(kind(number));
        // Known before its items are, which may refer back to it.
        self.made.insert(id, made);
        let items = self.from.items(Value::Object(id)).unwrap_or(&[]);
        let items = self.all(items, to, storage)?;
        to.lists[number as usize] = items;
        Ok(made)
    }

    fn dict(
        &mut self,
        id: Id,
        kind: fn(u32) -> Object,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Value> {
        let from = self.from;
        let number = to.add_dict(Vec::new());
        let made = to.push(kind(number));
        self.made.insert(id, made);
        let pairs = from.pairs(Value::Object(id)).unwrap_or(&[]);
        let pairs = self.pairs(pairs, to, storage)?;
        to.dicts[number as usize] = pairs;
        if let (Some(&attrs), Value::Object(new)) = (from.attrs.get(&id), made) {
            let attrs = self.copy(attrs, to, storage)?;
            to.attrs.insert(new, attrs);
        }
        Ok(made)
    }

    fn tensor(
        &mut self,
        t: &TensorRef,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Value> {
        let mut quant = t.quant.clone();
        if let Some(channels) = quant.as_mut().and_then(|q| q.channels.as_mut()) {
            channels.scales = self.copy(channels.scales, to, storage)?;
            channels.zero_points = self.copy(channels.zero_points, to, storage)?;
        }
        let tensor = TensorRef {
            storage: self.storage(t.storage, to, storage),
            attrs: self.copy(t.attrs, to, storage)?,
            quant,
            ..t.clone()
        };
        Ok(to.push_tensor(tensor))
    }

    fn call(
        &mut self,
        id: Id,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> Result<Value> {
        let call = self
            .from
            .call(Value::Object(id))
            .ok_or_else(|| err!(Checkpoint, "a reference to no call"))?;
        let func = self.copy(call.func, to, storage)?;
        let args = self.copy(call.args, to, storage)?;
        let kwargs = self.copy(call.kwargs, to, storage)?;
        let made = to.push_call(super::tree::Call {
            kind: call.kind,
            func,
            args,
            kwargs,
            extra: None,
        });
        self.made.insert(id, made);
        if let Some(extra) = call.extra.as_deref() {
            let extra = CallExtra {
                items: self.all(&extra.items, to, storage)?,
                states: self.all(&extra.states, to, storage)?,
                pairs: self.pairs(&extra.pairs, to, storage)?,
            };
            if let Some(Object::Call(n)) = to.object(made).copied() {
                to.calls[n as usize].extra = Some(Box::new(extra));
            }
        }
        Ok(made)
    }

    fn storage(
        &mut self,
        number: u32,
        to: &mut Tree,
        storage: &mut dyn FnMut(u32, &mut Tree) -> u32,
    ) -> u32 {
        if let Some(&n) = self.storages.get(&number) {
            return n;
        }
        let n = storage(number, to);
        self.storages.insert(number, n);
        n
    }
}
