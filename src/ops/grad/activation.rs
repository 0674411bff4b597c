//! Gradients of activations. The first operand is the gradient of the result, the second the input or the result.

use crate::cpu::halves::rounded;
use crate::cpu::map::{Ctx, FromCtx as _, both};
use crate::cpu::math::{Elementary as _, RealFns as _};
use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::core::rules;
use crate::ops::f;
use crate::ops::nn::activation::{Smooth as _, numbers, tanh_of_softplus};
use crate::ops::pointwise::rule::{Lies, float, same};
use crate::{DType, Result, Scalar, Tensor, bail, ensure, map_op, map_row};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

map_op! {
    Sigmoid, 2,
    [light] |g, y, c| g * (1.0 - y) * y,
    [complex] |g, y, c| g * ((1.0 - y) * y).conj()
}

map_op! { Tanh, 2, [light] |g, y, c| g * (1.0 - y * y), [complex] |g, y, c| g * (1.0 - y * y).conj() }

map_op! {
    Threshold, 2,
    [int] |g, x, c| if x <= T::ctx(c, 0) { 0 } else { g },
    [light] |g, x, c| if x <= T::ctx(c, 0) { 0.0 } else { g }
}

map_op! { Gelu, 2, [float] |g, x, c| g * x.gelu_slope_() }

map_op! {
    GeluTanh, 2,
    [float] |g, x, c| {
        let scale = T::of(SQRT_2_OVER_PI);
        let t = (scale * (x + T::of(CUBIC) * x * x * x)).tanh_();
        let inner = scale * (1.0 + T::of(3.0 * CUBIC) * x * x);
        g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner)
    }
}

map_op! {
    Silu, 2,
    [float complex] |g, x, c| {
        let s = x.sigmoid_();
        g * s * (1.0 + x * (1.0 - s))
    }
}

map_op! {
    Mish, 2,
    [float] |g, x, c| {
        let t = tanh_of_softplus!(x);
        g * (t + x * x.sigmoid_() * (1.0 - t * t))
    }
}

map_op! {
    Elu, 2,
    [float] |g, x, c| if x <= 0.0 {
        g * T::ctx(c, 2) * T::ctx(c, 0) * (x * T::ctx(c, 2)).exp_()
    } else {
        g * T::ctx(c, 1)
    }
}

map_op! {
    EluResult, 2,
    [light] |g, y, c| if y <= 0.0 { g * T::ctx(c, 2) * (y + T::ctx(c, 0)) } else { g * T::ctx(c, 1) }
}

map_op! { Hardtanh, 2, [light] |g, x, c| if both(!(x <= T::ctx(c, 0)), !(x >= T::ctx(c, 1))) { g } else { 0.0 } }

map_op! {
    Hardswish, 2,
    [light] |g, x, c| if x <= -3.0 {
        0.0
    } else if x < 3.0 {
        g * (x / 3.0 + 0.5)
    } else {
        g
    }
}

map_op! { Hardsigmoid, 2, [light] |g, x, c| if both(x > -3.0, x < 3.0) { g * T::from(SIXTH) } else { 0.0 } }

map_op! { LeakyRelu, 2, [light] |g, x, c| if x > 0.0 { g } else { g * T::ctx(c, 0) } }

map_op! {
    Softplus, 2,
    [float] |g, x, c| if x * T::ctx(c, 0) > T::ctx(c, 1) { g } else { g * (x * T::ctx(c, 0)).sigmoid_() }
}

map_op! { Shrink, 2, [light] |g, x, c| if both(x >= -T::ctx(c, 0), x <= T::ctx(c, 0)) { 0.0 } else { g } }

map_op! { LogSigmoid, 2, [float] |g, x, c| g * (-x).sigmoid_() }

map_op! {
    Logit, 2,
    [light] |g, x, c| if (x < T::ctx(c, 0)) | (x > 1.0 - T::ctx(c, 0)) {
        T::ctx(c, 1)
    } else {
        g / (x * (1.0 - x))
    }
}

map_op! { GluSelf, 2, [float] |g, gate, c| g * gate.sigmoid_() }

