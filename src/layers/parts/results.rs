//! Results that are written over tensors, of which some are sparse.

use super::{Next, factories, refusal, run};
use crate::ops::Call;
use crate::ops::core::args::Args;
use crate::ops::core::op::{Body, Ret};
use crate::ops::core::{dispatch, helpers, misfit, writable};
use crate::ops::quantize::parts::Quantized;
use crate::ops::sparse::{Sparse, is_sparse};
use crate::parts::{Layout, located};
use crate::{Result, Tensor, bail, dims, ensure};
use std::sync::Arc;

/// Writes the result of a call over its first tensor; over a sparse one by giving it other parts.
///
/// # Errors
/// That it does not fit, or the call is not for such tensors.
pub(super) fn over(args: &Args, target: &Tensor) -> Result<Ret> {
    if super::elements::wants_sorted(args.op.def.name)
        && let Some(Sparse::Coo(c)) = Sparse::of(target)
    {
        ensure!(
            c.coalesced,
            Runtime,
            "{}_ requires coalesced input",
            args.name()
        );
    }
    let Some(ret) = run(args)? else {
        return Err(refusal(args));
    };
    let made = match ret {
        Ret::Same(0) => return Ok(Ret::Same(0)),
        ret => ret.one()?,
    };
    if matches!(args.op.def.body, Body::View(_)) && stored(&made) == stored(target) {
        writable::check_leaf(target)?;
        let strides = dims::contiguous_strides(made.shape());
        let seen = target.laid_out(made.shape().clone(), strides);
        replaced(&seen, made)?;
        return Ok(Ret::Become(Box::new(seen)));
    }
    writable::check_target(target)?;
    writable::check_result(args, target, made.shape(), made.dtype())?;
    if let Some(to) = Quantized::of(target) {
        let Some(made) = Quantized::of(&made) else {
            return Err(refusal(args));
        };
        helpers::copy_(&to.integers, &made.integers)?;
        target.storage().set_parts(Some(Arc::new(made.quantizer)));
        return Ok(Ret::Same(0));
    }
    if !is_sparse(target) {
        let made = match Sparse::of(&made) {
            Some(s) => s.coo()?.dense()?,
            None => made,
        };
        helpers::copy_(target, &made)?;
        return Ok(Ret::Same(0));
    }
    if stored(&made) != stored(target) {
        return Err(refusal(args));
    }
    replaced(target, made)?;
    Ok(Ret::Same(0))
}

/// Writes the results of a call into the tensors of `out=`.
///
/// # Errors
/// That they do not fit, or the call is not for such tensors.
pub(super) fn into(args: &Args, outs: &mut [Tensor], next: Next) -> Result<Ret> {
    let mut any = false;
    args.for_each_tensor(|_, t| any |= t.has_parts());
    let ret = match outs {
        [out] if !any => factories::in_place_of(args, out)?.ok_or_else(|| not_for(args, out))?,
        _ => match run(args)? {
            Some(ret) => ret,
            None => next.call(Call::new(args))?,
        },
    };
    let results = match ret {
        Ret::Same(i) => vec![args.same(i)?.clone()],
        ret => ret.tensors(),
    };
    if !results.iter().chain(outs.iter()).any(Tensor::has_parts) {
        outs.iter().try_for_each(writable::check_target)?;
        return dispatch::write_out(args, results, outs);
    }
    for (nr, (out, made)) in outs.iter_mut().zip(results).enumerate() {
        put(args, nr, out, made)?;
    }
    Ok(Ret::Tuple(Vec::new()))
}

#[cold]
fn not_for(args: &Args, out: &Tensor) -> crate::Error {
    crate::err!(
        NotImplemented,
        "{}(): the result is strided and cannot be written into a tensor of layout {}",
        args.name(),
        stored(out).name()
    )
}

fn put(args: &Args, nr: usize, out: &mut Tensor, made: Tensor) -> Result<()> {
    writable::check_leaf(out)?;
    if let (Some(to), Some(from)) = (Quantized::of(out), Quantized::of(&made)) {
        return requantized(args, nr, (out, &to), (&made, from));
    }
    if stored(out) != stored(&made) || !is_sparse(out) {
        bail!(
            Runtime,
            "{}(): the result has layout {}, but out has layout {}",
            args.name(),
            stored(&made).name(),
            stored(out).name()
        );
    }
    ensure!(
        located(out) == located(&made),
        Runtime,
        "Expected out tensor to have device {}, but got {} instead",
        located(&made),
        located(out)
    );
    misfit::of_out(args, nr, made.dtype(), out.dtype())?;
    if out.shape() != made.shape() {
        let strides = dims::contiguous_strides(made.shape());
        *out = out.laid_out(made.shape().clone(), strides);
    }
    replaced(out, made)
}

/// Writes a quantised result into a tensor, in its scale.
fn requantized(
    args: &Args,
    nr: usize,
    (out, to): (&Tensor, &Quantized),
    (made, from): (&Tensor, Quantized),
) -> Result<()> {
    misfit::of_out(args, nr, made.dtype(), out.dtype())?;
    ensure!(
        out.shape() == made.shape(),
        NotImplemented,
        "{}(): out has shape {}, the result {}; quantized tensors are not resized",
        args.name(),
        out.shape(),
        made.shape()
    );
    let (own, given) = (to.uniform(args.name())?, from.uniform(args.name())?);
    let integers = if own.scale == given.scale && own.zero == given.zero {
        from.integers
    } else {
        own.nearest(&from.reals()?, out.dtype())?
    };
    helpers::copy_(&to.integers, &integers)
}

/// Gives a sparse tensor the parts of another, in its own dtype.
fn replaced(target: &Tensor, made: Tensor) -> Result<()> {
    let made = if made.dtype() == target.dtype() {
        made
    } else {
        helpers::to_copy(&made, target.dtype(), located(&made))?
    };
    target.storage().set_parts(made.storage().parts());
    target.bump();
    Ok(())
}

fn stored(t: &Tensor) -> Layout {
    t.storage().parts().map_or(Layout::Strided, |p| p.stored())
}
