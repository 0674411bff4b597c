//! Where the results of a kernel go: fresh tensors, argument 0, or tensors that the caller gave.

use crate::fake::FakeMode;
use crate::ops::core::args::Args;
use crate::ops::core::call::{Call, Form};
use crate::ops::core::op::{K, P, R, Ret, Traits, Value, X};
use crate::ops::core::plan::{OutSpec, Plan};
use crate::ops::core::writable::{
    check_exact, check_operand, check_overlap, check_result, check_whole, for_each_written,
};
use crate::ops::core::{dispatch, helpers, misfit, scratch};
use crate::{Device, Dims, Result, Storage, Tensor, bail, dims, op};
use smallvec::SmallVec;
use std::sync::Arc;

/// How results may be placed.
#[derive(Clone, Copy)]
pub struct Placing<'a> {
    /// What the kernel promises.
    pub traits: &'a Traits,
    /// Where results are made.
    pub device: Device,
    /// Whether results are marked as made in inference mode.
    pub inference: bool,
    /// Whether a kernel may fill the caller's tensors themselves.
    pub direct_out: bool,
    /// The fake mode that makes results, if one does.
    pub fake: Option<&'a Arc<FakeMode>>,
}

/// Fills results; the second argument says that they hold argument 0's elements before.
pub type Fill<'f> = dyn FnMut(&[Tensor], bool) -> Result<()> + 'f;

/// Makes or finds the results that a plan describes and has them filled.
///
/// # Errors
/// If memory cannot be had, a target does not fit, or the kernel fails.
#[inline]
pub fn place(
    args: &Args,
    how: &Placing,
    plan: &mut Plan,
    form: Form,
    fill: &mut Fill,
) -> Result<Ret> {
    let counted = !matches!(form, Form::Within(_));
    match form {
        Form::New if how.traits.mutates != 0 => {
            fill(&[], true)?;
            for_each_written(args, how.traits, |t| t.bump());
            Ok(Ret::Value(Value::None))
        }
        Form::New => fresh(how, plan, fill),
        Form::InPlace(target) | Form::Within(target) => {
            let Some(spec) = plan.outs.drain(..).next() else {
                bail!(Runtime, "{} has no result", args.name())
            };
            if how.traits.grows && *target.shape() != spec.shape {
                return grown(args, how, spec, target, fill);
            }
            in_place(args, how, spec, target, fill)?;
            if counted {
                target.bump();
            }
            Ok(Ret::Same(0))
        }
        Form::Out(outs) => {
            into_outs(args, how, plan, outs, fill)?;
            outs.iter().for_each(|o| o.bump());
            Ok(Ret::Tuple(Vec::new()))
        }
    }
}

/// New results.
#[inline]
fn fresh(how: &Placing, plan: &mut Plan, fill: &mut Fill) -> Result<Ret> {
    if plan.outs.len() == 1
        && let Some(spec) = plan.outs.pop()
    {
        let made = Ret::One(allocate(spec, how)?);
        if let Ret::One(out) = &made {
            fill(std::slice::from_ref(out), false)?;
            if how.traits.blank {
                out.storage().leave_blank();
            }
        }
        return Ok(made);
    }
    let outs = plan.outs.drain(..).map(|spec| allocate(spec, how));
    let outs = outs.collect::<Result<Vec<_>>>()?;
    fill(&outs, false)?;
    Ok(Ret::Tuple(outs))
}

/// An in-place result of another shape, which the tensor takes.
fn grown(
    args: &Args,
    how: &Placing,
    spec: OutSpec,
    target: &Tensor,
    fill: &mut Fill,
) -> Result<Ret> {
    misfit::in_place(args, spec.dtype, target.dtype())?;
    let fresh = aside(spec, how)?;
    fill(std::slice::from_ref(&fresh), false)?;
    let mut larger = target.clone();
    resize(&mut larger, fresh.shape(), None)?;
    copy_inside(&larger, &fresh)?;
    larger.bump();
    Ok(Ret::Become(Box::new(larger)))
}

fn in_place(
    args: &Args,
    how: &Placing,
    spec: OutSpec,
    target: &Tensor,
    fill: &mut Fill,
) -> Result<()> {
    let direct = writable_directly(args, how.traits, target)?;
    if args.op.has(X) && !how.traits.pointwise {
        check_whole(target, &spec.shape)?;
    }
    check_result(args, target, &spec.shape, spec.dtype)?;
    check_exact(args, target, spec.dtype)?;
    if spec.dtype == target.dtype() && (how.traits.lazy_aware || !target.is_lazy()) && direct {
        return fill(std::slice::from_ref(target), true);
    }
    let fresh = aside(spec, how)?;
    fill(std::slice::from_ref(&fresh), false)?;
    copy_inside(target, &fresh)
}

