//! Dropout: masks drawn as PyTorch draws them.

use crate::ops::core::helpers;
use crate::ops::core::op::{F, OpDef, Ret, compose};
use crate::ops::core::typed;
use crate::ops::f;
use crate::{DType, Dims, Result, Tensor, bail, ensure, mode, warning};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::PLAIN, false),
        "Elements set to zero at random, the others scaled.",
    )
    .samples("f32[3, 4], 0.5, True; f32[3], 0.5, False"),
    compose(
        "dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::PLAIN, true),
        "dropout in place.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "feature_dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::FEATURE, false),
        "Channels set to zero at random, the others scaled.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "feature_dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::FEATURE, true),
        "feature_dropout in place.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "alpha_dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::ALPHA, false),
        "Dropout that keeps mean and variance of selu's output.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "alpha_dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::ALPHA, true),
        "alpha_dropout in place.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "feature_alpha_dropout",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::FEATURE_ALPHA, false),
        "alpha_dropout of whole channels.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "feature_alpha_dropout_",
        "(Tensor input, float p, bool train)",
        F,
        |a| drop_some(a.input, a.p, a.train, Kind::FEATURE_ALPHA, true),
        "feature_alpha_dropout in place.",
    )
    .samples("f32[3, 4], 0.5, True"),
    compose(
        "native_dropout",
        "(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
        F,
        native,
        "dropout and its mask.",
    )
    .samples("f32[3, 4], 0.5, True; f32[3], 0.5, False"),
    compose(
        "nn.functional.dropout",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        |a| checked(a.input, a.p, a.training, Kind::PLAIN, a.inplace),
        "Elements set to zero at random, the others scaled.",
    )
    .samples("f32[3, 4]; f32[3, 4], p=0.0, training=False"),
    compose(
        "nn.functional.alpha_dropout",
        "(Tensor input, float p=0.5, bool training=False, bool inplace=False)",
        F,
        |a| checked(a.input, a.p, a.training, Kind::ALPHA, a.inplace),
        "Dropout that keeps mean and variance of selu's output.",
    )
    .samples("f32[3, 4], p=0.0, training=True"),
    compose(
        "nn.functional.feature_alpha_dropout",
        "(Tensor input, float p=0.5, bool training=False, bool inplace=False)",
        F,
        |a| checked(a.input, a.p, a.training, Kind::FEATURE_ALPHA, a.inplace),
        "alpha_dropout of whole channels.",
    )
    .samples("f32[3, 4], p=0.0; c64[3, 4]"),
    compose(
        "nn.functional.dropout2d",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        dropout2d,
        "Channels of images set to zero at random.",
    )
    .samples("f32[3, 4], p=1.0; f32[3, 4], p=0.0, training=False"),
    compose(
        "nn.functional.dropout1d",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        dropout1d,
        "Channels of sequences set to zero at random.",
    )
    .samples("f32[2, 3, 4]; f32[3, 4], 0.2"),
    compose(
        "nn.functional.dropout3d",
        "(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
        F,
        dropout3d,
        "Channels of volumes set to zero at random.",
    )
    .samples("f32[3, 4], p=0.0"),
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

fn checked(t: &Tensor, p: f64, train: bool, kind: Kind, inplace: bool) -> Result<Ret> {
    check_p(p)?;
    drop_some(t, p, train, kind, inplace)
}

/// Draws a mask; the result is argument 0 itself where nothing is dropped, or in place.
fn drop_some(t: &Tensor, p: f64, train: bool, kind: Kind, inplace: bool) -> Result<Ret> {
    ensure!(
        (0.0..=1.0).contains(&p),
        Runtime,
        "dropout probability has to be between 0 and 1, but got {p}"
    );
    if p == 0.0 || !train || t.numel() == 0 {
        return Ok(Ret::Same(0));
    }
    if p == 1.0 {
        return multiplied(t, &f::new_zeros(t, &[])?, None, inplace);
    }
    if helpers::is_beside(t) && !kind.feature && !kind.alpha && !inplace {
        // As PyTorch there: a mask of truth values is drawn, which the gradient keeps.
        let mask = drawn(f::EmptyLike::new(t).dtype(DType::Bool).call()?, 1.0 - p)?;
        return f::_dropped(t, &mask, 1.0 / (1.0 - p)).map(Ret::from);
    }
    let noise = drawn(noise(t, kind.feature)?, 1.0 - p)?;
    if !kind.alpha {
        f::Div::new(&noise, 1.0 - p).call_()?;
        return multiplied(t, &noise, None, inplace);
    }
    // Dropped elements take selu's negative limit; a and b restore mean 0 and variance 1.
    let alpha = 1.758_099_340_847_376_6;
    let a = 1.0 / ((alpha * alpha * p + 1.0) * (1.0 - p)).sqrt();
    let b = f::add(&noise, -1i64)?;
    f::Mul::new(&b, alpha * a).call_()?;
    f::Add::new(&b, alpha * a * p).call_()?;
    f::Mul::new(&noise, a).call_()?;
    multiplied(t, &noise, Some(&b), inplace)
}

/// A mask, in the memory given for it. Under `vmap` it is drawn anew: the masks of examples may differ where nothing else does.
fn drawn(blank: Tensor, keep: f64) -> Result<Tensor> {
    if mode::layers() & mode::BATCHED != 0 {
        return f::BernoulliP::new(&blank, keep).call();
    }
    f::BernoulliInplace::new(&blank).p(keep).call_()?;
    Ok(blank)
}

