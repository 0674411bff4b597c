//! The larger and smaller of operands, and elements kept within bounds.

use crate::cpu::map::both;
use crate::ops::core::args::OwnedArgs;
use crate::ops::core::op::{FMIO, FMO, J, Lies, OpDef, X, forward};
use crate::ops::f;
use crate::ops::pointwise::factors;
use crate::ops::pointwise::rule::same;
use crate::{DType, Result, bail, map_op, map_row};
use torchlike_macros::operators;

map_op! {
    Maximum, 2,
    [int] |x, y, c| x.max(y),
    [exact] |x, y, c| if (x > y) | x.is_nan() { x } else { y },
    [boolean] |x, y, c| x | y
}
map_op! {
    Minimum, 2,
    [int] |x, y, c| x.min(y),
    [exact] |x, y, c| if (x < y) | x.is_nan() { x } else { y },
    [boolean] |x, y, c| both(x, y)
}
map_op! { Fmax, 2, [int] |x, y, c| x.max(y), [light] |x, y, c| x.max(y), [boolean] |x, y, c| x | y }
map_op! { Fmin, 2, [int] |x, y, c| x.min(y), [light] |x, y, c| x.min(y), [boolean] |x, y, c| both(x, y) }
map_op! {
    Clamp3, 3,
    [int] |x, lo, hi, c| x.max(lo).min(hi),
    [exact] |x, lo, hi, c| {
        // Comparisons with NaN are false, which keeps a NaN x; NaN bounds are told apart afterwards.
        let v = if lo > x { lo } else { x };
        let v = if hi < v { hi } else { v };
        if lo.is_nan() | hi.is_nan() {
            lo + hi
        } else {
            v
        }
    }
}

#[cold]
fn no_bound() -> Result<OwnedArgs> {
    bail!(
        Runtime,
        "torch.clamp: At least one of 'min' or 'max' must not be None"
    )
}

fn clamp_tensor(a: &calls::ClampTensor) -> Result<OwnedArgs> {
    Ok(match (a.min, a.max) {
        (None, None) => return no_bound(),
        (Some(min), None) => f::ClampMinTensor::new(a.input, min).args()?.to_owned(),
        (None, Some(max)) => f::ClampMaxTensor::new(a.input, max).args()?.to_owned(),
        (Some(min), Some(max)) => f::_ClampTensor::new(a.input, min, max).args()?.to_owned(),
    })
}

