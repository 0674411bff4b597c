//! Statistics made of other operators, and comparisons of whole tensors.

use crate::cpu;
use crate::ops::batch;
use crate::ops::core::helpers::{at_hand, has_no_values, item, readable};
use crate::ops::core::op::{Batch, Cast, FM, M, OpDef, Ret, Value, compose};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "dist",
        "(Tensor self, Tensor other, Scalar p=2)",
        FM,
        dist,
        "The norm of the difference.",
    ).samples("f32[5], f32[5, 5], 4; c64[5, 5], c64[5, 5], 4")
    .grad("self: _grad.dist(grad, self, other, p, result); other: -_grad.dist(grad, self, other, p, result)")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "sum_to_size",
        "(Tensor self, int[*] size)",
        M,
        sum_to_size,
        "Summed to a shape that broadcasts to this one.",
    ).samples("f32[3, 4], [1]; b8[5, 5], [1, 5]; f32[5, 5], [1, 5]"),
    compose(
        "equal",
        "(Tensor self, Tensor other) -> bool",
        FM,
        equal,
        "True if shapes and all elements are equal.",
    ).samples("f32[5], f32[()]; b8[5, 5], b8[5, 5]")
    .batch(Batch::As(|_, _| batch::refused("equal"))),
    compose(
        "allclose",
        "(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool",
        FM,
        allclose,
        "True if all elements are close.",
    ).samples("f64[5], f64[5], rtol=0.5, atol=0.01; c64[5], c64[5], rtol=0.5, atol=0.01")
    .batch(Batch::As(|_, _| bail!(Runtime, "vmap over torch.allclose isn't supported yet. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature."))),
    compose(
        "is_nonzero",
        "(Tensor self) -> bool",
        FM,
        is_nonzero,
        "True if the only element is not zero.",
    ).samples("f32(1.5); b8([False])"),
    compose(
        "trace",
        "(Tensor self)",
        FM,
        trace,
        "The sum of a matrix's diagonal.",
    ).samples("f32[3, 4]; c64[3, 4]")
    .grad("self: _grad.trace_backward(grad, self.sizes); jvp: linear")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "cov",
        "(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None)",
        FM,
        cov,
        "The covariance matrix of variables in rows.",
    ).samples("f32[1, 2], correction=0, fweights=i32([7, 4]); c64[3, 4]"),
    compose(
        "corrcoef",
        "(Tensor self)",
        FM,
        corrcoef,
        "The correlation matrix of variables in rows.",
    ).samples("f32[3, 4]"),
];

fn dist(a: &calls::Dist) -> Result<Tensor> {
    let delta = f::sub(a.input, a.other)?;
    let d = delta.dtype();
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "norm(): input dtype should be either floating point or complex. Got {} instead.",
        d.scalar_type()
    );
    f::LinalgVectorNorm::new(&delta).ord(a.p).call()
}

fn sum_to_size(a: &calls::SumToSize) -> Result<Ret> {
    let (t, size) = (a.input, a.size);
    if size.is_empty() {
        return f::sum(t).map(Ret::from);
    }
    let lead = t.ndim().checked_sub(size.len());
    let fits = lead.is_some_and(|lead| {
        size.iter()
            .zip(&t.shape()[lead..])
            .all(|(&to, &from)| to == from || to == 1)
    });
    let Some(lead) = lead.filter(|_| fits) else {
        bail!(
            Runtime,
            "size {{{}}} is not expandable to size {{{}}}.",
            Dims::new(size),
            t.shape()
        );
    };
    let dims: Dims = (0..t.ndim())
        .filter(|&d| d < lead || (size[d - lead] == 1 && t.shape()[d] != 1))
        .map(|d| d as i64)
        .collect();
    if dims.is_empty() {
        return Ok(Ret::Same(0));
    }
    let sum = f::SumDim::new(t, &dims[..]).keepdim(true).call()?;
    if lead == 0 {
        Ok(sum.into())
    } else {
        f::view(&sum, size).map(Ret::from)
    }
}

fn truth(value: bool) -> Ret {
    Ret::Value(Value::Scalar(Scalar::Bool(value)))
}

fn all_of(t: &Tensor) -> Result<Ret> {
    Ok(truth(item(&f::all(t)?)?.to_bool()))
}

