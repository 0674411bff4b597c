//! Sparse, nested and quantised tensors: what is more than one strided view.

use super::Resolver;
use crate::dims::{contiguous_strides, storage_bytes};
use crate::io::tree::{
    Channels, Composite, CompositeKind, Object, Quant, TensorClass, TensorRef, Value,
};
use crate::parts::Compressed;
use crate::{DType, Result, bail, ensure, err};
use smallvec::SmallVec;

impl Resolver<'_> {
    /// A value that must be a strided tensor.
    fn part(&self, value: Value, what: &str) -> Result<&TensorRef> {
        self.tree
            .tensor(value)
            .ok_or_else(|| err!(Checkpoint, "the {what} of a tensor are no tensor"))
    }

    fn composite(
        &mut self,
        kind: CompositeKind,
        parts: &[Value],
        shape: SmallVec<[i64; 8]>,
    ) -> Object {
        self.tree.composites.push(Composite {
            kind,
            parts: parts.into(),
            shape,
            class: TensorClass::Tensor,
            requires_grad: false,
            attrs: Value::None,
        });
        Object::Composite((self.tree.composites.len() - 1) as u32)
    }

    /// `_rebuild_sparse_tensor(layout, (parts..., size))`.
    pub(super) fn sparse(&mut self, layout: Value, data: Value) -> Result<Object> {
        let bad = || {
            err!(
                Checkpoint,
                "the parts of a sparse tensor are not what its layout needs"
            )
        };
        let data: SmallVec<[Value; 4]> = self.tree.tuple(data).ok_or_else(bad)?.into();
        let name = match self.tree.object(layout) {
            Some(Object::Layout(_)) => self.tree.str(layout).unwrap_or(""),
            _ => bail!(Checkpoint, "the layout of a sparse tensor is no layout"),
        };
        let kind = match name.trim_start_matches("torch.") {
            "sparse_coo" => None,
            "sparse_csr" => Some(Compressed::Csr),
            "sparse_csc" => Some(Compressed::Csc),
            "sparse_bsr" => Some(Compressed::Bsr),
            "sparse_bsc" => Some(Compressed::Bsc),
            other => bail!(Checkpoint, "a sparse tensor of layout {other}"),
        };
        let (kind, parts, size) = match (kind, &data[..]) {
            (None, &[indices, values, size]) => {
                (CompositeKind::Coo(false), vec![indices, values], size)
            }
            (None, &[indices, values, size, coalesced]) => {
                let coalesced = match coalesced {
                    Value::Bool(b) => b,
                    Value::None => false,
                    _ => return Err(bad()),
                };
                (CompositeKind::Coo(coalesced), vec![indices, values], size)
            }
            (Some(kind), &[compressed, plain, values, size]) => (
                CompositeKind::Compressed(kind),
                vec![compressed, plain, values],
                size,
            ),
            _ => return Err(bad()),
        };
        for &p in &parts {
            self.part(p, "parts of a sparse")?;
        }
        let shape = self.sizes(size)?;
        Ok(self.composite(kind, &parts, shape))
    }

    /// `_rebuild_nested_tensor(buffer, sizes, strides, offsets)`.
    pub(super) fn nested(&mut self, parts: &[Value]) -> Result<Object> {
        for &p in parts {
            self.part(p, "parts of a nested")?;
        }
        let [buffer, sizes, strides, offsets] = *parts else {
            bail!(Checkpoint, "a nested tensor is not of four parts")
        };
        let (sizes, strides, offsets) = (
            self.part(sizes, "sizes")?,
            self.part(strides, "strides")?,
            self.part(offsets, "offsets")?,
        );
        let numbers = [sizes, strides, offsets]
            .iter()
            .all(|t| t.dtype == DType::I64);
        let fits = sizes.shape() == strides.shape()
            && sizes.shape().first() == offsets.shape().first()
            && offsets.shape().len() == 1
            && (sizes.shape().len() == 2 || offsets.shape() == [0]);
        ensure!(
            numbers && fits,
            Checkpoint,
            "the sizes, strides and offsets of a nested tensor do not fit one another"
        );
        self.part(buffer, "buffer")?;
        Ok(self.composite(CompositeKind::Nested, parts, SmallVec::new()))
    }

    /// `_rebuild_qtensor(storage, offset, size, stride, quantizer, requires_grad, hooks)`.
    pub(super) fn quantized(&mut self, args: [Value; 6]) -> Result<Object> {
        let [storage, offset, size, stride, params, grad] = args;
        let shape = self.sizes(size)?;
        let packed = match self.tree.object(storage) {
            Some(&Object::Storage(number, Some(dtype))) => {
                dtype.per_byte().map(|n| (number, dtype, n))
            }
            _ => None,
        };
        let mut tensor = match packed {
            Some((number, dtype, per_byte)) => {
                let stride = self.sizes(stride)?;
                ensure!(
                    offset == Value::Int(0) && stride[..] == contiguous_strides(&shape)[..],
                    Checkpoint,
                    "a quantized tensor: a part of one whose numbers share bytes"
                );
                let count = storage_bytes(&shape, &stride, 0, 1)?.div_ceil(per_byte);
                self.view(number, &[count as i64], &[1], 0, Some(dtype))?
            }
            None => self.tensor(storage, offset, size, stride, None)?,
        };
        ensure!(
            tensor.dtype.is_quantized(),
            Checkpoint,
            "a quantized tensor: a storage of {}",
            tensor.dtype
        );
        ensure!(
            grad == Value::Bool(false),
            Checkpoint,
            "a quantized tensor: it requires grad"
        );
        tensor.quant = Some(Box::new(self.quantizer(params, &shape)?));
        if packed.is_none() {
            return Ok(self.add(tensor));
        }
        let bytes = self.tree.push_tensor(tensor);
        Ok(self.composite(CompositeKind::Packed, &[bytes], shape))
    }

    /// `(scheme, scale, zero_point)` or `(scheme, scales, zero_points, axis)`.
    fn quantizer(&self, params: Value, shape: &[i64]) -> Result<Quant> {
        let bad = |what: &str| err!(Checkpoint, "a quantized tensor: {what}");
        let params = self
            .tree
            .tuple(params)
            .ok_or_else(|| bad("its quantizer is no tuple"))?;
        let scheme = params
            .first()
            .and_then(|s| self.tree.global(*s))
            .filter(|g| &*g.module == "torch")
            .map(|g| &*g.name);
        match (scheme, params.get(1..).unwrap_or(&[])) {
            (Some("per_tensor_affine" | "per_tensor_symmetric"), &[scale, Value::Int(zero)]) => {
                let scale = match scale {
                    Value::Float(f) if f.is_finite() => f,
                    Value::Int(n) => n as f64,
                    _ => return Err(bad("its scale is no number")),
                };
                Ok(Quant {
                    scale,
                    zero_point: zero,
                    channels: None,
                })
            }
            (
                Some(
                    "per_channel_affine"
                    | "per_channel_symmetric"
                    | "per_channel_affine_float_qparams",
                ),
                &[scales, zero_points, Value::Int(axis)],
            ) => {
                let channels = usize::try_from(axis)
                    .ok()
                    .and_then(|a| shape.get(a).copied());
                let dtype = |v: Value| {
                    self.tree
                        .tensor(v)
                        .filter(|t| t.shape().len() == 1 && t.shape().first().copied() == channels)
                        .map(|t| t.dtype)
                };
                // PyTorch writes both kinds under one name, and tells them apart by the zero points' type.
                let float = match (dtype(scales), dtype(zero_points)) {
                    (Some(s), Some(z)) if s.is_float() && z.is_float() => true,
                    (Some(s), Some(DType::I64)) if s.is_float() => false,
                    _ => return Err(bad("its scales and zero points do not fit its shape")),
                };
                Ok(Quant {
                    scale: 1.0,
                    zero_point: 0,
                    channels: Some(Channels {
                        scales,
                        zero_points,
                        axis,
                        float,
                    }),
                })
            }
            _ => Err(bad("an unknown quantizer")),
        }
    }
}
