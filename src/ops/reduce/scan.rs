//! Running sums, products and extremes; differences and trapezoids; renorm.

use crate::cpu::running::running_extreme;
use crate::cpu::{lines_room, renorm, scan};
use crate::dims::wrap_dim;
use crate::ops::core::op::{Batch, Cast, D, F, FMIO, FMO, OpDef, Plan, Ret, X, compose, kernel};
use crate::ops::core::rules::sum_dtype;
use crate::ops::core::typed;
use crate::ops::f;
use crate::ops::reduce::rule::comparable;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "cumsum",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        FMIO | D,
        body!(
            |a| cumulative(a.input, a.dim, a.dtype, "cumsum_out_cpu"),
            anywhere: |a, dim, outs| kernels::scan::scan(&outs[0], a.input, *dim, scan::Kind::Sum),
            scratch: |a, dim, outs, room| scan::scan_room(room, &outs[0], a.input, *dim)
        ),
        "Sums of the elements so far.",
    )
    .alike(1)
    .samples("f32[3, 4], 0; c64[3, 4], 1, dtype=c64; f32[2, 3, 9], 1")
    .grad("self: _grad.cumsum_back(grad, dim); jvp: linear")
    .amp(Cast::Kept, Cast::Result),
    kernel(
        "cumprod",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        FMIO | D,
        body!(
            |a| cumulative(a.input, a.dim, a.dtype, "cumprod_out_cpu"),
            anywhere: |a, dim, outs| kernels::scan::scan(&outs[0], a.input, *dim, scan::Kind::Prod),
            scratch: |a, dim, outs, room| scan::scan_room(room, &outs[0], a.input, *dim)
        ),
        "Products of the elements so far.",
    )
    .alike(1)
    .samples("f32[3, 4], 0; c64[3, 4], 0; f32[3, 4], 1, dtype=f32")
    .grad("self: _grad.cumprod_backward(grad, self, dim, result)")
    .amp(Cast::Kept, Cast::Result),
    kernel(
        "logcumsumexp",
        "(Tensor self, int dim)",
        FMO | X,
        body!(logcumsumexp, anywhere: |a, dim, outs| kernels::scan::scan(
            &outs[0],
            a.input,
            *dim,
            scan::Kind::LogSumExp
        ), scratch: |a, dim, outs, room| scan::scan_room(room, &outs[0], a.input, *dim)),
        "Logarithms of the sums of exponentials so far.",
    )
    .alike(1)
    .samples("f32[3, 4], 0")
    .grad("self: _grad.logcumsumexp(grad, self, result, dim); jvp: _grad.logcumsumexp_tangent(self_t, self, dim)"),
    kernel(
        "cummax",
        "(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(
            |a| extreme_so_far(a.input, a.dim, "cummax_cpu"),
            |a, dim, outs| running_extreme(&outs[0], &outs[1], a.input, *dim, true),
            cuda: |a, dim, outs| kernels::scan::extreme(&outs[0], &outs[1], a.input, *dim, true),
            scratch: |a, dim, outs, room| lines_room::running_extreme(room, outs, a.input, *dim)
        ),
        "The largest element so far and its index.",
    )
    .samples("f32[3, 4], 0; b8[3, 4], 1")
    .grad("self: _grad.cumulative_extreme(grad, self.sizes, indices, dim)"),
    kernel(
        "cummin",
        "(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(
            |a| extreme_so_far(a.input, a.dim, "cummin_cpu"),
            |a, dim, outs| running_extreme(&outs[0], &outs[1], a.input, *dim, false),
            cuda: |a, dim, outs| kernels::scan::extreme(&outs[0], &outs[1], a.input, *dim, false),
            scratch: |a, dim, outs, room| lines_room::running_extreme(room, outs, a.input, *dim)
        ),
        "The smallest element so far and its index.",
    )
    .samples("f64[3, 4], 0; b8[3, 4], 0")
    .grad("self: _grad.cumulative_extreme(grad, self.sizes, indices, dim)"),
    kernel(
        "renorm",
        "(Tensor self, Scalar p, int dim, Scalar maxnorm)",
        FMIO | X,
        body!(renorm, |a, dim, outs| renorm::renorm(
            &outs[0],
            a.input,
            a.p.to_f64(),
            *dim,
            a.maxnorm.to_f64()
        ), scratch: |a, dim, outs, room| lines_room::renorm(room, &outs[0], a.input, a.p.to_f64(), *dim)),
        "Slices along a dimension scaled down to a norm.",
    )
    .alike(1)
    .samples("f32[3, 4], 2, 1, 0.5; c64[2, 3, 4], 1, 2, 3")
    .grad("self: _grad.renorm(grad, self, p, dim, maxnorm)")
    .batch(Batch::Each)
    .amp(Cast::Kept, Cast::Single),
    compose(
        "diff",
        "(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None)",
        FMO,
        diff,
        "Differences of neighbours.",
    )
    .alike(1)
    .samples("f32[3, 4], 2, 0, None, None; b8[3, 3, 3], 17, 2, b8[3, 3, 3], b8[3, 3, 3]"),
    compose(
        "trapezoid",
        "(Tensor y, Tensor x, *, int dim=-1)",
        F,
        |a| Trapezoids::total(a.y, a.dim).between(a.x),
        "The integral by the trapezoid rule.",
    )
    .samples("f32[6], f32[6]; c64[2, 3], c64[2, 3]; f32[3, 3], f32[3, 3], dim=-2"),
    compose(
        "trapezoid#dx",
        "(Tensor y, *, Scalar dx=1, int dim=-1)",
        F,
        |a| Trapezoids::total(a.y, a.dim).spaced(a.dx),
        "The integral by the trapezoid rule with a fixed step.",
    )
    .samples("f32[3, 4]; c64[3, 4], dx=3.0; f32[3, 4], dx=2.0"),
    compose(
        "trapz",
        "(Tensor y, Tensor x, *, int dim=-1)",
        F,
        |a| f::Trapezoid::new(a.y, a.x).dim(a.dim).call(),
        "The integral by the trapezoid rule.",
    )
    .samples("f32[6], f32[6]; c64[2, 3], c64[2, 3]; f32[2, 3], f32[2, 3], dim=1"),
    compose(
        "trapz#dx",
        "(Tensor y, *, float dx=1, int dim=-1)",
        F,
        |a| f::TrapezoidDx::new(a.y).dx(a.dx).dim(a.dim).call(),
        "The integral by the trapezoid rule with a fixed step.",
    )
    .samples("f32[3, 4], dx=2.0; c64[3, 4], dx=3.0"),
    compose(
        "cumulative_trapezoid",
        "(Tensor y, Tensor x, *, int dim=-1)",
        F,
        |a| Trapezoids::so_far(a.y, a.dim).between(a.x),
        "Integrals so far by the trapezoid rule.",
    )
    .samples("f32[2, 3], f32[2, 3]; c64[2, 3], c64[2, 3]; f32[2, 3], f32[2, 3], dim=1"),
    compose(
        "cumulative_trapezoid#dx",
        "(Tensor y, *, Scalar dx=1, int dim=-1)",
        F,
        |a| Trapezoids::so_far(a.y, a.dim).spaced(a.dx),
        "Integrals so far by the trapezoid rule with a fixed step.",
    )
    .samples("f32[3, 4], dx=2.0"),
];

