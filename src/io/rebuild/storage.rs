//! Persistent ids, and the tensors that carry them along: which storage is meant.

use super::{Resolver, StorageFinder, StorageRequest};
use crate::io::names::Known;
use crate::io::tree::{Id, Object, StorageRef, Value};
use crate::{DType, Result, bail, ensure, err};

impl Resolver<'_> {
    /// A tensor that the interpreter took in one step.
    pub(super) fn proto(&mut self, number: u32, find: &mut StorageFinder<'_>) -> Result<Object> {
        let proto = self.tree.protos[number as usize];
        let Known::Storage(dtype) = self.known(Value::Object(proto.class)) else {
            bail!(
                Checkpoint,
                "a persistent id that is no storage: its second item is no storage class"
            )
        };
        let size = dtype.map_or(1, DType::size) as u64;
        let nbytes = (proto.numel as u64)
            .checked_mul(size)
            .filter(|&n| i64::try_from(n).is_ok());
        let nbytes =
            nbytes.ok_or_else(|| err!(Checkpoint, "a storage of {} elements", proto.numel))?;
        let mut storages = std::mem::take(&mut self.tree.storages);
        let text = |id: Id| self.tree.str(Value::Object(id)).unwrap_or("");
        let found = find(
            &StorageRequest {
                key: text(proto.key),
                dtype,
                location: text(proto.location),
                nbytes,
                view: None,
            },
            &mut storages,
        );
        self.tree.storages = storages;
        let (storage, n) = (found?, usize::from(proto.ndim));
        let dims = &self.tree.proto_dims[proto.dims as usize..][..2 * n];
        let (shape, stride) = dims.split_at(n);
        let mut tensor = self.view(storage, shape, stride, proto.offset, dtype)?;
        Self::require(&mut tensor, proto.grad)?;
        Ok(self.add(tensor))
    }

    pub(super) fn storage(&mut self, id: Value, find: &mut StorageFinder<'_>) -> Result<Object> {
        let mut storages = std::mem::take(&mut self.tree.storages);
        let object = self.storage_in(id, find, &mut storages);
        self.tree.storages = storages;
        object
    }

    fn storage_in(
        &self,
        id: Value,
        find: &mut StorageFinder<'_>,
        storages: &mut Vec<StorageRef>,
    ) -> Result<Object> {
        let bad = |what: &str| err!(Checkpoint, "a persistent id that is no storage: {what}");
        let (tag, class, key, location, numel, view) = match self.tree.tuple(id) {
            Some(&[tag, class, _file, _source])
                if self.legacy && self.tree.str(tag) == Some("module") =>
            {
                return match self.tree.object(class) {
                    Some(&Object::Global(g)) => Ok(Object::Global(g)),
                    _ => Err(bad("a class that is none")),
                };
            }
            Some(&[tag, class, key, location, numel]) => {
                (tag, class, key, location, numel, Value::None)
            }
            Some(&[tag, class, key, location, numel, view])
                if self.legacy || view == Value::None =>
            {
                (tag, class, key, location, numel, view)
            }
            _ => return Err(bad("it is not a tuple of five")),
        };
        ensure!(
            self.tree.str(tag) == Some("storage"),
            Checkpoint,
            "{}",
            bad("it does not begin with 'storage'")
        );
        let Known::Storage(dtype) = self.known(class) else {
            return Err(bad("its second item is no storage class"));
        };
        let key = self
            .tree
            .str(key)
            .ok_or_else(|| bad("its key is no string"))?;
        let location = self
            .tree
            .str(location)
            .ok_or_else(|| bad("its location is no string"))?;
        let Value::Int(numel) = numel else {
            return Err(bad("its length is no integer"));
        };
        let size = dtype.map_or(1, DType::size) as u64;
        let nbytes = u64::try_from(numel)
            .ok()
            .and_then(|n| n.checked_mul(size))
            .filter(|&n| i64::try_from(n).is_ok());
        let nbytes = nbytes.ok_or_else(|| bad(&format!("{numel} elements are impossible")))?;
        let view = match (view, self.tree.tuple(view)) {
            (Value::None, _) => None,
            (_, Some(&[key, Value::Int(offset @ 0..), Value::Int(numel @ 0..)])) => {
                let key = self
                    .tree
                    .str(key)
                    .ok_or_else(|| bad("the key of its view is no string"))?;
                let (start, len) = (
                    (offset as u64).checked_mul(size),
                    (numel as u64).checked_mul(size),
                );
                let end = start.zip(len).and_then(|(s, l)| s.checked_add(l));
                if end.is_none_or(|end| end > nbytes) {
                    return Err(bad("its view reaches outside"));
                }
                start.zip(len).map(|(s, l)| (key, s, l))
            }
            _ => return Err(bad("its view is not of three parts")),
        };
        let number = find(
            &StorageRequest {
                key,
                dtype,
                location,
                nbytes,
                view,
            },
            storages,
        )?;
        Ok(Object::Storage(number, dtype))
    }
}
