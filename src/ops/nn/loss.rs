//! Losses. Elementwise parts are pointwise rows; `margin_loss` and `classes` have the others.

use crate::cpu::map::{Ctx, FromCtx as _};
use crate::cpu::math::Elementary as _;
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, OpDef, Ret, old_compose};
use crate::ops::pointwise::rule::same;
use crate::{DType, Result, Tensor, bail, cpu, ensure, map_op, map_row, op, run1};
use torchlike_macros::operators;

map_op!(Mse, 2, [light] | x, y, c | (x - y) * (x - y));

map_op!(
    SmoothL1,
    2,
    [light] | x,
    y,
    c | if (x - y).abs() < T::ctx(c, 0) {
        0.5 * (x - y) * (x - y) / T::ctx(c, 0)
    } else {
        (x - y).abs() - 0.5 * T::ctx(c, 0)
    }
);

map_op!(
    Huber,
    2,
    [light] | x,
    y,
    c | if (x - y).abs() <= T::ctx(c, 0) {
        0.5 * (x - y) * (x - y)
    } else {
        T::ctx(c, 0) * ((x - y).abs() - 0.5 * T::ctx(c, 0))
    }
);

map_op!(
    Bce,
    2,
    [single] | x,
    y,
    c | (y - 1.0) * floor100((-x).log1p_()) - y * floor100(x.log_())
);

map_op!(
    ClampMin,
    1,
    [light] | x,
    c | if x < T::ctx(c, 0) { T::ctx(c, 0) } else { x }
);

/// Logarithms in binary cross entropy do not fall below -100.
#[inline(always)]
fn floor100<T: PartialOrd + From<i8>>(x: T) -> T {
    if x < T::from(-100) { T::from(-100) } else { x }
}

/// The number after the operands.
pub(in crate::ops) fn number(a: &Args, _: DType) -> Result<Ctx> {
    let v = a.float(a.values.len() - 1)?;
    Ok(Ctx {
        f: [v, 0.0, 0.0],
        ..Ctx::default()
    })
}

fn beta(a: &Args, d: DType) -> Result<Ctx> {
    ensure!(
        a.float(2)? >= 0.0,
        Runtime,
        "smooth_l1_loss does not support negative values for beta."
    );
    number(a, d)
}