fn cumulative(t: &Tensor, dim: i64, asked: Option<DType>, kernel: &str) -> Result<(Plan, usize)> {
    let dim = wrap_dim(dim, t.ndim())?;
    let d = sum_dtype(t.dtype(), asked);
    d.check_kernel(!d.is_storage_only() && d != DType::Bool, kernel)?;
    Ok((Plan::contiguous(t.shape(), d), dim))
}

fn logcumsumexp(a: &calls::Logcumsumexp) -> Result<(Plan, usize)> {
    let (t, d) = (a.input, a.input.dtype());
    let dim = wrap_dim(a.dim, t.ndim())?;
    let computed = !d.is_storage_only() && !d.is_integral(true);
    d.check_kernel(computed, "logcumsumexp_out_cpu")?;
    Ok((Plan::contiguous(t.shape(), d), dim))
}

/// Rule of `cummax` and `cummin`.
fn extreme_so_far(t: &Tensor, dim: i64, kernel: &str) -> Result<(Plan, usize)> {
    let name = kernel.trim_end_matches("_cpu");
    ensure!(
        t.ndim() > 0 || matches!(dim, -1 | 0),
        Index,
        "{name}(): Expected reduction dim -1 or 0 for scalar but got {dim}"
    );
    let dim = wrap_dim(dim, t.ndim())?;
    comparable(kernel, t.dtype())?;
    let plan = Plan::many(&[(t.shape(), t.dtype()), (t.shape(), DType::I64)]);
    Ok((plan, dim))
}

