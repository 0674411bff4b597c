//! Gradients of reductions and scans.

use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::f;
use crate::ops::grad::kept;
use crate::{DType, Dims, Result, Scalar, Tensor, dims, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.unreduce",
        "(Tensor grad, int[] sizes, int[]? dim, bool keepdim)",
        0,
        |a| unreduce(a.grad, a.sizes, a.dim, a.keepdim),
        "The gradient of a sum, for each of what was summed.",
    )
    .samples("f32[2], [2, 3], [1], False; f32[2, 1], [2, 3], [1], True; f32[()], [2, 3], None, False"),
    compose(
        "_grad.mean_dim",
        "(Tensor grad, int[] sizes, int[]? dim, bool keepdim)",
        0,
        |a| {
            let dim = a.dim;
            f::div(&unreduce(a.grad, a.sizes, dim, a.keepdim)?, count(a.sizes, dim)?)
        },
        "The gradient of a mean.",
    )
    .samples("f32[2], [2, 3], [1], False"),
    compose(
        "_grad.extreme",
        "(Tensor grad, Tensor self, Tensor result, int[] dim, bool keepdim)",
        0,
        |a| {
            let hit = f::eq(a.input, &restored(a.result, a.dim, a.keepdim)?)?;
            shared(&restored(a.grad, a.dim, a.keepdim)?, &hit, Some(a.dim))
        },
        "The gradient of an extreme along dimensions, shared by those that are equal to it.",
    )
    .samples("f32[2], f32[2, 3], f32[2], [1], False; f32[()], f32[2, 3], f32[()], [], False"),
    compose(
        "_grad.extreme_of_all",
        "(Tensor grad, Tensor self, Tensor result)",
        0,
        |a| shared(a.grad, &either_nan(a.input, a.result)?, None),
        "The gradient of the extreme of all elements, shared by those that are it.",
    )
    .samples("f32[()], f32[2, 3], f32[()]"),
    compose(
        "_grad.aminmax",
        "(Tensor self, Tensor? grad_min, Tensor? grad_max, Tensor min, Tensor max, int? dim, bool keepdim)",
        0,
        aminmax,
        "The gradient of aminmax.",
    )
    .samples("f32[2, 3], f32[2], f32[2], f32[2], f32[2], 1, False"),
    compose(
        "_grad.cumulative_extreme",
        "(Tensor grad, int[] sizes, Tensor indices, int dim)",
        0,
        |a| {
            if a.sizes.is_empty() {
                return Ok(Ret::Same(0));
            }
            f::scatter_add(&like(a.grad, a.sizes)?, a.dim, a.indices, a.grad).map(Ret::One)
        },
        "The gradient of cummax and cummin.",
    )
    .samples("f32[2, 3], [2, 3], i64[2, 3].below(2), 1"),
    compose(
        "_grad.prod",
        "(Tensor grad, Tensor self, Tensor result)",
        0,
        |a| Ok(kept(prod(a.grad, a.input)?, a.grad)),
        "The gradient of a product of all elements.",
    )
    .samples("f32[()], f32[2, 3], f32[()]"),
    compose(
        "_grad.prod_dim",
        "(Tensor grad, Tensor self, Tensor result, int dim, bool keepdim)",
        0,
        |a| Ok(kept(prod_dim(a.grad, a.input, a.dim, a.keepdim)?, a.grad)),
        "The gradient of a product along a dimension.",
    )
    .samples("f32[2], f32[2, 3], f32[2], 1, False"),
    compose(
        "_grad.logsumexp",
        "(Tensor grad, Tensor self, Tensor result, int[] dim, bool keepdim)",
        0,
        |a| {
            let dim = Some(a.dim).filter(|d| !d.is_empty());
            let n = a.input.ndim();
            let grad = unsqueezed(a.grad, n, dim, a.keepdim)?;
            let result = unsqueezed(a.result, n, dim, a.keepdim)?;
            let flat = f::masked_fill(&result, &f::eq(&result, f64::NEG_INFINITY)?, 0i64)?;
            f::mul(&grad, &f::conj(&f::exp(&f::sub(a.input, &flat)?)?)?)
        },
        "The gradient of logsumexp.",
    )
    .samples("f32[2], f32[2, 3], f32[2], [1], False"),
    compose(
        "_grad.logcumsumexp",
        "(Tensor grad, Tensor self, Tensor result, int dim)",
        0,
        |a| Ok(kept(logcumsumexp(a.grad, a.input, a.result, a.dim)?, a.grad)),
        "The gradient of logcumsumexp.",
    )
    .samples("f32[2, 3], f32[2, 3], f32[2, 3], 1"),
    compose(
        "_grad.cumsum_back",
        "(Tensor grad, int dim)",
        0,
        |a| {
            if a.grad.numel() <= 1 || a.grad.size(a.dim)? == 1 {
                return Ok(Ret::Same(0));
            }
            let back = f::Cumsum::new(&f::flip(a.grad, &[a.dim][..])?, a.dim).call()?;
            f::flip(&back, &[a.dim][..]).map(Ret::One)
        },
        "The gradient of cumsum: sums from the other end.",
    )
    .samples("f32[2, 3], 1; f32[1], 0"),
    compose(
        "_grad.var",
        "(Tensor grad, Tensor self, int[]? dim, Scalar? correction, bool keepdim)",
        0,
        |a| var(a.grad, a.input, a.dim, a.correction, a.keepdim),
        "The gradient of var.",
    )
    .samples("f32[2], f32[2, 3], [1], 1, False; f32[()], f32[2, 3], None, 0, False"),
    compose(
        "_grad.std",
        "(Tensor grad, Tensor self, Tensor result, int[]? dim, Scalar? correction, bool keepdim)",
        0,
        |a| {
            let dim = a.dim;
            std(a.grad, a.input, a.result, dim, a.correction, a.keepdim)
        },
        "The gradient of std.",
    )
    .samples("f32[2], f32[2, 3], f32[2], [1], 1, False"),
    compose(
        "_grad.var_mean",
        "(Tensor? gvar, Tensor? gmean, Tensor self, Tensor? result, int[]? dim, Scalar? correction, bool keepdim)",
        0,
        |a| {
            let dim = a.dim;
            let by_var = a.gvar.map(|g| match a.result {
                Some(std_) => std(g, a.input, std_, dim, a.correction, a.keepdim),
                None => var(g, a.input, dim, a.correction, a.keepdim),
            });
            let by_mean = a.gmean.map(|g| mean(g, a.input, dim, a.keepdim));
            together(by_var.transpose()?, by_mean.transpose()?, a.input)
        },
        "The gradient of var_mean, or of std_mean if its first result is given.",
    )
    .samples("f32[2], f32[2], f32[2, 3], None, [1], 1, False; f32[2], None, f32[2, 3], f32[2], [1], 1, False"),
    compose(
        "_grad.vector_norm",
        "(Tensor grad, Tensor self, Scalar ord, Tensor result, int[]? dim, bool keepdim)",
        0,
        |a| vector_norm(a),
        "The gradient of linalg.vector_norm.",
    )
    .samples("f32[2], f32[2, 3], 2, f32[2], [1], False; f32[()], f32[3], 3.5, f32[()], None, False"),
    compose(
        "_grad.renorm",
        "(Tensor grad, Tensor self, Scalar p, int dim, Scalar maxnorm)",
        0,
        renorm,
        "The gradient of renorm.",
    )
    .samples("f32[2, 3], f32[2, 3], 2, 0, 1.0"),
];