map_op! {
    GluGate, 3,
    [float] |g, x, gate, c| {
        let s = gate.sigmoid_();
        (1.0 - s) * s * x * g
    }
}

map_op! { PreluSelf, 3, [light] |g, x, w, c| if x > 0.0 { g } else { w * g } }

map_op! { PreluWeight, 2, [light] |g, x, c| if x > 0.0 { 0.0 } else { x * g } }

map_op! { Dropout, 2, [light] |g, kept, c| g * (kept * T::ctx(c, 0)), [complex] |g, kept, c| g * (kept * T::ctx(c, 0)) }

/// In single precision for all types, as in PyTorch.
const SIXTH: f32 = 1.0 / 6.0;
/// sqrt(2 / pi), as in the tanh approximation of gelu.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// The factor of the cube in that approximation.
const CUBIC: f64 = 0.044_715;

fn threshold_ctx(a: &calls::_GradThresholdBackward, _: DType) -> Result<Ctx> {
    numbers([a.threshold])
}

/// The loops want the products.
fn elu_ctx(alpha: f64, scale: f64, input_scale: f64) -> Result<Ctx> {
    numbers([(alpha * scale).into(), scale.into(), input_scale.into()])
}

fn hardtanh_ctx(a: &calls::_GradHardtanhBackward, _: DType) -> Result<Ctx> {
    numbers([a.min_val, a.max_val])
}

fn leaky_relu_ctx(a: &calls::_GradLeakyReluBackward, _: DType) -> Result<Ctx> {
    ensure!(
        !a.self_is_result || a.negative_slope.to_f64() >= 0.0,
        Runtime,
        "In-place leakyReLu backward calculation is triggered with a negative slope which is not supported. This is caused by \
         calling in-place forward function with a negative slope, please call out-of-place version instead. File an issue at \
         https://github.com/pytorch/pytorch if you do require supporting in-place leakRelu backward calculation with negative slope"
    );
    numbers([a.negative_slope])
}

fn softplus_ctx(a: &calls::_GradSoftplusBackward, _: DType) -> Result<Ctx> {
    numbers([a.beta, a.threshold])
}

/// What is 0 or NaN outside of `eps` to `1 - eps`.
fn logit_ctx(a: &calls::_GradLogitBackward, _: DType) -> Result<Ctx> {
    numbers(match a.eps {
        Some(eps) if eps >= 0.0 => [Scalar::Float(eps), Scalar::Float(0.0)],
        _ => [Scalar::Float(0.0), Scalar::Float(f64::NAN)],
    })
}

fn scaling(by: f64) -> Result<Ctx> {
    let mut ctx = numbers([by.into()])?;
    ctx.c[0] = by.into();
    Ok(ctx)
}

fn dropout_ctx(a: &calls::_GradNativeDropoutBackward, _: DType) -> Result<Ctx> {
    scaling(a.scale)
}

