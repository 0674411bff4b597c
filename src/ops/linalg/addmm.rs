//! Products added to something: addmm and its kin, linear, addr.

use crate::ops::core::args::Args;
use crate::ops::core::either;
use crate::ops::core::op::{F, FMIO, KernelBody, O, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::linalg::contract::outer_product;
use crate::ops::linalg::matrix::{
    check_bmm, check_expand, check_mm, check_types, column, cpp_name, mv_mismatch, supported,
};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, dims, ensure, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "addmm",
        "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        KernelBody::new(infer_addmm, run_addmm).cuda(run_addmm),
        "beta self + alpha mat1 mat2.",
    ),
    kernel(
        "baddbmm",
        "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        KernelBody::new(infer_baddbmm, run_addmm).cuda(run_addmm),
        "beta self + alpha batch1 batch2, for each matrix of a batch.",
    ),
    kernel(
        "addbmm",
        "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        KernelBody::new(infer_addbmm, run_addbmm).cuda(run_addbmm),
        "beta self + alpha times the sum of the products of two batches.",
    ),
    kernel(
        "addmv",
        "(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        KernelBody::new(infer_addmv, run_addmv).cuda(run_addmv),
        "beta self + alpha mat vec.",
    ),
    old_compose(
        "addr",
        "(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        addr,
        "beta self + alpha times the outer product of two vectors.",
    ),
    kernel(
        "nn.functional.linear",
        "(Tensor input, Tensor weight, Tensor? bias=None)",
        F | O,
        KernelBody::new(infer_linear, run_linear).cuda(run_linear),
        "input weight.T + bias.",
    ),
];