/// Zeros of these sizes, of the type and device of another tensor.
pub fn like(t: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    f::new_zeros(t, sizes)
}

/// With the dimensions that a reduction took out, as ones.
pub fn unsqueezed(t: &Tensor, ndim: usize, dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    let Some(dim) = dim.filter(|d| !d.is_empty() && !keepdim && ndim > 0) else {
        return Ok(t.clone());
    };
    let mut at = dim
        .iter()
        .map(|d| dims::wrap_dim(*d, ndim))
        .collect::<Result<Vec<_>>>()?;
    at.sort_unstable();
    let mut t = t.clone();
    for d in at {
        t = f::unsqueeze(&t, d as i64)?;
    }
    Ok(t)
}

/// The gradient of a sum, for each of what was summed.
pub fn unreduce(
    grad: &Tensor,
    sizes: &[i64],
    dim: Option<&[i64]>,
    keepdim: bool,
) -> Result<Tensor> {
    f::expand(&unsqueezed(grad, sizes.len(), dim, keepdim)?, sizes)
}

/// A result with the dimensions that were reduced as ones.
fn restored(t: &Tensor, dim: &[i64], keepdim: bool) -> Result<Tensor> {
    if keepdim {
        return Ok(t.clone());
    }
    let n = t.ndim() + dim.len();
    let at: Vec<usize> = dim
        .iter()
        .map(|d| dims::wrap_dim(*d, n))
        .collect::<Result<_>>()?;
    let mut rest = t.shape().iter();
    let sizes: Dims = (0..n)
        .map(|d| {
            if at.contains(&d) {
                1
            } else {
                *rest.next().unwrap_or(&1)
            }
        })
        .collect();
    f::reshape(t, &sizes)
}