fn equal(a: &calls::Equal) -> Result<Ret> {
    let (x, y) = (a.input, a.other);
    if x.device() != y.device() {
        bail!(
            Runtime,
            "Cannot compare two tensors on different devices. Got: {} and {}",
            x.device(),
            y.device()
        );
    }
    let read = |t| {
        readable(
            t,
            "equal() cannot be called on meta tensors: they have no data",
        )
    };
    let (x, y) = (read(x)?, read(y)?);
    if x.shape() != y.shape() {
        return Ok(truth(false));
    }
    if !x.has_parts()
        && !y.has_parts()
        && let Some(known) = cpu::equal::equal(&x, &y)?
    {
        return Ok(truth(known));
    }
    all_of(&f::eq(&x, &y)?)
}

fn allclose(a: &calls::Allclose) -> Result<Ret> {
    let (x, y, rtol, atol) = (a.input, a.other, a.rtol, a.atol);
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "{} did not match {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    ensure!(
        rtol >= 0.0,
        Runtime,
        "rtol must be greater than or equal to zero, but got {rtol}"
    );
    ensure!(
        atol >= 0.0,
        Runtime,
        "atol must be greater than or equal to zero, but got {atol}"
    );
    let mut close = f::eq(x, y)?;
    if a.equal_nan && (x.dtype().is_float() || x.dtype().is_complex()) {
        let both = f::logical_and(&f::isnan(x)?, &f::isnan(y)?)?;
        close = f::logical_or(&close, &both)?;
    }
    if rtol != 0.0 || atol != 0.0 {
        close = f::logical_or(&close, &within(x, y, rtol, atol)?)?;
    }
    all_of(&close)
}

/// Where `x` differs from `y` by a finite amount, at most `atol` and the `rtol`-th part of `y`.
fn within(x: &Tensor, y: &Tensor, rtol: f64, atol: f64) -> Result<Tensor> {
    let y = if y.dtype().is_integral(true) {
        y.to_dtype(mode::default_dtype())?
    } else {
        y.clone()
    };
    let allowed = f::add(&f::abs(&f::mul(&y, rtol)?)?, atol)?;
    let actual = f::abs(&f::sub(&x.to_dtype(y.dtype())?, &y)?)?;
    f::logical_and(&f::isfinite(&actual)?, &f::le(&actual, &allowed)?)
}

fn is_nonzero(a: &calls::IsNonzero) -> Result<Ret> {
    let t = a.input;
    ensure!(
        t.numel() != 0,
        Runtime,
        "Boolean value of Tensor with no values is ambiguous"
    );
    ensure!(
        t.numel() == 1,
        Runtime,
        "Boolean value of Tensor with more than one value is ambiguous"
    );
    Ok(truth(item(t)?.to_bool()))
}

fn trace(a: &calls::Trace) -> Result<Tensor> {
    let (t, d) = (a.input, a.input.dtype());
    let added = !matches!(d, DType::Bool | DType::U16 | DType::U32 | DType::U64);
    d.check_kernel(added && !d.is_storage_only(), "trace")?;
    ensure!(
        t.ndim() == 2,
        Runtime,
        "trace: expected a matrix, but got tensor with dim {}",
        t.ndim()
    );
    f::sum(&f::diagonal(t)?)
}

fn cov(a: &calls::Cov) -> Result<Tensor> {
    let (t, correction) = (a.input, a.correction);
    ensure!(
        t.ndim() <= 2,
        Runtime,
        "cov(): expected input to have two or fewer dimensions but got an input with {} dimensions",
        t.ndim()
    );
    ensure!(
        t.dtype() != DType::Bool,
        Runtime,
        "cov(): bool dtype is not supported for input"
    );
    let x = if t.ndim() < 2 {
        f::reshape(t, &[1, -1])?
    } else {
        t.clone()
    };
    let n = x.shape()[1];
    let weights = weights(a, n)?;
    let weighted = |x: &Tensor| match &weights {
        Some(w) => f::mul(x, w),
        None => Ok(x.clone()),
    };
    let sums = f::sum_dim(&weighted(&x)?, [1].as_slice())?;
    let count;
    let (mean, factor) = match &weights {
        None => {
            if n <= correction {
                say_freedom();
            }
            (f::div(&sums, n)?, Operand::from((n - correction).max(0)))
        }
        Some(w) => {
            let total = f::sum(w)?;
            count = weighted_count(w, a.aweights, &total, correction)?;
            (f::div(&sums, &total)?, Operand::from(&count))
        }
    };
    let x = f::sub(&x, &f::unsqueeze(&mean, 1)?)?;
    let right = f::conj(&f::t(&weighted(&x)?)?)?.to_dtype(x.dtype())?;
    f::squeeze(&f::div(&f::mm(&x, &right)?, factor)?)
}

