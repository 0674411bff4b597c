//! Products of vectors: outer, inner along a dimension, Kronecker, cross, and the powers of their elements.

use crate::cpu;
use crate::dims::{self, wrap_dim};
use crate::ops::core::op::{Cast, F, FMO, O, OpDef, Plan, X, compose, kernel};
use crate::ops::f;
use crate::{DType, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "outer",
        "(Tensor self, Tensor vec2)",
        FMO,
        outer,
        "All products of elements of two vectors.",
    )
    .apart(0b11)
    .samples("f32[5], f32[10]; c64[5], c64[10]"),
    compose(
        "kron",
        "(Tensor self, Tensor other)",
        FMO,
        kron,
        "The Kronecker product.",
    )
    .apart(0b11)
    .samples("f32[5, 5], f32[10, 20]; b8[5, 5], b8[10, 20]"),
    compose(
        "linalg.vecdot",
        "(Tensor x, Tensor y, *, int dim=-1)",
        F | O | X,
        vecdot,
        "Inner products along a dimension.",
    )
    .samples("f32[3], f32[3]; c64[5, 5], c64[5, 5], dim=1; f32[0, 1], f32[0, 1], dim=1")
    .amp(Cast::Low, Cast::Low),
    compose(
        "cross",
        "(Tensor self, Tensor other, int? dim=None)",
        FMO | X,
        cross_default,
        "The vector product.",
    )
    .apart(0b11)
    .samples("f32[1, 3], f32[5, 3], dim=-1; c64[5, 3], c64[5, 3]")
    .amp(Cast::Kept, Cast::Widest),
    kernel(
        "linalg.cross",
        "(Tensor self, Tensor other, *, int dim=-1)",
        F | O | X,
        body!(cross_rule, |a, dim, o| cpu::cross::cross(
            &o[0], a.input, a.other, *dim
        ), scratch: |a, _, o, room| cpu::cross::room(room, &o[0], a.input, a.other)),
        "The vector product along a dimension.",
    )
    .apart(0b11)
    .samples("f32[5, 3], f32[5, 3]; c64[1, 3], c64[5, 3]; f32[5, 3, 5], f32[5, 3, 5], dim=1")
    .grad("self: linalg.cross(other.conj(), grad, dim=dim); other: linalg.cross(grad, self.conj(), dim=dim)"),
    compose(
        "vander",
        "(Tensor x, int? N=None, bool increasing=False)",
        F,
        vander,
        "Powers of each element as rows.",
    )
    .samples("f32[3]; i64([1, 2, 3]), 2, True"),
    compose(
        "linalg.vander",
        "(Tensor x, *, int? N=None)",
        F,
        linalg_vander,
        "Powers of each element as rows.",
    )
    .samples("f32[3, 4]; c64[3, 4], N=2; f32[3, 4], N=4"),
];

/// The products of two vectors' elements.
pub(super) fn outer_product(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    f::mul(&f::reshape(x, &[x.numel(), 1])?, y)
}

fn outer(a: &calls::Outer) -> Result<Tensor> {
    for (v, name) in [(a.input, "self"), (a.vec2, "vec2")] {
        ensure!(
            v.ndim() == 1,
            Runtime,
            "outer: Expected 1-D argument {name}, but got {}-D",
            v.ndim()
        );
    }
    outer_product(a.input, a.vec2)
}

fn kron(a: &calls::Kron) -> Result<Tensor> {
    let (x, y) = (a.input, a.other);
    let n = x.ndim().max(y.ndim());
    let size = |t: &Tensor, i: usize| {
        if i + t.ndim() >= n {
            t.shape()[i + t.ndim() - n]
        } else {
            1
        }
    };
    let (mut sx, mut sy, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        sx.extend([size(x, i), 1]);
        sy.extend([1, size(y, i)]);
        out.push(size(x, i) * size(y, i));
    }
    let (x, y) = (f::_unsafe_view(x, &sx)?, f::_unsafe_view(y, &sy)?);
    f::_unsafe_view(&f::mul(&x, &y)?, &out)
}

fn vecdot(a: &calls::LinalgVecdot) -> Result<Tensor> {
    let (x, y) = (a.x, a.y);
    ensure!(
        x.dtype().is_float() || x.dtype().is_complex(),
        Runtime,
        "linalg.vecdot: Expected a floating point or complex tensor as input. Got {}",
        x.dtype().scalar_type()
    );
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "linalg.vecdot: Expected x and y to have the same dtype, but found x of type {} and y of type {} instead",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    if x.ndim() == 1 && y.ndim() == 1 {
        wrap_dim(a.dim, 1)?;
        return f::vdot(x, y);
    }
    let shape = dims::broadcast(x.shape(), y.shape())?;
    let d = wrap_dim(a.dim, shape.len())?;
    f::sum_dim(&f::mul(&f::conj(x)?, y)?, &[d as i64][..])
}

