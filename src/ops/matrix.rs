//! Matrix products.

use super::args::Args;
use super::either;
use super::op::{F, FMIO, FMO, KernelBody, M, O, OpDef, Plan, Ret, compose, kernel, view};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, dims, ensure, err, run1};

/// The family's rows.
pub static OPS: &[OpDef] = &[
    kernel(
        "mm",
        "(Tensor self, Tensor mat2)",
        FMO,
        KernelBody::new(infer_mm, run_mm).cuda(run_mm),
        "The product of two matrices.",
    ),
    kernel(
        "bmm",
        "(Tensor self, Tensor mat2)",
        FMO,
        KernelBody::new(infer_bmm, run_mm).cuda(run_mm),
        "The products of two batches of matrices.",
    ),
    kernel(
        "mv",
        "(Tensor self, Tensor vec)",
        FMO,
        KernelBody::new(infer_mv, run_mv).cuda(run_mv),
        "The product of a matrix and a vector.",
    ),
    kernel(
        "dot",
        "(Tensor self, Tensor tensor)",
        FMO,
        KernelBody::new(infer_dot, run_dot).cuda(run_dot),
        "The sum of the products of two vectors.",
    ),
    kernel(
        "vdot",
        "(Tensor self, Tensor other)",
        FMO,
        KernelBody::new(infer_dot, run_vdot).cuda(run_vdot),
        "dot with the first vector conjugated.",
    ),
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
    compose(
        "addr",
        "(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1)",
        FMIO,
        addr,
        "beta self + alpha times the outer product of two vectors.",
    ),
    compose(
        "outer",
        "(Tensor self, Tensor vec2)",
        FMO,
        outer,
        "All products of elements of two vectors.",
    ),
    compose(
        "inner",
        "(Tensor self, Tensor other)",
        FMO,
        inner,
        "Sums of products over the last dimensions.",
    ),
    compose(
        "matmul",
        "(Tensor self, Tensor other)",
        FMO,
        |a| matmul(a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "The product of vectors, matrices or batches of them.",
    ),
    compose(
        "linalg.matmul",
        "(Tensor input, Tensor other)",
        F | O,
        |a| matmul(a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "As matmul.",
    ),
    compose(
        "__matmul__",
        "(Tensor self, Tensor other)",
        M,
        |a| matmul(a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "As matmul.",
    ),
    compose(
        "__rmatmul__",
        "(Tensor self, Tensor other)",
        M,
        |a| matmul(a.tensor(1)?, a.tensor(0)?).map(Ret::from),
        "matmul with the operands exchanged.",
    ),
    kernel(
        "nn.functional.linear",
        "(Tensor input, Tensor weight, Tensor? bias=None)",
        F | O,
        KernelBody::new(infer_linear, run_linear).cuda(run_linear),
        "input weight.T + bias.",
    ),
    compose(
        "tensordot",
        "(Tensor self, Tensor other, int[] dims_self, int[] dims_other)",
        F | O,
        tensordot,
        "Sums of products over chosen dimensions.",
    ),
    compose(
        "kron",
        "(Tensor self, Tensor other)",
        FMO,
        kron,
        "The Kronecker product.",
    ),
    compose(
        "linalg.vecdot",
        "(Tensor x, Tensor y, *, int dim=-1)",
        F | O,
        vecdot,
        "Inner products along a dimension.",
    ),
    compose(
        "linalg.multi_dot",
        "(Tensor[] tensors)",
        F | O,
        |a| multi_dot(a.tensors(0)?).map(Ret::from),
        "The product of several matrices, in the cheapest order.",
    ),
    compose(
        "chain_matmul",
        "(Tensor[*] matrices)",
        F | O,
        chain_matmul,
        "The product of several matrices.",
    ),
    compose(
        "linalg.matrix_power",
        "(Tensor A, int n)",
        F | O,
        matrix_power,
        "A matrix to an integer power.",
    ),
    compose(
        "matrix_power",
        "(Tensor self, int n)",
        FMO,
        matrix_power,
        "A matrix to an integer power.",
    ),
    view(
        "linalg.diagonal",
        "(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1)",
        F,
        |a| super::view::diagonal_of(a.tensor(0)?, a.int(1)?, a.int(2)?, a.int(3)?).map(Ret::from),
        "A diagonal of two dimensions, as the last dimension.",
    ),
];

/// How PyTorch's older messages spell element types.
#[must_use]
pub fn cpp_name(d: DType) -> &'static str {
    use DType::*;
    match d {
        Bool => "bool",
        U8 => "unsigned char",
        I8 => "signed char",
        I16 => "short int",
        I32 => "int",
        I64 => "long int",
        F16 => "c10::Half",
        BF16 => "c10::BFloat16",
        F32 => "float",
        F64 => "double",
        C64 => "c10::complex<float>",
        C128 => "c10::complex<double>",
        other => other.scalar_type(),
    }
}

fn supported(kernel: &str, d: DType) -> Result<()> {
    ensure!(
        crate::cpu::matrix::has_product(d),
        NotImplemented,
        "\"{kernel}\" not implemented for '{}'",
        d.scalar_type()
    );
    Ok(())
}

fn check_expand(t: &Tensor, to: &[i64]) -> Result<()> {
    if t.ndim() > to.len() {
        let kind = super::view::type_name(t);
        bail!(
            Runtime,
            "expand({kind}{{{}}}, size={}): the number of sizes provided ({}) must be greater or equal to the number of dimensions \
             in the tensor ({})",
            t.shape(),
            Dims::new(to),
            to.len(),
            t.ndim()
        );
    }
    for i in 0..t.ndim() {
        let (at, have) = (to.len() - t.ndim() + i, t.shape()[i]);
        ensure!(
            have == 1 || have == to[at],
            Runtime,
            "The expanded size of the tensor ({}) must match the existing size ({have}) at non-singleton dimension {at}.  Target \
             sizes: {}.  Tensor sizes: {}",
            to[at],
            Dims::new(to),
            t.shape()
        );
    }
    Ok(())
}

fn infer_mm(a: &Args) -> Result<Plan> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(x.ndim() == 2, Runtime, "self must be a matrix");
    ensure!(y.ndim() == 2, Runtime, "mat2 must be a matrix");
    check_mm(x.shape(), y.shape())?;
    check_types(x, y)?;
    supported("addmm_impl_cpu_", x.dtype())?;
    Ok(Plan::contiguous(&[x.shape()[0], y.shape()[1]], x.dtype()))
}

fn check_mm(x: &[i64], y: &[i64]) -> Result<()> {
    ensure!(
        x[1] == y[0],
        Runtime,
        "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
        x[0],
        x[1],
        y[0],
        y[1]
    );
    Ok(())
}

fn check_types(x: &Tensor, y: &Tensor) -> Result<()> {
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "expected m1 and m2 to have the same dtype, but got: {} != {}",
        cpp_name(x.dtype()),
        cpp_name(y.dtype())
    );
    Ok(())
}

