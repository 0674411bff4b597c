//! Dropout: masks drawn as PyTorch draws them.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, OpDef, Ret, old_compose};
use crate::{DType, Dims, Result, Tensor, bail, ensure, op, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::PLAIN, false),
        "Elements set to zero at random, the others scaled.",
    ),
    old_compose(
        "dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::PLAIN, true),
        "dropout in place.",
    ),
    old_compose(
        "feature_dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::FEATURE, false),
        "Channels set to zero at random, the others scaled.",
    ),
    old_compose(
        "feature_dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::FEATURE, true),
        "feature_dropout in place.",
    ),
    old_compose(
        "alpha_dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::ALPHA, false),
        "Dropout that keeps mean and variance of selu's output.",
    ),
    old_compose(
        "alpha_dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::ALPHA, true),
        "alpha_dropout in place.",
    ),
    old_compose(
        "feature_alpha_dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::FEATURE_ALPHA, false),
        "alpha_dropout of whole channels.",
    ),
    old_compose(
        "feature_alpha_dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| plain(a, Kind::FEATURE_ALPHA, true),
        "feature_alpha_dropout in place.",
    ),
    old_compose(
        "native_dropout",
        "(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
        F,
        native,
        "dropout and its mask.",
    ),
    old_compose(
        "nn.functional.dropout",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        |a| checked(a, Kind::PLAIN),
        "Elements set to zero at random, the others scaled.",
    ),
    old_compose(
        "nn.functional.alpha_dropout",
        "(Tensor input, float p=0.5, bool training=False, bool inplace=False)",
        F,
        |a| checked(a, Kind::ALPHA),
        "Dropout that keeps mean and variance of selu's output.",
    ),
    old_compose(
        "nn.functional.feature_alpha_dropout",
        "(Tensor input, float p=0.5, bool training=False, bool inplace=False)",
        F,
        |a| checked(a, Kind::FEATURE_ALPHA),
        "alpha_dropout of whole channels.",
    ),
    old_compose(
        "nn.functional.dropout1d",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        dropout1d,
        "Channels of sequences set to zero at random.",
    ),
    old_compose(
        "nn.functional.dropout2d",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        |a| checked(a, Kind::FEATURE),
        "Channels of images set to zero at random.",
    ),
    old_compose(
        "nn.functional.dropout3d",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        dropout3d,
        "Channels of volumes set to zero at random.",
    ),
];

/// What is dropped, and by what it is replaced.
#[derive(Clone, Copy)]
struct Kind {
    feature: bool,
    alpha: bool,
}

impl Kind {
    const PLAIN: Self = Self {
        feature: false,
        alpha: false,
    };
    const FEATURE: Self = Self {
        feature: true,
        alpha: false,
    };
    const ALPHA: Self = Self {
        feature: false,
        alpha: true,
    };
    const FEATURE_ALPHA: Self = Self {
        feature: true,
        alpha: true,
    };
}

fn plain(a: &Args, kind: Kind, in_place: bool) -> Result<Ret> {
    Ok(drop_some(a.tensor(0)?, a.float(1)?, a.bool(2), kind, in_place)?.into())
}

/// A double as Python prints it.
#[must_use]
pub fn py_float(v: f64) -> String {
    if v == v.trunc() && v.abs() < 1e16 {
        format!("{v:.1}")
    } else {
        format!("{v}")
    }
}

fn check_p(p: f64) -> Result<()> {
    ensure!(
        (0.0..=1.0).contains(&p),
        Value,
        "dropout probability has to be between 0 and 1, but got {}",
        py_float(p)
    );
    Ok(())
}

fn checked(a: &Args, kind: Kind) -> Result<Ret> {
    check_p(a.float(1)?)?;
    plain(a, kind, a.bool(3))
}

fn in_place(op: &'static crate::ops::Op, t: &Tensor, other: impl Into<Arg<'static>>) -> Result<()> {
    dispatch::call_inplace(&Args::new(op, [Arg::Tensor(t), other.into()])?)
}