fn cross_default(a: &calls::Cross) -> Result<Tensor> {
    let (x, y) = (a.input, a.other);
    if a.dim.is_none() {
        crate::warn_once!(
            "Using torch.cross without specifying the dim arg is deprecated.\n\
             Please either pass the dim explicitly or simply use torch.linalg.cross.\n\
             The default value of dim will change to agree with that of linalg.cross in a future release."
        );
    }
    let dim = match a.dim {
        Some(d) => d,
        None => match x.shape().iter().position(|&d| d == 3) {
            Some(d) if x.ndim() == y.ndim() => d as i64,
            None => bail!(Runtime, "no dimension of size 3 in input"),
            Some(_) => bail!(
                Runtime,
                "linalg.cross: inputs must have the same number of dimensions."
            ),
        },
    };
    f::LinalgCross::new(x, y).dim(dim).call()
}

fn cross_rule(a: &calls::LinalgCross) -> Result<(Plan, usize)> {
    let (x, y) = (a.input, a.other);
    ensure!(
        x.ndim() == y.ndim(),
        Runtime,
        "linalg.cross: inputs must have the same number of dimensions."
    );
    let d = wrap_dim(a.dim, x.ndim())?;
    let size = |t: &Tensor| t.shape().get(d).copied().unwrap_or(1);
    ensure!(
        size(x) == 3 && size(y) == 3,
        Runtime,
        "linalg.cross: inputs dimension {} must have length 3. Got {} and {}",
        a.dim,
        size(x),
        size(y)
    );
    let shape = dims::broadcast(x.shape(), y.shape())?;
    let dtype = x.dtype();
    if dtype == DType::Bool {
        return Err(dtype.no_kernel("cross"));
    }
    dtype.check_same(y.dtype())?;
    Ok((Plan::contiguous(&shape, dtype), d))
}

/// Powers 0 to n - 1 along a new last dimension; integers become 64-bit ones.
fn powers(x: &Tensor, n: i64, increasing: bool) -> Result<Tensor> {
    let x = if x.dtype().is_integral(true) {
        x.to_dtype(DType::I64)?
    } else {
        x.clone()
    };
    if n == 0 {
        return f::new_empty(&x, &x.shape().concat(&[0]));
    }
    let column = f::unsqueeze(&x, -1)?;
    let factors = f::expand(&column, &x.shape().concat(&[n - 1]))?;
    let list = [f::ones_like(&column)?, f::cumprod(&factors, -1)?];
    let made = f::Cat::new(&list[..]).dim(-1).call()?;
    if increasing {
        Ok(made)
    } else {
        f::flip(&made, &[-1])
    }
}

fn vander(a: &calls::Vander) -> Result<Tensor> {
    ensure!(
        a.x.ndim() == 1,
        Runtime,
        "x must be a one-dimensional tensor."
    );
    let n = a.N.unwrap_or(a.x.shape()[0]);
    ensure!(n >= 0, Runtime, "N must be non-negative.");
    powers(a.x, n, a.increasing)
}

fn linalg_vander(a: &calls::LinalgVander) -> Result<Tensor> {
    let d = a.x.dtype();
    ensure!(
        d != DType::Bool && !d.is_reduced_float(),
        Runtime,
        "linalg.vander supports floating point, complex, and integer tensors, but got {}",
        d.scalar_type()
    );
    let x = if a.x.ndim() == 0 {
        f::unsqueeze(a.x, -1)?
    } else {
        a.x.clone()
    };
    let n = a.N.unwrap_or(x.shape()[x.ndim() - 1]);
    ensure!(n > 1, Runtime, "N must be greater than 1.");
    let x = if x.dtype().is_integral(true) {
        x.to_dtype(DType::I64)?
    } else {
        x
    };
    let factors = f::expand(&f::unsqueeze(&x, -1)?, &x.shape().concat(&[n - 1]))?;
    let rest = f::cumprod(&factors, -1)?;
    let one = f::NewOnes::new(&x, &x.shape().concat(&[1])).call()?;
    f::Cat::new(&[one, rest][..]).dim(-1).call()
}