fn check_bmm(x: &Tensor, y: &Tensor) -> Result<Dims> {
    ensure!(x.ndim() == 3, Runtime, "batch1 must be a 3D tensor");
    ensure!(y.ndim() == 3, Runtime, "batch2 must be a 3D tensor");
    let (s, t) = (x.shape(), y.shape());
    ensure!(
        s[0] == t[0] && s[2] == t[1],
        Runtime,
        "Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}].",
        s[0],
        s[2],
        t[0],
        t[1]
    );
    Ok([s[0], s[1], t[2]].into())
}

fn infer_bmm(a: &Args) -> Result<Plan> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    let shape = check_bmm(x, y)?;
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "expected scalar type {} but found {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    supported("bmm", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
}

fn run_mm(a: &Args, outs: &[Tensor]) -> Result<()> {
    either::product(
        &outs[0],
        a.tensor(0)?,
        a.tensor(1)?,
        Scalar::Int(1),
        Scalar::Int(0),
        None,
    )
}

fn mv_mismatch(out: &Tensor, m: &Tensor, v: &Tensor) -> crate::Error {
    let s = m.shape();
    let first = out.shape().first().copied().unwrap_or(1);
    err!(
        Runtime,
        "size mismatch, got input ({first}), mat ({}x{}), vec ({})",
        s[0],
        s[1],
        v.shape()[0]
    )
}

fn infer_mv(a: &Args) -> Result<Plan> {
    let (m, v) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        m.ndim() == 2 && v.ndim() == 1,
        Runtime,
        "vector + matrix @ vector expected, got 1, {}, {}",
        m.ndim(),
        v.ndim()
    );
    let (rows, columns) = (m.shape()[0], m.shape()[1]);
    if columns != v.shape()[0] {
        bail!(
            Runtime,
            "size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({})",
            v.shape()[0]
        );
    }
    let (md, vd) = (m.dtype(), v.dtype());
    ensure!(
        md == vd,
        Runtime,
        "addmv input tensors must have the same dtype, but got {}, {}, and {}",
        vd.scalar_type(),
        md.scalar_type(),
        vd.scalar_type()
    );
    supported("addmv_impl_cpu", md)?;
    Ok(Plan::contiguous(&[rows], md))
}