/// The weights of `n` observations: how often each counts times how much.
fn weights(a: &calls::Cov, n: i64) -> Result<Option<Tensor>> {
    if let Some(w) = a.fweights {
        let integral = w.dtype().is_integral(false);
        check_weights(w, "fweights", n, integral, "integral")?;
    }
    if let Some(w) = a.aweights {
        check_weights(w, "aweights", n, w.dtype().is_float(), "floating point")?;
    }
    Ok(match (a.fweights, a.aweights) {
        (Some(often), Some(much)) => Some(f::mul(often, much)?),
        (one, other) => one.or(other).cloned(),
    })
}

/// What products are divided by: the sum of the weights, corrected.
fn weighted_count(
    w: &Tensor,
    aweights: Option<&Tensor>,
    total: &Tensor,
    correction: i64,
) -> Result<Tensor> {
    ensure!(
        item(total)?.to_f64() != 0.0,
        Runtime,
        "cov(): weights sum to zero, can't be normalized"
    );
    let left = match aweights {
        Some(v) if correction != 0 => {
            let squares = f::sum(&f::mul(w, v)?)?;
            f::sub(
                total,
                &f::div(&f::_mul_number(&squares, correction)?, total)?,
            )?
        }
        _ => f::_sub_number(total, correction)?,
    };
    if at_hand(&left) && item(&left)?.to_f64() <= 0.0 {
        say_freedom();
        return f::zeros_like(&left);
    }
    Ok(left)
}

/// Warns that more is taken off the number of observations than there are.
fn say_freedom() {
    crate::warning::say(
        "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
    );
}

fn check_weights(w: &Tensor, name: &str, n: i64, right_type: bool, type_name: &str) -> Result<()> {
    ensure!(
        w.ndim() <= 1,
        Runtime,
        "cov(): expected {name} to have one or fewer dimensions but got {name} with {} dimensions",
        w.ndim()
    );
    ensure!(
        right_type,
        Runtime,
        "cov(): expected {name} to have {type_name} dtype but got {name} with {} dtype",
        w.dtype().scalar_type()
    );
    ensure!(
        w.numel() == n,
        Runtime,
        "cov(): expected {name} to have the same numel as there are observations in the input but got {} != {n}",
        w.numel()
    );
    if !has_no_values(w) && n > 0 {
        ensure!(
            item(&f::min(w)?)?.to_f64() >= 0.0,
            Runtime,
            "cov(): {name} cannot be negative"
        );
    }
    Ok(())
}

fn corrcoef(a: &calls::Corrcoef) -> Result<Tensor> {
    let t = a.input;
    ensure!(
        t.ndim() <= 2,
        Runtime,
        "corrcoef(): expected input to have two or fewer dimensions but got an input with {} dimensions",
        t.ndim()
    );
    let c = f::cov(t)?;
    if c.ndim() == 0 {
        return f::div(&c, &c);
    }
    let d = f::diagonal(&c)?;
    let d = if d.dtype().is_complex() {
        f::real(&d)?
    } else {
        d
    };
    let std = f::sqrt(&d)?;
    let c = f::div(&c, &f::view(&std, &[-1, 1])?)?;
    let c = f::div(&c, &f::view(&std, &[1, -1])?)?;
    let clamped = |t: &Tensor| {
        f::Clamp::new(t)
            .min(Scalar::Int(-1))
            .max(Scalar::Int(1))
            .call()
    };
    if c.dtype().is_complex() {
        return f::complex(&clamped(&f::real(&c)?)?, &clamped(&f::imag(&c)?)?);
    }
    clamped(&c)
}
