//! Pointwise operators of two and three operands.

use crate::cpu::map::{Ctx, FromCtx};
use crate::ops::core::args::Args;
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, FM, FMIO, FMO, I, M, N, O, OpDef, Ret, old_compose};
use crate::ops::pointwise::rule::{compare, float, same, scalar_of};
use crate::{DType, Result, Scalar, bail, cpu, ensure, map_op, map_row, op};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

// PyTorch rounds sums with a factor once (real numbers only), and so do these.
map_op!(
    Add,
    2,
    [int] | x,
    y,
    c | x.wrapping_add(y.wrapping_mul(T::ctx(c, 0))),
    [light] | x,
    y,
    c | y.mul_add(T::ctx(c, 0), x),
    [complex] | x,
    y,
    c | x + y * T::ctx(c, 0),
    [boolean] | x,
    y,
    c | x | (y & T::ctx(c, 0))
);
map_op!(
    Sub,
    2,
    [int] | x,
    y,
    c | x.wrapping_sub(y.wrapping_mul(T::ctx(c, 0))),
    [light] | x,
    y,
    c | (-y).mul_add(T::ctx(c, 0), x),
    [complex] | x,
    y,
    c | x - y * T::ctx(c, 0)
);
map_op!(Mul, 2, [int] |x, y, c| x.wrapping_mul(y), [light complex] |x, y, c| x * y, [boolean] |x, y, c| x & y);
map_op!(Div, 2, [light complex] |x, y, c| x / y);
map_op!(
    DivTrunc,
    2,
    [int_heavy] | x,
    y,
    c | if y == 0 { 0 } else { x.wrapping_div(y) },
    [light] | x,
    y,
    c | (x / y).trunc()
);
map_op!(
    DivFloor,
    2,
    [int_heavy] | x,
    y,
    c | if y == 0 {
        0
    } else {
        let q = x.wrapping_div(y);
        if (x.wrapping_rem(y) != 0) && ((x < 0 as T) != (y < 0 as T)) {
            q.wrapping_sub(1)
        } else {
            q
        }
    },
    [heavy] | x,
    y,
    c | {
        if y == 0.0 {
            x / y
        } else {
            let m = x % y;
            let mut d = (x - m) / y;
            if m != 0.0 && ((y < 0.0) != (m < 0.0)) {
                d -= 1.0;
            }
            if d != 0.0 {
                let f = d.floor();
                if d - f > 0.5 { f + 1.0 } else { f }
            } else {
                (0.0 as T).copysign(x / y)
            }
        }
    }
);
map_op!(
    Remainder,
    2,
    [int_heavy] | x,
    y,
    c | if y == 0 {
        0
    } else {
        let r = x.wrapping_rem(y);
        if r != 0 && ((r < 0 as T) != (y < 0 as T)) {
            r.wrapping_add(y)
        } else {
            r
        }
    },
    [heavy] | x,
    y,
    c | {
        let m = x % y;
        if m != 0.0 && ((y < 0.0) != (m < 0.0)) {
            m + y
        } else {
            m
        }
    }
);
map_op!(
    Fmod,
    2,
    [int_heavy] | x,
    y,
    c | if y == 0 { 0 } else { x.wrapping_rem(y) },
    [heavy] | x,
    y,
    c | x % y
);
map_op!(
    Pow,
    2,
    [int_heavy] | x,
    y,
    c | int_pow(x as i64, y as i64) as T,
    [heavy] | x,
    y,
    c | x.powf(y),
    [complex] | x,
    y,
    c | if y.re == 0.0 && y.im == 0.0 {
        T::new(1.0, 0.0)
    } else {
        x.powc(y)
    }
);
map_op!(
    Maximum,
    2,
    [int] | x,
    y,
    c | x.max(y),
    [light] | x,
    y,
    c | if (x > y) | x.is_nan() { x } else { y },
    [boolean] | x,
    y,
    c | x | y
);
map_op!(
    Minimum,
    2,
    [int] | x,
    y,
    c | x.min(y),
    [light] | x,
    y,
    c | if (x < y) | x.is_nan() { x } else { y },
    [boolean] | x,
    y,
    c | x & y
);
map_op!(
    Fmax,
    2,
    [int] | x,
    y,
    c | x.max(y),
    [light] | x,
    y,
    c | x.max(y),
    [boolean] | x,
    y,
    c | x | y
);
map_op!(
    Fmin,
    2,
    [int] | x,
    y,
    c | x.min(y),
    [light] | x,
    y,
    c | x.min(y),
    [boolean] | x,
    y,
    c | x & y
);
map_op!(Atan2, 2, [heavy] | x, y, c | x.atan2(y));
map_op!(Hypot, 2, [heavy] | x, y, c | x.hypot(y));
map_op!(Copysign, 2, [light] | x, y, c | x.copysign(y));
map_op!(
    Nextafter,
    2,
    [light] | x,
    y,
    c | if x.is_nan() || y.is_nan() {
        T::NAN
    } else if x == y {
        y
    } else if x == 0.0 {
        T::from_bits(1).copysign(y)
    } else if (y > x) == (x > 0.0) {
        T::from_bits(x.to_bits() + 1)
    } else {
        T::from_bits(x.to_bits() - 1)
    }
);
map_op!(
    Logaddexp,
    2,
    [heavy] | x,
    y,
    c | if x == y {
        x + T::ln_1p(1.0)
    } else {
        x.max(y) + (-(x - y).abs()).exp().ln_1p()
    },
    [complex] | x,
    y,
    c | {
        let wide = |z: T| Complex64::new(z.re.into(), z.im.into());
        let sum = crate::cpu::math::clogaddexp(wide(x), wide(y));
        T::new(sum.re as _, sum.im as _)
    }
);
map_op!(
    Logaddexp2,
    2,
    [heavy] | x,
    y,
    c | if x == y {
        x + 1.0
    } else {
        x.max(y) + (-(x - y).abs()).exp2().ln_1p() * (std::f64::consts::LOG2_E as T)
    }
);
map_op!(
    Xlogy,
    2,
    [heavy] | x,
    y,
    c | if y.is_nan() {
        y
    } else if x == 0.0 {
        0.0
    } else {
        x * y.ln()
    }
);
map_op!(
    Xlog1py,
    2,
    [heavy] | x,
    y,
    c | if y.is_nan() {
        y
    } else if x == 0.0 {
        0.0
    } else {
        x * y.ln_1p()
    }
);
map_op!(
    Heaviside,
    2,
    [int] | x,
    y,
    c | if x == 0 { y } else { T::from(x > 0) },
    [light] | x,
    y,
    c | if x == 0.0 {
        y
    } else if x > 0.0 {
        1.0
    } else {
        0.0
    },
    [boolean] | x,
    y,
    c | x | y
);
map_op!(Gcd, 2, [int_heavy] | x, y, c | gcd(x as i64, y as i64) as T);
map_op!(
    Lcm,
    2,
    [int_heavy] | x,
    y,
    c | {
        let g = gcd(x as i64, y as i64);
        if g == 0 {
            0
        } else {
            ((x as i64).wrapping_div(g).wrapping_mul(y as i64)).wrapping_abs() as T
        }
    }
);
map_op!(Eq, 2 => bool, [int uint light complex boolean] |x, y, c| x == y);
map_op!(Ne, 2 => bool, [int uint light complex boolean] |x, y, c| x != y);
map_op!(Lt, 2 => bool, [int uint light boolean] |x, y, c| x < y);
map_op!(Le, 2 => bool, [int uint light boolean] |x, y, c| x <= y);
map_op!(Gt, 2 => bool, [int uint light boolean] |x, y, c| x > y);
map_op!(Ge, 2 => bool, [int uint light boolean] |x, y, c| x >= y);
map_op!(LogicalAnd, 2 => bool, [int uint] |x, y, c| x != 0 && y != 0, [light] |x, y, c| x != 0.0 && y != 0.0, [complex] |x, y, c| x.norm_sqr() != 0.0 && y.norm_sqr() != 0.0, [boolean] |x, y, c| x && y);
map_op!(LogicalOr, 2 => bool, [int uint] |x, y, c| x != 0 || y != 0, [light] |x, y, c| x != 0.0 || y != 0.0, [complex] |x, y, c| x.norm_sqr() != 0.0 || y.norm_sqr() != 0.0, [boolean] |x, y, c| x || y);
map_op!(LogicalXor, 2 => bool, [int uint] |x, y, c| (x != 0) != (y != 0), [light] |x, y, c| (x != 0.0) != (y != 0.0), [complex] |x, y, c| (x.norm_sqr() != 0.0) != (y.norm_sqr() != 0.0), [boolean] |x, y, c| x != y);
map_op!(BitAnd, 2, [int boolean] |x, y, c| x & y);
map_op!(BitOr, 2, [int boolean] |x, y, c| x | y);
map_op!(BitXor, 2, [int boolean] |x, y, c| x ^ y);
map_op!(
    Shl,
    2,
    [int] | x,
    y,
    c | if (y as i64) < 0 || y as i64 >= T::BITS as i64 {
        0
    } else {
        x << y
    }
);
map_op!(
    Shr,
    2,
    [int] | x,
    y,
    c | if (y as i64) < 0 || y as i64 >= T::BITS as i64 {
        if x < 0 as T {
            (0 as T).wrapping_sub(1)
        } else {
            0
        }
    } else {
        x >> y
    }
);
map_op!(
    Lerp,
    3,
    [light] | x,
    y,
    w,
    c | if w.abs() < 0.5 {
        w.mul_add(y - x, x)
    } else {
        (x - y).mul_add(1.0 - w, y)
    },
    [complex] | x,
    y,
    w,
    c | if w.norm() < 0.5 {
        x + w * (y - x)
    } else {
        y - (y - x) * (T::new(1.0, 0.0) - w)
    }
);
map_op!(
    Addcmul,
    3,
    [int] | x,
    y,
    z,
    c | x.wrapping_add(T::ctx(c, 0).wrapping_mul(y).wrapping_mul(z)),
    [light] | x,
    y,
    z,
    c | (T::ctx(c, 0) * y).mul_add(z, x),
    [complex] | x,
    y,
    z,
    c | x + T::ctx(c, 0) * y * z
);
map_op!(Addcdiv, 3, [light complex] |x, y, z, c| x + T::ctx(c, 0) * y / z);
map_op!(
    Clamp3,
    3,
    [int] | x,
    lo,
    hi,
    c | x.max(lo).min(hi),
    [light] | x,
    lo,
    hi,
    c | {
        // Comparisons with NaN are false, which keeps a NaN x; NaN bounds are told apart afterwards.
        let v = if lo > x { lo } else { x };
        let v = if hi < v { hi } else { v };
        if lo.is_nan() | hi.is_nan() {
            lo + hi
        } else {
            v
        }
    }
);