fn dropped_ctx(a: &calls::_Dropped, _: DType) -> Result<Ctx> {
    scaling(a.scale)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Sigmoid "_grad.sigmoid_backward", 2, same, 0, "a * conj_((T(1) - b) * b)", "(Tensor grad_output, Tensor output)", "The gradient of sigmoid.").grad("grad_output: sigmoid_backward(grad, output.conj()); output: grad.conj() * grad_output * (1 - 2 * output).conj()"),
    map_row!(Tanh "_grad.tanh_backward", 2, same, 0, "a * conj_(T(1) - b * b)", "(Tensor grad_output, Tensor output)", "The gradient of tanh.").grad("grad_output: tanh_backward(grad, output.conj()); output: grad.conj() * grad_output * (-2 * output).conj()"),
    map_row!(Threshold "_grad.threshold_backward", 2, same, typed!(threshold_ctx, DType), 0, "b <= f0 ? T(0) : a", "(Tensor grad_output, Tensor self, Scalar threshold)", "The gradient of threshold, and of relu.").lies(Lies::GradientLast).samples("f32[3, 4], f32[3, 4], 0; bf16[3, 4], bf16[3, 4], 0.5; i64[3], i64[3], 1").grad("grad_output: threshold_backward(grad, self, threshold); self: zeros_like(grad)"),
    map_row!(Gelu "_grad.gelu_backward#none", 2, same, 0, "a * (T(0.5) * (T(1) + erf(b * T(0.70710678118654752440))) + b * T(0.39894228040143267794) * exp(T(-0.5) * b * b))", "(Tensor grad_output, Tensor self)", "The gradient of gelu.").grad("grad_output: gelu_backward(grad, self, approximate='none'); self: grad * grad_output * (2 - self * self) * 0.3989422804014327 * exp(self * self * -0.5)"),
    map_row!(GeluTanh "_grad.gelu_backward#tanh", 2, same, 0, "gelu_tanh_backward_(a, b)", "(Tensor grad_output, Tensor self)", "The gradient of gelu's tanh approximation.").through(typed!(gelu_tanh)),
    compose(
        "_grad.gelu_backward",
        "(Tensor grad_output, Tensor self, *, str approximate='none')",
        0,
        |a| match a.approximate {
            "none" => f::_grad_gelu_backward_none(a.grad_output, a.input),
            "tanh" => f::_grad_gelu_backward_tanh(a.grad_output, a.input),
            _ => bail!(Runtime, "approximate argument must be either none or tanh."),
        },
        "The gradient of gelu.",
    ).samples("f32[3, 4], f32[3, 4]; f64[3], f64[3], approximate='tanh'"),
    map_row!(Silu "_grad.silu_backward", 2, same, 0, "silu_backward_(a, b)", "(Tensor grad_output, Tensor self)", "The gradient of silu.").grad("grad_output: silu_backward(grad, self); self: grad * grad_output * sigmoid(self) * (1 - sigmoid(self)) * (2 + self * (1 - 2 * sigmoid(self)))"),
    map_row!(Mish "_grad.mish_backward", 2, same, 0, "mish_backward_(a, b)", "(Tensor grad_output, Tensor self)", "The gradient of mish.").through(typed!(mish)),
    map_row!(Elu "_grad.elu_backward#input", 2, same, typed!(|a, _| elu_ctx(a.alpha, a.scale, a.input_scale), DType), 0, "b <= T(0) ? a * f2 * f0 * exp(b * f2) : a * f1", "(Tensor grad_output, Tensor self, float alpha=1, float scale=1, float input_scale=1)", "The gradient of elu by its input.").grad("grad_output: elu_backward(grad, alpha, scale, input_scale, False, self); self: where(self.lt(0), grad * grad_output * (alpha * scale * input_scale * input_scale) * exp(self * input_scale), 0)"),
    map_row!(EluResult "_grad.elu_backward#result", 2, same, typed!(|a, _| elu_ctx(a.alpha, a.scale, a.input_scale), DType), 0, "b <= T(0) ? a * f2 * (b + f0) : a * f1", "(Tensor grad_output, Tensor result, float alpha=1, float scale=1, float input_scale=1)", "The gradient of elu by its result.").grad("grad_output: elu_backward(grad, alpha, scale, input_scale, True, result); result: where(result.lt(0), grad * grad_output * input_scale, 0)"),
    compose(
        "_grad.elu_backward",
        "(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor self_or_result)",
        0,
        elu,
        "The gradient of elu.",
    ).samples("f32[3, 4], 1, 1, 1, False, f32[3, 4]; f64[3], 1.5, 1.1, 0.7, True, f64[3]"),
    map_row!(Hardtanh "_grad.hardtanh_backward", 2, same, typed!(hardtanh_ctx, DType), 0, "b <= f0 || b >= f1 ? T(0) : a", "(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val)", "The gradient of hardtanh.").samples("f32[3, 4], f32[3, 4], -1, 1").grad("grad_output: hardtanh_backward(grad, self, min_val, max_val); self: zeros_like(grad)"),
    map_row!(Hardswish "_grad.hardswish_backward", 2, same, 0, "b <= T(-3) ? T(0) : b < T(3) ? a * (b / T(3) + T(0.5)) : a", "(Tensor grad_output, Tensor self)", "The gradient of hardswish.").grad("grad_output: hardswish_backward(grad, self); self: where(self.gt(-3).logical_and(self.lt(3)), grad * grad_output / 3, 0)"),
    map_row!(Hardsigmoid "_grad.hardsigmoid_backward", 2, same, 0, "b > T(-3) && b < T(3) ? a * T(1.0f / 6.0f) : T(0)", "(Tensor grad_output, Tensor self)", "The gradient of hardsigmoid.").refused(),
    map_row!(LeakyRelu "_grad.leaky_relu_backward", 2, same, typed!(leaky_relu_ctx, DType), 0, "b > T(0) ? a : a * f0", "(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result)", "The gradient of leaky relu.").lies(Lies::GradientLast).samples("f32[3, 4], f32[3, 4], 0.1, False").grad("grad_output: leaky_relu_backward(grad, self, negative_slope, False); self: zeros_like(grad)"),
    map_row!(Softplus "_grad.softplus_backward", 2, same, typed!(softplus_ctx, DType), 0, "b * f0 > f1 ? a : a * sigmoid_(b * f0)", "(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold)", "The gradient of softplus.").samples("f32[3, 4], f32[3, 4], 1, 20; f32[3], f32[3], 2.0, 0.5").grad("grad_output: softplus_backward(grad, self, beta, threshold); self: where((self * beta).gt(threshold), 0, grad * grad_output * beta * sigmoid(self * beta) * (1 - sigmoid(self * beta)))"),
    map_row!(Shrink "_grad.softshrink_backward", 2, same, typed!(|a, d| numbers([rounded(a.lambd, d)]), DType), 0, "b >= -f0 && b <= f0 ? T(0) : a", "(Tensor grad_output, Tensor self, Scalar lambd)", "The gradient of softshrink.").samples("f32[3, 4], f32[3, 4], 0.5").grad("grad_output: softshrink_backward(grad, self, lambd); self: zeros_like(grad)"),
    map_row!(Shrink "_grad.hardshrink_backward", 2, same, typed!(|a, d| numbers([rounded(a.lambd, d)]), DType), 0, "b >= -f0 && b <= f0 ? T(0) : a", "(Tensor grad_out, Tensor self, Scalar lambd)", "The gradient of hardshrink.").samples("f32[3, 4], f32[3, 4], 0.5").grad("grad_out: hardshrink_backward(grad, self, lambd); self: zeros_like(grad)"),
    // The buffer is exp(-|self|), which is faster made again than read.
    map_row!(LogSigmoid "_grad.log_sigmoid_backward", 2, same, 0, "a * sigmoid_(-b)", "(Tensor grad_output, Tensor self, Tensor buffer)", "The gradient of log_sigmoid.").samples("f32[3, 4], f32[3, 4], f32[3, 4]").grad("grad_output: log_sigmoid_backward(grad, self, buffer); self: -grad * grad_output * sigmoid(self) * (1 - sigmoid(self))"),
    map_row!(Logit "_grad.logit_backward", 2, same, typed!(logit_ctx, DType), 0, "b < f0 || b > T(1) - f0 ? f1 : a / (b * (T(1) - b))", "(Tensor grad_output, Tensor self, float? eps=None)", "The gradient of logit.").samples("f32[3, 4], f32[3, 4].unit, 0.2; f64[3], f64[3]").through(typed!(logit)),
    map_row!(GluSelf "_grad.glu_backward#self", 2, same, 0, "a * sigmoid_(b)", "(Tensor grad_output, Tensor gate)", "The gradient of glu by its first half.").grad("grad_output: glu_backward(grad, gate); gate: grad * grad_output * sigmoid(gate) * (1 - sigmoid(gate))"),
    map_row!(GluGate "_grad.glu_backward#gate", 3, same, 0, "(T(1) - sigmoid_(c)) * sigmoid_(c) * b * a", "(Tensor grad_output, Tensor self, Tensor gate)", "The gradient of glu by its second half.").grad("grad_output: glu_backward(grad, self, gate); self: glu_backward(grad, grad_output, gate); gate: glu_backward(grad * grad_output, self, gate) * (1 - 2 * sigmoid(gate))"),
    compose(
        "_grad.glu_backward",
        "(Tensor grad_output, Tensor self, int dim)",
        0,
        |a| glu(a, true),
        "The gradient of glu.",
    ).samples("f32[3, 2], f32[3, 4], 1; f64[2, 3, 4], f64[4, 3, 4], 0")
    .through(typed!(|a: &calls::_GradGluBackward| glu(a, false).map(Ret::One))),
    map_row!(PreluSelf "_grad.prelu_backward#self", 3, same, 0, "b > T(0) ? a : c * a", "(Tensor grad_output, Tensor self, Tensor weight)", "The gradient of prelu by its input.").lies(Lies::GradientLast).grad("grad_output: where(self.ge(0), grad, grad * weight); self: zeros_like(grad); weight: where(self.ge(0), 0, grad * grad_output)"),
    map_row!(PreluWeight "_grad.prelu_backward#weight", 2, same, 0, "b > T(0) ? T(0) : b * a", "(Tensor grad_output, Tensor self)", "The gradient of prelu by its weight, at each element.").lies(Lies::GradientLast).grad("grad_output: where(self.ge(0), 0, grad * self); self: where(self.ge(0), 0, grad * grad_output)"),
    compose(
        "_grad._prelu_kernel_backward",
        "(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)",
        0,
        prelu,
        "The gradients of prelu, that by the weight at each element.",
    ).samples("f32[3, 4], f32[3, 4], f32[1, 4]"),
    compose(
        "_grad.rrelu_with_noise_backward",
        "(Tensor grad_output, Tensor self, Tensor noise, Scalar lower, Scalar upper, bool training, bool self_is_result)",
        0,
        rrelu,
        "The gradient of rrelu.",
    ).samples("f32[3, 4], f32[3, 4], f32[3, 4], 0.1, 0.3, True, False; f32[3], f32[3], f32[3], 0.1, 0.3, False, False"),
    map_row!(Dropout "_grad.native_dropout_backward", 2, float, typed!(dropout_ctx, DType), 0, "a * (b * T(f0))", "(Tensor grad_output, Tensor mask, float scale)", "The gradient of native_dropout.").samples("f32[3, 4], b8[3, 4], 2.0; c64[3], b8[3], 1.5").grad("grad_output: native_dropout_backward(grad, mask, scale)"),
    map_row!(Dropout "_dropped", 2, float, typed!(dropped_ctx, DType), 0, "a * (b * T(f0))", "(Tensor self, Tensor mask, float scale)", "What a mask keeps of a tensor, scaled.").samples("f32[3, 4], b8[3, 4], 2.0; c64[3], b8[3], 1.5").grad("NativeDropoutBackward0 | self: native_dropout_backward(grad, mask, scale)"),
];