fn delta(a: &Args, d: DType) -> Result<Ctx> {
    ensure!(
        a.float(2)? > 0.0,
        Runtime,
        "huber_loss does not support non-positive values for delta."
    );
    number(a, d)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Mse "_nn.mse", 2, same, 0, "(a - b) * (a - b)", "(Tensor self, Tensor target)", "Squared differences."),
    map_row!(SmoothL1 "_nn.smooth_l1", 2, same, beta, 0, "abs_(a - b) < f0 ? T(0.5) * (a - b) * (a - b) / f0 : abs_(a - b) - T(0.5) * f0", "(Tensor self, Tensor target, float beta)", "Differences, squared where small."),
    map_row!(Huber "_nn.huber", 2, same, delta, 0, "abs_(a - b) <= f0 ? T(0.5) * (a - b) * (a - b) : f0 * (abs_(a - b) - T(0.5) * f0)", "(Tensor self, Tensor target, float delta)", "Differences, squared where small."),
    map_row!(Bce "_nn.binary_cross_entropy", 2, same, 0, "(b - T(1)) * floor100_(log1p(-a)) - b * floor100_(log(a))", "(Tensor self, Tensor target)", "Cross entropies of truth values."),
    map_row!(ClampMin "_nn.clamp_min", 1, same, number, 0, "a < T(f0) ? T(f0) : a", "(Tensor self, float min)", "Each element, or a bound where it is less."),
    old_compose(
        "nn.functional.mse_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? weight=None)",
        F,
        |a| squares(a, false),
        "The mean of squared differences.",
    ),
    old_compose(
        "nn.functional.l1_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? weight=None)",
        F,
        |a| squares(a, true),
        "The mean of absolute differences.",
    ),
    old_compose(
        "nn.functional.smooth_l1_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', float beta=1.0)",
        F,
        smooth_l1,
        "The mean of differences, squared where small.",
    ),
    old_compose(
        "nn.functional.huber_loss",
        "(Tensor input, Tensor target, str reduction='mean', float delta=1.0, Tensor? weight=None)",
        F,
        huber,
        "The mean of differences, squared where small.",
    ),
    old_compose(
        "nn.functional.kl_div",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', bool log_target=False)",
        F,
        kl_div,
        "The divergence of two distributions.",
    ),
    old_compose(
        "kl_div",
        "(Tensor self, Tensor target, int reduction=1, *, bool log_target=False)",
        F,
        |a| {
            reduced(
                kl_values(a.tensor(0)?, a.tensor(1)?, a.bool(3))?,
                Reduction::of_int(a.int(2)?),
            )
        },
        "The divergence of two distributions.",
    ),
    old_compose(
        "nn.functional.binary_cross_entropy",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        bce,
        "Cross entropy of truth values.",
    ),
    old_compose(
        "nn.functional.binary_cross_entropy_with_logits",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? pos_weight=None)",
        F,
        |a| {
            same_size(a)?;
            logits(
                a.tensor(0)?,
                a.tensor(1)?,
                a.opt_tensor(2),
                a.opt_tensor(6),
                legacy(a, 3)?,
            )
        },
        "Cross entropy of truth values given as logits.",
    ),
    old_compose(
        "binary_cross_entropy_with_logits",
        "(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1)",
        F,
        |a| {
            logits(
                a.tensor(0)?,
                a.tensor(1)?,
                a.opt_tensor(2),
                a.opt_tensor(3),
                Reduction::of_int(a.int(4)?),
            )
        },
        "Cross entropy of truth values given as logits.",
    ),
    old_compose(
        "nn.functional.poisson_nll_loss",
        "(Tensor input, Tensor target, bool log_input=True, bool full=False, bool? size_average=None, float eps=1e-08, bool? reduce=None, str reduction='mean')",
        F,
        checked_poisson,
        "Negative log likelihood of Poisson counts.",
    ),
    old_compose(
        "poisson_nll_loss",
        "(Tensor input, Tensor target, bool log_input, bool full, float eps, int reduction)",
        F,
        |a| poisson(a, a.float(4)?, Reduction::of_int(a.int(5)?)),
        "Negative log likelihood of Poisson counts.",
    ),
    old_compose(
        "nn.functional.gaussian_nll_loss",
        "(Tensor input, Tensor target, Operand var, bool full=False, float eps=1e-06, str reduction='mean')",
        F,
        gaussian,
        "Negative log likelihood of normal values.",
    ),
    old_compose(
        "nn.functional.multilabel_margin_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            let r = legacy(a, 2)?;
            dispatch::run(
                op!("_nn.multilabel_margin_loss")?,
                &[a.values[0].clone(), a.values[1].clone(), Arg::Int(r as i64)],
            )
        },
        "Hinge loss over sets of classes.",
    ),
];

/// What becomes of the losses of the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Kept.
    None = 0,
    /// Their mean.
    Mean = 1,
    /// Their sum.
    Sum = 2,
}

impl Reduction {
    /// From PyTorch's number.
    #[must_use]
    pub fn of_int(n: i64) -> Self {
        match n {
            1 => Self::Mean,
            2 => Self::Sum,
            _ => Self::None,
        }
    }

    /// From its name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "none" => Self::None,
            "mean" | "elementwise_mean" => Self::Mean,
            "sum" => Self::Sum,
            other => bail!(Value, "{other} is not a valid value for reduction"),
        })
    }
}

/// The reduction named by `size_average`, `reduce` and `reduction`, of which the first stands at `first`.
///
/// # Errors
/// If there is none of that name.
pub fn legacy(a: &Args, first: usize) -> Result<Reduction> {
    legacy_of(a.opt_bool(first), a.opt_bool(first + 1), a.str(first + 2))
}