/// Uninitialised memory for a mask: of all elements, or of all channels.
fn noise(t: &Tensor, feature: bool) -> Result<Tensor> {
    if !feature {
        return f::empty_like(t);
    }
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "Feature dropout requires at least 2 dimensions in the input"
    );
    let mut shape = Dims::filled(t.ndim(), 1);
    (shape[0], shape[1]) = (t.shape()[0], t.shape()[1]);
    f::new_empty(t, &shape)
}

/// `t * by`, plus a shift.
fn multiplied(t: &Tensor, by: &Tensor, shift: Option<&Tensor>, inplace: bool) -> Result<Ret> {
    let made = if inplace {
        f::Mul::new(t, by).call_()?;
        None
    } else {
        Some(f::mul(t, by)?)
    };
    if let Some(shift) = shift {
        f::Add::new(made.as_ref().unwrap_or(t), shift).call_()?;
    }
    Ok(made.map_or(Ret::Same(0), Ret::One))
}

fn native(a: &calls::NativeDropout) -> Result<Ret> {
    let t = a.input;
    if a.train == Some(false) {
        return Ok(Ret::Tuple(vec![
            f::clone(t)?,
            f::OnesLike::new(t).dtype(DType::Bool).call()?,
        ]));
    }
    let mask = f::EmptyLike::new(t).dtype(DType::Bool).call()?;
    if t.numel() == 0 {
        return Ok(Ret::Tuple(vec![t.clone(), mask]));
    }
    let keep = 1.0 - a.p;
    let mask = drawn(mask, keep)?;
    let out = f::mul(t, &mask)?;
    let scale = if keep == 0.0 { 0.0 } else { 1.0 / keep };
    f::Mul::new(&out, scale).call_()?;
    Ok(Ret::Tuple(vec![out, mask]))
}

fn dropout1d(a: &calls::NnFunctionalDropout1d) -> Result<Ret> {
    check_p(a.p)?;
    let n = a.input.ndim();
    if n != 2 && n != 3 {
        bail!(
            Runtime,
            "dropout1d: Expected 2D or 3D input, but received a {n}D input. Note that dropout1d exists to provide channel-wise \
             dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        );
    }
    batched(a.input, a.p, a.training, a.inplace, 3)
}

/// Warns of an input that has not as many dimensions as `n` spatial ones make, without and with a batch.
fn tell_dims(ndim: usize, n: usize) {
    let (least, most) = (n + 1, n + 2);
    if ndim != least && ndim != most {
        warning::say(&format!(
            "dropout{n}d: Received a {ndim}-D input to dropout{n}d, which is deprecated and will result in an error in a future \
             release. To retain the behavior and silence this warning, please use dropout instead. Note that dropout{n}d exists \
             to provide channel-wise dropout on inputs with {n} spatial dimensions, a channel dimension, and an optional batch \
             dimension (i.e. {least}D or {most}D inputs)."
        ));
    }
}

fn dropout2d(a: &calls::NnFunctionalDropout2d) -> Result<Ret> {
    check_p(a.p)?;
    tell_dims(a.input.ndim(), 2);
    if a.input.ndim() == 3 {
        warning::say(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired - input is \
             interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a future release to interpret \
             the input as one without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise dropout behavior, \
             please switch to using dropout1d instead.",
        );
    }
    drop_some(a.input, a.p, a.training, Kind::FEATURE, a.inplace)
}

fn dropout3d(a: &calls::NnFunctionalDropout3d) -> Result<Ret> {
    check_p(a.p)?;
    tell_dims(a.input.ndim(), 3);
    batched(a.input, a.p, a.training, a.inplace, 5)
}

/// Channel dropout of inputs that have `ndim` dimensions with a batch; without one, one is put in front meanwhile.
fn batched(t: &Tensor, p: f64, train: bool, inplace: bool, ndim: usize) -> Result<Ret> {
    if t.ndim() == ndim {
        return drop_some(t, p, train, Kind::FEATURE, inplace);
    }
    if inplace {
        // Views in place are calls that the graph has too.
        let wide = typed::changed(&f::Unsqueeze::new(t, 0).args()?)?;
        drop_some(&wide, p, train, Kind::FEATURE, true)?;
        let made = typed::changed(&f::SqueezeDim::new(&wide, 0).args()?)?;
        return Ok(Ret::Become(Box::new(made)));
    }
    let wide = f::unsqueeze(t, 0)?;
    let dropped = drop_some(&wide, p, train, Kind::FEATURE, false)?;
    let dropped = if let Ret::One(t) = dropped { t } else { wide };
    f::squeeze_dim(&dropped, 0).map(Ret::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Call, dispatch};

    #[test]
    fn where_nothing_is_dropped_the_input_itself_comes_back() {
        let x = Tensor::from_slice(&[1f32, 2.0], &[1, 2]).unwrap();
        for (p, train) in [(0.0, true), (0.5, false)] {
            let call = f::Dropout::new(&x, p, train);
            let ret = dispatch::call(Call::new(&call.args().unwrap())).unwrap();
            assert!(matches!(ret, Ret::Same(0)));
        }
        let all = f::dropout(&x, 1.0, true).unwrap();
        assert_eq!(all.to_vec::<f32>().unwrap(), [0.0, 0.0]);
        f::AlphaDropout_::new(&x, 1.0, true).call().unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [0.0, 0.0]);
    }
}
