//! The few calls that sparse, nested and quantised tensors answer by their parts; all others refuse them by name.

use super::args::Args;
use super::op::{Body, Ret, Value};
use crate::parts::Parts;
use crate::{DType, Device, Error, MemoryFormat, Result, Scalar, Tensor, bail, err};
use std::sync::Arc;

/// Runs a call among whose arguments is a sparse, nested or quantised tensor. `None`: the op's own function may, since
/// all it does is to call others.
///
/// # Errors
/// That the op is not for such tensors, and what to do.
#[cold]
pub fn run(args: &Args) -> Result<Option<Ret>> {
    let first = args.tensor(0).ok();
    let parts = first.and_then(|t| t.storage().parts());
    let (Some(t), Some(parts)) = (first, parts) else {
        return Err(refusal(args));
    };
    let same = |dtype: Option<DType>| dtype.is_none_or(|d| d == t.dtype());
    match (args.op.def.name, &*parts) {
        ("unbind", Parts::Nested { .. }) if args.int(1).unwrap_or(0) == 0 => {
            components(&parts).map(Ret::Tuple)
        }
        ("numel", parts) => Ok(Ret::Value(Value::Scalar(Scalar::Int(numel(t, parts))))),
        ("detach" | "alias", _) => Ok(Ret::One(t.detach())),
        ("clone", _) => {
            let format = args.format(1).unwrap_or(MemoryFormat::Preserve);
            rebuilt(t, &parts, |p| super::call::clone(p, format)).map(Ret::One)
        }
        ("_to_copy", _) if same(args.dtype(1)) => {
            moved(t, &parts, args.device(2).unwrap_or(Device::CPU)).map(Ret::One)
        }
        ("to#device", parts) if parts.is_opaque() && same(args.dtype(2)) => {
            let device = args.device(1).unwrap_or(parts.device());
            located(t, parts, device, args.bool(4))
        }
        ("cpu", parts) if parts.is_opaque() => located(t, parts, Device::CPU, false),
        ("cuda", parts) if parts.is_opaque() => {
            located(t, parts, args.device(1).unwrap_or(Device::cuda(0)), false)
        }
        // Any view of a tensor with one quantizer has the same.
        (_, Parts::PerTensor { .. }) => return go_on(args, false),
        (_, Parts::PerChannel { .. }) => return go_on(args, true),
        _ => Err(refusal(args)),
    }
    .map(Some)
}

/// Lets what is composed of other calls go on, and views unless they could move the dimension of the channels.
fn go_on(args: &Args, channels: bool) -> Result<Option<Ret>> {
    match args.op.def.body {
        Body::Compose(_) => Ok(None),
        Body::View(_) if !channels => Ok(None),
        Body::View(_) => Err(channels_stay()),
        Body::Kernel(_) => Err(refusal(args)),
    }
}

/// That an op is not for sparse, nested and quantised tensors.
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
/// That sparse, nested and quantised tensors may not, and what to do.
pub fn check_plain(t: &Tensor, name: &str) -> Result<()> {
    if t.has_parts() {
        return Err(not_for(name, described(t)));
    }
    Ok(())
}

/// Checks that a tensor may be viewed with other sizes and strides.
///
/// # Errors
/// That sparse and nested tensors may not, nor those whose channels have quantizers of their own.
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
        "nested" => "unbind()",
        _ => "to_dense()",
    };
    err!(
        NotImplemented,
        "{name}(): {what} tensors are loaded, saved and taken apart, and not computed with; call {way} first"
    )
}

fn numel(t: &Tensor, parts: &Parts) -> i64 {
    match parts {
        Parts::Nested { sizes, .. } => sizes.iter().map(|s| s.iter().product::<i64>()).sum(),
        _ => t.numel(),
    }
}

/// The tensor itself if it is there already, unless a copy is asked for.
fn located(t: &Tensor, parts: &Parts, device: Device, copy: bool) -> Result<Ret> {
    if !copy && device.canonical() == parts.device() {
        return Ok(Ret::One(t.clone()));
    }
    moved(t, parts, device).map(Ret::One)
}

fn moved(t: &Tensor, parts: &Parts, device: Device) -> Result<Tensor> {
    rebuilt(t, parts, |p| super::call::to_copy(p, p.dtype(), device))
}

/// The tensors of a nested tensor, as views of its buffer.
fn components(parts: &Parts) -> Result<Vec<Tensor>> {
    let Parts::Nested {
        buffer,
        sizes,
        strides,
        offsets,
    } = parts
    else {
        return Err(err!(Runtime, "expected a nested tensor"));
    };
    Ok((0..offsets.len())
        .map(|i| {
            let at = buffer.offset() + offsets[i];
            buffer.view_with(sizes[i][..].into(), strides[i][..].into(), at)
        })
        .collect())
}

/// The integers of a quantised tensor, on its own memory.
///
/// # Errors
/// If there is not one for each element.
pub fn integers(t: &Tensor) -> Result<Tensor> {
    let dtype = match t.dtype() {
        DType::QI8 => DType::I8,
        DType::QU8 => DType::U8,
        DType::QI32 => DType::I32,
        other => bail!(Runtime, "int_repr(): {other} is no quantized dtype"),
    };
    Ok(t.reinterpret(dtype, t.shape().clone(), t.strides().clone(), t.offset()))
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

/// The same tensor with other parts.
///
/// # Errors
/// What the function reports.
pub fn rebuilt(
    t: &Tensor,
    parts: &Parts,
    mut f: impl FnMut(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    if !parts.is_opaque() {
        let made = f(&integers(t)?)?;
        made.storage()
            .set_parts(Some(Arc::new(quantizer_with(parts, f)?)));
        let layout = (made.shape().clone(), made.strides().clone());
        return Ok(made.reinterpret(t.dtype(), layout.0, layout.1, made.offset()));
    }
    let parts = match parts {
        Parts::Coo {
            indices,
            values,
            coalesced,
        } => Parts::Coo {
            indices: f(indices)?,
            values: f(values)?,
            coalesced: *coalesced,
        },
        Parts::Compressed {
            kind,
            compressed,
            plain,
            values,
        } => Parts::Compressed {
            kind: *kind,
            compressed: f(compressed)?,
            plain: f(plain)?,
            values: f(values)?,
        },
        Parts::Nested {
            buffer,
            sizes,
            strides,
            offsets,
        } => Parts::Nested {
            buffer: f(buffer)?,
            sizes: sizes.clone(),
            strides: strides.clone(),
            offsets: offsets.clone(),
        },
        Parts::Packed {
            bytes,
            dtype,
            quantizer,
        } => Parts::Packed {
            bytes: f(bytes)?,
            dtype: *dtype,
            quantizer: Box::new(quantizer_with(quantizer, f)?),
        },
        other => quantizer_with(other, f)?,
    };
    Ok(parts
        .into_tensor(t.shape(), t.dtype())?
        .with_requires_grad(t.requires_grad()))
}
