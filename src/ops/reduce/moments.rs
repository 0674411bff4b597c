//! Variances and standard deviations.

use crate::cpu::moments;
use crate::cpu::room::Room;
use crate::ops::core::op::{F, FM, FMO, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::reduce::rule::Over;
use crate::{DType, Result, Scalar, Tensor, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "var",
        "(Tensor self, bool unbiased=True)",
        FM,
        |a| f::VarCorrection::new(a.input).correction(Scalar::Int(a.unbiased.into())).call(),
        "The variance of all elements.",
    ).samples("f32[3, 4]; c64[3, 4], True; f32[3, 4], True"),
    compose(
        "var#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)",
        FMO,
        |a| {
            let call = f::VarCorrection::new(a.input).dim(a.dim).keepdim(a.keepdim);
            call.correction(Scalar::Int(a.unbiased.into())).call()
        },
        "The variance over dimensions.",
    ).samples("f32[3, 4], dim=1; f32[3, 4], dim=1, keepdim=True"),
    kernel(
        "var#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
        FMO,
        body!(
            |a| Spread::corrected(a.input, a.dim, a.correction, a.keepdim).var(),
            anywhere: write, scratch: scratch
        ),
        "The variance over dimensions.",
    ).samples("f32[3, 4]; f32[3, 4], correction=0, keepdim=True")
    .grad("VarBackward0 | self: _grad.var(grad, self, dim, correction, keepdim); jvp: _grad.var(self_t.conj(), self, dim, correction, True).sum(dim, keepdim)"),
    compose(
        "std",
        "(Tensor self, bool unbiased=True)",
        FM,
        |a| f::StdCorrection::new(a.input).correction(Scalar::Int(a.unbiased.into())).call(),
        "The standard deviation of all elements.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], True"),
    compose(
        "std#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)",
        FMO,
        |a| {
            let call = f::StdCorrection::new(a.input).dim(a.dim).keepdim(a.keepdim);
            call.correction(Scalar::Int(a.unbiased.into())).call()
        },
        "The standard deviation over dimensions.",
    ).samples("f32[3, 4], dim=1; f32[3, 4], dim=0, keepdim=True"),
    kernel(
        "std#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
        FMO,
        body!(
            |a| Spread::corrected(a.input, a.dim, a.correction, a.keepdim).std(),
            anywhere: write, scratch: scratch
        ),
        "The standard deviation over dimensions.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], dim=(1,), correction=2")
    .grad("StdBackward0 | self: _grad.std(grad, self, result, dim, correction, keepdim)"),
    compose(
        "var_mean",
        "(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
        F,
        |a| {
            let call = f::VarMeanCorrection::new(a.input).correction(Scalar::Int(a.unbiased.into()));
            call.call().map(|both| Ret::Tuple(both.into()))
        },
        "The variance and mean of all elements.",
    ).samples("f32[3, 4]; c64[3, 4], False; f32[3, 4], True"),
    compose(
        "var_mean#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        |a| {
            let call = f::VarMeanCorrection::new(a.input).dim(a.dim).keepdim(a.keepdim);
            call.correction(Scalar::Int(a.unbiased.into())).call().map(|both| Ret::Tuple(both.into()))
        },
        "The variance and mean over dimensions.",
    ).samples("f32[3, 4], dim=0; f32[3, 4], dim=0, unbiased=False"),
    kernel(
        "var_mean#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        body!(
            |a| Spread::corrected(a.input, a.dim, a.correction, a.keepdim).var_mean(),
            anywhere: write, scratch: scratch
        ),
        "The variance and mean over dimensions.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], correction=0, keepdim=True")
    .grad("VarMeanBackward0 | self: _grad.var_mean(grads[0], grads[1], self, None, dim, correction, keepdim); jvp: [_grad.var(self_t.conj(), self, dim, correction, True).sum(dim, keepdim), self_t.mean(dim, keepdim)]"),
    compose(
        "std_mean",
        "(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
        F,
        |a| {
            let call = f::StdMeanCorrection::new(a.input).correction(Scalar::Int(a.unbiased.into()));
            call.call().map(|both| Ret::Tuple(both.into()))
        },
        "The standard deviation and mean of all elements.",
    ).samples("f32[3, 4]; f32[3, 4], True"),
    compose(
        "std_mean#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        |a| {
            let call = f::StdMeanCorrection::new(a.input).dim(a.dim).keepdim(a.keepdim);
            call.correction(Scalar::Int(a.unbiased.into())).call().map(|both| Ret::Tuple(both.into()))
        },
        "The standard deviation and mean over dimensions.",
    ).samples("f32[3, 4], dim=0; c64[3, 4], dim=0; f32[3, 4], dim=0, keepdim=True"),
    kernel(
        "std_mean#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        body!(
            |a| Spread::corrected(a.input, a.dim, a.correction, a.keepdim).std_mean(),
            anywhere: write, scratch: scratch
        ),
        "The standard deviation and mean over dimensions.",
    ).samples("f32[3, 4]; c64[3, 4], dim=0; f32[3, 4], dim=(1,), correction=2")
    .grad("StdMeanBackward0 | self: _grad.var_mean(grads[0], grads[1], self, result0, dim, correction, keepdim); jvp: [(_grad.var(self_t.conj(), self, dim, correction, True).sum(dim, keepdim) / where(result0.eq(0), 1.0, result0 * 2)).masked_fill(result0.eq(0), 0.0), self_t.mean(dim, keepdim)]"),
];