pub(in crate::ops) fn legacy_of(
    size_average: Option<bool>,
    reduce: Option<bool>,
    name: Option<&str>,
) -> Result<Reduction> {
    if size_average.is_none() && reduce.is_none() {
        return Reduction::named(name.unwrap_or("mean"));
    }
    Ok(
        match (size_average.unwrap_or(true), reduce.unwrap_or(true)) {
            (true, true) => Reduction::Mean,
            (false, true) => Reduction::Sum,
            _ => Reduction::None,
        },
    )
}

/// Applies a reduction.
///
/// # Errors
/// If the dtype has no mean.
pub fn reduced(t: Tensor, r: Reduction) -> Result<Ret> {
    Ok(match r {
        Reduction::None => t,
        Reduction::Mean => run1!("mean", &t)?,
        Reduction::Sum => run1!("sum", &t)?,
    }
    .into())
}

pub(in crate::ops) fn clamp_min(t: &Tensor, min: f64) -> Result<Tensor> {
    if t.dtype().is_integral(true) {
        let bound =
            Tensor::scalar(crate::Scalar::Int(min as i64), t.dtype())?.to_device(t.device())?;
        return run1!("maximum", t, &bound);
    }
    run1!("_nn.clamp_min", t, min)
}

/// Losses with a weight for each element divide by the weights' sum.
fn weighted(losses: &Tensor, weight: &Tensor, r: Reduction) -> Result<Ret> {
    let w = run1!("mul", losses, weight)?;
    Ok(match r {
        Reduction::None => w,
        Reduction::Sum => run1!("sum", &w)?,
        Reduction::Mean => run1!("div", &run1!("sum", &w)?, &run1!("sum", weight)?)?,
    }
    .into())
}

fn check_weight(a: &Args, weight: &Tensor) -> Result<()> {
    ensure!(
        weight.shape() == a.tensor(0)?.shape(),
        Value,
        "Weights and input must have the same size."
    );
    Ok(())
}

fn mode(name: Option<&str>) -> Result<Reduction> {
    let name = name.unwrap_or("mean");
    Reduction::named(name).map_err(|_| {
        crate::err!(
            Value,
            "Invalid reduction mode: {name}. Expected one of 'none', 'mean', 'sum'."
        )
    })
}

fn squares(a: &Args, absolute: bool) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    let weight = a.opt_tensor(5);
    let r = match weight {
        Some(w) => {
            crate::dims::broadcast(x.shape(), y.shape())?;
            check_weight(a, w)?;
            match (a.opt_bool(2), a.opt_bool(3)) {
                (None, None) => mode(a.str(4))?,
                (s, r) => legacy_of(s, r, None)?,
            }
        }
        None => legacy(a, 2)?,
    };
    let losses = if absolute {
        run1!("abs", &run1!("sub", x, y)?)?
    } else {
        run1!("_nn.mse", x, y)?
    };
    match weight {
        Some(w) => weighted(&losses, w, r),
        None => reduced(losses, r),
    }
}

fn smooth_l1(a: &Args) -> Result<Ret> {
    let (x, y, beta) = (a.tensor(0)?, a.tensor(1)?, a.float(5)?);
    let r = legacy(a, 2)?;
    let losses = if beta == 0.0 {
        run1!("abs", &run1!("sub", x, y)?)?
    } else {
        run1!("_nn.smooth_l1", x, y, beta)?
    };
    reduced(losses, r)
}

fn huber(a: &Args) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    let r = match a.opt_tensor(4) {
        Some(w) => {
            check_weight(a, w)?;
            mode(a.str(2))?
        }
        None => Reduction::named(a.str(2).unwrap_or("mean"))?,
    };
    let mut losses = run1!("_nn.huber", x, y, a.float(3)?)?;
    if let Some(w) = a.opt_tensor(4) {
        losses = run1!("mul", &losses, w)?;
    }
    // The result has the input's type whatever the target's.
    let Ret::One(out) = reduced(losses, r)? else {
        bail!(Runtime, "a loss is one tensor")
    };
    Ok(out.to_dtype(x.dtype())?.into())
}