/// A vector as a matrix with one column.
fn column(v: &Tensor) -> Tensor {
    v.view_with(
        [v.shape()[0], 1].into(),
        [v.strides()[0], 1].into(),
        v.offset(),
    )
}

fn run_mv(a: &Args, outs: &[Tensor]) -> Result<()> {
    either::product(
        &column(&outs[0]),
        a.tensor(0)?,
        &column(a.tensor(1)?),
        Scalar::Int(1),
        Scalar::Int(0),
        None,
    )
}

fn infer_dot(a: &Args) -> Result<Plan> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        x.ndim() == 1 && y.ndim() == 1,
        Runtime,
        "1D tensors expected, but got {}D and {}D tensors",
        x.ndim(),
        y.ndim()
    );
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "dot : expected both vectors to have same dtype, but found {} and {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    ensure!(
        x.numel() == y.numel(),
        Runtime,
        "inconsistent tensor size, expected tensor {} and src {} to have the same number of elements, but got {} and {} elements \
         respectively",
        x.shape(),
        y.shape(),
        x.numel(),
        y.numel()
    );
    supported("dot", x.dtype())?;
    Ok(Plan::contiguous(&[], x.dtype()))
}

fn run_dot(a: &Args, outs: &[Tensor]) -> Result<()> {
    either::dot(&outs[0], a.tensor(0)?, a.tensor(1)?)
}

fn run_vdot(a: &Args, outs: &[Tensor]) -> Result<()> {
    let x = a.tensor(0)?;
    if !x.dtype().is_complex() {
        return either::dot(&outs[0], x, a.tensor(1)?);
    }
    either::dot(
        &outs[0],
        &either::dense(&x.clone().with_conj(true), x.dtype())?,
        a.tensor(1)?,
    )
}

fn infer_addmm(a: &Args) -> Result<Plan> {
    let (t, x, y) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    addmm_rule(t, x, y)
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
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "mat1 and mat2 must have the same dtype, but got {} and {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    check_mm(x.shape(), y.shape())?;
    let shape = [x.shape()[0], y.shape()[1]];
    check_expand(t, &shape)?;
    ensure!(
        t.dtype() == x.dtype(),
        Runtime,
        "self and mat2 must have the same dtype, but got {} and {}",
        t.dtype().scalar_type(),
        x.dtype().scalar_type()
    );
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
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "mat1 and mat2 must have the same dtype, but got {} and {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    ensure!(
        t.dtype() == x.dtype(),
        Runtime,
        "self and mat2 must have the same dtype, but got {} and {}",
        t.dtype().scalar_type(),
        x.dtype().scalar_type()
    );
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
            ensure!(
                x.dtype() == w.dtype(),
                Runtime,
                "mat1 and mat2 must have the same dtype, but got {} and {}",
                x.dtype().scalar_type(),
                w.dtype().scalar_type()
            );
            check_mm(&[rows, k], &[wk, n])?;
            check_expand(b, &[rows, n])?;
            ensure!(
                b.dtype() == w.dtype(),
                Runtime,
                "self and mat2 must have the same dtype, but got {} and {}",
                b.dtype().scalar_type(),
                w.dtype().scalar_type()
            );
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
    let common = super::pointwise::result_type(&a.values[..3])?;
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

fn outer_product(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    run1!("mul", &run1!("unsqueeze", x, 1i64)?, y)
}

fn outer(a: &Args) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        x.ndim() == 1,
        Runtime,
        "outer: Expected 1-D argument self, but got {}-D",
        x.ndim()
    );
    ensure!(
        y.ndim() == 1,
        Runtime,
        "outer: Expected 1-D argument vec2, but got {}-D",
        y.ndim()
    );
    Ok(outer_product(x, y)?.into())
}

fn inner(a: &Args) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    if x.ndim() == 0 || y.ndim() == 0 {
        return Ok(run1!("mul", x, y)?.into());
    }
    let (nx, ny) = (x.ndim() - 1, y.ndim() - 1);
    ensure!(
        x.shape()[nx] == y.shape()[ny],
        Runtime,
        "inner() the last dimension must match on both input tensors but got shapes {} and {}",
        x.shape(),
        y.shape()
    );
    contract(x, y, &[nx], &[ny]).map(Ret::from)
}