fn elu(a: &calls::_GradEluBackward) -> Result<Tensor> {
    let (g, x) = (a.grad_output, a.self_or_result);
    let [alpha, scale, input_scale] = [a.alpha, a.scale, a.input_scale].map(|s| s.to_f64());
    ensure!(
        !a.is_result || alpha >= 0.0,
        Runtime,
        "In-place elu backward calculation is triggered with a negative slope which is not supported. This is caused by calling \
         in-place forward function with a negative slope, please call out-of-place version instead."
    );
    if a.is_result {
        let call = f::_GradEluBackwardResult::new(g, x).alpha(alpha);
        return call.scale(scale).input_scale(input_scale).call();
    }
    let call = f::_GradEluBackwardInput::new(g, x).alpha(alpha);
    call.scale(scale).input_scale(input_scale).call()
}

/// Both halves, written where they belong; joined, if they are to have a history.
fn glu(a: &calls::_GradGluBackward, written: bool) -> Result<Tensor> {
    let (g, t) = (a.grad_output, a.input);
    ensure!(
        t.ndim() > 0,
        Runtime,
        "glu does not support 0-dimensional tensors"
    );
    let d = rules::dim(t, a.dim)?;
    let n = t.shape()[d];
    ensure!(
        n % 2 == 0,
        Runtime,
        "Halving dimension must be even, but dimension {d} is size {n}"
    );
    ensure!(
        g.dtype() == t.dtype(),
        Runtime,
        "Found dtype {} but expected {}",
        g.dtype().scalar_type(),
        t.dtype().scalar_type()
    );
    let half = |t: &Tensor, start: i64| f::narrow(t, d as i64, start, n / 2);
    let (x, gate) = (half(t, 0)?, half(t, n / 2)?);
    if !written {
        let by_x = f::_grad_glu_backward_self(g, &gate)?;
        let by_gate = f::_grad_glu_backward_gate(g, &x, &gate)?;
        return f::Cat::new(&[by_x, by_gate][..]).dim(d as i64).call();
    }
    let out = f::new_empty(t, t.shape())?;
    f::_GradGluBackwardSelf::new(g, &gate).call_out(&mut [half(&out, 0)?])?;
    f::_GradGluBackwardGate::new(g, &x, &gate).call_out(&mut [half(&out, n / 2)?])?;
    Ok(out)
}

