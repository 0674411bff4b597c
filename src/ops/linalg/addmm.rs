//! Products added to something: addmm and its kin, linear, addr.

use crate::cpu::products::{Backend, Factors, LinearSizes, is_one};
use crate::ops::batch;
use crate::ops::core::fits::check_fits;
use crate::ops::core::op::{
    Batch, Cast, F, FM, FMIO, Hidden, J, O, OpDef, Plan, Q, X, compose, kernel,
};
use crate::ops::linalg::matrix::{
    GPU, HOST, check_bmm, check_expand, check_mm, check_types, mv_mismatch, product_flops,
    supported,
};
use crate::ops::linalg::vectors::outer_product;
use crate::ops::pointwise::rule::result_type;
use crate::ops::{Ret, f};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_addmm_activation",
        "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, bool use_gelu=False)",
        FM,
        |a| {
            let sums = f::Addmm::new(a.input, a.mat1, a.mat2).beta(a.beta).alpha(a.alpha);
            let sums = sums.call()?;
            match a.use_gelu {
                true => f::nn_functional_gelu(&sums).map(Ret::from),
                false => f::relu(&sums).map(Ret::from),
            }
        },
        "beta self + alpha mat1 mat2, and what a layer makes of it.",
    )
    .samples("f32[4], f32[2, 3], f32[3, 4]; f32[2, 4], f32[2, 3], f32[3, 4], use_gelu=True"),
    kernel(
        "addmm",
        "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO | X,
        body!(
            |a| Ok((addmm_rule(a.input, a.mat1, a.mat2)?, factors(a.input, a.beta, a.alpha)?)),
            |a, by, o| HOST.add_product(&o[0], a.input, a.mat1, a.mat2, *by),
            cuda: |a, by, o| GPU.add_product(&o[0], a.input, a.mat1, a.mat2, *by)
        )
        .flops(typed!(|a| Ok(product_flops(a.mat1, a.mat2)))),
        "beta self + alpha mat1 mat2.",
    )
    .alike(1)
    .samples(
        "c64[1], c64[2, 2], c64[2, 3]; \
         i8(-8), i8([[6, 9], [0, 0]]), i8([[5, 5, 7], [6, 5, 1]]), alpha=2, beta=3",
    )
    .grad("self: _grad.scale(grad, beta.conj()); mat1: _grad.mm_left(grad, mat1.sizes, mat1.strides, mat2, alpha); mat2: _grad.mm_right(grad, mat2.sizes, mat2.strides, mat1, alpha)")
    .batch(Batch::As(typed!(|a, h| batch::added(a.input, &f::matmul(a.mat1, a.mat2)?, 2, [a.beta, a.alpha], h), Hidden)))
    .amp(Cast::Low, Cast::Low),
    kernel(
        "baddbmm",
        "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO | X,
        body!(
            |a| Ok((baddbmm_rule(a.input, a.batch1, a.batch2)?, factors(a.input, a.beta, a.alpha)?)),
            |a, by, o| HOST.add_product(&o[0], a.input, a.batch1, a.batch2, *by),
            cuda: |a, by, o| GPU.add_product(&o[0], a.input, a.batch1, a.batch2, *by)
        )
        .flops(typed!(|a| Ok(product_flops(a.batch1, a.batch2)))),
        "beta self + alpha batch1 batch2, for each matrix of a batch.",
    )
    .alike(1)
    .samples(
        "f32[()], f32[5, 5, 5], f32[5, 5, 10]; \
         c64[1], c64[5, 5, 5], c64[5, 5, 10], beta=0.2, alpha=0.6",
    )
    .grad("self: _grad.scale(grad, beta.conj()); batch1: _grad.scale(grad.bmm(batch2.transpose(1, 2).conj()), alpha.conj()); batch2: _grad.scale(batch1.transpose(1, 2).conj().bmm(grad), alpha.conj())")
    .batch(Batch::As(typed!(|a, h| batch::added(a.input, &f::matmul(a.batch1, a.batch2)?, 3, [a.beta, a.alpha], h), Hidden)))
    .amp(Cast::Low, Cast::Low),
    kernel(
        "addbmm",
        "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO | X | Q,
        body!(
            |a| Ok((addbmm_rule(a.input, a.batch1, a.batch2)?, factors(a.input, a.beta, a.alpha)?)),
            |a, by, o| HOST.add_batches(&o[0], a.input, a.batch1, a.batch2, *by),
            cuda: |a, by, o| GPU.add_batches(&o[0], a.input, a.batch1, a.batch2, *by),
            scratch: |a, _, o, room| Backend::batches_room(room, &o[0], [a.input, a.batch1, a.batch2])
        )
        .grows(),
        "beta self + alpha times the sum of the products of two batches.",
    )
    .alike(1)
    .samples(
        "f32[1], f32[5, 5, 5], f32[5, 5, 10]; \
         c64[5, 10], c64[5, 5, 5], c64[5, 5, 10], beta=(1.0+2.0j), alpha=(2.0+3.0j)",
    )
    .grad("self: _grad.scale(grad, beta.conj()); batch1: _grad.scale(_grad.many(grad, batch2.sizes).bmm(batch2.transpose(1, 2).conj()), alpha.conj()); batch2: _grad.scale(batch1.transpose(1, 2).conj().bmm(_grad.many(grad, batch1.sizes)), alpha.conj())")
    .amp(Cast::Low, Cast::Low)
    .batch(Batch::As(typed!(|a, h| batch::added(a.input, &f::SumDim::new(&f::matmul(a.batch1, a.batch2)?, &[-3][..]).call()?, 2, [a.beta, a.alpha], h), Hidden))),
    kernel(
        "addmv",
        "(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1)",
        FMIO | X | J,
        body!(
            |a| Ok((addmv_rule(a.input, a.mat, a.vec)?, factors(a.input, a.beta, a.alpha)?)),
            |a, by, o| HOST.add_mv(&o[0], a.input, a.mat, a.vec, *by),
            cuda: |a, by, o| GPU.add_mv(&o[0], a.input, a.mat, a.vec, *by)
        ),
        "beta self + alpha mat vec.",
    )
    .alike(1)
    .samples("f32[1], f32[5, 10], f32[10]; c64[5], c64[5, 10], c64[10]")
    .grad("self: _grad.scale(grad, beta.conj()); mat: _grad.scale(grad.outer(vec.conj()), alpha.conj()); vec: _grad.scale(mat.t().conj().mv(grad), alpha.conj())")
    .batch(Batch::As(typed!(|a, h| batch::added(a.input, &batch::by_vector(a.mat, a.vec)?, 1, [a.beta, a.alpha], h), Hidden)))
    .amp(Cast::Kept, Cast::Low),
    compose(
        "addr",
        "(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        addr,
        "beta self + alpha times the outer product of two vectors.",
    )
    .alike(1).apart(0b110)
    .samples(
        "f32[5, 10], f32[5], f32[10]; \
         c64[5, 10], c64[5], c64[10], beta=(0.4+0.6j), alpha=(0.1+0.3j); \
         f32[()], f32[5], f32[10], beta=0.6, alpha=0.2",
    )
    .grad("self: _grad.scale(grad, beta.conj()); vec1: _grad.scale(grad.mv(vec2.conj()), alpha.conj()); vec2: _grad.scale(grad.t().mv(vec1.conj()), alpha.conj())")
    .amp(Cast::Kept, Cast::Low),
    kernel(
        "nn.functional.linear",
        "(Tensor input, Tensor weight, Tensor? bias=None)",
        F | O | X,
        body!(
            |a| linear_rule(a.input, a.weight, a.bias),
            |a, sizes, o| HOST.linear(&o[0], a.input, a.weight, a.bias, sizes),
            cuda: |a, sizes, o| GPU.linear(&o[0], a.input, a.weight, a.bias, sizes),
            scratch: |a, sizes, o, room| Backend::linear_room(room, &o[0], a.input, sizes)
        )
        .flops(typed!(|a| Ok(2 * a
            .input
            .numel()
            .saturating_mul(a.weight.shape().first().copied().unwrap_or(1))
            as u64))),
        "input weight.T + bias.",
    )
    .alike(0b100)
    .samples("f32[3], f32[4, 3]; c64[3], c64[4, 3], c64[4]; f32[8], f32[8, 8], f32[8]; f32[2, 5, 3], f32[4, 3], f32[4]")
    .through(typed!(recorded_linear))
    .amp(Cast::Low, Cast::Low),
];