/// `matmul`, by PyTorch's choice of products.
///
/// # Errors
/// If the operands do not fit.
pub fn matmul(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (nx, ny) = (x.ndim(), y.ndim());
    ensure!(
        nx > 0 && ny > 0,
        Runtime,
        "both arguments to matmul need to be at least 1D, but they are {nx}D and {ny}D"
    );
    match (nx, ny) {
        (1, 1) => return run1!("dot", x, y),
        (2, 1) => return run1!("mv", x, y),
        (1, 2) => {
            return run1!(
                "squeeze#dim",
                &run1!("mm", &run1!("unsqueeze", x, 0i64)?, y)?,
                0i64
            );
        }
        (2, 2) => return run1!("mm", x, y),
        _ => {}
    }
    if nx >= 3 && ny <= 2 && folds(x) {
        let k = x.shape()[nx - 1];
        let rows = dims::numel(&x.shape()[..nx - 1])?;
        let mut shape = Dims::new(&x.shape()[..nx - 1]);
        let folded = run1!("reshape", x, Dims::from([rows, k]))?;
        let out = if ny == 1 {
            run1!("mv", &folded, y)?
        } else {
            run1!("mm", &folded, y)?
        };
        if ny == 2 {
            shape = shape.concat(&[y.shape()[1]]);
        }
        return run1!("view", &out, shape);
    }
    let (n, k1) = (
        if nx > 1 { x.shape()[nx - 2] } else { 1 },
        x.shape()[nx - 1],
    );
    let (k2, p) = if ny > 1 {
        (y.shape()[ny - 2], y.shape()[ny - 1])
    } else {
        (y.shape()[0], 1)
    };
    let batch = dims::broadcast(
        &x.shape()[..nx.saturating_sub(2)],
        &y.shape()[..ny.saturating_sub(2)],
    )?;
    let count = dims::numel(&batch)?;
    let spread = |t: &Tensor, rows: i64, columns: i64| -> Result<Tensor> {
        let t = run1!("expand", t, batch.concat(&[rows, columns]))?;
        if batch.len() == 1 {
            Ok(t)
        } else {
            run1!("reshape", &t, Dims::from([count, rows, columns]))
        }
    };
    let y = if ny == 1 {
        run1!("unsqueeze", y, 1i64)?
    } else {
        y.clone()
    };
    let out = run1!("bmm", &spread(x, n, k1)?, &spread(&y, k2, p)?)?;
    let mut shape = batch;
    if nx > 1 {
        shape = shape.concat(&[n]);
    }
    if ny > 1 {
        shape = shape.concat(&[p]);
    }
    if *out.shape() == shape {
        Ok(out)
    } else {
        run1!("view", &out, shape)
    }
}

/// Whether the leading dimensions of a larger operand join into one without a copy.
fn folds(x: &Tensor) -> bool {
    let (s, t) = (x.shape(), x.strides());
    x.numel() == 0 || (0..x.ndim() - 2).all(|i| t[i] == t[i + 1] * s[i + 1])
}

/// Sums of products over the dimensions `dx` of `x` and `dy` of `y`; the other dimensions follow each other.
fn contract(x: &Tensor, y: &Tensor, dx: &[usize], dy: &[usize]) -> Result<Tensor> {
    let rest = |t: &Tensor, d: &[usize]| -> Vec<usize> {
        (0..t.ndim()).filter(|i| !d.contains(i)).collect()
    };
    let (rx, ry) = (rest(x, dx), rest(y, dy));
    let sizes = |t: &Tensor, d: &[usize]| -> Dims { d.iter().map(|&i| t.shape()[i]).collect() };
    let order = |first: &[usize], then: &[usize]| -> Dims {
        first.iter().chain(then).map(|&i| i as i64).collect()
    };
    let (m, k, n) = (
        dims::numel(&sizes(x, &rx))?,
        dims::numel(&sizes(x, dx))?,
        dims::numel(&sizes(y, &ry))?,
    );
    let left = run1!(
        "reshape",
        &run1!("permute", x, order(&rx, dx))?,
        Dims::from([m, k])
    )?;
    let right = run1!(
        "reshape",
        &run1!("permute", y, order(dy, &ry))?,
        Dims::from([k, n])
    )?;
    let out = run1!("mm", &left, &right)?;
    run1!("reshape", &out, sizes(x, &rx).concat(&sizes(y, &ry)))
}

