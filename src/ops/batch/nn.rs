//! Layers of whole batches: examples join a dimension that is there, or weights that differ are applied afterwards.

use super::conv::{flattened, into_channels, out_of_channels};
use super::{Made, both, hidden, one, summed};
use crate::ops::core::op::{Hidden, Ret};
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, dims};

/// `native_layer_norm`: weights that differ are applied afterwards.
pub fn layer_norm(a: &f::NativeLayerNorm, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    if !h.differs(2) && !h.differs(3) {
        return a.call().map(|made| Some(Ret::Tuple(made.into())));
    }
    let ndim = a.input.ndim() - h.k;
    let plain = f::NativeLayerNorm {
        weight: None,
        bias: None,
        ..a.clone()
    };
    let mut made = plain.call()?;
    if let Some(w) = a.weight {
        made[0] = f::mul(&made[0], &h.fitted(2, w, ndim)?)?;
    }
    if let Some(b) = a.bias {
        made[0] = f::add(&made[0], &h.fitted(3, b, ndim)?)?;
    }
    Ok(Some(Ret::Tuple(made.into())))
}

/// `_fused_rms_norm`: a weight that differs is applied afterwards.
pub fn rms_norm(a: &f::_FusedRmsNorm, h: Hidden) -> Made {
    let Some(w) = a.weight.filter(|_| h.differs(2)) else {
        return both(a.call());
    };
    let plain = f::_FusedRmsNorm {
        weight: None,
        ..a.clone()
    };
    let [made, scale] = plain.call()?;
    let ndim = a.input.ndim() - h.hides(0);
    let made = f::mul(&made, &h.fitted(2, w, ndim)?)?;
    if h.differs(0) {
        return both(Ok([made, scale]));
    }
    let batch = hidden(w, h.k);
    let scale = f::expand(&scale, &batch.concat(scale.shape())[..])?;
    both(Ok([made, scale]))
}

/// Gradients of losses, whose means are over an example. `call` makes them of three operands that fit for a reduction.
pub fn averaged(
    operands: [&Tensor; 3],
    reduction: i64,
    h: Hidden,
    call: impl FnOnce([&Tensor; 3], i64) -> Result<Tensor>,
) -> Made {
    let shown = |i: usize| operands[i].ndim() - h.hides(i);
    let ndim = shown(0).max(shown(1)).max(shown(2));
    let fitted = |i: usize| h.fitted(i, operands[i], ndim);
    let means = reduction == 1;
    let made = call(
        [&fitted(0)?, &fitted(1)?, &fitted(2)?],
        if means { 2 } else { reduction },
    )?;
    if !means {
        return one(Ok(made));
    }
    let count: i64 = operands[1].shape()[h.hides(1)..].iter().product();
    one(f::div(&made, count))
}

/// The gradients of `binary_cross_entropy`, which lie as the inputs, of which there may be one for all.
pub fn binary_cross_entropies([grad, x, y]: [&Tensor; 3], reduction: i64) -> Result<Tensor> {
    let shape = dims::broadcast(&dims::broadcast(grad.shape(), x.shape())?, y.shape())?;
    f::_grad_binary_cross_entropy_backward_plain(grad, &f::expand(x, &shape)?, y, reduction)
}

