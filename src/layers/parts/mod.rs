//! The few calls that sparse and quantised tensors answer by their parts; all others refuse them by name.

mod elements;
mod factories;
mod index;
mod quantized;
mod results;
mod sparse;

use super::{Layer, Next};
use crate::ops::core::args::Args;
use crate::ops::core::op::{Body, Ret, Value};
use crate::ops::sparse::{is_sparse, knows};
use crate::ops::{Call, Form};
use crate::parts::{Parts, integers};
use crate::{DType, Error, MemoryFormat, Result, Scalar, Tensor, ensure, err};
use std::sync::Arc;

/// Answers calls with sparse and quantised tensors among their arguments.
pub struct PartsLayer;

impl Layer for PartsLayer {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let name = c.args.op.def.name;
        if matches!(name, "detach#inplace" | "resize_as") || knows(name) {
            return next.call(c);
        }
        match c.form {
            Form::New => match run(c.args)? {
                Some(done) => Ok(done),
                None => next.call(c),
            },
            Form::InPlace(target) | Form::Within(target) => results::over(c.args, target),
            Form::Out(outs) => results::into(c.args, outs, next),
        }
    }
}

/// A call with a sparse tensor among its arguments.
fn among_sparse(args: &Args) -> Result<Option<Ret>> {
    if let Some(made) = self::sparse::answer(args)? {
        return Ok(Some(made));
    }
    match args.op.def.body {
        Body::Compose(_) | Body::Forward(_) => Ok(None),
        Body::View(_) | Body::Kernel(_) | Body::Become(_) => Err(refusal(args)),
    }
}

/// Runs a call among whose arguments is a sparse or quantised tensor. `None`: the op's own function may, since
/// all it does is to call others.
///
/// # Errors
/// That the op is not for such tensors, and what to do.
#[cold]
pub fn run(args: &Args) -> Result<Option<Ret>> {
    if let Some(made) = factories::answer(args)? {
        return Ok(Some(made));
    }
    if let Some(made) = quantized_among(args)? {
        return Ok(Some(made));
    }
    let first = args.tensor(0).ok().filter(|t| t.has_parts());
    let parts = first.and_then(|t| t.storage().parts());
    let (Some(t), Some(parts)) = (first, parts) else {
        let mut any = false;
        args.for_each_tensor(|_, t| any |= is_sparse(t));
        return if any {
            among_sparse(args)
        } else {
            go_on(args, true)
        };
    };
    match (args.op.def.name, &*parts) {
        ("numel", _) => Ok(Ret::Value(Value::Scalar(Scalar::Int(t.numel())))),
        ("detach" | "alias", _) => Ok(Ret::One(t.look(&crate::plan::ViewPlan::of(t).detached()))),
        ("clone", _) => {
            let format = args.format(1).unwrap_or(MemoryFormat::Preserve);
            ensure!(
                format == MemoryFormat::Preserve || !is_sparse(t),
                Runtime,
                "unsupported memory format option {format:?}"
            );
            let format = match format {
                MemoryFormat::Preserve if !parts.is_opaque() => MemoryFormat::Contiguous,
                other => other,
            };
            rebuilt(t, &parts, t.dtype(), |p, _| {
                let own = p.shape() == t.shape() || parts.is_opaque();
                let format = if own { format } else { MemoryFormat::Preserve };
                crate::ops::core::helpers::clone(p, format)
            })
            .map(Ret::One)
        }
        ("_to_copy", parts) => {
            let dtype = args.dtype(1).unwrap_or(t.dtype());
            let device = args.device(2).unwrap_or(crate::parts::located(t));
            // Quantised numbers and others are no casts of one another.
            if dtype != t.dtype() && (dtype.is_quantized() || t.dtype().is_quantized()) {
                return Err(refusal(args));
            }
            let format = args.format(3).filter(|_| !parts.is_opaque());
            let part = |p: &Tensor, values| {
                let dtype = if values { dtype } else { p.dtype() };
                let made = crate::ops::f::_ToCopy::new(p).dtype(dtype).device(device);
                match format.filter(|_| p.shape() == t.shape()) {
                    Some(format) => made.memory_format(format).call(),
                    None => made.call(),
                }
            };
            rebuilt(t, parts, dtype, part).map(Ret::One)
        }
        (name, _) if is_conversion(name) => return Ok(None),
        // Any view of a tensor with one quantizer has the same.
        (_, Parts::PerTensor { .. }) => return go_on(args, false),
        (_, Parts::PerChannel { .. }) => return go_on(args, true),
        (_, Parts::Coo { .. } | Parts::Compressed { .. }) => return among_sparse(args),
        _ => Err(refusal(args)),
    }
    .map(Some)
}