/// The loop of gelu's tanh approximation as operators that have gradients.
fn gelu_tanh(a: &calls::_GradGeluBackwardTanh) -> Result<Ret> {
    let (g, x) = (a.grad_output, a.input);
    let square = f::mul(x, x)?;
    let bent = f::add(&f::mul(&square, CUBIC)?, 1.0)?;
    let t = f::tanh(&f::mul(&f::mul(x, &bent)?, SQRT_2_OVER_PI)?)?;
    let slope = f::mul(
        &f::add(&f::mul(&square, 3.0 * CUBIC)?, 1.0)?,
        SQRT_2_OVER_PI,
    )?;
    let steep = f::mul(&f::rsub(&f::mul(&t, &t)?, 1.0)?, &slope)?;
    let whole = f::add(&f::add(&t, 1.0)?, &f::mul(x, &steep)?)?;
    f::mul(g, &f::mul(&whole, 0.5)?).map(Ret::One)
}

/// The loop of mish as operators that have gradients.
fn mish(a: &calls::_GradMishBackward) -> Result<Ret> {
    let (g, x) = (a.grad_output, a.input);
    let t = f::tanh(&f::nn_functional_softplus(x)?)?;
    let steep = f::mul(&f::sigmoid(x)?, &f::rsub(&f::mul(&t, &t)?, 1.0)?)?;
    f::mul(g, &f::add(&t, &f::mul(x, &steep)?)?).map(Ret::One)
}

