//! Tensors of a tree that is to be saved: their layouts, classes, attributes and parts.

use super::Saver;
use crate::io::tree::{Channels, Composite, CompositeKind, Quant};
use crate::io::{TensorClass, TensorRef, Value};
use crate::parts::Parts;
use crate::plan::ViewPlan;
use crate::py::class::{is_fake_class, is_tensor_class};
use crate::py::object::{PyTensor, parameter};
use crate::py::parts::located;
use crate::{DType, Result, Tensor, err};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use smallvec::SmallVec;

impl<'py> Saver<'py> {
    /// The attributes of a tensor that are saved with it.
    fn attributes(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let attrs = o.getattr("__dict__")?;
        let attrs = attrs.cast::<PyDict>()?.copy()?;
        if o.get_type().is(&self.classes.buffer) {
            attrs.set_item("_is_buffer", true)?;
        }
        if attrs.is_empty() {
            return Ok(Value::None);
        }
        self.temporary(attrs.into_any(), depth)
    }

    pub(super) fn tensor(&mut self, o: &Bound<'py, PyAny>, depth: usize) -> PyResult<Value> {
        let t = PyTensor::of(o)?.get().clone();
        // A tensor of a class of the user's: a call that makes a tensor and gives it the class
        let Some(class) = self.class(o)? else {
            return self.reduced(o, depth);
        };
        if t.requires_grad() && matches!(class, TensorClass::Tensor) {
            let hooks = o.py().import("torchlike.utils.hooks")?;
            hooks.call_method1("warn_if_has_hooks", (o,))?;
        }
        let attrs = self.attributes(o, depth)?;
        let parts = t.storage().parts();
        if t.dtype().is_quantized() && located(&t).is_meta() {
            return Err(err!(
                NotImplemented,
                "save(): a quantized tensor on meta cannot be saved without its data"
            )
            .into());
        }
        if let Some(parts) = parts.as_deref().filter(|p| p.is_opaque()) {
            let (kind, parts) = self.parts(parts)?;
            let shape = t.shape().iter().copied();
            return Ok(self.tree.push_composite(Composite {
                kind,
                parts,
                shape: shape.collect(),
                class,
                requires_grad: t.requires_grad(),
                attrs,
            }));
        }
        let mut r = self.plain(&t);
        r.quant = parts.as_deref().and_then(|p| self.quantizer(p));
        r.class = class;
        r.attrs = attrs;
        Ok(self.tree.push_tensor(r))
    }

    /// The class under which PyTorch's functions make a tensor; none for classes of the user's.
    fn class(&self, o: &Bound<'py, PyAny>) -> PyResult<Option<TensorClass>> {
        let class = o.get_type();
        Ok(if is_parameter(&class)? {
            Some(TensorClass::Parameter)
        } else if is_tensor_class(class.as_type_ptr())
            || class.is(&self.classes.buffer)
            || self.fakes && is_fake_class(class.as_type_ptr())
        {
            Some(TensorClass::Tensor)
        } else {
            None
        })
    }

    fn quantizer(&mut self, parts: &Parts) -> Option<Box<Quant>> {
        let quant = match parts {
            Parts::PerTensor { scale, zero_point } => Quant {
                scale: *scale,
                zero_point: *zero_point,
                channels: None,
            },
            Parts::PerChannel {
                scales,
                zero_points,
                axis,
                float_zero_points,
            } => {
                let (scales, zero_points) = (self.plain(scales), self.plain(zero_points));
                let channels = Channels {
                    scales: self.tree.push_tensor(scales),
                    zero_points: self.tree.push_tensor(zero_points),
                    axis: *axis,
                    float: *float_zero_points,
                };
                Quant {
                    scale: 1.0,
                    zero_point: 0,
                    channels: Some(channels),
                }
            }
            _ => return None,
        };
        Some(Box::new(quant))
    }

    /// A tensor by its layout and storage alone.
    fn plain(&mut self, t: &Tensor) -> TensorRef {
        let storage = self.storage(t.storage(), t.dtype());
        let mut r = TensorRef::new(storage, t.dtype(), t.shape(), t.strides(), t.offset());
        r.requires_grad = t.requires_grad();
        r.conj = t.is_conj();
        r.neg = t.is_neg();
        r
    }

    /// What a sparse or packed tensor is made of.
    fn parts(&mut self, parts: &Parts) -> Result<(CompositeKind, SmallVec<[Value; 4]>)> {
        let (kind, tensors) = match parts {
            Parts::Coo {
                indices,
                values,
                coalesced,
            } => (
                CompositeKind::Coo(*coalesced),
                vec![indices.clone(), values.clone()],
            ),
            Parts::Compressed {
                kind,
                compressed,
                plain,
                values,
            } => (
                CompositeKind::Compressed(*kind),
                vec![compressed.clone(), plain.clone(), values.clone()],
            ),
            Parts::Packed {
                bytes,
                dtype,
                quantizer,
            } => return Ok((CompositeKind::Packed, self.packed(bytes, *dtype, quantizer))),
            Parts::PerTensor { .. } | Parts::PerChannel { .. } => {
                return Err(err!(Runtime, "a quantized tensor is no composite"));
            }
        };
        let mut values = SmallVec::new();
        for t in tensors {
            let r = self.plain(&t);
            values.push(self.tree.push_tensor(r));
        }
        Ok((kind, values))
    }

    /// Quantised numbers that share bytes.
    fn packed(&mut self, bytes: &Tensor, dtype: DType, quantizer: &Parts) -> SmallVec<[Value; 4]> {
        let (shape, strides) = (bytes.shape().clone(), bytes.strides().clone());
        let typed = ViewPlan::reinterpret(dtype, shape, strides, bytes.offset());
        let mut r = self.plain(&bytes.look(&typed));
        r.quant = self.quantizer(quantizer);
        let packed = self.tree.push_tensor(r);
        SmallVec::from_slice(&[packed])
    }
}

/// True for `Parameter`, and for classes derived from it that take themselves apart as it does: they come back as it.
fn is_parameter(class: &Bound<'_, PyType>) -> PyResult<bool> {
    let base = parameter(class.py())?;
    if class.is(base) || !class.is_subclass(base)? {
        return Ok(class.is(base));
    }
    let how = intern!(class.py(), "__reduce_ex__");
    class.getattr(how)?.eq(base.getattr(how)?)
}
