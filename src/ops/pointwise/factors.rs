//! Numbers that operands are multiplied by on the way: checked, and in the forms that loops need.

use crate::cpu::map::Ctx;
use crate::ops::core::fits::check_fits;
use crate::{DType, Result, Scalar, Tensor, bail, cpu, ensure};

/// A factor for the loop, in each form that a type may need.
///
/// # Errors
/// If the number does not suit the type.
pub fn factor(s: Scalar, d: DType) -> Result<Ctx> {
    check_scale(s, d)?;
    check_fits(s, d)?;
    Ok(forms(s))
}

/// As [`narrow`], for what is taken away: added, that is, its number turned round.
///
/// # Errors
/// As there.
pub fn taken(s: Scalar, d: DType) -> Result<Ctx> {
    let turned = match s {
        Scalar::Int(i) => i.wrapping_neg(),
        Scalar::UInt(u) => u.wrapping_neg() as i64,
        s => return narrow(s, d),
    };
    if !d.is_integral(true) {
        return narrow(s, d);
    }
    check_fits(Scalar::Int(turned), d)?;
    Ok(forms(Scalar::Int(turned.wrapping_neg())))
}

fn forms(s: Scalar) -> Ctx {
    let mut ctx = Ctx::default();
    (ctx.f[0], ctx.i[0], ctx.c[0]) = (s.to_f64(), s.to_i64(), s.to_c64());
    ctx
}

/// As [`factor`], in the type's own precision, as sums have it.
///
/// # Errors
/// As there.
pub fn narrow(s: Scalar, d: DType) -> Result<Ctx> {
    if d.is_reduced_float() {
        check_scale(s, d)?;
        check_fits(s, DType::F32)?;
        let single = Scalar::Float(f64::from(s.to_f64() as f32));
        return factor(cpu::halves::rounded(single, d), d);
    }
    factor(s, d)
}

/// Refuses a factor that does not suit the type of what it is a factor of.
///
/// # Errors
/// If it is a truth value, a fraction or complex, and the type is not.
pub fn check_scale(a: Scalar, d: DType) -> Result<()> {
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

/// `value` of addcmul and addcdiv; a truth value counts as a number, and integers are cut out of real ones.
///
/// # Errors
/// If the type cannot hold it.
pub fn value(s: Scalar, d: DType) -> Result<Ctx> {
    check_fits(s, d)?;
    Ok(forms(s))
}

/// Bounds and other numbers of a function, which its loop has as operands.
///
/// # Errors
/// If the type cannot hold one of them.
pub fn held(numbers: impl IntoIterator<Item = Scalar>, d: DType) -> Result<Ctx> {
    numbers.into_iter().try_for_each(|s| check_fits(s, d))?;
    Ok(Ctx::default())
}

/// [`value`] of addcdiv, which refuses two tensors of integers, whatever they are added to.
///
/// # Errors
/// If they are integers, or the number does not suit the type.
pub fn divided(s: Scalar, operands: [&Tensor; 2], d: DType) -> Result<Ctx> {
    ensure!(
        !operands.iter().all(|t| t.dtype().is_integral(true)),
        Runtime,
        "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true division \
         of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * torch.trunc(tensor1 / \
         tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for float inputs. The future \
         addcdiv behavior is just the latter implementation: (input + value * tensor1 / tensor2), for all dtypes."
    );
    value(s, d)
}