/// What a variance is asked for.
struct Spread<'a> {
    input: &'a Tensor,
    dim: Option<&'a [i64]>,
    keepdim: bool,
    /// How much less than the count the sum of squares is divided by.
    correction: f64,
}

/// What the kernel computes: the spread and, for a second result, the mean.
struct Moments<'a> {
    over: Over<'a>,
    correction: f64,
    root: bool,
}

impl<'a> Spread<'a> {
    fn corrected(
        input: &'a Tensor,
        dim: Option<&'a [i64]>,
        correction: Option<Scalar>,
        keepdim: bool,
    ) -> Self {
        Self {
            input,
            dim,
            keepdim,
            correction: correction.map_or(1.0, Scalar::to_f64),
        }
    }

    fn var(self) -> Result<(Plan, Moments<'a>)> {
        let (over, dtype) = self.checked("std and var", "var")?;
        Ok((over.plan(dtype.to_real()), self.moments(over, false)))
    }

    fn std(self) -> Result<(Plan, Moments<'a>)> {
        let (over, dtype) = self.checked("std and var", "std")?;
        Ok((over.plan(dtype.to_real()), self.moments(over, true)))
    }

    fn var_mean(self) -> Result<(Plan, Moments<'a>)> {
        let (over, dtype) = self.checked("var_mean", "var_mean")?;
        Ok((over.pair(dtype.to_real(), dtype), self.moments(over, false)))
    }

    fn std_mean(self) -> Result<(Plan, Moments<'a>)> {
        let (over, dtype) = self.checked("std_mean", "std_mean")?;
        Ok((over.pair(dtype.to_real(), dtype), self.moments(over, true)))
    }

    fn checked(&self, name: &str, short: &str) -> Result<(Over<'a>, DType)> {
        let d = self.input.dtype();
        ensure!(
            d.is_float() || d.is_complex(),
            Runtime,
            "{name} only support floating point and complex dtypes"
        );
        d.check_kernel(!d.is_storage_only() || d == DType::C32, "std_cpu")?;
        let over = Over::list(self.input, self.dim, self.keepdim)?;
        let shape = self.input.shape();
        let count = over
            .dims
            .iter()
            .filter_map(|&i| shape.get(i))
            .product::<i64>();
        if count as f64 <= self.correction || self.input.numel() == 0 {
            warn_of_freedom(short);
        }
        Ok((over, d))
    }

    fn moments(&self, over: Over<'a>, root: bool) -> Moments<'a> {
        Moments {
            over,
            correction: self.correction,
            root,
        }
    }
}

#[cold]
fn warn_of_freedom(name: &str) {
    crate::warning::say(&format!(
        "{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided by output numel)."
    ));
}

fn scratch<A>(_: &A, m: &Moments, outs: &[Tensor], room: &mut Room) -> Result<()> {
    moments::scratch(room, &outs[0], m.over.input, &m.over.dims)
}

fn write<A>(_: &A, m: &Moments, outs: &[Tensor]) -> Result<()> {
    kernels::scan::variance(
        &outs[0],
        outs.get(1),
        m.over.input,
        &m.over.dims,
        m.correction,
        m.root,
    )
}
