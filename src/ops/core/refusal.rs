//! What pointwise ops say about dtypes they have no kernel for, and about numbers alone.

use crate::ops::core::args::{Arg, Args};
use crate::{DType, Error, err};

/// PyTorch's error for a dtype that the operator itself refuses, before it looks at shapes.
#[cold]
#[must_use]
pub fn refused(args: &Args, d: DType) -> Option<Error> {
    let name = args.name();
    match d {
        DType::Bool => for_bool(name),
        d if d.is_complex() && bound_kernel(args).is_none() => for_complex(name),
        _ => None,
    }
}

/// PyTorch's error for a dtype that its kernel does not have.
#[cold]
#[must_use]
pub fn not_implemented(args: &Args, d: DType) -> Error {
    let scalar = !matches!(args.values.get(1), Some(Arg::Tensor(_)));
    match (bound_kernel(args), args.name()) {
        (Some(kernel), _) => d.no_kernel(kernel),
        (None, "clamp_min" | "relu") if scalar => d.no_kernel("clamp_min_scalar_cpu"),
        (None, "clamp_max") if scalar => d.no_kernel("clamp_max_scalar_cpu"),
        (None, "_clamp" | "hardtanh") if scalar => d.no_kernel("clamp_scalar_cpu"),
        (None, "_clamp") => d.no_kernel("clamp_cpu"),
        (None, "fmax" | "fmin") if d.is_float() => d.no_kernel(format_args!("{}_cpu", args.name())),
        (None, name) => d.no_kernel(kernel(name)),
    }
}

/// The kernel of another operator, which a bound that is a tensor makes of these.
fn bound_kernel(args: &Args) -> Option<&'static str> {
    match (args.name(), args.values.get(1)) {
        ("clamp_min", Some(Arg::Tensor(_))) => Some("maximum_cpu"),
        ("clamp_max", Some(Arg::Tensor(_))) => Some("minimum_cpu"),
        _ => None,
    }
}

/// The error for operands that are all numbers.
#[cold]
#[must_use]
pub fn needs_tensor(args: &Args) -> Error {
    err!(
        Type,
        "{}(): argument 'input' (position 1) must be Tensor, not a number",
        args.name()
    )
}

fn for_bool(name: &str) -> Option<Error> {
    Some(match name {
        "sub" | "rsub" => err!(
            Runtime,
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
        ),
        "neg" => err!(
            Runtime,
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or \
             `logical_not()` operator instead."
        ),
        "positive" => err!(
            Runtime,
            "The `+` operator, on a bool tensor is not supported."
        ),
        "relu" => err!(Runtime, "Boolean inputs not supported for relu"),
        _ => return None,
    })
}

fn for_complex(name: &str) -> Option<Error> {
    Some(match name {
        "ceil" | "floor" | "trunc" => {
            err!(NotImplemented, "{name} is not supported for complex inputs")
        }
        "sign" => err!(
            NotImplemented,
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
        ),
        "relu" | "clamp" | "_clamp" | "clamp_min" | "clamp_max" => {
            err!(NotImplemented, "clamp is not supported for complex types")
        }
        "signbit" => err!(
            NotImplemented,
            "signbit is not implemented for complex tensors."
        ),
        "isposinf" | "isneginf" => err!(Runtime, "{name} does not support complex inputs."),
        "deg2rad" | "rad2deg" => err!(Runtime, "{name} is not supported for complex tensors."),
        "maximum" | "minimum" | "fmax" | "fmin" => {
            err!(Runtime, "{name} not implemented for complex tensors.")
        }
        "heaviside" => err!(
            Runtime,
            "heaviside is not yet implemented for complex tensors."
        ),
        _ => return None,
    })
}

/// The name of PyTorch's kernel, which its messages quote.
fn kernel(name: &str) -> String {
    let own = match name {
        "bitwise_left_shift" => "lshift_cpu",
        "bitwise_right_shift" => "rshift_cpu",
        "floor_divide" => "div_floor_cpu",
        "_div_trunc" => "div_trunc_cpu",
        "addcmul" | "addcdiv" => return format!("{name}_cpu_out"),
        "add" | "sub" | "rsub" => "add_stub",
        "pow" | "square" => "pow",
        "sgn" => "sign_cpu",
        "fmax" => "maximum_cpu",
        "fmin" => "minimum_cpu",
        "digamma" | "exp2" | "nan_to_num" => return name.to_owned(),
        "softshrink" => "softshrink_check",
        "gelu" => "GeluKernelImpl",
        "gelu_backward" => "GeluBackwardKernelImpl",
        "threshold_backward" => "threshold_cpu",
        "hardtanh_backward" => "hardshrink_backward_cpu",
        "hardsigmoid_backward" => "hardsigmoid_backward",
        "softshrink_backward" | "hardshrink_backward" => "shrink_backward_cpu",
        "ceil" | "floor" | "round" | "trunc" | "erf" | "erfc" | "erfinv" | "lgamma" | "i0"
        | "acos" | "asin" | "atan" | "cos" | "exp" | "expm1" | "log" | "log10" | "log1p"
        | "log2" | "sin" | "sqrt" | "tan" | "tanh" => {
            return format!("{name}_vml_cpu");
        }
        _ => return format!("{name}_cpu"),
    };
    own.to_owned()
}