fn infer_addmm(a: &Args) -> Result<Plan> {
    let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    addmm_rule(t, x, y)
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
    same_dtype("mat1 and mat2", x, y)?;
    check_mm(x.shape(), y.shape())?;
    let shape = [x.shape()[0], y.shape()[1]];
    check_expand(t, &shape)?;
    same_dtype("self and mat2", t, x)?;
    supported("addmm_impl_cpu_", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
}

fn run_addmm(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (beta, alpha) = (a.scalar(3)?, a.scalar(4)?);
    add_product(
        &outs[0],
        a.tensor(0)?,
        a.tensor(1)?,
        a.tensor(2)?,
        beta,
        alpha,
    )
}

fn is_one(s: Scalar) -> bool {
    s.to_c64() == num_complex::Complex64::new(1.0, 0.0)
}

/// `out = beta t + alpha x y`, `t` broadcast; a zero `beta` does not read `t`.
fn add_product(
    out: &Tensor,
    t: &Tensor,
    x: &Tensor,
    y: &Tensor,
    beta: Scalar,
    alpha: Scalar,
) -> Result<()> {
    if !beta.to_bool() || out.numel() == 0 {
        return either::product(out, x, y, alpha, Scalar::Int(0), None);
    }
    if t.ndim() == 1
        && out.ndim() == 2
        && t.shape()[0] == out.shape()[1]
        && t.is_contiguous()
        && is_one(beta)
    {
        return either::product(out, x, y, alpha, Scalar::Int(0), Some(t));
    }
    either::copy(out, t)?;
    either::product(out, x, y, alpha, beta, None)
}

fn infer_baddbmm(a: &Args) -> Result<Plan> {
    let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    if x.ndim() >= 2 && y.ndim() >= 3 {
        check_expand(t, &[x.shape()[0], x.shape()[1], y.shape()[2]])?;
    }
    let shape = check_bmm(x, y)?;
    check_expand(t, &shape)?;
    ensure!(
        t.dtype() == x.dtype() && x.dtype() == y.dtype(),
        Runtime,
        "Input dtypes must be the same, got: input {}, batch1: {}, batch2: {}",
        cpp_name(t.dtype()),
        cpp_name(x.dtype()),
        cpp_name(y.dtype())
    );
    supported("baddbmm", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
}

fn infer_addbmm(a: &Args) -> Result<Plan> {
    let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
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

fn run_addbmm(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let (out, beta, alpha) = (&outs[0], a.scalar(3)?, a.scalar(4)?);
    let batches = x.shape()[0];
    if batches == 0 {
        if !beta.to_bool() {
            return either::fill(out, Scalar::Int(0));
        }
        let empty = |rows, columns| Tensor::empty(&[rows, columns], out.dtype(), out.device());
        return add_product(
            out,
            t,
            &empty(out.shape()[0], 0)?,
            &empty(0, out.shape()[1])?,
            beta,
            alpha,
        );
    }
    // 16-bit sums over the batch stay in single precision.
    let wide = if out.dtype().is_reduced_float() {
        DType::F32
    } else {
        out.dtype()
    };
    let same = wide == out.dtype();
    let sum = if same {
        out.clone()
    } else {
        Tensor::empty(out.shape(), wide, out.device())?
    };
    let (x, y) = if same {
        (x.clone(), y.clone())
    } else {
        (either::converted(x, wide)?, either::converted(y, wide)?)
    };
    let t = if same {
        t.clone()
    } else {
        either::converted(t, wide)?
    };
    for i in 0..batches {
        let (x, y) = (x.selected(0, i), y.selected(0, i));
        if i == 0 {
            add_product(&sum, &t, &x, &y, beta, alpha)?;
        } else {
            either::product(&sum, &x, &y, alpha, Scalar::Int(1), None)?;
        }
    }
    if same {
        Ok(())
    } else {
        either::copy(out, &sum)
    }
}

fn infer_addmv(a: &Args) -> Result<Plan> {
    let (t, m, v) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
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

fn run_addmv(a: &Args, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let t = a.tensor(0)?.expand_to(out.shape());
    add_product(
        &column(out),
        &column(&t),
        a.tensor(1)?,
        &column(a.tensor(2)?),
        a.scalar(3)?,
        a.scalar(4)?,
    )
}

fn infer_linear(a: &Args) -> Result<Plan> {
    let (x, w, bias) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
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
        ensure!(
            bias.is_none(),
            Runtime,
            "mat2 must be a matrix, got 1-D tensor"
        );
        let wk = w.shape()[0];
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
    Ok(Plan::contiguous(&shape, x.dtype()))
}

/// A tensor as a matrix of rows: a view where possible.
fn as_rows(t: &Tensor, rows: i64, columns: i64) -> Result<Tensor> {
    if t.ndim() == 2 {
        return Ok(t.clone());
    }
    let to = [rows, columns];
    match dims::view_strides(t.shape(), t.strides(), &to) {
        Some(strides) => Ok(t.view_with(to.into(), strides, t.offset())),
        None => Ok(either::dense(t, t.dtype())?.view_with(to.into(), [columns, 1].into(), 0)),
    }
}

fn run_linear(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, w, out) = (a.tensor(0)?, a.tensor(1)?, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let k = x.shape()[x.ndim() - 1];
    let n = if w.ndim() == 2 { w.shape()[0] } else { 1 };
    let rows = out.numel() / n;
    let w = if w.ndim() == 2 {
        w.swapped(0, 1)
    } else {
        column(w)
    };
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), out.device())?
    };
    let matrix = dense.view_with([rows, n].into(), [n, 1].into(), dense.offset());
    let x = as_rows(x, rows, k)?;
    match a.opt_tensor(2) {
        Some(b) => add_product(&matrix, b, &x, &w, Scalar::Int(1), Scalar::Int(1))?,
        None => either::product(&matrix, &x, &w, Scalar::Int(1), Scalar::Int(0), None)?,
    }
    if out.is_contiguous() {
        Ok(())
    } else {
        either::copy(out, &dense)
    }
}

fn addr(a: &Args) -> Result<Ret> {
    let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let (beta, alpha) = (a.scalar(3)?, a.scalar(4)?);
    ensure!(
        x.ndim() == 1,
        Runtime,
        "addr: Expected 1-D argument vec1, but got {}-D",
        x.ndim()
    );
    ensure!(
        y.ndim() == 1,
        Runtime,
        "addr: Expected 1-D argument vec2, but got {}-D",
        y.ndim()
    );
    check_expand(t, &[x.shape()[0], y.shape()[0]])?;
    let common = crate::ops::pointwise::rule::result_type(&a.values[..3])?;
    for (name, s) in [("beta", beta), ("alpha", alpha)] {
        ensure!(
            !(s.is_floating() && common.is_integral(true)),
            Runtime,
            "For integral input tensors, argument {name} must not be a floating point number."
        );
    }
    let products = outer_product(x, y)?;
    if common == DType::Bool {
        let kept = run1!("logical_and", t, &products)?;
        return Ok(match (beta.to_bool(), alpha.to_bool()) {
            (true, true) => run1!("logical_or", t, &products)?,
            (false, true) => products,
            (true, false) => run1!("logical_or", t, &kept)?,
            (false, false) => run1!("logical_xor", &products, &products)?,
        }
        .into());
    }
    let products = if is_one(alpha) {
        products
    } else {
        run1!("mul", &products, alpha)?
    };
    if !beta.to_bool() {
        return Ok(products.to_dtype(common)?.into());
    }
    let scaled = if is_one(beta) {
        t.clone()
    } else {
        run1!("mul", t, beta)?
    };
    Ok(run1!("add", &scaled, &products)?.into())
}