/// What a call with quantised tensors among its arguments gives, if that is known.
fn quantized_among(args: &Args) -> Result<Option<Ret>> {
    let mut any = false;
    args.for_each_tensor(|_, t| any |= t.dtype().is_quantized());
    if any {
        quantized::answer(args)
    } else {
        Ok(None)
    }
}

/// Lets what is composed of other calls go on, and views unless they could move the dimension of the channels.
fn go_on(args: &Args, channels: bool) -> Result<Option<Ret>> {
    match args.op.def.body {
        Body::Compose(_) | Body::Forward(_) => Ok(None),
        Body::View(_) if !channels => Ok(None),
        Body::View(_) => Err(channels_stay()),
        Body::Kernel(_) | Body::Become(_) => Err(refusal(args)),
    }
}

/// That an op is not for sparse and quantised tensors.
#[cold]
#[must_use]
pub fn refusal(args: &Args) -> Error {
    let mut what = "quantized";
    args.for_each_tensor(|_, t| {
        if t.has_parts() {
            what = described(t);
        }
    });
    not_for(args.name().trim_start_matches('_'), what)
}

fn described(t: &Tensor) -> &'static str {
    t.storage().parts().map_or("quantized", |p| p.describe())
}

/// Checks that a tensor's elements may be read or written as its strides say.
///
/// # Errors
/// That sparse and quantised tensors may not, and what to do.
pub fn check_plain(t: &Tensor, name: &str) -> Result<()> {
    if t.has_parts() {
        return Err(not_for(name, described(t)));
    }
    Ok(())
}

/// Checks that a tensor may be viewed with other sizes and strides.
///
/// # Errors
/// That sparse tensors may not, nor those whose channels have quantizers of their own.
pub fn check_view(t: &Tensor, name: &str) -> Result<()> {
    match t.storage().parts().as_deref() {
        Some(Parts::PerChannel { .. }) if t.dtype().is_quantized() => Err(channels_stay()),
        Some(parts) if parts.is_opaque() => Err(not_for(name, parts.describe())),
        _ => Ok(()),
    }
}

fn channels_stay() -> Error {
    err!(
        Runtime,
        "Setting strides is possible only on uniformly quantized tensors"
    )
}

fn not_for(name: &str, what: &str) -> Error {
    let way = match what {
        "quantized" => "dequantize()",
        _ => "to_dense()",
    };
    err!(
        NotImplemented,
        "{name}() is not computed for {what} tensors; call {way} first"
    )
}

/// True for what ends in `_to_copy`.
fn is_conversion(name: &str) -> bool {
    crate::ops::cast::OPS.iter().any(|op| op.name == name)
}

/// The same quantizer with other scales and zero points.
fn quantizer_with(
    quantizer: &Parts,
    mut f: impl FnMut(&Tensor) -> Result<Tensor>,
) -> Result<Parts> {
    Ok(match quantizer {
        Parts::PerChannel {
            scales,
            zero_points,
            axis,
            float_zero_points,
        } => Parts::PerChannel {
            scales: f(scales)?,
            zero_points: f(zero_points)?,
            axis: *axis,
            float_zero_points: *float_zero_points,
        },
        other => other.clone(),
    })
}

/// The same tensor with other parts: `f` gets each, and whether it is the values (of this dtype afterwards).
///
/// # Errors
/// What the function reports.
pub fn rebuilt(
    t: &Tensor,
    parts: &Parts,
    dtype: DType,
    mut f: impl FnMut(&Tensor, bool) -> Result<Tensor>,
) -> Result<Tensor> {
    if !parts.is_opaque() {
        let made = f(&integers(t)?, false)?;
        made.storage()
            .set_parts(Some(Arc::new(quantizer_with(parts, |p| f(p, false))?)));
        let layout = (made.shape().clone(), made.strides().clone());
        return Ok(made.look(&crate::plan::ViewPlan::reinterpret(
            t.dtype(),
            layout.0,
            layout.1,
            made.offset(),
        )));
    }
    let parts = match parts {
        Parts::Coo {
            indices,
            values,
            coalesced,
        } => Parts::Coo {
            indices: f(indices, false)?,
            values: f(values, true)?,
            coalesced: *coalesced,
        },
        Parts::Compressed {
            kind,
            compressed,
            plain,
            values,
        } => Parts::Compressed {
            kind: *kind,
            compressed: f(compressed, false)?,
            plain: f(plain, false)?,
            values: f(values, true)?,
        },
        Parts::Packed {
            bytes,
            dtype,
            quantizer,
        } => Parts::Packed {
            bytes: f(bytes, false)?,
            dtype: *dtype,
            quantizer: Box::new(quantizer_with(quantizer, |p| f(p, false))?),
        },
        other => quantizer_with(other, |p| f(p, false))?,
    };
    Ok(parts
        .into_tensor(t.shape(), dtype)?
        .with_requires_grad(t.requires_grad() && (dtype.is_float() || dtype.is_complex())))
}
