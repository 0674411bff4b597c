//! Products of matrices and vectors.

use crate::cpu::products::{Backend, dot_as_product};
use crate::ops::batch;
use crate::ops::core::op::{
    Batch, Cast, F, FMO, Hidden, O, OpDef, Plan, X, compose, forward, kernel,
};
use crate::ops::f;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, ensure, err, kernels};
use torchlike_macros::operators;

/// Products in host memory.
pub(super) const HOST: Backend = Backend {
    product: cpu::matrix::product,
    dot: cpu::matrix::dot,
    copy: cpu::copy::copy,
    fill: cpu::fill,
    dense: cpu::copy::dense,
    converted: cpu::copy::converted,
};

/// Products on a device beside the host.
pub(super) const GPU: Backend = Backend {
    product: product_beside,
    dot: |out, a, b| dot_as_product(product_beside, out, a, b),
    copy: kernels::copy,
    fill: kernels::fill,
    dense: kernels::converted,
    converted: kernels::converted,
};

fn product_beside(
    c: &Tensor,
    a: &Tensor,
    b: &Tensor,
    alpha: Scalar,
    beta: Scalar,
    bias: Option<&Tensor>,
) -> Result<()> {
    kernels::accelerator()?.product(c, a, b, alpha, beta, bias)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "mm",
        "(Tensor self, Tensor mat2)",
        FMO | X,
        body!(
            |a| mm_rule(a.input, a.mat2),
            |a, _, o| HOST.mm(&o[0], a.input, a.mat2),
            cuda: |a, _, o| GPU.mm(&o[0], a.input, a.mat2)
        )
        .flops(typed!(|a| Ok(product_flops(a.input, a.mat2)))),
        "The product of two matrices.",
    )
    .samples("f64[0, 5], f64[5, 10]")
    .grad("self: _grad.mm_left(grad, self.sizes, self.strides, mat2, 1); mat2: _grad.mm_right(grad, mat2.sizes, mat2.strides, self, 1)")
    .batch(Batch::As(typed!(|a, _h| batch::one(f::matmul(a.input, a.mat2)), Hidden)))
    .amp(Cast::Low, Cast::Low),
    forward(
        "spmm",
        "(Tensor self, Tensor mat2)",
        F | O,
        |a| Ok(f::Mm::new(a.input, a.mat2).args()?.to_owned()),
        "The product of two matrices, of which the first may be sparse.",
    )
    .samples("f32[2, 3], f32[3, 2]"),
    kernel(
        "bmm",
        "(Tensor self, Tensor mat2)",
        FMO | X,
        body!(
            |a| bmm_rule(a.input, a.mat2),
            |a, _, o| HOST.mm(&o[0], a.input, a.mat2),
            cuda: |a, _, o| GPU.mm(&o[0], a.input, a.mat2)
        )
        .flops(typed!(|a| Ok(product_flops(a.input, a.mat2)))),
        "The products of two batches of matrices.",
    )
    .samples("f32[3, 7, 1], f32[3, 1, 11]; c64[10, 5, 10], c64[10, 10, 5]")
    .grad("self: grad.bmm(mat2.transpose(1, 2).conj()); mat2: self.transpose(1, 2).conj().bmm(grad)")
    .batch(Batch::As(typed!(|a, _h| batch::one(f::matmul(a.input, a.mat2)), Hidden)))
    .amp(Cast::Low, Cast::Low),
    kernel(
        "mv",
        "(Tensor self, Tensor vec)",
        FMO | X,
        body!(
            |a| mv_rule(a.input, a.vec),
            |a, _, o| HOST.mv(&o[0], a.input, a.vec),
            cuda: |a, _, o| GPU.mv(&o[0], a.input, a.vec)
        ),
        "The product of a matrix and a vector.",
    )
    .samples("f32[5, 10], f32[10]; c64[5, 10], c64[10]")
    .grad("self: grad.outer(vec.conj()); vec: self.conj().t().mv(grad)")
    .batch(Batch::As(typed!(|a, _h| batch::one(batch::by_vector(a.input, a.vec)), Hidden)))
    .amp(Cast::Kept, Cast::Low),
    kernel(
        "dot",
        "(Tensor self, Tensor tensor)",
        FMO | X,
        body!(
            |a| dot_rule(a.input, a.tensor),
            |a, _, o| (HOST.dot)(&o[0], a.input, a.tensor),
            cuda: |a, _, o| (GPU.dot)(&o[0], a.input, a.tensor),
            scratch: |a, _, o, room| cpu::matrix::dot_room(room, &o[0], a.input, a.tensor)
        ),
        "The sum of the products of two vectors.",
    )
    .samples("f64[5], f64[5]; c64[5], c64[5]")
    .grad("self: grad * tensor.conj(); tensor: grad * self.conj()")
    .batch(Batch::As(typed!(|a, _h| batch::dot(a.input, a.tensor), Hidden)))
    .amp(Cast::Kept, Cast::Widest),
    kernel(
        "vdot",
        "(Tensor self, Tensor other)",
        FMO | X,
        body!(
            |a| dot_rule(a.input, a.other),
            |a, _, o| HOST.vdot(&o[0], a.input, a.other),
            cuda: |a, _, o| GPU.vdot(&o[0], a.input, a.other),
            scratch: |a, _, o, room| cpu::matrix::vdot_room(room, &o[0], a.input, a.other)
        ),
        "dot with the first vector conjugated.",
    )
    .samples("c64[5], c64[5]")
    .grad("self: grad.conj() * other; other: grad * self")
    .batch(Batch::As(typed!(|a, _h| batch::dot(&f::conj(a.input)?, a.other), Hidden)))
    .amp(Cast::Kept, Cast::Widest),
    compose(
        "linalg.diagonal",
        "(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1)",
        F,
        |a| {
            f::Diagonal::new(a.A)
                .offset(a.offset)
                .dim1(a.dim1)
                .dim2(a.dim2)
                .call()
        },
        "A diagonal of two dimensions, as the last dimension.",
    )
    .samples(
        "f32[3, 4], offset=1; \
         b8[3, 4], offset=-2, dim1=0, dim2=1; \
         f32[3, 4], offset=-2, dim1=0, dim2=1",
    ),
];

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
    for i in (0..t.ndim()).rev() {
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

/// Multiplications and additions of a product of (batches of) matrices.
pub(in crate::ops) fn product_flops(x: &Tensor, y: &Tensor) -> u64 {
    let columns = y.shape().last().copied().unwrap_or(1);
    2 * x.numel().saturating_mul(columns) as u64
}

fn mm_rule(x: &Tensor, y: &Tensor) -> Result<Plan> {
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
        x.dtype().cpp_name(),
        y.dtype().cpp_name()
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

fn bmm_rule(x: &Tensor, y: &Tensor) -> Result<Plan> {
    let shape = check_bmm(x, y)?;
    x.dtype().check_same(y.dtype())?;
    supported("bmm", x.dtype())?;
    Ok(Plan::contiguous(&shape, x.dtype()))
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

fn mv_rule(m: &Tensor, v: &Tensor) -> Result<Plan> {
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

fn dot_rule(x: &Tensor, y: &Tensor) -> Result<Plan> {
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