/// How many elements a reduction takes together.
fn count(sizes: &[i64], dim: Option<&[i64]>) -> Result<i64> {
    match dim.filter(|d| !d.is_empty()) {
        None => Ok(sizes.iter().product()),
        Some(_) if sizes.is_empty() => Ok(1),
        Some(list) => list
            .iter()
            .map(|d| Ok(sizes[dims::wrap_dim(*d, sizes.len())?]))
            .product(),
    }
}

/// Where values are equal, or both are no numbers.
fn either_nan(x: &Tensor, result: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return f::eq(x, result);
    }
    let neither = f::logical_and(&f::isnan(x)?, &f::isnan(result)?)?;
    f::LogicalOr::new(&neither, &f::eq(x, result)?).call_()?;
    Ok(neither)
}

/// A gradient in equal parts for those that a mask marks.
fn shared(grad: &Tensor, hit: &Tensor, dim: Option<&[i64]>) -> Result<Tensor> {
    let times = match dim {
        Some(dim) => f::SumDim::new(hit, dim).keepdim(true).call()?,
        None => f::sum(hit)?,
    };
    f::mul(hit, &f::div(grad, &times)?)
}

fn aminmax(a: &calls::_GradAminmax) -> Result<Tensor> {
    let dim = a.dim.map(|d| [d]);
    let dim = dim.as_ref().map(|d| &d[..]);
    let dim = dim.unwrap_or_default();
    let one = |grad: Option<&Tensor>, result: &Tensor| -> Result<Option<Tensor>> {
        let Some(grad) = grad else { return Ok(None) };
        let result = restored(result, dim, a.keepdim)?;
        let grad = restored(grad, dim, a.keepdim)?;
        shared(&grad, &f::eq(a.input, &result)?, Some(dim)).map(Some)
    };
    together(one(a.grad_min, a.min)?, one(a.grad_max, a.max)?, a.input)
}

/// The sum of two gradients that may be missing.
fn together(a: Option<Tensor>, b: Option<Tensor>, like: &Tensor) -> Result<Tensor> {
    match (a, b) {
        (Some(a), Some(b)) => f::add(&a, &b),
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (None, None) => f::zeros_like(like),
    }
}

fn prod(grad: &Tensor, x: &Tensor) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Ok(grad.clone());
    }
    let flat = f::reshape(x, &[-1i64][..])?;
    let made = prod_dim(grad, &flat, 0, false)?;
    f::reshape(&made, x.shape())
}