/// The factors of a sum, which its type has to hold: that of what is summed up.
fn factors(t: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Factors> {
    let d = if t.dtype().is_reduced_float() {
        DType::F32
    } else {
        t.dtype()
    };
    check_fits(beta, d)?;
    check_fits(alpha, d)?;
    Ok(Factors { beta, alpha })
}

fn same_dtype(names: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "{names} must have the same dtype, but got {} and {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    Ok(())
}

fn addmm_rule(t: &Tensor, x: &Tensor, y: &Tensor) -> Result<Plan> {
    same_dtype("self and mat2", t, y)?;
    same_dtype("mat1 and mat2", x, y)?;
    ensure!(
        x.ndim() == 2,
        Runtime,
        "mat1 must be a matrix, got {}-D tensor",
        x.ndim()
    );
    ensure!(
        y.ndim() == 2,
        Runtime,
        "mat2 must be a matrix, got {}-D tensor",
        y.ndim()
    );
    check_mm(x.shape(), y.shape())?;
    let shape = [x.shape()[0], y.shape()[1]];
    check_expand(t, &shape)?;
    supported("addmm_impl_cpu_", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
}

fn baddbmm_rule(t: &Tensor, x: &Tensor, y: &Tensor) -> Result<Plan> {
    if x.ndim() >= 2 && y.ndim() >= 3 {
        check_expand(t, &[x.shape()[0], x.shape()[1], y.shape()[2]])?;
    }
    let shape = check_bmm(x, y)?;
    check_expand(t, &shape)?;
    ensure!(
        t.dtype() == x.dtype() && x.dtype() == y.dtype(),
        Runtime,
        "Input dtypes must be the same, got: input {}, batch1: {}, batch2: {}",
        t.dtype().cpp_name(),
        x.dtype().cpp_name(),
        y.dtype().cpp_name()
    );
    supported("baddbmm", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
}

fn addbmm_rule(t: &Tensor, x: &Tensor, y: &Tensor) -> Result<Plan> {
    if x.ndim() >= 2 {
        check_expand(t, &[x.shape()[1], y.size(2)?])?;
    }
    ensure!(x.ndim() == 3, Runtime, "batch1 must be a 3D tensor");
    ensure!(y.ndim() == 3, Runtime, "batch2 must be a 3D tensor");
    let (s, u) = (x.shape(), y.shape());
    ensure!(
        s[0] == u[0],
        Runtime,
        "batch1 and batch2 must have same number of batches, got {} and {}",
        s[0],
        u[0]
    );
    ensure!(
        s[2] == u[1],
        Runtime,
        "Incompatible matrix sizes for bmm ({}x{} and {}x{})",
        s[1],
        s[2],
        u[1],
        u[2]
    );
    let shape = [s[1], u[2]];
    check_expand(t, &shape)?;
    same_dtype("mat1 and mat2", x, y)?;
    same_dtype("self and mat2", t, x)?;
    supported("addmm_impl_cpu_", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
}

fn addmv_rule(t: &Tensor, m: &Tensor, v: &Tensor) -> Result<Plan> {
    ensure!(
        m.ndim() == 2 && v.ndim() == 1 && t.ndim() <= 1,
        Runtime,
        "vector + matrix @ vector expected, got {}, {}, {}",
        t.ndim(),
        m.ndim(),
        v.ndim()
    );
    let (rows, columns) = (m.shape()[0], m.shape()[1]);
    if columns != v.shape()[0] || (t.numel() != rows && t.numel() != 1) {
        return Err(mv_mismatch(t, m, v));
    }
    ensure!(
        m.dtype() == v.dtype() && t.dtype() == m.dtype(),
        Runtime,
        "addmv input tensors must have the same dtype, but got {}, {}, and {}",
        t.dtype().scalar_type(),
        m.dtype().scalar_type(),
        v.dtype().scalar_type()
    );
    supported("addmv_impl_cpu", m.dtype())?;
    Ok(Plan::contiguous(&[rows], m.dtype()))
}

fn linear_rule(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<(Plan, LinearSizes)> {
    ensure!(
        x.ndim() > 0 && w.ndim() > 0,
        Runtime,
        "both arguments to linear need to be at least 1D, but they are {}D and {}D",
        x.ndim(),
        w.ndim()
    );
    ensure!(
        w.ndim() <= 2,
        Runtime,
        "t() expects a tensor with <= 2 dimensions, but self is {}D",
        w.ndim()
    );
    let lead = &x.shape()[..x.ndim() - 1];
    let (rows, k) = (dims::numel(lead)?, x.shape()[x.ndim() - 1]);
    if w.ndim() == 1 {
        check_vector(x, w, rows, bias)?;
    }
    let n = if w.ndim() == 2 { w.shape()[0] } else { 1 };
    let wk = w.shape()[w.ndim() - 1];
    match bias {
        None => {
            check_mm(&[rows, k], &[wk, n])?;
            check_types(x, w)?;
        }
        Some(b) => {
            same_dtype("mat1 and mat2", x, w)?;
            check_mm(&[rows, k], &[wk, n])?;
            check_expand(b, &[rows, n])?;
            same_dtype("self and mat2", b, w)?;
        }
    }
    supported("addmm_impl_cpu_", x.dtype())?;
    let mut shape = Dims::new(lead);
    if w.ndim() == 2 {
        shape = shape.concat(&[n]);
    }
    let sizes = LinearSizes {
        rows,
        inner: k,
        columns: n,
    };
    Ok((Plan::contiguous(&shape, x.dtype()), sizes))
}

/// Checks for a weight of one dimension.
fn check_vector(x: &Tensor, w: &Tensor, rows: i64, bias: Option<&Tensor>) -> Result<()> {
    ensure!(
        bias.is_none(),
        Runtime,
        "mat2 must be a matrix, got 1-D tensor"
    );
    let (k, wk) = (x.shape()[x.ndim() - 1], w.shape()[0]);
    if x.ndim() == 1 && k != wk {
        bail!(
            Runtime,
            "inconsistent tensor size, expected tensor [{k}] and src [{wk}] to have the same number of elements, but got {k} \
             and {wk} elements respectively"
        );
    }
    ensure!(
        k == wk,
        Runtime,
        "size mismatch, got input ({rows}), mat ({rows}x{k}), vec ({wk})"
    );
    Ok(())
}

fn addr(a: &calls::Addr) -> Result<Tensor> {
    let (t, x, y) = (a.input, a.vec1, a.vec2);
    for (v, name) in [(x, "vec1"), (y, "vec2")] {
        ensure!(
            v.ndim() == 1,
            Runtime,
            "addr: Expected 1-D argument {name}, but got {}-D",
            v.ndim()
        );
    }
    check_expand(t, &[x.shape()[0], y.shape()[0]])?;
    let common = result_type(&[t.into(), x.into(), y.into()])?;
    for (name, s) in [("beta", a.beta), ("alpha", a.alpha)] {
        ensure!(
            common == DType::Bool || !matches!(s, Scalar::Bool(_)),
            Runtime,
            "Boolean {name} only supported for Boolean results."
        );
        ensure!(
            !(s.is_floating() && common.is_integral(true)),
            Runtime,
            "For integral input tensors, argument {name} must not be a floating point number."
        );
    }
    if common == DType::Bool {
        return addr_bool(t, outer_product(x, y)?, a.beta.to_bool(), a.alpha.to_bool());
    }
    // The scale meets the first vector before the second does, which 16-bit numbers tell.
    let products = if is_one(a.alpha) {
        outer_product(x, y)?
    } else {
        outer_product(&f::mul(x, a.alpha)?, y)?
    };
    if !a.beta.to_bool() {
        return products.to_dtype(common);
    }
    if is_one(a.beta) {
        f::add(t, &products)
    } else {
        f::add(&f::mul(t, a.beta)?, &products)
    }
}

/// addr of truth values: products are conjunctions, sums disjunctions.
fn addr_bool(t: &Tensor, products: Tensor, beta: bool, alpha: bool) -> Result<Tensor> {
    match (beta, alpha) {
        (true, true) => f::logical_or(t, &products),
        (false, true) => Ok(products),
        (true, false) => f::logical_or(t, &f::logical_and(t, &products)?),
        (false, false) => f::logical_xor(&products, &products),
    }
}

/// `linear` as the calls that its gradient is made of: a transposed weight, and one product.
fn recorded_linear(a: &calls::NnFunctionalLinear) -> Result<Ret> {
    let (x, w, bias) = (a.input, a.weight, a.bias);
    let made = match (x.ndim(), w.ndim(), bias) {
        (2, 2, Some(bias)) => f::addmm(bias, x, &f::t(w)?)?,
        (1 | 3.., 2, Some(bias)) if x.is_contiguous() => {
            let last = x.ndim() - 1;
            let rows = f::view(x, &[-1, x.shape()[last]][..])?;
            let shape = x.shape().with(last, w.shape()[0]);
            f::view(&f::addmm(bias, &rows, &f::t(w)?)?, &shape[..])?
        }
        _ => {
            let turned = if w.ndim() == 1 { w.clone() } else { f::t(w)? };
            let made = f::matmul(x, &turned)?;
            match bias {
                Some(bias) => f::add(&made, bias)?,
                None => made,
            }
        }
    };
    Ok(Ret::One(made))
}
