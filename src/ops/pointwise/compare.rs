//! Comparisons, logic and bits.

use crate::cpu::map::{Ctx, both};
use crate::ops::core::op::{FM, FMIO, OpDef};
use crate::ops::pointwise::rule::{compare, equal, same};
use crate::{DType, Result, ensure, map_op, map_row};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

map_op! { Eq, 2 => bool, [int uint light complex boolean] |x, y, c| x == y }
map_op! { Ne, 2 => bool, [int uint light complex boolean] |x, y, c| x != y }
map_op! { Lt, 2 => bool, [int uint light] |x, y, c| x < y, [boolean] |x, y, c| both(!x, y) }
map_op! { Le, 2 => bool, [int uint light] |x, y, c| x <= y, [boolean] |x, y, c| !both(x, !y) }
map_op! { Gt, 2 => bool, [int uint light] |x, y, c| x > y, [boolean] |x, y, c| both(x, !y) }
map_op! { Ge, 2 => bool, [int uint light] |x, y, c| x >= y, [boolean] |x, y, c| !both(!x, y) }
map_op! {
    LogicalAnd, 2 => bool,
    [int uint] |x, y, c| x != 0 && y != 0,
    [light] |x, y, c| x != 0.0 && y != 0.0,
    [complex] |x, y, c| x != T::new(0.0, 0.0) && y != T::new(0.0, 0.0),
    [boolean] |x, y, c| both(x, y)
}
map_op! {
    LogicalOr, 2 => bool,
    [int uint] |x, y, c| x != 0 || y != 0,
    [light] |x, y, c| x != 0.0 || y != 0.0,
    [complex] |x, y, c| x != T::new(0.0, 0.0) || y != T::new(0.0, 0.0),
    [boolean] |x, y, c| x || y
}
map_op! {
    LogicalXor, 2 => bool,
    [int uint] |x, y, c| (x != 0) != (y != 0),
    [light] |x, y, c| (x != 0.0) != (y != 0.0),
    [complex] |x, y, c| (x != T::new(0.0, 0.0)) != (y != T::new(0.0, 0.0)),
    [boolean] |x, y, c| x != y
}
map_op! { BitAnd, 2, [int uint] |x, y, c| x & y, [boolean] |x, y, c| both(x, y) }
map_op! { BitOr, 2, [int uint boolean] |x, y, c| x | y }
map_op! { BitXor, 2, [int uint boolean] |x, y, c| x ^ y }
map_op! {
    Shl, 2,
    [int] |x, y, c| if (y as i64) < 0 || y as i64 >= T::BITS as i64 {
        0
    } else {
        x << y
    }
}
map_op! {
    Shr, 2,
    [int] |x, y, c| if (y as i64) < 0 || y as i64 >= T::BITS as i64 {
        if x < 0 as T {
            (0 as T).wrapping_sub(1)
        } else {
            0
        }
    } else {
        x >> y
    }
}
map_op! {
    Isclose, 2 => bool,
    [int boolean] |x, y, c| x == y || { let (a, b) = (f64::from(i32::from(x != y)) * (x as i64 as f64 - y as i64 as f64).abs(), (y as i64 as f64 * c.f[0]).abs() + c.f[1]); a <= b },
    [uint] |x, y, c| { let (a, b) = (x.abs_diff(y) as f64, c.f[1] + c.f[0] * y as f64); a <= b },
    [light] |x, y, c| x == y || (c.i[0] != 0 && x.is_nan() && y.is_nan()) || { let (a, b) = ((x - y).abs(), c.f[1] as T + (c.f[0] as T * y).abs()); a.is_finite() && a <= b },
    [complex] |x, y, c| x == y || (c.i[0] != 0 && x.is_nan() && y.is_nan()) || { let (a, b) = (f64::from((x - y).norm()), c.f[1] + c.f[0] * f64::from(y.norm())); a.is_finite() && a <= b }
}