fn renorm(a: &calls::Renorm) -> Result<(Plan, usize)> {
    let (t, p, max) = (a.input, a.p, a.maxnorm);
    ensure!(
        !matches!(p, Scalar::Complex(_)),
        Runtime,
        "renorm: p must be real-valued"
    );
    ensure!(
        p.to_f64() > 0.0,
        Runtime,
        "renorm: non-positive-norm not supported"
    );
    ensure!(
        !matches!(max, Scalar::Complex(_)),
        Runtime,
        "renorm: maxnorm must be real-valued"
    );
    ensure!(
        max.to_f64() >= 0.0,
        Runtime,
        "renorm: expected maxnorm to be >= 0 but got {}",
        max.to_f64()
    );
    ensure!(
        t.ndim() > 1,
        Runtime,
        "renorm: input needs at least 2 dimensions, got {} dimensions",
        t.ndim()
    );
    let dim = wrap_dim(a.dim, t.ndim())?;
    let d = t.dtype();
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    d.check_kernel(!d.is_storage_only(), "renorm_scale_factors_cpu")?;
    Ok((Plan::contiguous(t.shape(), d), dim))
}

fn diff(a: &calls::Diff) -> Result<Ret> {
    let (t, n) = (a.input, a.n);
    ensure!(
        t.ndim() >= 1,
        Runtime,
        "diff expects input to be at least one-dimensional"
    );
    ensure!(n >= 0, Runtime, "order must be non-negative but got {n}");
    let d = wrap_dim(a.dim, t.ndim())?;
    for other in [a.prepend, a.append].into_iter().flatten() {
        check_joins(t, other, d)?;
    }
    if n == 0 {
        let copy = f::zeros_like(t)?;
        return typed::changed(&f::Copy::new(&copy, t).args()?).map(Ret::from);
    }
    let parts: Vec<&Tensor> = [a.prepend, Some(t), a.append]
        .into_iter()
        .flatten()
        .collect();
    let dim = d as i64;
    let joined = match parts.as_slice() {
        [only] if only.shape()[d] == 0 => return Ok(Ret::Same(0)),
        [only] => (*only).clone(),
        several => f::Cat::new(several).dim(dim).call()?,
    };
    let mut x = joined;
    for _ in 0..n.min(x.shape()[d]) {
        let len = x.shape()[d] - 1;
        let (left, right) = (f::narrow(&x, dim, 0, len)?, f::narrow(&x, dim, 1, len)?);
        x = if x.dtype() == DType::Bool {
            f::logical_xor(&right, &left)?
        } else {
            f::sub(&right, &left)?
        };
    }
    Ok(x.into())
}

/// Whether `other` can be joined to `t` along `d`.
fn check_joins(t: &Tensor, other: &Tensor, d: usize) -> Result<()> {
    ensure!(
        other.ndim() == t.ndim(),
        Runtime,
        "diff expects prepend or append to be the same dimension as input"
    );
    for k in (0..t.ndim()).filter(|&k| k != d) {
        ensure!(
            other.shape()[k] == t.shape()[k],
            Runtime,
            "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension; \
             input.size({k}) = {}, but got tensor.size({k}) = {}",
            t.shape()[k],
            other.shape()[k]
        );
    }
    Ok(())
}

/// Trapezoids under neighbouring values: summed, or summed so far.
struct Trapezoids<'a> {
    y: &'a Tensor,
    dim: i64,
    running: bool,
}

