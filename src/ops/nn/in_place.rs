//! Activations that write into their input: functions with an `inplace` flag, and those whose name says it.

use crate::ops::core::op::{F, OpDef, Ret, compose, forward};
use crate::ops::core::typed;
use crate::ops::f;
use crate::ops::{Args, Call, dispatch};
use crate::{DType, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "selu",
        "(Tensor self)",
        F,
        |a| scaled(a.input).call(),
        "Scaled elu.",
    )
    .samples("f32[3, 4]"),
    compose(
        "selu_",
        "(Tensor self)",
        F,
        |a| flagged(true, scaled(a.input).args()),
        "Scaled elu, in place.",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.selu",
        "(Tensor self, bool inplace=False)",
        F,
        |a| flagged(a.inplace, scaled(a.input).args()),
        "Scaled elu.",
    )
    .samples("f32[3, 4]"),
    forward(
        "_nn.celu",
        "(Tensor self, float alpha)",
        0,
        |a| {
            let call = f::_NnElu::new(a.input).alpha(a.alpha);
            Ok(call.input_scale(1.0 / a.alpha).args()?.to_owned())
        },
        "elu without a bend at 0.",
    )
    .samples("f32[3, 4], 2.0")
    .grad("in place CeluBackward1 | self: elu_backward(grad, alpha, 1, 1.0 / alpha, False, self) || self: elu_backward(grad, alpha, 1, 1.0 / alpha, True, result)"),
    compose(
        "celu",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| {
            check_alpha(a.alpha)?;
            f::_nn_celu(a.input, a.alpha)
        },
        "elu that is smooth for any alpha.",
    )
    .samples("f32[3, 4]; f64[3], 2.0"),
    compose(
        "celu_",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| {
            check_alpha(a.alpha)?;
            flagged(true, f::_NnCelu::new(a.input, a.alpha).args())
        },
        "elu that is smooth for any alpha, in place.",
    )
    .samples("f32[3, 4], 2.0"),
    compose(
        "nn.functional.celu",
        "(Tensor self, float alpha=1.0, bool inplace=False)",
        F,
        |a| {
            check_alpha(a.alpha)?;
            flagged(a.inplace, f::_NnCelu::new(a.input, a.alpha).args())
        },
        "elu that is smooth for any alpha.",
    )
    .samples("f32[3, 4]; f32[3, 4], alpha=0.8"),
    compose(
        "nn.functional.elu",
        "(Tensor self, float alpha=1.0, bool inplace=False)",
        F,
        |a| flagged(a.inplace, f::_NnElu::new(a.input).alpha(a.alpha).args()),
        "x where positive, else alpha * (exp(x) - 1).",
    )
    .samples("f32[3, 4]; f32[3, 4], alpha=0.8"),
    compose(
        "nn.functional.elu_",
        "(Tensor self, float alpha=1.0)",
        F,
        |a| flagged(true, f::_NnElu::new(a.input).alpha(a.alpha).args()),
        "elu in place.",
    )
    .samples("f32[3, 4]"),
    compose(
        "threshold_",
        "(Tensor self, Scalar threshold, Scalar value)",
        F,
        |a| {
            flagged(
                true,
                f::Threshold::new(a.input, a.threshold, a.value).args(),
            )
        },
        "A value where x is not above the threshold, in place.",
    )
    .samples("f32[3, 4], 0.5, 2.0"),
    compose(
        "nn.functional.threshold",
        "(Tensor self, Scalar threshold, Scalar value, bool inplace=False)",
        F,
        |a| {
            flagged(
                a.inplace,
                f::Threshold::new(a.input, a.threshold, a.value).args(),
            )
        },
        "x where above the threshold, else a value.",
    )
    .samples("f32[3, 4], 3.6116, -8.0676; f32[3, 4], threshold=0.1533, value=-9"),
    compose(
        "nn.functional.relu",
        "(Tensor self, bool inplace=False)",
        F,
        |a| {
            ordered(a.input, "Boolean inputs not supported for relu")?;
            flagged(a.inplace, f::Relu::new(a.input).args())
        },
        "x, or 0 where it is negative.",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.relu_",
        "(Tensor self)",
        F,
        |a| flagged(true, f::Relu::new(a.input).args()),
        "0 where x is negative, in place.",
    )
    .samples("f32[3, 4]; i64[3]"),
    compose(
        "nn.functional.relu6",
        "(Tensor self, bool inplace=False)",
        F,
        |a| {
            ordered(a.input, NO_BOOL)?;
            flagged(
                a.inplace,
                f::_NnHardtanh::new(a.input)
                    .min_val(0i64)
                    .max_val(6i64)
                    .args(),
            )
        },
        "x limited to 0..6.",
    )
    .samples("i8[3, 4]"),
    compose(
        "nn.functional.hardtanh",
        "(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0, bool inplace=False)",
        F,
        hardtanh,
        "x limited to a range.",
    )
    .samples("f32[3, 4], min_val=0.0, max_val=0.0"),
    compose(
        "nn.functional.hardtanh_",
        "(Tensor self, Scalar min_val=-1.0, Scalar max_val=1.0)",
        F,
        |a| {
            flagged(
                true,
                f::_NnHardtanh::new(a.input)
                    .min_val(a.min_val)
                    .max_val(a.max_val)
                    .args(),
            )
        },
        "x limited to a range, in place.",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.silu",
        "(Tensor self, bool inplace=False)",
        F,
        |a| flagged(a.inplace, f::_NnSilu::new(a.input).args()),
        "x * sigmoid(x).",
    )
    .samples("f32[3, 4]; c64[3, 4]"),
    compose(
        "nn.functional.mish",
        "(Tensor self, bool inplace=False)",
        F,
        |a| flagged(a.inplace, f::_NnMish::new(a.input).args()),
        "x * tanh(softplus(x)).",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.hardsigmoid",
        "(Tensor self, bool inplace=False)",
        F,
        |a| flagged(a.inplace, f::_NnHardsigmoid::new(a.input).args()),
        "A sigmoid made of straight lines.",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.hardswish",
        "(Tensor self, bool inplace=False)",
        F,
        |a| flagged(a.inplace, f::_NnHardswish::new(a.input).args()),
        "x * hardsigmoid(x).",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.leaky_relu",
        "(Tensor self, float negative_slope=0.01, bool inplace=False)",
        F,
        |a| {
            flagged(
                a.inplace,
                f::_NnLeakyRelu::new(a.input)
                    .negative_slope(a.negative_slope)
                    .args(),
            )
        },
        "x where positive, else x times a slope.",
    )
    .samples("f32[3, 4]"),
    compose(
        "nn.functional.leaky_relu_",
        "(Tensor self, float negative_slope=0.01)",
        F,
        |a| {
            flagged(
                true,
                f::_NnLeakyRelu::new(a.input)
                    .negative_slope(a.negative_slope)
                    .args(),
            )
        },
        "Leaky relu in place.",
    )
    .samples("f32[3, 4]"),
];

