//! Gradients of normalisations, by input, weight and bias; a result is `None` where `output_mask` does not ask for it.

use super::{needs, norm_composed, spread};
use crate::cpu::batch_backward;
use crate::cpu::norm::compute_type;
use crate::cpu::norm_backward::{Asked, Saved};
use crate::cpu::room::Room;
use crate::ops::core::op::{OpDef, OutSpec, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::norm::{check_groups, check_trailing, suggested};
use crate::{Result, Tensor, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.native_layer_norm_backward",
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
        0,
        |a| {
            let [x, w, b] = needs(a.output_mask)?;
            let asked = [x, w && a.weight.is_some(), b && a.bias.is_some()];
            spread(asked, || {
                f::_grad_layer_norm(a.grad_out, a.input, a.normalized_shape, a.mean, a.rstd, a.weight, a.bias, &asked)
            })
        },
        "The gradients of layer_norm.",
    ).samples(
        "f32[2, 3], f32[2, 3], [3], f32[2, 1], f32[2, 1], f32[3], f32[3], [True, True, True]; \
         bf16[2, 3], bf16[2, 3], [3], f32[2, 1], f32[2, 1], f32[3], f32[3], [False, True, False]",
    ),
    kernel(
        "_grad.layer_norm",
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] asked) -> Tensor[]",
        0,
        body!(rule_layer_norm, anywhere: run_layer_norm, scratch: |a, _, outs, room| {
            rows_scratch(room, [a.grad_out, a.input], [Some(a.rstd), Some(a.mean), a.weight], placed(a.asked, outs))
        }),
        "Those gradients of layer_norm that are asked for.",
    ).samples("f32[2, 3], f32[2, 3], [3], f32[2, 1], f32[2, 1], f32[3], f32[3], [True, False, True]")
    .through(typed!(norm_composed::layer_norm)),
    compose(
        "_grad._fused_rms_norm_backward",
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor?, Tensor?)",
        0,
        |a| {
            let [x, w] = needs(a.output_mask)?;
            let asked = [x, w && a.weight.is_some()];
            spread(asked, || {
                f::_grad_rms_norm(a.grad_out, a.input, a.normalized_shape, a.rstd, a.weight, &asked)
            })
        },
        "The gradients of rms_norm.",
    ).samples("f32[2, 3], f32[2, 3], [3], f32[2, 1], f32[3], [True, True]; f32[2, 3], f32[2, 3], [3], f32[2, 1], None, [True, True]"),
    kernel(
        "_grad.rms_norm",
        "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, bool[2] asked) -> Tensor[]",
        0,
        body!(rule_rms_norm, anywhere: run_rms_norm, scratch: |a, _, outs, room| {
            rows_scratch(room, [a.grad_out, a.input], [Some(a.rstd), None, a.weight], placed(a.asked, outs))
        }),
        "Those gradients of rms_norm that are asked for.",
    ).samples("f32[2, 3], f32[2, 3], [3], f32[2, 1], f32[3], [True, False]")
    .through(typed!(norm_composed::rms_norm)),
    compose(
        "_grad.native_group_norm_backward",
        "(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int N, int C, int HxW, int group, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
        0,
        |a| {
            let asked: [bool; 3] = needs(a.output_mask)?;
            spread(asked, || {
                f::_grad_group_norm(a.grad_out, a.input, a.mean, a.rstd, a.weight, a.N, a.C, a.HxW, a.group, &asked)
            })
        },
        "The gradients of group_norm.",
    ).samples(
        "f32[2, 6, 3], f32[2, 6, 3], f32[2, 2], f32[2, 2], f32[6], 2, 6, 3, 2, [True, True, True]; \
         f32[2, 6, 3], f32[2, 6, 3], f32[2, 3], f32[2, 3], None, 2, 6, 3, 3, [True, False, False]",
    ),
    compose(
        "_grad.group_norm_all",
        "(Tensor? grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int N, int C, int HxW, int group, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
        0,
        group_norm_all,
        "The gradients of group_norm, by its statistics too.",
    ).samples("f32[2, 6, 3], f32[2, 2], f32[2, 2], f32[2, 6, 3], f32[2, 2], f32[2, 2], f32[6], 2, 6, 3, 2, [True, True, True]; None, f32[2, 2], None, f32[2, 6, 3], f32[2, 2], f32[2, 2], None, 2, 6, 3, 2, [True, False, False]"),
    kernel(
        "_grad.group_norm",
        "(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int N, int C, int HxW, int group, bool[3] asked) -> Tensor[]",
        0,
        body!(rule_group_norm, anywhere: run_group_norm, scratch: |a, _, outs, room| {
            rows_scratch(room, [a.grad_out, a.input], [Some(a.rstd), Some(a.mean), a.weight], placed(a.asked, outs))
        }),
        "Those gradients of group_norm that are asked for.",
    ).samples("f32[2, 6, 3], f32[2, 6, 3], f32[2, 2], f32[2, 2], f32[6], 2, 6, 3, 2, [False, True, True]")
    .through(typed!(norm_composed::group_norm)),
    compose(
        "_grad.native_batch_norm_backward",
        "(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? running_var, Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
        0,
        |a| {
            let asked: [bool; 3] = needs(a.output_mask)?;
            let (mean, spread_of) = if a.train {
                (a.save_mean, a.save_invstd)
            } else {
                (a.running_mean, a.running_var)
            };
            spread(asked, || {
                f::_grad_batch_norm(a.grad_out, a.input, a.weight, mean, spread_of, a.train, a.eps, &asked)
            })
        },
        "The gradients of batch_norm.",
    ).samples(
        "f32[2, 3, 4], f32[2, 3, 4], f32[3], f32[3], f32[3].pos, f32[3], f32[3], True, 1e-5, [True, True, True]; \
         f32[2, 3], f32[2, 3], None, f32[3], f32[3].pos, f32[0], f32[0], False, 1e-5, [True, False, True]",
    ),
    kernel(
        "_grad.batch_norm",
        "(Tensor grad_out, Tensor input, Tensor? weight, Tensor? mean, Tensor? spread, bool train, float eps, bool[3] asked) -> Tensor[]",
        0,
        body!(rule_batch_norm, anywhere: run_batch_norm, scratch: |a, found, outs, room| {
            batch_backward::scratch(room, placed(a.asked, outs), &batch(a, found), a.train)
        }),
        "Those gradients of batch_norm that are asked for; `spread` is the batch's inverse deviation, or else a variance.",
    ).samples("f32[2, 3, 4], f32[2, 3, 4], f32[3], f32[3], f32[3].pos, True, 1e-5, [True, True, False]")
    .through(typed!(norm_composed::batch_norm)),
];