/// `native_group_norm`: examples join the batch; weights that differ are applied afterwards.
pub fn group_norm(a: &f::NativeGroupNorm, h: Hidden) -> Made {
    if !h.differs(0) {
        return Ok(None);
    }
    let weights = [(1, a.weight), (2, a.bias)];
    let apply = weights.iter().any(|(i, _)| h.differs(*i));
    let joined = flattened(a.input, 0, h.k as i64)?;
    let all = f::NativeGroupNorm {
        input: &joined,
        N: joined.shape()[0],
        weight: a.weight.filter(|_| !apply),
        bias: a.bias.filter(|_| !apply),
        ..a.clone()
    };
    let first = hidden(a.input, h.k + 1);
    let apart = |t: Tensor| f::reshape(&t, &first.concat(&t.shape()[1..])[..]);
    let mut made = all
        .call()?
        .into_iter()
        .map(apart)
        .collect::<Result<Vec<_>>>()?;
    let ndim = a.input.ndim() - h.k;
    for (i, weight) in weights.into_iter().filter(|_| apply) {
        let Some(weight) = weight else { continue };
        let inner = Dims::filled(ndim - 2, 1);
        let weight = f::reshape(weight, &weight.shape().concat(&inner)[..])?;
        let weight = h.fitted(i, &weight, ndim)?;
        made[0] = if i == 1 {
            f::mul(&made[0], &weight)?
        } else {
            f::add(&made[0], &weight)?
        };
    }
    Ok(Some(Ret::Tuple(made.into())))
}

/// `batch_norm` by the batch's own statistics: examples join the channels.
pub fn batch_norm(a: &f::_NnBatchNormTrain, h: Hidden) -> Made {
    let [x, mean, var] = [0, 3, 4].map(|i| h.differs(i));
    if x && (a.mean.is_some() && !mean || a.var.is_some() && !var) {
        bail!(
            Runtime,
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place, were \
             not batched.\nIf you are using a module and do not need eval mode, please set `track_running_stats` to be False.If \
             you are using a prebuilt module and do not need eval mode, please see the functorch website for resources on how to \
             patch your module to work with vmap"
        );
    }
    let given = [Some(a.input), a.weight, a.bias, a.mean, a.var];
    let differing = given.into_iter().enumerate().filter(|(i, _)| h.differs(*i));
    let Some(differing) = differing.filter_map(|(_, t)| t).next() else {
        return Ok(None);
    };
    let batch = hidden(differing, h.k);
    let each = |i: usize| -> Result<Option<Tensor>> {
        let Some(t) = given[i] else { return Ok(None) };
        f::reshape(&h.repeated(i, t, &batch)?, &[-1][..]).map(Some)
    };
    let input = h.repeated(0, a.input, &batch)?;
    let channels = input.size(h.k as i64 + 1)?;
    let joined = into_channels(&input, h)?;
    let [weight, bias, mean, var] = [each(1)?, each(2)?, each(3)?, each(4)?];
    let all = f::_NnBatchNormTrain {
        input: &joined,
        weight: weight.as_ref(),
        bias: bias.as_ref(),
        mean: mean.as_ref(),
        var: var.as_ref(),
        ..a.clone()
    };
    let [out, rest @ ..] = all.call()?;
    let mut made = vec![out_of_channels(&out, channels, &batch)?];
    for t in rest {
        made.push(f::reshape(&t, &batch.concat(&[channels])[..])?);
    }
    Ok(Some(Ret::Tuple(made)))
}

/// `batch_norm` by given statistics: examples join the batch, or the channels where these differ.
pub fn batch_norm_eval(a: &f::_NnBatchNormEval, h: Hidden) -> Made {
    if (1..5).all(|i| !h.differs(i)) {
        let all = f::_NnBatchNormEval {
            input: &flattened(a.input, 0, h.k as i64)?,
            ..a.clone()
        };
        return one(with_batch(&all.call()?, a.input, h.k + 1));
    }
    let given = [Some(a.input), Some(a.mean), Some(a.var), a.weight, a.bias];
    let differing = given.into_iter().enumerate().filter(|(i, _)| h.differs(*i));
    let Some(differing) = differing.filter_map(|(_, t)| t).next() else {
        return Ok(None);
    };
    let batch = hidden(differing, h.k);
    let each = |i: usize, t: &Tensor| f::reshape(&h.repeated(i, t, &batch)?, &[-1][..]);
    let input = h.repeated(0, a.input, &batch)?;
    let channels = input.size(h.k as i64 + 1)?;
    let weight = a.weight.map(|t| each(3, t)).transpose()?;
    let bias = a.bias.map(|t| each(4, t)).transpose()?;
    let all = f::_NnBatchNormEval {
        input: &into_channels(&input, h)?,
        mean: &each(1, a.mean)?,
        var: &each(2, a.var)?,
        weight: weight.as_ref(),
        bias: bias.as_ref(),
        eps: a.eps,
    };
    one(out_of_channels(&all.call()?, channels, &batch))
}