/// Tolerances, and whether NaN equals NaN.
fn tolerances(a: &calls::Isclose, _: DType) -> Result<Ctx> {
    ensure!(
        a.input.dtype() == a.other.dtype(),
        Runtime,
        "{} did not match {}",
        a.input.dtype().scalar_type(),
        a.other.dtype().scalar_type()
    );
    for (name, t) in [("rtol", a.rtol), ("atol", a.atol)] {
        ensure!(
            t >= 0.0,
            Runtime,
            "{name} must be greater than or equal to zero, but got {t}"
        );
    }
    let mut ctx = Ctx::default();
    (ctx.f[0], ctx.f[1], ctx.i[0]) = (a.rtol, a.atol, i64::from(a.equal_nan));
    Ok(ctx)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Eq "eq", 2, equal, FMIO, "a == b", "(Tensor self, Operand other)", "True where the operands are equal.").grad("EqBackward1 / EqBackward0 | self: zeros_like(grad); other: zeros_like(grad); jvp: pointwise"),
    map_row!(Ne "ne", 2, equal, FMIO, "a != b", "(Tensor self, Operand other)", "True where the operands differ.").grad("NeBackward1 / NeBackward0 | self: zeros_like(grad); other: zeros_like(grad); jvp: pointwise"),
    map_row!(Lt "lt", 2, compare, FMIO, "a < b", "(Tensor self, Operand other)", "True where the first operand is smaller.").grad("LtBackward1 / LtBackward0 | self: zeros_like(grad); other: zeros_like(grad); jvp: pointwise"),
    map_row!(Le "le", 2, compare, FMIO, "a <= b", "(Tensor self, Operand other)", "True where the first operand is not larger.").grad("LeBackward1 / LeBackward0 | self: zeros_like(grad); other: zeros_like(grad); jvp: pointwise"),
    map_row!(Gt "gt", 2, compare, FMIO, "a > b", "(Tensor self, Operand other)", "True where the first operand is larger.").grad("GtBackward1 / GtBackward0 | self: zeros_like(grad); other: zeros_like(grad); jvp: pointwise"),
    map_row!(Ge "ge", 2, compare, FMIO, "a >= b", "(Tensor self, Operand other)", "True where the first operand is not smaller.").grad("GeBackward1 / GeBackward0 | self: zeros_like(grad); other: zeros_like(grad); jvp: pointwise"),
    map_row!(LogicalAnd "logical_and", 2, compare, FMIO, "a != T(0) && b != T(0)", "(Tensor self, Tensor other)", "True where both operands are non-zero.").no_grad(),
    map_row!(LogicalOr "logical_or", 2, compare, FMIO, "a != T(0) || b != T(0)", "(Tensor self, Tensor other)", "True where either operand is non-zero.").no_grad(),
    map_row!(LogicalXor "logical_xor", 2, compare, FMIO, "(a != T(0)) != (b != T(0))", "(Tensor self, Tensor other)", "True where exactly one operand is non-zero.").no_grad(),
    map_row!(BitAnd "bitwise_and", 2, same, FMIO, "a & b", "(Operand self, Operand other)", "Bits set in both operands.").no_grad(),
    map_row!(BitOr "bitwise_or", 2, same, FMIO, "a | b", "(Operand self, Operand other)", "Bits set in either operand.").no_grad(),
    map_row!(BitXor "bitwise_xor", 2, same, FMIO, "a ^ b", "(Operand self, Operand other)", "Bits set in exactly one operand.").no_grad(),
    map_row!(Shl "bitwise_left_shift", 2, same, FMIO, "shl_(a, b)", "(Operand self, Operand other)", "Bits moved up.").no_grad(),
    map_row!(Shr "bitwise_right_shift", 2, same, FMIO, "shr_(a, b)", "(Operand self, Operand other)", "Bits moved down, keeping the sign.").no_grad(),
    map_row!(Isclose "isclose", 2, compare, typed!(tolerances, DType), FM, "", "(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)", "True where the operands are equal within a tolerance.").no_grad(),
];
