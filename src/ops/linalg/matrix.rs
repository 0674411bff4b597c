//! Products of matrices and vectors.

use crate::ops::core::args::Args;
use crate::ops::core::either;
use crate::ops::core::op::{F, FMO, KernelBody, OpDef, Plan, Ret, kernel, old_view};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, err};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
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
    old_view(
        "linalg.diagonal",
        "(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1)",
        F,
        |a| {
            crate::ops::view::part::diagonal_of(a.tensor(0)?, a.int(1)?, a.int(2)?, a.int(3)?)
                .map(Ret::from)
        },
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

pub(in crate::ops) fn supported(kernel: &str, d: DType) -> Result<()> {
    d.check_kernel(crate::cpu::matrix::has_product(d), kernel)?;
    Ok(())
}

pub(in crate::ops) fn check_expand(t: &Tensor, to: &[i64]) -> Result<()> {
    if t.ndim() > to.len() {
        let kind = crate::ops::view::shape::type_name(t);
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

pub(in crate::ops) fn check_mm(x: &[i64], y: &[i64]) -> Result<()> {
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

pub(in crate::ops) fn check_types(x: &Tensor, y: &Tensor) -> Result<()> {
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "expected m1 and m2 to have the same dtype, but got: {} != {}",
        cpp_name(x.dtype()),
        cpp_name(y.dtype())
    );
    Ok(())
}

pub(in crate::ops) fn check_bmm(x: &Tensor, y: &Tensor) -> Result<Dims> {
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

pub(in crate::ops) fn mv_mismatch(out: &Tensor, m: &Tensor, v: &Tensor) -> crate::Error {
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
pub(in crate::ops) fn column(v: &Tensor) -> Tensor {
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