/// The first `n` sizes of `input` again, in the place of the dimension that they joined.
fn with_batch(made: &Tensor, input: &Tensor, n: usize) -> Result<Tensor> {
    f::reshape(made, &hidden(input, n).concat(&made.shape()[1..])[..])
}

/// Padding by what the tensor holds: examples join the batch, or are one where there is none.
pub fn pad_mode(a: &f::_PadMode, h: Hidden) -> Made {
    let batch = a.input.ndim() - a.pad.len() / 2 - 1;
    let all = f::_PadMode {
        input: &flattened(a.input, 0, batch as i64 - 1)?,
        ..a.clone()
    };
    debug_assert!(batch >= h.k);
    one(with_batch(&all.call()?, a.input, batch))
}

/// Pictures in other sizes: examples join the batch.
pub fn upsample(a: &f::_Upsample, h: Hidden) -> Made {
    let all = f::_Upsample {
        input: &flattened(a.input, 0, h.k as i64)?,
        ..a.clone()
    };
    one(with_batch(&all.call()?, a.input, h.k + 1))
}

/// `nll_loss`: the weighted entries of the targets, by `gather`.
pub fn nll_loss(a: &f::_NnNllLoss, h: Hidden) -> Made {
    if h.differs(2) {
        return Ok(None);
    }
    let batch = hidden(if h.differs(0) { a.input } else { a.target }, h.k);
    let x = h.repeated(0, a.input, &batch)?;
    let target = h.repeated(1, a.target, &batch)?;
    let classes = (h.k + usize::from(x.ndim() > h.k + 1)) as i64;
    let ignored = f::eq(&target, a.ignore_index)?;
    let safe = f::masked_fill(&target, &ignored, 0)?;
    let picked = f::gather(&x, classes, &f::unsqueeze(&safe, classes)?)?;
    let picked = f::squeeze_dim(&picked, classes)?;
    let weight = match a.weight {
        Some(w) => {
            let flat = f::index_select(&w.bare(), 0, &f::reshape(&safe, &[-1][..])?)?;
            f::reshape(&flat, &safe.shape()[..])?
        }
        None => f::ones_like(&picked.bare())?,
    };
    let weight = f::masked_fill(&weight, &ignored, 0)?;
    let each = f::neg(&f::mul(&picked, &weight)?)?;
    let over: Vec<i64> = (h.k as i64..each.ndim() as i64).collect();
    let sum = |t: &Tensor| {
        if over.is_empty() {
            return Ok(t.clone());
        }
        f::SumDim::new(t, &over[..]).call()
    };
    let total = sum(&weight)?;
    let loss = match a.reduction {
        0 => return Ok(Some(Ret::Tuple(vec![each, f::zeros_like(&total)?]))),
        1 => f::div(&sum(&each)?, &total)?,
        _ => sum(&each)?,
    };
    Ok(Some(Ret::Tuple(vec![loss, total])))
}

/// `bilinear` of rows: x A for each matrix A, times y.
pub fn bilinear(a: &f::_NnTrilinear, h: Hidden) -> Made {
    let apart = |i: usize, t: &Tensor| f::unsqueeze(t, h.hides(i) as i64);
    // [..., 1, rows, i] times [..., o, i, j], and [..., 1, rows, j].
    let turned = f::matmul(&apart(0, a.input1)?, a.weight)?;
    let products = f::mul(&turned, &apart(2, a.input2)?)?;
    one(f::mT(&summed(&products)?))
}
