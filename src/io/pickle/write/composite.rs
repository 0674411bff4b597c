//! Sparse, nested and quantised tensors, as PyTorch writes them.

use super::Writer;
use crate::dims::contiguous_strides;
use crate::io::tree::{Composite, CompositeKind, Quant, TensorClass, TensorRef, Value};
use crate::parts::Compressed;
use crate::{Result, ensure, err};

impl Writer<'_> {
    pub(super) fn composite(&mut self, c: &Composite) -> Result<()> {
        if c.kind == CompositeKind::Packed {
            let bytes = c.parts.first().and_then(|&p| self.tree.tensor(p));
            let whole = bytes.and_then(|t| Some((t, t.quant.as_deref()?)));
            let (bytes, quant) = whole.ok_or_else(|| err!(Value, "a packed tensor of nothing"))?;
            let stride = contiguous_strides(&c.shape);
            return self.quantized(bytes, quant, (&c.shape, &stride));
        }
        ensure!(
            c.attrs == Value::None,
            NotImplemented,
            "cannot save a sparse or nested tensor with Python attributes"
        );
        let parameter = c.class == TensorClass::Parameter;
        if parameter {
            self.global("torch._utils", "_rebuild_parameter")?;
            self.out.push(b'(');
        }
        let layout = match c.kind {
            CompositeKind::Coo(_) => "torch.sparse_coo",
            CompositeKind::Compressed(Compressed::Csr) => "torch.sparse_csr",
            CompositeKind::Compressed(Compressed::Csc) => "torch.sparse_csc",
            CompositeKind::Compressed(Compressed::Bsr) => "torch.sparse_bsr",
            CompositeKind::Compressed(Compressed::Bsc) => "torch.sparse_bsc",
            CompositeKind::Nested | CompositeKind::Packed => "",
        };
        if layout.is_empty() {
            self.global("torch._utils", "_rebuild_nested_tensor")?;
            self.out.push(b'(');
            self.values(&c.parts)?;
            self.out.extend_from_slice(b"tR");
        } else {
            self.global("torch._utils", "_rebuild_sparse_tensor")?;
            self.out.push(b'(');
            self.global("torch.serialization", "_get_layout")?;
            self.word(layout)?;
            self.out.extend_from_slice(b"\x85R(");
            self.values(&c.parts)?;
            self.ints(&c.shape);
            if let CompositeKind::Coo(coalesced) = c.kind {
                self.value(Value::Bool(coalesced))?;
            }
            self.out.extend_from_slice(b"ttR");
        }
        if parameter {
            self.value(Value::Bool(c.requires_grad))?;
            self.no_hooks()?;
            self.out.extend_from_slice(b"tR");
        }
        Ok(())
    }

    /// `_rebuild_qtensor`, of a tensor with this shape and stride.
    pub(super) fn quantized(
        &mut self,
        tensor: &TensorRef,
        quant: &Quant,
        (shape, stride): (&[i64], &[i64]),
    ) -> Result<()> {
        ensure!(
            tensor.attrs == Value::None && tensor.class == TensorClass::Tensor,
            NotImplemented,
            "cannot save a quantized parameter, or a quantized tensor with Python attributes"
        );
        self.global("torch._utils", "_rebuild_qtensor")?;
        self.out.push(b'(');
        self.storage(tensor.storage, Some(tensor.dtype))?;
        self.int(tensor.offset);
        self.ints(shape);
        self.ints(stride);
        self.out.push(b'(');
        match quant.channels {
            None => {
                self.global("torch", "per_tensor_affine")?;
                self.value(Value::Float(quant.scale))?;
                self.int(quant.zero_point);
            }
            Some(c) => {
                let scheme = if c.float {
                    "per_channel_affine_float_qparams"
                } else {
                    "per_channel_affine"
                };
                self.global("torch", scheme)?;
                self.value(c.scales)?;
                self.value(c.zero_points)?;
                self.int(c.axis);
            }
        }
        self.out.push(b't');
        self.value(Value::Bool(false))?;
        self.no_hooks()?;
        self.out.extend_from_slice(b"tR");
        Ok(())
    }
}
