//! Negative log likelihoods of counts and of normal values.

use crate::ops::core::helpers;
use crate::ops::core::op::{Cast, F, OpDef, Ret, compose};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::ops::nn::loss::{Reduction, bounded, legacy, reduced};
use crate::{Result, Tensor, ensure};
use std::f64::consts::PI;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "nn.functional.poisson_nll_loss",
        "(Tensor input, Tensor target, bool log_input=True, bool full=False, bool? size_average=None, float eps=1e-08, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            let r = legacy((a.size_average, a.reduce, a.reduction))?;
            f::poisson_nll_loss(a.input, a.target, a.log_input, a.full, a.eps, r as i64)
        },
        "Negative log likelihood of Poisson counts.",
    ).samples(
        "f32[5, 5], f32[5, 5], full=True, eps=0.001, reduction='none'; \
         f32[5], f32[5], log_input=False, full=False, eps=0.001, reduction='mean'",
    )
    .amp(Cast::Single, Cast::Single),
    compose(
        "poisson_nll_loss",
        "(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction)",
        F,
        poisson,
        "Negative log likelihood of Poisson counts.",
    ).samples(
        "f32[2, 3], f32[2, 3].pos, True, False, 1e-8, 1; \
         f32[2, 3].pos, f32[2, 3].pos, False, True, 1e-8, 0",
    )
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.gaussian_nll_loss",
        "(Tensor input, Tensor target, Operand var, bool full=False, float eps=1e-06, str reduction='mean')",
        F,
        gaussian,
        "Negative log likelihood of normal values.",
    ).samples(
        "f32[5, 5].unit, f32[5].unit, f32[5].unit, reduction='none'; \
         f32[5, 5].unit, f32[5].unit, f32[5, 1].unit, full=True, eps=0.001, reduction='sum'",
    ),
];

fn poisson(a: &calls::PoissonNllLoss) -> Result<Ret> {
    let (x, target) = (a.input, a.target);
    let mut loss = if a.log_input {
        let product = f::mul(target, x)?;
        f::sub(&f::exp(x)?, &product)?
    } else {
        f::sub(x, &f::mul(target, &f::log(&f::_add_number(x, a.eps)?)?)?)?
    };
    if a.full {
        loss = f::add(&loss, &log_factorial(target)?)?;
    }
    reduced(loss, Reduction::of_int(a.reduction))
}

/// Stirling's approximation of log(n!), where n is above 1.
fn log_factorial(n: &Tensor) -> Result<Tensor> {
    let half = f::_mul_number(&f::log(&f::_mul_number(n, 2.0 * PI)?)?, 0.5)?;
    let log = f::mul(n, &f::log(n)?)?;
    let stirling = f::add(&f::sub(&log, n)?, &half)?;
    f::masked_fill(&stirling, &f::le(n, 1i64)?, 0i64)
}

/// The variances, none of them negative.
fn variances(x: &Tensor, var: Operand) -> Result<Tensor> {
    const TEXT: &str = "gaussian_nll_loss() reads its variances, and meta tensors have none";
    let (negative, var) = match var {
        Operand::Tensor(v) => {
            let negative = f::any(&f::lt(v, 0i64)?)?;
            (helpers::item_or(&negative, TEXT)?.to_bool(), v.clone())
        }
        Operand::Scalar(v) => {
            let v = v.to_f64();
            // NaN is no variance either.
            (!(v >= 0.0), f::mul(&f::ones_like(x)?, v)?)
        }
    };
    ensure!(!negative, Value, "var has negative entry/entries");
    if var.shape() == x.shape() {
        return Ok(var);
    }
    if x.ndim() > 0 && x.shape()[..x.ndim() - 1] == var.shape()[..] {
        return f::unsqueeze(&var, -1);
    }
    let differing: i64 = if x.ndim() == var.ndim() {
        let pairs = x.shape().iter().zip(var.shape().iter());
        pairs.filter(|(p, q)| p != q).map(|(_, q)| *q).sum()
    } else {
        0
    };
    ensure!(differing == 1, Value, "var is of incorrect size");
    Ok(var)
}

fn gaussian(a: &calls::NnFunctionalGaussianNllLoss) -> Result<Ret> {
    let (x, target) = (a.input, a.target);
    let var = variances(x, a.var)?;
    ensure!(
        matches!(a.reduction, "none" | "mean" | "sum"),
        Value,
        "{} is not valid",
        a.reduction
    );
    ensure!(
        !var.dtype().is_integral(true),
        Runtime,
        "result type Float can't be cast to the desired output type {}",
        var.dtype().cpp_name()
    );
    let var = bounded(&var, a.eps)?;
    let log = f::log(&var)?;
    let diff = f::sub(x, target)?;
    let scaled = f::div(&f::pow(&diff, 2i64)?, &var)?;
    let mut loss = f::mul(&f::add(&log, &scaled)?, 0.5)?;
    if a.full {
        loss = f::add(&loss, 0.5 * (2.0 * PI).ln())?;
    }
    reduced(loss, Reduction::named(a.reduction)?)
}