/// Makes a call, in place if `inplace` says so: the result is argument 0 itself then.
pub(super) fn flagged(inplace: bool, call: Result<Args>) -> Result<Ret> {
    let call = call?;
    if inplace {
        // What it becomes goes on: the handle knows more than the memory, tangents of tangents.
        return dispatch::call(Call::in_place(&call)?);
    }
    typed::one(&call).map(Ret::from)
}

/// elu with the numbers that keep mean 0 and variance 1.
fn scaled(t: &Tensor) -> f::_NnElu<'_> {
    f::_NnElu::new(t)
        .alpha(1.673_263_242_354_377_2)
        .scale(1.050_700_987_355_480_5)
}

fn check_alpha(alpha: f64) -> Result<()> {
    ensure!(
        alpha != 0.0,
        Runtime,
        "ZeroDivisionError: alpha cannot be 0 for CELU"
    );
    Ok(())
}

const NO_BOOL: &str = "Bool inputs not supported for hardtanh";

/// Refuses truth values, with a text of the function's own, and complex numbers.
fn ordered(t: &Tensor, no_bool: &str) -> Result<()> {
    ensure!(t.dtype() != DType::Bool, Runtime, "{no_bool}");
    ensure!(
        !t.dtype().is_complex(),
        NotImplemented,
        "clamp is not supported for complex types"
    );
    Ok(())
}

fn hardtanh(a: &calls::NnFunctionalHardtanh) -> Result<Ret> {
    ensure!(
        !(a.min_val.to_f64() > a.max_val.to_f64()),
        Value,
        "min_val cannot be greater than max_val"
    );
    ordered(a.input, NO_BOOL)?;
    let call = f::_NnHardtanh::new(a.input)
        .min_val(a.min_val)
        .max_val(a.max_val);
    flagged(a.inplace, call.args())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Call;
    use crate::ops::dispatch;

    #[test]
    fn a_call_in_place_gives_its_argument_back() {
        let values = |t: &Tensor| t.to_vec::<f32>().unwrap();
        let x = Tensor::from_slice(&[-2f32, 0.5, 9.0], &[3]).unwrap();
        let call = f::NnFunctionalRelu6::new(&x);
        assert_eq!(values(&call.call().unwrap()), [0.0, 0.5, 6.0]);
        assert_eq!(values(&x), [-2.0, 0.5, 9.0]);
        let before = x.storage().version();
        let call = call.inplace(true);
        let ret = dispatch::call(Call::new(&call.args().unwrap())).unwrap();
        assert!(matches!(ret, Ret::Same(0)));
        assert_eq!(values(&x), [0.0, 0.5, 6.0]);
        assert_eq!(x.storage().version(), before + 1);
        assert!(f::celu_(&x).is_ok() && f::Celu::new(&x).alpha(0.0).call().is_err());
    }
}