/// The product of the others of each element, without dividing: zeros may be among them.
pub(super) fn prod_dim(grad: &Tensor, x: &Tensor, dim: i64, keepdim: bool) -> Result<Tensor> {
    if x.ndim() == 0 {
        return Ok(grad.clone());
    }
    let grad = unsqueezed(grad, x.ndim(), Some(&[dim]), keepdim)?;
    let n = x.size(dim)?;
    if n == 0 {
        return f::mul(&grad, x);
    }
    let one = f::NewOnes::new(x, &x.shape().with(dims::wrap_dim(dim, x.ndim())?, 1)).call()?;
    let before = f::narrow(x, dim, 0, (n - 1).max(0))?;
    let left = f::Cumprod::new(
        &f::Cat::new(&[one.clone(), before][..]).dim(dim).call()?,
        dim,
    )
    .call()?;
    let after = f::flip(&f::narrow(x, dim, 1, (n - 1).max(0))?, &[dim][..])?;
    let right = f::Cumprod::new(&f::Cat::new(&[one, after][..]).dim(dim).call()?, dim).call()?;
    let others = f::mul(&left, &f::flip(&right, &[dim][..])?)?;
    f::mul(&grad, &f::conj(&others)?)
}

fn logcumsumexp(grad: &Tensor, x: &Tensor, result: &Tensor, dim: i64) -> Result<Tensor> {
    if grad.ndim() == 0 || grad.numel() == 0 {
        return Ok(grad.clone());
    }
    let back = |t: &Tensor| f::flip(t, &[dim][..]);
    let scan = |log: &Tensor| -> Result<Tensor> {
        let summed = f::logcumsumexp(&back(&f::sub(log, result)?)?, dim)?;
        f::exp(&f::add(&back(&summed)?, x)?)
    };
    if x.dtype().is_complex() {
        return f::conj(&scan(&f::log(&f::conj(grad)?)?)?);
    }
    // Finite, so that differences of two of them are numbers.
    let lowest = match x.dtype() {
        DType::F64 => f64::MIN,
        DType::F16 => -65504.0,
        DType::BF16 => -3.389_531_389_251_535_5e38,
        _ => f64::from(f32::MIN),
    };
    let positive = f::where_(&f::gt(grad, 0i64)?, &f::log(grad)?, lowest)?;
    let negative = f::where_(&f::lt(grad, 0i64)?, &f::log(&f::neg(grad)?)?, lowest)?;
    f::sub(&scan(&positive)?, &scan(&negative)?)
}

fn mean(grad: &Tensor, x: &Tensor, dim: Option<&[i64]>, keepdim: bool) -> Result<Tensor> {
    f::div(
        &unreduce(grad, x.shape(), dim, keepdim)?,
        count(x.shape(), dim)?,
    )
}