/// The loop of logit as operators that have gradients.
fn logit(a: &calls::_GradLogitBackward) -> Result<Ret> {
    let (g, x) = (a.grad_output, a.input);
    let (low, outside) = a.eps.map_or((0.0, f64::NAN), |eps| (eps, 0.0));
    let within = f::logical_and(&f::ge(x, low)?, &f::le(x, 1.0 - low)?)?;
    let made = f::div(g, &f::mul(x, &f::rsub(x, 1.0)?)?)?;
    f::where_(&within, &made, outside).map(Ret::One)
}

fn prelu(a: &calls::_GradPreluKernelBackward) -> Result<Ret> {
    let (g, x) = (a.grad_output, a.input);
    Ok(Ret::Tuple(vec![
        f::_grad_prelu_backward_self(g, x, a.weight)?,
        f::_grad_prelu_backward_weight(g, x)?,
    ]))
}

fn rrelu(a: &calls::_GradRreluWithNoiseBackward) -> Result<Tensor> {
    let (lower, upper) = (a.lower.to_f64(), a.upper.to_f64());
    if a.training && upper - lower > 1e-6 {
        return f::mul(a.noise, a.grad_output);
    }
    let slope = (lower + upper) / 2.0;
    f::_grad_leaky_relu_backward(a.grad_output, a.input, slope, a.self_is_result)
}