impl<'a> Trapezoids<'a> {
    fn total(y: &'a Tensor, dim: i64) -> Self {
        let running = false;
        Self { y, dim, running }
    }

    fn so_far(y: &'a Tensor, dim: i64) -> Self {
        let running = true;
        Self { y, dim, running }
    }

    fn name(&self) -> &'static str {
        if self.running {
            "cumulative_trapezoid"
        } else {
            "trapezoid"
        }
    }

    /// The dimension, from 0 on.
    fn wrapped(&self) -> Result<usize> {
        if self.y.ndim() > 0 {
            return wrap_dim(self.dim, self.y.ndim());
        }
        if self.running {
            bail!(Index, "slice() cannot be applied to a 0-dim tensor.");
        }
        bail!(
            Index,
            "Dimension specified as {} but tensor has no dimensions",
            self.dim
        );
    }

    /// The integral over nothing, which is zero for every line.
    fn nothing(&self, d: usize) -> Result<Option<Tensor>> {
        if self.running || self.y.shape()[d] > 0 {
            return Ok(None);
        }
        f::new_zeros(self.y, &self.y.shape().removed(d)).map(Some)
    }

    /// Places a fixed step apart.
    fn spaced(&self, dx: Scalar) -> Result<Tensor> {
        let (y, name) = (self.y, self.name());
        let d = self.wrapped()?;
        if let Some(zeros) = self.nothing(d)? {
            return Ok(zeros);
        }
        ensure!(
            y.dtype() != DType::Bool,
            Runtime,
            "{name}: received a bool input for `y`, but bool is not supported"
        );
        ensure!(
            !matches!(dx, Scalar::Complex(_) | Scalar::Bool(_)),
            Runtime,
            "{name}: Currently, we only support dx as a real number."
        );
        if self.running {
            let (left, right) = neighbours(y, d)?;
            let areas = f::_mul_number(&f::add(&left, &right)?, dx.to_f64() / 2.0)?;
            return self.sum(&areas, d);
        }
        // All places but the outer ones count twice.
        let (first, last) = (f::select(y, d as i64, 0)?, f::select(y, d as i64, -1)?);
        let outer = f::_mul_number(&f::add(&first, &last)?, 0.5)?;
        f::_mul_number(&f::sub(&self.sum(y, d)?, &outer)?, dx)
    }

    /// Places at `x`.
    fn between(&self, x: &Tensor) -> Result<Tensor> {
        let (y, name) = (self.y, self.name());
        let d = self.wrapped()?;
        if let Some(zeros) = self.nothing(d)? {
            return Ok(zeros);
        }
        ensure!(
            y.dtype() != DType::Bool && x.dtype() != DType::Bool,
            Runtime,
            "{name}: received a bool input for `x` or `y`, but bool is not supported"
        );
        let n = y.shape()[d];
        ensure!(
            x.ndim() != 1 || x.shape()[0] == n,
            Runtime,
            "{name}: There must be one `x` value for each sample point"
        );
        let x = if x.ndim() == 1 {
            f::view(x, &Dims::filled(y.ndim(), 1).with(d, n))?
        } else if x.ndim() < y.ndim() {
            f::view(x, &Dims::filled(y.ndim() - x.ndim(), 1).concat(x.shape()))?
        } else {
            x.clone()
        };
        let (left, right) = neighbours(&x, d)?;
        let steps = f::sub(&right, &left)?;
        let (left, right) = neighbours(y, d)?;
        let areas = f::mul(&f::add(&left, &right)?, &steps)?;
        f::_div_number(&self.sum(&areas, d)?, 2.0)
    }

    fn sum(&self, areas: &Tensor, d: usize) -> Result<Tensor> {
        let d = d as i64;
        if self.running {
            f::cumsum(areas, d)
        } else {
            f::sum_dim(areas, [d].as_slice())
        }
    }
}

/// All elements along a dimension but the last, and all but the first.
fn neighbours(t: &Tensor, d: usize) -> Result<(Tensor, Tensor)> {
    let along = f::Slice::new(t).dim(d as i64);
    Ok((along.clone().end(-1).call()?, along.start(1).call()?))
}