fn var(
    grad: &Tensor,
    x: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Tensor> {
    let less = correction.map_or(1.0, Scalar::to_f64);
    let dim = dim.filter(|d| !d.is_empty());
    let free = count(x.shape(), dim)? as f64 - less;
    let grad = unsqueezed(grad, x.ndim(), dim, keepdim)?;
    let middle = match dim {
        Some(_) => f::MeanDim::new(x, dim).keepdim(true).call()?,
        None => f::mean(x)?,
    };
    if free <= 0.0 {
        // No degree of freedom is left: infinite where there is a spread, undefined where there is none.
        let spread = f::sub(x, &middle)?;
        let undefined = f::mul(&grad, f64::NAN)?;
        let infinite = f::mul(&f::mul(&grad, f64::INFINITY)?, &spread)?;
        return f::where_(&f::eq(&spread, 0i64)?, &undefined, &infinite);
    }
    let apart = f::sub(x, &middle)?;
    f::mul(&f::mul(&grad, 2.0 / free)?, &apart)
}

fn std(
    grad: &Tensor,
    x: &Tensor,
    result: &Tensor,
    dim: Option<&[i64]>,
    correction: Option<Scalar>,
    keepdim: bool,
) -> Result<Tensor> {
    let none = || f::eq(result, 0i64);
    let twice = f::mul(result, 2i64)?;
    let by_var = if mode::grad_enabled() {
        // Differentiated once more, nothing is divided by zero.
        let none = none()?;
        let whole = f::div(grad, &f::masked_fill(&twice, &none, 1i64)?)?;
        f::masked_fill(&whole, &none, 0i64)?
    } else {
        zeroed(f::div(grad, &twice)?, &none()?)?
    };
    drop(twice);
    var(&by_var, x, dim, correction, keepdim)
}

fn vector_norm(a: &calls::_GradVectorNorm) -> Result<Tensor> {
    let x = a.input;
    let dim = a.dim.filter(|d| !d.is_empty());
    let grad = &unsqueezed(a.grad, x.ndim(), dim, a.keepdim)?;
    let norm = &unsqueezed(a.result, x.ndim(), dim, a.keepdim)?;
    let p = a.ord.to_f64();
    if p == 0.0 {
        return f::zeros_like(x);
    }
    if p == 1.0 {
        return f::mul(&f::sgn(x)?, grad);
    }
    if p == 2.0 {
        let ratio = zeroed(f::div(x, norm)?, &f::eq(norm, 0i64)?)?;
        return f::mul(grad, &ratio);
    }
    let size = f::abs(x)?;
    if p.is_infinite() {
        let hit = f::logical_or(&f::eq(&size, norm)?, &f::isnan(&size)?)?;
        let all: Vec<i64> = (0..x.ndim() as i64).collect();
        let times = f::SumDim::new(&hit, dim.unwrap_or(&all));
        let part = f::div(grad, &times.keepdim(true).call()?)?;
        return f::mul(&f::mul(&f::sgn(x)?, &part)?, &hit);
    }
    if p < 1.0 {
        let power = zeroed(raised(size, p - 1.0)?, &f::eq(x, 0i64)?)?;
        let scaled = f::mul(&f::sgn(x)?, &power)?;
        let by = f::pow(norm, 1.0 - p)?;
        return f::mul(&f::mul(&scaled, grad)?, &by);
    }
    let scaled = if p < 2.0 {
        let power = raised(size, p - 1.0)?;
        f::mul(&f::sgn(x)?, &power)?
    } else {
        f::mul(x, &raised(size, p - 2.0)?)?
    };
    let whole = f::div(grad, &f::pow(norm, p - 1.0)?)?;
    f::mul(&scaled, &zeroed(whole, &f::eq(norm, 0i64)?)?)
}

/// A tensor of one's own, 0 where a mask says; a new one where that is differentiated.
fn zeroed(t: Tensor, at: &Tensor) -> Result<Tensor> {
    let made = f::MaskedFill::new(&t, at, 0i64);
    if mode::grad_enabled() {
        return made.call();
    }
    made.call_()?;
    Ok(t)
}

/// A power of a tensor of one's own; a new one where that is differentiated.
fn raised(t: Tensor, p: f64) -> Result<Tensor> {
    let made = f::Pow::new(&t, p);
    if mode::grad_enabled() {
        return made.call();
    }
    made.call_()?;
    Ok(t)
}

fn renorm(a: &calls::_GradRenorm) -> Result<Tensor> {
    let (x, n) = (a.input, a.input.ndim());
    let dim = dims::wrap_dim(a.dim, n)?;
    let others: Vec<i64> = (0..n).filter(|d| *d != dim).map(|d| d as i64).collect();
    let p = a.p.to_f64();
    let norm = f::LinalgVectorNorm::new(x)
        .ord(p)
        .dim(&others[..])
        .keepdim(true)
        .call()?;
    let both = f::mul(&f::conj(x)?, a.grad)?;
    let mut inner = f::SumDim::new(&both, &others[..]).keepdim(true).call()?;
    if inner.dtype().is_complex() {
        inner = f::real(&inner)?;
    }
    let slope = calls::_GradVectorNorm::new(&inner, x, p, &norm, Some(&others[..]), true).call()?;
    let eps = match x.dtype() {
        DType::F64 => 1e-7,
        _ => 1e-7,
    };
    let invert = f::reciprocal(&f::add(&norm, eps)?)?;
    let limit = a.maxnorm.to_f64();
    let through = f::sub(a.grad, &f::mul(&invert, &slope)?)?;
    let bent = f::mul(&f::mul(&invert, limit)?, &through)?;
    f::where_(&f::gt(&norm, limit)?, &bent, a.grad)
}