fn int_pow(base: i64, exp: i64) -> i64 {
    match (base, exp) {
        (1, _) => 1,
        (-1, e) => {
            if e % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, e) if e < 0 => 0,
        (b, mut e) => {
            let (mut b, mut r) = (b, 1i64);
            while e > 0 {
                if e & 1 == 1 {
                    r = r.wrapping_mul(b);
                }
                b = b.wrapping_mul(b);
                e >>= 1;
            }
            r
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// The number `k` of the context from a parameter.
fn number_ctx(args: &Args, position: usize) -> Result<Ctx> {
    let mut ctx = Ctx::default();
    let s = args.scalar(position)?;
    (ctx.f[0], ctx.i[0], ctx.c[0]) = (s.to_f64(), s.to_i64(), s.to_c64());
    Ok(ctx)
}

/// `alpha` of add and sub in the operands' type, with PyTorch's checks.
fn alpha(args: &Args, d: DType) -> Result<Ctx> {
    let a = args.scalar(2)?;
    check_scale(a, d)?;
    let mut ctx = number_ctx(args, 2)?;
    ctx.f[0] = cpu::halves::rounded(a, d).to_f64();
    Ok(ctx)
}

/// Products, quotients and interpolations with a number keep it in single precision beside 16-bit tensors.
fn wide_numbers(_: &Args, _: DType) -> Result<Ctx> {
    Ok(Ctx {
        wide_numbers: true,
        ..Ctx::default()
    })
}

fn alpha_sub(args: &Args, d: DType) -> Result<Ctx> {
    let is_bool = |i: usize| match args.opt_tensor(i) {
        Some(t) => t.dtype() == DType::Bool,
        None => matches!(scalar_of(&args.values[i]), Some(Scalar::Bool(_))),
    };
    ensure!(
        !(is_bool(0) && is_bool(1)),
        Runtime,
        "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead."
    );
    ensure!(
        !(is_bool(0) || is_bool(1)),
        Runtime,
        "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use the \
         `~` or `logical_not()` operator instead."
    );
    alpha(args, d)
}

/// heaviside does not promote.
fn one_dtype(args: &Args, _: DType) -> Result<()> {
    ensure!(
        args.tensor(0)?.dtype() == args.tensor(1)?.dtype(),
        Runtime,
        "heaviside is not yet implemented for tensors with different dtypes."
    );
    Ok(())
}

/// Division with `rounding_mode`.
fn div_mode(args: &Args) -> Result<Ret> {
    let op = match args.str(2) {
        None => op!("div")?,
        Some("trunc") => op!("_div_trunc")?,
        Some("floor") => op!("floor_divide")?,
        Some(other) => bail!(
            Runtime,
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"
        ),
    };
    crate::ops::core::dispatch::run(op, &args.values[..2])
}

/// `value` of addcmul and addcdiv.
fn value(args: &Args, d: DType) -> Result<Ctx> {
    let v = args.scalar(3)?;
    if !matches!(v, Scalar::Bool(_)) {
        check_scale(v, d)?;
    }
    number_ctx(args, 3)
}

fn check_scale(a: Scalar, d: DType) -> Result<()> {
    if matches!(a, Scalar::Bool(_)) && d != DType::Bool {
        bail!(Runtime, "Boolean alpha only supported for Boolean results.");
    }
    if a.is_floating() && d.is_integral(true) {
        bail!(
            Runtime,
            "For integral input tensors, argument alpha must not be a floating point number."
        );
    }
    if matches!(a, Scalar::Complex(_)) && !d.is_complex() {
        bail!(
            Runtime,
            "For non-complex input tensors, argument alpha must not be a complex number."
        );
    }
    Ok(())
}

/// Integer division by zero is an error, as in Python.
fn nonzero_divisor(args: &Args, d: DType) -> Result<()> {
    if d.is_integral(true) {
        let zero = match &args.values[1] {
            crate::ops::core::args::Arg::Tensor(t) if t.device().is_cpu() => cpu::any_zero(t),
            other => scalar_of(other).is_some_and(|s| !s.to_bool()),
        };
        ensure!(!zero, Runtime, "ZeroDivisionError");
    }
    Ok(())
}

/// Integers to negative integer powers have no integer result.
fn natural_exponent(args: &Args, d: DType) -> Result<()> {
    if d.is_integral(true)
        && let Some(Scalar::Int(e)) = scalar_of(&args.values[1])
    {
        ensure!(
            e >= 0,
            Runtime,
            "Integers to negative integer powers are not allowed."
        );
    }
    Ok(())
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Add "add", 2, same, alpha, FMIO | N, "a + b * alpha", "(Operand self, Operand other, *, Scalar alpha=1)", "The sum, the second operand times `alpha`."),
    map_row!(Sub "sub", 2, same, alpha_sub, FMIO | N, "a - b * alpha", "(Operand self, Operand other, *, Scalar alpha=1)", "The difference, the second operand times `alpha`."),
    old_compose(
        "rsub",
        "(Tensor self, Operand other, *, Scalar alpha=1)",
        FM,
        |a| {
            dispatch::run(
                op!("sub")?,
                &[
                    a.values[1].clone(),
                    a.values[0].clone(),
                    a.values[2].clone(),
                ],
            )
        },
        "The second operand minus the first times `alpha`.",
    ),
    map_row!(Mul "mul", 2, same, wide_numbers, FMIO | N, "a * b", "(Operand self, Operand other)", "The product."),
    map_row!(Div "div", 2, float, wide_numbers, FMIO | N, "a / b", "(Operand self, Operand other)", "The quotient; integers are divided as floats."),
    old_compose(
        "div#mode",
        "(Operand self, Operand other, *, str? rounding_mode)",
        FMIO,
        div_mode,
        "The quotient, rounded by `trunc` towards zero, by `floor` down.",
    ),
    map_row!(DivTrunc "_div_trunc", 2, same, check nonzero_divisor, F | I | N, "trunc_div(a, b)", "(Operand self, Operand other)", "The quotient cut off towards zero."),
    map_row!(DivFloor "floor_divide", 2, same, check nonzero_divisor, FMIO | N, "floor_div(a, b)", "(Operand self, Operand other)", "The quotient rounded down."),
    map_row!(Remainder "remainder", 2, same, check nonzero_divisor, FMIO, "py_mod(a, b)", "(Operand self, Operand other)", "The remainder with the sign of the divisor."),
    map_row!(Fmod "fmod", 2, same, check nonzero_divisor, FMIO, "c_mod(a, b)", "(Tensor self, Operand other)", "The remainder with the sign of the dividend."),
    map_row!(Pow "pow", 2, same, check natural_exponent, FMIO, "pow_(a, b)", "(Operand self, Operand exponent)", "The first operand to the power of the second."),
    map_row!(Maximum "maximum", 2, same, FMO, "max_(a, b)", "(Tensor self, Tensor other)", "The larger of two elements; NaN if either is."),
    map_row!(Minimum "minimum", 2, same, FMO, "min_(a, b)", "(Tensor self, Tensor other)", "The smaller of two elements; NaN if either is."),
    map_row!(Fmax "fmax", 2, same, FMO, "fmax_(a, b)", "(Tensor self, Tensor other)", "The larger of two elements, ignoring NaN."),
    map_row!(Fmin "fmin", 2, same, FMO, "fmin_(a, b)", "(Tensor self, Tensor other)", "The smaller of two elements, ignoring NaN."),
    map_row!(Atan2 "atan2", 2, float, FMIO, "atan2(a, b)", "(Tensor self, Tensor other)", "The angle of the point (other, self)."),
    map_row!(Hypot "hypot", 2, same, FMIO, "hypot(a, b)", "(Tensor self, Tensor other)", "The length of the hypotenuse."),
    map_row!(Copysign "copysign", 2, float, FMIO, "copysign(a, b)", "(Tensor self, Operand other)", "The magnitude of the first operand with the sign of the second."),
    map_row!(Nextafter "nextafter", 2, same, FMIO, "nextafter(a, b)", "(Tensor self, Tensor other)", "The next float after the first operand towards the second."),
    map_row!(Logaddexp "logaddexp", 2, same, FMO, "logaddexp_(a, b)", "(Tensor self, Tensor other)", "The logarithm of the sum of exponentials."),
    map_row!(Logaddexp2 "logaddexp2", 2, same, FMO, "logaddexp2_(a, b)", "(Tensor self, Tensor other)", "The base-2 logarithm of the sum of powers of 2."),
    map_row!(Xlogy "xlogy", 2, float, FMIO, "xlogy_(a, b)", "(Operand self, Operand other)", "x * log(y), 0 where x is 0."),
    map_row!(Xlog1py "special.xlog1py", 2, float, F | O, "xlog1py_(a, b)", "(Operand self, Operand other)", "x * log1p(y), 0 where x is 0."),
    map_row!(Heaviside "heaviside", 2, same, check one_dtype, FMIO, "a == T(0) ? b : T(a > T(0))", "(Tensor self, Tensor values)", "0, `values` or 1 by the sign of the element."),
    map_row!(Gcd "gcd", 2, same, FMIO, "gcd_(a, b)", "(Tensor self, Tensor other)", "The greatest common divisor."),
    map_row!(Lcm "lcm", 2, same, FMIO, "lcm_(a, b)", "(Tensor self, Tensor other)", "The least common multiple."),
    map_row!(Eq "eq", 2, compare, FMIO, "a == b", "(Tensor self, Operand other)", "True where the operands are equal."),
    map_row!(Ne "ne", 2, compare, FMIO, "a != b", "(Tensor self, Operand other)", "True where the operands differ."),
    map_row!(Lt "lt", 2, compare, FMIO, "a < b", "(Tensor self, Operand other)", "True where the first operand is smaller."),
    map_row!(Le "le", 2, compare, FMIO, "a <= b", "(Tensor self, Operand other)", "True where the first operand is not larger."),
    map_row!(Gt "gt", 2, compare, FMIO, "a > b", "(Tensor self, Operand other)", "True where the first operand is larger."),
    map_row!(Ge "ge", 2, compare, FMIO, "a >= b", "(Tensor self, Operand other)", "True where the first operand is not smaller."),
    map_row!(LogicalAnd "logical_and", 2, compare, FMIO, "a != T(0) && b != T(0)", "(Tensor self, Tensor other)", "True where both operands are non-zero."),
    map_row!(LogicalOr "logical_or", 2, compare, FMIO, "a != T(0) || b != T(0)", "(Tensor self, Tensor other)", "True where either operand is non-zero."),
    map_row!(LogicalXor "logical_xor", 2, compare, FMIO, "(a != T(0)) != (b != T(0))", "(Tensor self, Tensor other)", "True where exactly one operand is non-zero."),
    map_row!(BitAnd "bitwise_and", 2, same, FMIO, "a & b", "(Operand self, Operand other)", "Bits set in both operands."),
    map_row!(BitOr "bitwise_or", 2, same, FMIO, "a | b", "(Operand self, Operand other)", "Bits set in either operand."),
    map_row!(BitXor "bitwise_xor", 2, same, FMIO, "a ^ b", "(Operand self, Operand other)", "Bits set in exactly one operand."),
    map_row!(Shl "bitwise_left_shift", 2, same, FMIO, "shl_(a, b)", "(Operand self, Operand other)", "Bits moved up."),
    map_row!(Shr "bitwise_right_shift", 2, same, FMIO, "shr_(a, b)", "(Operand self, Operand other)", "Bits moved down, keeping the sign."),
    map_row!(Lerp "lerp", 3, same, wide_numbers, FMIO, "lerp_(a, b, c)", "(Tensor self, Tensor end, Operand weight)", "The point between two operands at `weight`."),
    map_row!(Addcmul "addcmul", 3, same, value, FMIO, "a + alpha * b * c", "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)", "self + value * tensor1 * tensor2."),
    map_row!(Addcdiv "addcdiv", 3, same, value, FMIO, "a + alpha * (b / c)", "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)", "self + value * tensor1 / tensor2."),
    map_row!(Clamp3 "_clamp", 3, same, F | M | I, "clamp_(a, b, c)", "(Tensor self, Operand min, Operand max)", "Each element within two bounds."),
];
