//! Tensors and parameters, each proved to lie within its storage.

use super::{Resolver, few};
use crate::io::names::Known;
use crate::io::tree::{Composite, Data, Object, StorageRef, TensorClass, TensorRef, Value};
use crate::{DType, Result, bail, ensure, err};
use smallvec::SmallVec;
use std::sync::Arc;

impl Resolver<'_> {
    /// A tensor from the arguments of the function that makes it.
    pub(super) fn rebuild_tensor(&mut self, known: Known, args: &[Value]) -> Result<Object> {
        match (known, args) {
            (Known::RebuildTensor, &[storage, offset, size, stride]) => {
                self.plain_tensor([storage, offset, size, stride], None)
            }
            (Known::RebuildTensorV2, &[storage, offset, size, stride, grad, _, ref rest @ ..])
                if rest.len() <= 1 =>
            {
                let tensor = self.tensor(storage, offset, size, stride, None)?;
                self.finish(tensor, grad, rest.first().copied())
            }
            (
                Known::RebuildTensorV3,
                &[storage, offset, size, stride, grad, _, dtype, ref rest @ ..],
            ) if rest.len() <= 1 => {
                let dtype = self.dtype(dtype).ok_or_else(|| few(known, args))?;
                let tensor = self.tensor(storage, offset, size, stride, Some(dtype))?;
                self.finish(tensor, grad, rest.first().copied())
            }
            (Known::RebuildMeta, &[dtype, size, stride, grad]) => {
                self.meta(dtype, size, stride, grad)
            }
            (Known::RebuildSparse, &[layout, data]) => self.sparse(layout, data),
            (Known::RebuildNested, &[_, _, _, _]) => self.nested(args),
            (Known::RebuildQuantized, &[storage, offset, size, stride, params, grad, _]) => {
                self.quantized([storage, offset, size, stride, params, grad])
            }
            _ => Err(few(known, args)),
        }
    }

    fn dtype(&self, value: Value) -> Option<DType> {
        match self.tree.object(value) {
            Some(&Object::DType(dtype)) => Some(dtype),
            _ => None,
        }
    }

    fn meta(&mut self, dtype: Value, size: Value, stride: Value, grad: Value) -> Result<Object> {
        let dtype = self
            .dtype(dtype)
            .ok_or_else(|| few(Known::RebuildMeta, &[dtype]))?;
        let (shape, stride) = (self.sizes(size)?, self.sizes(stride)?);
        let storage = StorageRef {
            key: "".into(),
            dtype: Some(dtype),
            location: Arc::from("meta"),
            nbytes: extent(&shape, &stride, 0, dtype)?,
            data: Data::Meta,
            crc: None,
        };
        let storage = self.tree.push_storage(storage);
        let tensor = TensorRef::new(storage, dtype, &shape, &stride, 0);
        self.finish(tensor, grad, None)
    }

    /// A tensor that was on a device that files do not know: its values, on the host.
    pub(super) fn brought_to_host(
        &mut self,
        known: Known,
        args: &[Value],
    ) -> Result<Option<Object>> {
        let &[data, dtype, _device, grad] = args else {
            return Err(few(known, args));
        };
        let tensor = self.tree.tensor(data).ok_or_else(|| few(known, args))?;
        if self.dtype(dtype) != Some(tensor.dtype) {
            return Ok(None);
        }
        let tensor = tensor.clone();
        self.finish(tensor, grad, None).map(Some)
    }

    /// A tensor of the typed classes before PyTorch 0.4, whose state is its layout.
    pub(super) fn typed_tensor(&mut self, dtype: DType, state: Value) -> Result<Object> {
        let &[storage, offset, size, stride] = self.tree.tuple(state).unwrap_or(&[]) else {
            bail!(Checkpoint, "the state of a tensor is not of four parts")
        };
        self.plain_tensor([storage, offset, size, stride], Some(dtype))
    }

    /// A tensor with nothing besides its layout.
    fn plain_tensor(
        &mut self,
        [storage, offset, size, stride]: [Value; 4],
        dtype: Option<DType>,
    ) -> Result<Object> {
        let tensor = self.tensor(storage, offset, size, stride, dtype)?;
        Ok(self.add(tensor))
    }

    pub(super) fn add(&mut self, tensor: TensorRef) -> Object {
        self.tree.tensors.push(tensor);
        Object::Tensor((self.tree.tensors.len() - 1) as u32)
    }

    pub(super) fn sizes(&self, value: Value) -> Result<SmallVec<[i64; 8]>> {
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

    pub(super) fn tensor(
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
    pub(super) fn view(
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

    pub(super) fn finish(
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

    pub(super) fn require(tensor: &mut TensorRef, grad: bool) -> Result<()> {
        ensure!(
            !grad || tensor.dtype.is_float() || tensor.dtype.is_complex(),
            Checkpoint,
            "a {} tensor that requires grad",
            tensor.dtype
        );
        tensor.requires_grad = grad;
        Ok(())
    }

    pub(super) fn parameter(
        &mut self,
        data: Value,
        grad: Value,
        state: Value,
    ) -> Result<Option<Object>> {
        if let Some(&Object::Composite(n)) = self.tree.object(data) {
            return self.composite_parameter(n, grad, state).map(Some);
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

    fn composite_parameter(&mut self, number: u32, grad: Value, state: Value) -> Result<Object> {
        let (Value::Bool(requires_grad), attrs) = (grad, self.attributes(state)?) else {
            bail!(Checkpoint, "requires_grad of a tensor is not true or false")
        };
        let tensor = self.tree.composites[number as usize].clone();
        self.tree.composites.push(Composite {
            class: TensorClass::Parameter,
            requires_grad,
            attrs,
            ..tensor
        });
        Ok(Object::Composite((self.tree.composites.len() - 1) as u32))
    }

    /// Proves that a state is attributes of a tensor.
    pub(super) fn attributes(&self, state: Value) -> Result<Value> {
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

    pub(super) fn of_type(
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
        if !known.is_tensor() && known != Known::RebuildParameter {
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