fn tensordot(a: &Args) -> Result<Ret> {
    let (x, y, dx, dy) = (a.tensor(0)?, a.tensor(1)?, a.ints(2)?, a.ints(3)?);
    ensure!(
        dx.len() == dy.len(),
        Runtime,
        "both dimension lists should have same length, got {} and {}",
        dx.len(),
        dy.len()
    );
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "tensordot: both inputs to have the same dtype but got {} and {}",
        cpp_name(x.dtype()),
        cpp_name(y.dtype())
    );
    let mut pairs: (Vec<usize>, Vec<usize>) = Default::default();
    let (mut x, mut y) = (x.clone(), y.clone());
    for (&i, &j) in dx.iter().zip(dy.iter()) {
        let (p, q) = (dims::wrap_dim(i, x.ndim())?, dims::wrap_dim(j, y.ndim())?);
        ensure!(
            x.ndim() > 0 && y.ndim() > 0,
            Index,
            "Dimension specified as {i} but tensor has no dimensions"
        );
        let (s, t) = (x.shape()[p], y.shape()[q]);
        if t == 1 && s != 1 {
            x = run1!("sum#dim", &x, Dims::from([p as i64]), true, x.dtype())?;
        } else if s == 1 && t != 1 {
            y = run1!("sum#dim", &y, Dims::from([q as i64]), true, y.dtype())?;
        } else {
            ensure!(
                s == t,
                Runtime,
                "contracted dimensions need to match, but first has size {s} in dim {i} and second has size {t} in dim {j}"
            );
        }
        for (list, d) in [(&mut pairs.0, p), (&mut pairs.1, q)] {
            ensure!(
                !list.contains(&d),
                Runtime,
                "dim {d} appears multiple times in the list of dims"
            );
            list.push(d);
        }
    }
    contract(&x, &y, &pairs.0, &pairs.1).map(Ret::from)
}

fn kron(a: &Args) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
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
    let (x, y) = (
        run1!("view", x, Dims::new(&sx))?,
        run1!("view", y, Dims::new(&sy))?,
    );
    Ok(run1!("reshape", &run1!("mul", &x, &y)?, Dims::new(&out))?.into())
}

fn vecdot(a: &Args) -> Result<Ret> {
    let (x, y, dim) = (a.tensor(0)?, a.tensor(1)?, a.int(2)?);
    ensure!(
        x.dtype().is_float() || x.dtype().is_complex(),
        Runtime,
        "linalg.vecdot: Expected a floating point or complex tensor as input. Got {}",
        x.dtype().scalar_type()
    );
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "linalg.vecdot: Expected x and y to have the same dtype, but got x of type {} and y of type {} instead",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    if x.ndim() == 1 && y.ndim() == 1 {
        dims::wrap_dim(dim, 1)?;
        return Ok(run1!("vdot", x, y)?.into());
    }
    let shape = dims::broadcast(x.shape(), y.shape())?;
    let d = dims::wrap_dim(dim, shape.len())?;
    if shape.is_empty() {
        return Ok(run1!("mul", &super::view::conj(x), y)?.into());
    }
    let end = |t: &Tensor| -> Result<Tensor> {
        run1!(
            "movedim#int",
            &run1!("broadcast_to", t, shape.clone())?,
            d as i64,
            -1i64
        )
    };
    let (x, y) = (end(&super::view::conj(x))?, end(y)?);
    let out = matmul(
        &run1!("unsqueeze", &x, -2i64)?,
        &run1!("unsqueeze", &y, -1i64)?,
    )?;
    Ok(run1!("squeeze#dim", &run1!("squeeze#dim", &out, -1i64)?, -1i64)?.into())
}

fn chain_matmul(a: &Args) -> Result<Ret> {
    let list = a.tensors(0)?;
    ensure!(
        !list.is_empty(),
        Runtime,
        "chain_matmul(): Expected one or more matrices"
    );
    for t in list {
        ensure!(
            t.ndim() == 2,
            Runtime,
            "Tensor dimension is {}, expected 2 instead.",
            t.ndim()
        );
    }
    if list.len() == 1 {
        Ok(list[0].clone().into())
    } else {
        multi_dot(list).map(Ret::from)
    }
}