/// What the mean and the inverse deviation of a group add to the gradient of its elements.
fn by_statistics(a: &calls::_GradGroupNormAll) -> Result<Option<Tensor>> {
    let each = |t: &Tensor| f::reshape(t, &[a.N, a.group, 1]);
    let x = f::reshape(a.input, &[a.N, a.group, a.C / a.group * a.HxW])?;
    let count = x.shape()[2];
    let by_mean = match a.grad_mean {
        Some(g) => Some(f::expand(&f::div(&each(g)?, count)?, x.shape())?),
        None => None,
    };
    let by_rstd = match a.grad_rstd {
        Some(g) => {
            let slope = f::div(&f::pow(a.rstd, 3i64)?, -count)?;
            let apart = f::sub(&x, &each(a.mean)?)?;
            Some(f::mul(&apart, &each(&f::mul(g, &slope)?)?)?)
        }
        None => None,
    };
    let both = match (by_mean, by_rstd) {
        (Some(m), Some(r)) => Some(f::add(&m, &r)?),
        (one, other) => one.or(other),
    };
    both.map(|t| f::reshape(&t, a.input.shape())).transpose()
}

fn group_norm_all(a: &calls::_GradGroupNormAll) -> Result<[Option<Tensor>; 3]> {
    let asked: [bool; 3] = needs(a.output_mask)?;
    let mut made = match a.grad_out {
        Some(g) => f::_grad_native_group_norm_backward(
            g, a.input, a.mean, a.rstd, a.weight, a.N, a.C, a.HxW, a.group, &asked,
        )?,
        None => [None, None, None],
    };
    if let Some(more) = by_statistics(a)?.filter(|_| asked[0]) {
        made[0] = Some(match made[0].take() {
            Some(first) => f::add(&first, &more)?,
            None => more,
        });
    }
    Ok(made)
}