fn kl_values(x: &Tensor, target: &Tensor, log_target: bool) -> Result<Tensor> {
    ensure!(
        !x.dtype().is_complex() && !target.dtype().is_complex(),
        Runtime,
        "kl_div: Complex inputs not supported."
    );
    ensure!(
        !x.dtype().is_integral(true) && !target.dtype().is_integral(true),
        Runtime,
        "kl_div: Integral inputs not supported."
    );
    if log_target {
        return run1!("mul", &run1!("exp", target)?, &run1!("sub", target, x)?);
    }
    run1!(
        "sub",
        &run1!("xlogy", target, target)?,
        &run1!("mul", target, x)?
    )
}

fn kl_div(a: &Args) -> Result<Ret> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let batch = a.opt_bool(2).is_none() && a.opt_bool(3).is_none() && a.str(4) == Some("batchmean");
    let r = if batch { Reduction::Sum } else { legacy(a, 2)? };
    let out = reduced(kl_values(x, target, a.bool(5))?, r)?;
    if batch && x.ndim() > 0 {
        return Ok(run1!("div", &out.one()?, x.shape()[0])?.into());
    }
    Ok(out)
}

pub(in crate::ops) fn torch_size(t: &Tensor) -> String {
    format!("torch.Size({})", t.shape())
}

fn bce(a: &Args) -> Result<Ret> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let r = legacy(a, 3)?;
    ensure!(
        x.shape() == target.shape(),
        Value,
        "Using a target size ({}) that is different to the input size ({}) is deprecated. Please ensure they have the same size.",
        torch_size(target),
        torch_size(x)
    );
    let weight = match a.opt_tensor(2) {
        Some(w) => {
            let shape = crate::dims::broadcast(target.shape(), w.shape())?;
            Some(w.expand_to(&shape))
        }
        None => None,
    };
    for t in [Some(target), weight.as_ref()].into_iter().flatten() {
        ensure!(
            t.dtype() == x.dtype(),
            Runtime,
            "Found dtype {} but expected {}",
            if x.dtype().is_float() {
                t.dtype()
            } else {
                target.dtype()
            }
            .scalar_type(),
            x.dtype().scalar_type()
        );
    }
    if x.device().is_cpu() && x.dtype().is_float() {
        let values = cpu::copy::dense(x, DType::F64)?;
        ensure!(
            cpu::slice::<f64>(&values)
                .iter()
                .all(|v| (0.0..=1.0).contains(v)),
            Runtime,
            "all elements of input should be between 0 and 1"
        );
    }
    let mut losses = run1!("_nn.binary_cross_entropy", x, target)?;
    if let Some(w) = &weight {
        losses = run1!("mul", &losses, w)?;
    }
    reduced(losses, r)
}

fn same_size(a: &Args) -> Result<()> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    legacy(a, 3)?;
    ensure!(
        x.shape() == target.shape(),
        Value,
        "Target size ({}) must be the same as input size ({})",
        torch_size(target),
        torch_size(x)
    );
    Ok(())
}

pub(in crate::ops) fn log_sigmoid(x: &Tensor) -> Result<Tensor> {
    run1!("_nn.log_sigmoid", &x.contiguous()?)
}

fn logits(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    r: Reduction,
) -> Result<Ret> {
    let mut log = log_sigmoid(x)?;
    if let Some(p) = pos_weight {
        let factor = run1!("add", &run1!("mul", &run1!("sub", p, 1i64)?, target)?, 1i64)?;
        log = run1!("mul", &factor, &log)?;
    }
    let mut losses = run1!(
        "sub",
        &run1!("mul", &run1!("rsub", target, 1i64)?, x)?,
        &log
    )?;
    if let Some(w) = weight {
        losses = run1!("mul", &losses, w)?;
    }
    reduced(losses, r)
}