fn into_outs(
    args: &Args,
    how: &Placing,
    plan: &mut Plan,
    outs: &mut [Tensor],
    fill: &mut Fill,
) -> Result<()> {
    for (nr, (out, spec)) in outs.iter_mut().zip(&plan.outs).enumerate() {
        if how.traits.pointwise && *out.shape() != spec.shape {
            check_operand(args, out, &spec.shape)?;
        }
        prepare_out(args, nr, out, spec, how.device)?;
    }
    let mut direct = how.direct_out;
    for (out, spec) in outs.iter().zip(&plan.outs) {
        direct &= writable_directly(args, how.traits, out)? && out.dtype() == spec.dtype;
    }
    if direct {
        return fill(outs, false);
    }
    let fresh = plan
        .outs
        .drain(..)
        .map(|spec| aside(spec, how))
        .collect::<Result<SmallVec<[Tensor; 3]>>>()?;
    fill(&fresh, false)?;
    for (out, result) in outs.iter().zip(&fresh) {
        copy_inside(out, result)?;
    }
    Ok(())
}

/// Copies a result to its place: part of the call that made it, so nobody but the recording sees it.
fn copy_inside(target: &Tensor, result: &Tensor) -> Result<()> {
    let args = Args::new(op!("copy")?, [target.into(), result.into()])?;
    let form = Form::Within(target);
    helpers::inside(|| dispatch::call(Call { args: &args, form }))?;
    Ok(())
}

/// A pointwise kernel may write over an operand of exactly the same layout; any other shared memory needs a detour,
/// or is refused.
fn writable_directly(args: &Args, traits: &Traits, target: &Tensor) -> Result<bool> {
    let (mut safe, mut shared) = (true, false);
    args.for_each_tensor(|i, t| {
        if t.shares_storage(target) && target.numel() > 0 {
            shared |= i > 0 || !std::ptr::eq(t, target);
            safe &= t.lies_as(target) && (traits.pointwise || (i == 0 && traits.updates));
        }
    });
    if shared {
        check_overlap(args, traits.pointwise, target)?;
    }
    Ok(safe)
}

#[inline]
fn allocate(spec: OutSpec, how: &Placing) -> Result<Tensor> {
    let OutSpec {
        shape,
        strides,
        dtype,
    } = spec;
    let made = match how.fake {
        None => Tensor::empty_strided(shape, strides, dtype, how.device)?,
        Some(mode) => Tensor::laid(shape, strides, dtype, |nbytes| {
            Ok(Storage::fake(nbytes, how.device, mode))
        })?,
    };
    Ok(made.with_inference(how.inference))
}

/// A result that is brought to its place when it is filled.
#[cold]
fn aside(spec: OutSpec, how: &Placing) -> Result<Tensor> {
    let made = allocate(spec, how)?;
    if how.fake.is_some() && how.device.is_cpu() {
        scratch::aside(&made)?;
    }
    Ok(made)
}

/// Gives the `out=` tensor of result `nr` the shape of the result.
///
/// # Errors
/// If it is on another device or of a dtype that cannot take the result.
pub fn prepare_out(
    args: &Args,
    nr: usize,
    out: &mut Tensor,
    spec: &OutSpec,
    device: Device,
) -> Result<()> {
    if out.device() != device {
        if out.device().is_meta() || device.is_meta() {
            bail!(
                Runtime,
                "Attempting to copy from device {device} to device {}, but cross-device copies are not allowed!",
                out.device()
            );
        }
        bail!(
            Runtime,
            "Expected out tensor to have device {device}, but got {} instead",
            out.device()
        );
    }
    misfit::of_out(args, nr, spec.dtype, out.dtype())?;
    let fits = args.op.has(K) && out.numel() == spec.shape.iter().product::<i64>();
    if *out.shape() != spec.shape && !fits {
        let untouched = out.numel() == 0 && out.dtype() == spec.dtype;
        let rows = args.op.has(R) || args.op.has(P) && !untouched;
        resize(out, &spec.shape, (!rows).then_some(&spec.strides))?;
    }
    Ok(())
}

/// Gives a tensor another shape, growing its storage if needed (`resize_`).
///
/// # Errors
/// If the storage cannot grow.
pub fn resize(t: &mut Tensor, shape: &[i64], strides: Option<&Dims>) -> Result<()> {
    let strides = strides
        .cloned()
        .unwrap_or_else(|| dims::contiguous_strides(shape));
    dims::numel(shape)
        .map_err(|_| crate::err!(Runtime, "numel: integer multiplication overflow"))?;
    dims::check_strides(shape)?;
    let need = dims::storage_bytes(shape, &strides, t.offset(), t.dtype().size())?;
    if need > t.storage().nbytes() {
        t.storage().resize(need)?;
    }
    *t = t.laid_out(Dims::new(shape), strides);
    Ok(())
}