/// A plan of the results that are asked for.
fn planned(asked: &[bool], specs: [OutSpec; 3]) -> Plan {
    let outs = asked.iter().zip(specs);
    Plan {
        outs: outs.filter(|(a, _)| **a).map(|(_, s)| s).collect(),
        device: None,
    }
}

/// The results in their places.
fn placed<'a>(asked: &[bool], outs: &'a [Tensor]) -> Asked<'a> {
    let mut outs = outs.iter();
    [0, 1, 2].map(|k| match asked.get(k) {
        Some(true) => outs.next(),
        _ => None,
    })
}

/// Checks that the gradient fits the input.
fn check_gradient(g: &Tensor, x: &Tensor, kernel: &str) -> Result<()> {
    x.dtype().check_float_kernel(kernel)?;
    x.dtype().check_same(g.dtype())?;
    ensure!(
        g.shape() == x.shape(),
        Runtime,
        "expected a gradient of shape {}, but got {}",
        x.shape(),
        g.shape()
    );
    Ok(())
}

/// Checks that there is one statistic for each of `n` parts of the input.
fn check_statistics(n: i64, statistics: &[Option<&Tensor>]) -> Result<()> {
    for t in statistics.iter().flatten() {
        ensure!(
            t.numel() == n && t.dtype().is_float(),
            Runtime,
            "expected {n} statistics of a floating point type, but got {} of {}",
            t.numel(),
            t.dtype().scalar_type()
        );
    }
    Ok(())
}

/// A result like a parameter, or like `n` elements of the input where there is none.
fn like(p: Option<&Tensor>, shape: &[i64], x: &Tensor) -> OutSpec {
    OutSpec::contiguous(shape, p.map_or(x.dtype(), Tensor::dtype))
}

fn rule_layer_norm(a: &calls::_GradLayerNorm) -> Result<(Plan, usize)> {
    let (x, shape) = (a.input, a.normalized_shape);
    let lead = check_trailing(x, shape, a.weight, a.bias, ", ")?;
    check_gradient(a.grad_out, x, "LayerNormBackwardKernelImpl")?;
    let rows = x.shape()[..lead].iter().product();
    check_statistics(rows, &[Some(a.mean), Some(a.rstd)])?;
    let specs = [
        OutSpec::contiguous(x.shape(), x.dtype()),
        like(a.weight, shape, x),
        like(a.bias, shape, x),
    ];
    let n: i64 = shape.iter().product();
    Ok((planned(a.asked, specs), n as usize))
}

/// What [`crate::cpu::norm_backward::rows`] takes, and what those of groups: gradient, input and the first result keep their type.
fn rows_scratch(
    room: &mut Room,
    [g, x]: [&Tensor; 2],
    more: [Option<&Tensor>; 3],
    outs: Asked,
) -> Result<()> {
    if x.numel() == 0 {
        return Ok(());
    }
    let c = compute_type(x.dtype());
    room.all_dense([Some(g), Some(x), outs[0]], x.dtype())?;
    room.all_dense(more.into_iter().chain([outs[1], outs[2]]), c)
}

fn run_layer_norm(a: &calls::_GradLayerNorm, n: &usize, outs: &[Tensor]) -> Result<()> {
    let saved = Saved {
        g: a.grad_out,
        x: a.input,
        mean: Some(a.mean),
        rstd: a.rstd,
        weight: a.weight,
    };
    kernels::norm::rows_backward(placed(a.asked, outs), &saved, *n)
}