fn multi_dot(list: &[&Tensor]) -> Result<Tensor> {
    let n = list.len();
    ensure!(
        n >= 2,
        Runtime,
        "multi_dot(): expected at least 2 tensors but got {n}"
    );
    let mut all: Vec<Tensor> = list.iter().map(|t| (*t).clone()).collect();
    let (first, last) = (all[0].ndim(), all[n - 1].ndim());
    ensure!(
        (1..=2).contains(&first),
        Runtime,
        "multi_dot(): the first tensor must be 1D or 2D but got {first}D"
    );
    ensure!(
        (1..=2).contains(&last),
        Runtime,
        "multi_dot(): the last tensor must be 1D or 2D but got {last}D"
    );
    for (i, t) in list.iter().enumerate() {
        if i > 0 && i < n - 1 {
            ensure!(
                t.ndim() == 2,
                Runtime,
                "multi_dot(): tensor {i} must be 2D but got {}D",
                t.ndim()
            );
        }
        ensure!(
            t.dtype() == list[0].dtype(),
            Runtime,
            "multi_dot(): all tensors must have be the same dtype but tensor 0 is {} and tensor {i} {}",
            cpp_name(list[0].dtype()),
            cpp_name(t.dtype())
        );
        ensure!(
            t.device() == list[0].device(),
            Runtime,
            "multi_dot(): all tensors must be on the same device but tensor 0 is on {} and tensor {i} on {}",
            list[0].device(),
            t.device()
        );
    }
    let mut shape: Vec<i64> = Vec::new();
    if first == 1 {
        all[0] = run1!("unsqueeze", &all[0], 0i64)?
    } else {
        shape.push(all[0].shape()[0])
    }
    if last == 1 {
        all[n - 1] = run1!("unsqueeze", &all[n - 1], -1i64)?
    } else {
        shape.push(all[n - 1].shape()[1])
    }
    for i in 0..n - 1 {
        ensure!(
            all[i].shape()[1] == all[i + 1].shape()[0],
            Runtime,
            "multi_dot(): tensors {i} and {} with shapes {} and {} cannot be multiplied",
            i + 1,
            list[i].shape(),
            list[i + 1].shape()
        );
    }
    let out = chain(&all, &cheapest(&all), 0, n - 1)?;
    if out.shape()[..] == shape[..] {
        Ok(out)
    } else {
        run1!("view", &out, Dims::new(&shape))
    }
}

/// Where to cut the chain `i..=j` for the fewest multiplications.
fn cheapest(all: &[Tensor]) -> Vec<Vec<usize>> {
    let n = all.len();
    let mut p: Vec<f64> = all.iter().map(|t| t.shape()[0] as f64).collect();
    p.push(all[n - 1].shape()[1] as f64);
    let (mut cost, mut cut) = (vec![vec![0f64; n]; n], vec![vec![0usize; n]; n]);
    for len in 1..n {
        for i in 0..n - len {
            let j = i + len;
            cost[i][j] = f64::INFINITY;
            for k in i..j {
                let c = cost[i][k] + cost[k + 1][j] + p[i] * p[k + 1] * p[j + 1];
                if c < cost[i][j] {
                    (cost[i][j], cut[i][j]) = (c, k);
                }
            }
        }
    }
    cut
}

fn chain(all: &[Tensor], cut: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(all[i].clone());
    }
    let k = cut[i][j];
    run1!("mm", &chain(all, cut, i, k)?, &chain(all, cut, k + 1, j)?)
}

fn matrix_power(a: &Args) -> Result<Ret> {
    let (t, n) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.matrix_power: The input tensor A must have at least 2 dimensions."
    );
    let (r, c) = (t.shape()[t.ndim() - 2], t.shape()[t.ndim() - 1]);
    ensure!(
        r == c,
        Runtime,
        "linalg.matrix_power: A must be batches of square matrices, but they are {r} by {c} matrices"
    );
    if n == 0 {
        let out = run1!("eye#m", r, r, t.dtype(), super::args::Arg::None, t.device())?;
        return Ok(super::call::clone(
            &run1!("expand", &out, t.shape().clone())?,
            crate::MemoryFormat::Contiguous,
        )?
        .into());
    }
    let mut base = if n < 0 {
        run1!("linalg.inv", t)?
    } else {
        t.clone()
    };
    let mut n = n.unsigned_abs();
    if n == 1 {
        return Ok((if a.int(1)? < 0 {
            base
        } else {
            super::call::clone(&base, crate::MemoryFormat::Preserve)?
        })
        .into());
    }
    let mut out: Option<Tensor> = None;
    loop {
        if n & 1 == 1 {
            out = Some(match out {
                Some(o) => matmul(&o, &base)?,
                None => base.clone(),
            });
        }
        n >>= 1;
        if n == 0 {
            break;
        }
        base = matmul(&base, &base)?;
    }
    out.map(Ret::from)
        .ok_or_else(|| err!(Runtime, "matrix_power: no factor"))
}