fn clamp(a: &calls::Clamp) -> Result<OwnedArgs> {
    Ok(match (a.min, a.max) {
        (None, None) => return no_bound(),
        (Some(min), None) => f::ClampMin::new(a.input, min).args()?.to_owned(),
        (None, Some(max)) => f::ClampMax::new(a.input, max).args()?.to_owned(),
        (Some(min), Some(max)) => f::_Clamp::new(a.input, min, max).args()?.to_owned(),
    })
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Maximum "maximum", 2, same, FMO, "max_(a, b)", "(Tensor self, Tensor other)", "The larger of two elements; NaN if either is.").grad("self: where(self == other, grad / 2, grad).masked_fill_(self.lt(other), 0); other: where(self == other, grad / 2, grad).masked_fill_(self.gt(other), 0); jvp: where(self == other, (self_t + other_t) / 2, where(self.gt(other), self_t, other_t))"),
    map_row!(Minimum "minimum", 2, same, FMO, "min_(a, b)", "(Tensor self, Tensor other)", "The smaller of two elements; NaN if either is.").grad("self: where(self == other, grad / 2, grad).masked_fill_(self.gt(other), 0); other: where(self == other, grad / 2, grad).masked_fill_(self.lt(other), 0); jvp: where(self == other, (self_t + other_t) / 2, where(self.lt(other), self_t, other_t))"),
    map_row!(Fmax "fmax", 2, same, FMO, "fmax_(a, b)", "(Tensor self, Tensor other)", "The larger of two elements, ignoring NaN.").grad("self: grad.masked_fill(self.ge(other).logical_or_(other.isnan()).logical_not_(), 0); other: grad.masked_fill(self.ge(other).logical_or_(other.isnan()), 0); jvp: where(self.gt(other).logical_or(other.isnan()), self_t, other_t)"),
    map_row!(Fmin "fmin", 2, same, FMO, "fmin_(a, b)", "(Tensor self, Tensor other)", "The smaller of two elements, ignoring NaN.").grad("self: grad.masked_fill(self.le(other).logical_or_(other.isnan()).logical_not_(), 0); other: grad.masked_fill(self.le(other).logical_or_(other.isnan()), 0)"),
    map_row!(Clamp3 "_clamp", 3, same, typed!(|a, d| factors::held([a.min, a.max], d), DType), X, "clamp_(a, b, c)", "(Tensor self, Scalar min, Scalar max)", "Each element within two numbers.").lies(Lies::Tensors).samples("f32[3, 4], -1.0, 1.0; i64[3], -1, 2").grad("ClampBackward1 | self: where(self.ge(min).logical_and_(self.le(max)), grad, 0.0)"),
    map_row!(Clamp3 "_clamp#tensor", 3, same, 0, "clamp_(a, b, c)", "(Tensor self, Tensor min, Tensor max)", "Each element within two bounds.").grad("ClampBackward0 | self: where(self.ge(min).logical_and(self.le(max)), grad, 0.0); min: where(min.lt(max).logical_and(self.lt(min)), grad, 0.0); max: where(self.gt(max).logical_or(max.lt(min)), grad, 0.0); jvp: where(min.gt(max), max_t, where(self.lt(min), min_t, where(self.gt(max), max_t, self_t)))"),
    forward(
        "clamp#tensor",
        "(Tensor self, Tensor? min=None, Tensor? max=None)",
        FMIO | J,
        clamp_tensor,
        "Each element within two bounds.",
    ).samples("f32[5, 10, 5], f32[5, 1, 5]; f32[4, 4], f32[4, 4], f32[4, 4]")
    .grad("self: where(self.ge(min), grad, 0.0) if not max.given else where(self.le(max), grad, 0.0) if not min.given else where(self.ge(min).logical_and(self.le(max)), grad, 0.0); min: where(self.lt(min), grad, 0.0) if not max.given else where(min.lt(max).logical_and(self.lt(min)), grad, 0.0); max: where(self.gt(max), grad, 0.0) if not min.given else where(self.gt(max).logical_or(max.lt(min)), grad, 0.0); jvp: where(self.gt(min), self_t, min_t) if not max.given else where(self.lt(max), self_t, max_t) if not min.given else where(min.gt(max), max_t, where(self.lt(min), min_t, where(self.gt(max), max_t, self_t)))"),
    forward(
        "clamp",
        "(Tensor self, Scalar? min=None, Scalar? max=None)",
        FMIO | J,
        clamp,
        "Each element within two bounds.",
    ).samples("f32[3, 4], -1.0, 1.0; i64[3], 0; f32[3], max=0.5")
    .grad("ClampBackward1 | self: where(self.ge(min), grad, 0.0) if not max.given else where(self.le(max), grad, 0.0) if not min.given else where(self.ge(min).logical_and_(self.le(max)), grad, 0.0)"),
    map_row!(Maximum "clamp_min#tensor", 2, same, FMIO | J, "max_(a, b)", "(Tensor self, Tensor min)", "Each element, or the bound if that is larger.").grad("ClampMinBackward1 | self: where(self.ge(min), grad, 0.0); min: where(self.lt(min), grad, 0.0); jvp: where(self.ge(min), self_t, min_t)"),
    map_row!(Maximum "clamp_min", 2, same, typed!(|a, d| factors::held([a.min], d), DType), FMIO | X | J, "max_(a, b)", "(Tensor self, Scalar min)", "Each element, or the bound if that is larger.").lies(Lies::Tensors).samples("f32[3, 4], -1.0; i64[3], 0").grad("self: where(self.ge(min), grad, 0.0)"),
    map_row!(Minimum "clamp_max#tensor", 2, same, FMIO | J, "min_(a, b)", "(Tensor self, Tensor max)", "Each element, or the bound if that is smaller.").grad("ClampMaxBackward1 | self: where(self.le(max), grad, 0.0); max: where(self.gt(max), grad, 0.0); jvp: where(self.le(max), self_t, max_t)"),
    map_row!(Minimum "clamp_max", 2, same, typed!(|a, d| factors::held([a.max], d), DType), FMIO | X | J, "min_(a, b)", "(Tensor self, Scalar max)", "Each element, or the bound if that is smaller.").lies(Lies::Tensors).samples("f32[3, 4], 1.0; i64[3], 0.5").grad("self: where(self.le(max), grad, 0.0)"),
];