fn rule_rms_norm(a: &calls::_GradRmsNorm) -> Result<(Plan, usize)> {
    let (x, shape) = (a.input, a.normalized_shape);
    let lead = check_trailing(x, shape, a.weight, None, "")?;
    check_gradient(a.grad_out, x, "rms_norm_backward")?;
    let rows = x.shape()[..lead].iter().product();
    check_statistics(rows, &[Some(a.rstd)])?;
    let spec = OutSpec::contiguous(x.shape(), x.dtype());
    let weight = like(a.weight, shape, x);
    let n: i64 = shape.iter().product();
    Ok((planned(a.asked, [spec, weight.clone(), weight]), n as usize))
}

fn run_rms_norm(a: &calls::_GradRmsNorm, n: &usize, outs: &[Tensor]) -> Result<()> {
    let saved = Saved {
        g: a.grad_out,
        x: a.input,
        mean: None,
        rstd: a.rstd,
        weight: a.weight,
    };
    kernels::norm::rows_backward(placed(a.asked, outs), &saved, *n)
}

fn rule_group_norm(a: &calls::_GradGroupNorm) -> Result<(Plan, [usize; 4])> {
    let (g, x, n, c, size, groups) = (a.grad_out, a.input, a.N, a.C, a.HxW, a.group);
    ensure!(
        g.dtype() == x.dtype(),
        Runtime,
        "Expected scalar types of X and dY are same."
    );
    check_groups(x, c, groups, [a.weight, None])?;
    let fits = n.checked_mul(c).and_then(|v| v.checked_mul(size)) == Some(x.numel());
    ensure!(
        fits && n >= 0 && c >= 0 && size >= 0,
        Runtime,
        "Expect input to have {n} * {c} * {size} elements"
    );
    check_gradient(g, x, "GroupNormBackwardKernelImpl")?;
    check_statistics(n * groups, &[Some(a.mean), Some(a.rstd)])?;
    let params = like(a.weight, &[c], x);
    let plan = planned(a.asked, [suggested(x)?, params.clone(), params]);
    Ok((plan, [n, groups, c / groups, size].map(|v| v as usize)))
}

fn run_group_norm(a: &calls::_GradGroupNorm, sizes: &[usize; 4], outs: &[Tensor]) -> Result<()> {
    let saved = Saved {
        g: a.grad_out,
        x: a.input,
        mean: Some(a.mean),
        rstd: a.rstd,
        weight: a.weight,
    };
    kernels::norm::groups_backward(placed(a.asked, outs), &saved, *sizes)
}

fn rule_batch_norm<'a>(a: &calls::_GradBatchNorm<'a>) -> Result<(Plan, [&'a Tensor; 2])> {
    let x = a.input;
    x.size(1)?;
    check_gradient(a.grad_out, x, "batch_norm_backward_cpu")?;
    let (Some(mean), Some(spread)) = (a.mean, a.spread) else {
        crate::bail!(
            Runtime,
            "batch_norm_backward needs the statistics that the forward pass used"
        )
    };
    let c = x.shape()[1];
    check_statistics(c, &[Some(mean), Some(spread), a.weight])?;
    let params = like(a.weight.or(Some(mean)), &[c], x);
    let plan = planned(a.asked, [suggested(x)?, params.clone(), params]);
    Ok((plan, [mean, spread]))
}

/// What the kernels read.
fn batch<'a>(a: &calls::_GradBatchNorm<'a>, [mean, spread]: &[&'a Tensor; 2]) -> Saved<'a> {
    Saved {
        g: a.grad_out,
        x: a.input,
        mean: Some(mean),
        rstd: spread,
        weight: a.weight,
    }
}

fn run_batch_norm(a: &calls::_GradBatchNorm, found: &[&Tensor; 2], outs: &[Tensor]) -> Result<()> {
    let saved = batch(a, found);
    kernels::batch_norm::backward(placed(a.asked, outs), &saved, a.train, a.eps)
}