fn drop_some(t: &Tensor, p: f64, train: bool, kind: Kind, inplace: bool) -> Result<Tensor> {
    ensure!(
        (0.0..=1.0).contains(&p),
        Runtime,
        "dropout probability has to be between 0 and 1, but got {p}"
    );
    if p == 0.0 || !train || t.numel() == 0 {
        return Ok(t.clone());
    }
    let multiply = |by: &Tensor| -> Result<Tensor> {
        if inplace {
            dispatch::call_inplace(&Args::new(op!("mul")?, [Arg::Tensor(t), Arg::Tensor(by)])?)?;
            return Ok(t.clone());
        }
        run1!("mul", t, by)
    };
    if p == 1.0 {
        return multiply(&run1!("new_zeros", t, Dims::EMPTY)?);
    }
    let noise = if kind.feature {
        ensure!(
            t.ndim() >= 2,
            Runtime,
            "Feature dropout requires at least 2 dimensions in the input"
        );
        let mut shape = Dims::filled(t.ndim(), 1);
        (shape[0], shape[1]) = (t.shape()[0], t.shape()[1]);
        run1!("new_empty", t, shape)?
    } else {
        run1!("empty_like", t)?
    };
    in_place(op!("bernoulli#inplace")?, &noise, 1.0 - p)?;
    if !kind.alpha {
        // The reciprocal is taken in the precision that a division of the mask would have.
        let scale = if t.dtype() == DType::F64 {
            1.0 / (1.0 - p)
        } else {
            f64::from(1.0 / (1.0 - p) as f32)
        };
        in_place(op!("mul")?, &noise, scale)?;
        return multiply(&noise);
    }
    // Dropped elements take selu's negative limit; a and b restore mean 0 and variance 1.
    let alpha = 1.758_099_340_847_376_6;
    let a = 1.0 / ((alpha * alpha * p + 1.0) * (1.0 - p)).sqrt();
    let b = run1!("add", &noise, -1i64)?;
    in_place(op!("mul")?, &b, alpha * a)?;
    in_place(op!("add")?, &b, alpha * a * p)?;
    in_place(op!("mul")?, &noise, a)?;
    let result = multiply(&noise)?;
    dispatch::call_inplace(&Args::new(
        op!("add")?,
        [Arg::Tensor(&result), Arg::Tensor(&b)],
    )?)?;
    Ok(result)
}

fn native(a: &Args) -> Result<Ret> {
    let (t, p) = (a.tensor(0)?, a.float(1)?);
    let mask = run1!("empty_like", t, DType::Bool)?;
    if a.opt_bool(2) == Some(false) {
        return Ok(Ret::Tuple(vec![
            run1!("clone", t)?,
            run1!("ones_like", t, DType::Bool)?,
        ]));
    }
    if t.numel() == 0 {
        return Ok(Ret::Tuple(vec![t.clone(), mask]));
    }
    let keep = 1.0 - p;
    in_place(op!("bernoulli#inplace")?, &mask, keep)?;
    let out = run1!("mul", t, &mask)?;
    in_place(
        op!("mul")?,
        &out,
        if keep == 0.0 { 0.0 } else { 1.0 / keep },
    )?;
    Ok(Ret::Tuple(vec![out, mask]))
}

fn dropout1d(a: &Args) -> Result<Ret> {
    check_p(a.float(1)?)?;
    let n = a.tensor(0)?.ndim();
    if n != 2 && n != 3 {
        bail!(
            Runtime,
            "dropout1d: Expected 2D or 3D input, but received a {n}D input. Note that dropout1d exists to provide channel-wise \
             dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        );
    }
    batched(a, n == 3)
}

fn dropout3d(a: &Args) -> Result<Ret> {
    check_p(a.float(1)?)?;
    batched(a, a.tensor(0)?.ndim() == 5)
}

/// Channel dropout; without a batch dimension one is put in front meanwhile.
fn batched(a: &Args, has_batch: bool) -> Result<Ret> {
    if has_batch {
        return plain(a, Kind::FEATURE, a.bool(3));
    }
    let t = a.tensor(0)?;
    let wide = run1!("unsqueeze", t, 0i64)?;
    let r = drop_some(&wide, a.float(1)?, a.bool(2), Kind::FEATURE, a.bool(3))?;
    if a.bool(3) {
        return Ok(t.clone().into());
    }
    run!("squeeze#dim", &r, 0i64)
}