fn checked_poisson(a: &Args) -> Result<Ret> {
    let r = legacy_of(a.opt_bool(4), a.opt_bool(6), a.str(7))?;
    poisson(a, a.float(5)?, r)
}

fn poisson(a: &Args, eps: f64, r: Reduction) -> Result<Ret> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let mut loss = if a.bool(2) {
        run1!("sub", &run1!("exp", x)?, &run1!("mul", target, x)?)?
    } else {
        run1!(
            "sub",
            x,
            &run1!("mul", target, &run1!("log", &run1!("add", x, eps)?)?)?
        )?
    };
    if a.bool(3) {
        // Stirling's approximation of log(target!), where the target is above 1.
        let log = run1!("mul", target, &run1!("log", target)?)?;
        let half = run1!(
            "mul",
            &run1!("log", &run1!("mul", target, 2.0 * std::f64::consts::PI)?)?,
            0.5
        )?;
        let stirling = run1!("add", &run1!("sub", &log, target)?, &half)?;
        let small = run1!("le", target, 1i64)?;
        loss = run1!(
            "add",
            &loss,
            &run1!("masked_fill", &stirling, &small, 0i64)?
        )?;
    }
    reduced(loss, r)
}

fn gaussian(a: &Args) -> Result<Ret> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let mut var = match &a.values[2] {
        Arg::Tensor(v) => {
            let host = crate::ops::core::helpers::readable(
                v,
                "gaussian_nll_loss() reads its variances, and meta tensors have none",
            )?;
            let values = cpu::copy::dense(&host, DType::F64)?;
            ensure!(
                !cpu::slice::<f64>(&values).iter().any(|&v| v < 0.0),
                Value,
                "var has negative entry/entries"
            );
            (*v).clone()
        }
        other => {
            let v =
                crate::ops::pointwise::rule::scalar_of(other).map_or(0.0, crate::Scalar::to_f64);
            ensure!(v >= 0.0, Value, "var has negative entry/entries");
            run1!("mul", &run1!("ones_like", x)?, v)?
        }
    };
    if var.shape() != x.shape() {
        let one_short = x.ndim() > 0 && x.shape()[..x.ndim() - 1] == var.shape()[..];
        let differing: i64 = if x.ndim() == var.ndim() {
            x.shape()
                .iter()
                .zip(var.shape().iter())
                .filter(|(p, q)| p != q)
                .map(|(_, q)| *q)
                .sum()
        } else {
            0
        };
        if one_short {
            var = run1!("unsqueeze", &var, -1i64)?;
        } else {
            ensure!(differing == 1, Value, "var is of incorrect size");
        }
    }
    let name = a.str(5).unwrap_or("mean");
    ensure!(
        matches!(name, "none" | "mean" | "sum"),
        Value,
        "{name} is not valid"
    );
    let var = clamp_min(&var, a.float(4)?)?;
    let diff = run1!("sub", x, target)?;
    let scaled = run1!("div", &run1!("mul", &diff, &diff)?, &var)?;
    let mut loss = run1!("mul", &run1!("add", &run1!("log", &var)?, &scaled)?, 0.5)?;
    if a.bool(3) {
        loss = run1!("add", &loss, 0.5 * (2.0 * std::f64::consts::PI).ln())?;
    }
    reduced(loss, Reduction::named(name)?)
}

/// The shape of losses of samples, for inputs of one sample or a batch.
pub(in crate::ops) fn sample_shape(x: &Tensor) -> Result<(i64, i64)> {
    let s = x.shape();
    let fits = match x.ndim() {
        0 => true,
        1 => s[0] != 0,
        2 => s[1] != 0,
        _ => false,
    };
    ensure!(
        fits,
        Runtime,
        "Expected non-empty vector or matrix with optional 0-dim batch size, but got: {s}"
    );
    Ok(match x.ndim() {
        2 => (s[0], s[1]),
        n => (1, if n == 1 { s[0] } else { 1 }),
    })
}
