//! Products of matrices.

use super::coo::Coo;
use super::pressed::Pressed;
use super::{Sparse, indices, is_sparse, numbers};
use crate::cpu::{self, room::Room};
use crate::ops::core::dispatch::unknown_shape;
use crate::ops::core::helpers::has_no_values;
use crate::ops::core::op::{F, FM, OpDef, Plan, compose, kernel};
use crate::ops::{Ret, f};
use crate::parts::Compressed;
use crate::{DType, Result, Scalar, Tensor, bail, ensure, with_dtype};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_entries_times",
        "(Tensor rows, Tensor columns, Tensor values, Tensor dense, int count)",
        0,
        body!(
            |a| {
                let d = a.values.dtype();
                d.check_kernel(d != DType::Bool && !d.is_storage_only(), "addmm_sparse_dense")?;
                Ok(Plan::contiguous(&[a.count, a.dense.size(1)?], d))
            },
            entries_times,
            scratch: entries_room
        ),
        "",
    )
    .samples("i64([0, 1, 1]), i64([1, 0, 2]), f32[3], f32[3, 2], 2; i64([0, 1]), i64([1, 0]), f16[2], f16[2, 2], 2; i64([0, 1]), i64([1, 0]), i64[2], i64[2, 2], 2; i64([1]), i64([0]), c64[1], c64[2, 3], 3")
    .refused(),
    compose(
        "_sparse_mm",
        "(Tensor sparse, Tensor dense)",
        F,
        |a| mm(a.sparse, a.dense),
        "The product of two matrices, whose gradient by a sparse one has entries where that has.",
    )
    .samples("see tests/test_sparse.py")
    .grad("SparseAddmmBackward0 | sparse: _grad.sparse_mm(grad, dense, sparse); dense: _grad.masked_by(mm(sparse.mH(), _grad.strided(grad, dense)), dense)"),
    compose(
        "sparse_sampled_addmm",
        "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)",
        F,
        sampled_addmm,
        "A product of strided matrices at the places that a sparse one has, and that.",
    )
    .samples("see tests/test_sparse.py")
    .grad("SparseSampledAddmmBackward0 | self: grad * beta.conj(); mat1: _grad.scale(mm(grad, mat2.mH()), alpha.conj()); mat2: _grad.scale(mm(mat1.mH(), grad), alpha.conj())"),
    compose(
        "hspmm",
        "(Tensor mat1, Tensor mat2)",
        F,
        hspmm,
        "The product of a sparse and a strided matrix, by the rows that are not zero.",
    )
    .samples("see tests/test_sparse.py")
    .refused(),
    compose(
        "saddmm",
        "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)",
        F,
        |a| {
            let made = f::Sspaddmm::new(a.input, a.mat1, a.mat2).beta(a.beta);
            made.alpha(a.alpha).call().map(Ret::from)
        },
        "The same as `sspaddmm`.",
    )
    .samples("see tests/test_sparse.py")
    .refused(),
    compose(
        "sspaddmm",
        "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1)",
        FM,
        |a| {
            let scaled = f::mul(&mm(a.mat1, a.mat2)?, a.alpha)?;
            let made = f::add(&f::_to_sparse(&scaled, "sparse_coo")?, &f::mul(a.input, a.beta)?)?;
            f::_coalesce(&made)
        },
        "A sparse matrix and a product, as a sparse matrix.",
    )
    .samples("see tests/test_sparse.py")
    .refused(),
    compose(
        "smm",
        "(Tensor self, Tensor mat2)",
        FM,
        |a| f::_to_sparse(&mm(a.input, a.mat2)?, "sparse_coo"),
        "The product of a sparse and a strided matrix, as a sparse matrix.",
    )
    .samples("see tests/test_sparse.py")
    .refused(),
    compose(
        "_spsolve",
        "(Tensor A, Tensor B, *, bool left=True)",
        F,
        |a| {
            let dense = match Sparse::of(a.A) {
                Some(s) => s.coo()?.dense()?,
                None => a.A.clone(),
            };
            f::LinalgSolve::new(&dense, a.B).left(a.left).call()
        },
        "The solution of equations with a sparse matrix.",
    )
    .samples("f32[3, 3].spd, f32[3]"),
];

fn entries_times(a: &calls::_EntriesTimes, (): &(), outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let d = summed_in(out.dtype());
    ensure!(
        [a.rows, a.columns].iter().all(|i| i.dtype() == DType::I64),
        Index,
        "mm(): the indices of a sparse tensor have type {} and {}",
        a.rows.dtype(),
        a.columns.dtype()
    );
    let (rows, columns) = (a.rows.contiguous()?, a.columns.contiguous()?);
    let (rows, columns) = (cpu::slice::<i64>(&rows), cpu::slice::<i64>(&columns));
    let (values, dense) = (
        cpu::copy::dense(a.values, d)?,
        cpu::copy::dense(a.dense, d)?,
    );
    let width = a.dense.shape()[1] as usize;
    let count = a.dense.shape()[0] as usize;
    let fits = |all: &[i64], n: usize| all.iter().all(|&i| (0..n as i64).contains(&i));
    ensure!(
        fits(rows, a.count.max(0) as usize)
            && fits(columns, count)
            && rows.len() == columns.len()
            && values.numel() as usize == rows.len(),
        Index,
        "mm(): an index of a sparse tensor lies outside of it"
    );
    let sums = cpu::lines::results(out, d)?;
    cpu::fill(&sums, Scalar::Int(0))?;
    with_dtype!(d, [int uint float complex] => T, {
        let (values, dense) = (cpu::slice::<T>(&values), cpu::slice::<T>(&dense));
        let to = cpu::slice_mut::<T>(&sums);
        for ((&r, &c), &v) in rows.iter().zip(columns).zip(values) {
            let from = &dense[c as usize * width..][..width];
            for (t, &x) in to[r as usize * width..][..width].iter_mut().zip(from) {
                *t += v * x;
            }
        }
    }, else {
        return Err(d.no_kernel("addmm_sparse_dense"));
    });
    cpu::lines::put(out, &sums)
}

/// The type that products are summed in.
fn summed_in(d: DType) -> DType {
    if matches!(d, DType::F16 | DType::BF16) {
        DType::F32
    } else {
        d
    }
}

fn entries_room(a: &calls::_EntriesTimes, (): &(), outs: &[Tensor], room: &mut Room) -> Result<()> {
    let d = summed_in(outs[0].dtype());
    room.all_dense([Some(a.rows), Some(a.columns)], DType::I64)?;
    room.operands([Some(a.values), Some(a.dense)], outs, d)
}

/// What a product wants of the shapes of two matrices.
fn check(a: &Tensor, b: &Tensor) -> Result<()> {
    ensure!(
        a.ndim() == 2 && b.ndim() == 2,
        Runtime,
        "mm(): products of sparse tensors are those of matrices, but got {} and {} dimensions",
        a.ndim(),
        b.ndim()
    );
    ensure!(
        a.shape()[1] == b.shape()[0]
            || !matches!(Sparse::of(a), Some(Sparse::Coo(_)))
            || is_sparse(b),
        Runtime,
        "addmm: Argument #3 (dense): Expected dim 0 size {}, got {}",
        a.shape()[1],
        b.shape()[0]
    );
    ensure!(
        a.shape()[1] == b.shape()[0],
        Runtime,
        "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
        a.shape()[0],
        a.shape()[1],
        b.shape()[0],
        b.shape()[1]
    );
    ensure!(
        a.dtype() == b.dtype(),
        Runtime,
        "addmm: expected mat1 and mat2 to have the same dtype, but got {} and {}",
        a.dtype().scalar_type(),
        b.dtype().scalar_type()
    );
    Ok(())
}

/// The product of two matrices, any of which may be sparse.
///
/// # Errors
/// If they do not fit.
pub(crate) fn mm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match (Sparse::of(a), Sparse::of(b)) {
        (None, None) => f::mm(a, b),
        (Some(x), None) => {
            check(a, b)?;
            times_strided(x.coo()?, b)
        }
        (None, Some(_)) => {
            check(a, b)?;
            f::t(&mm(&f::t(b)?, &f::t(a)?)?)
        }
        (Some(x), Some(y)) => {
            check(a, b)?;
            let pressed = match (&x, &y) {
                (Sparse::Pressed(p), Sparse::Pressed(q))
                    if p.kind == q.kind && !p.kind.blocks() =>
                {
                    Some(p.kind)
                }
                (Sparse::Pressed(_), _) | (_, Sparse::Pressed(_)) => Some(Compressed::Csr),
                _ => None,
            };
            let made = sparse_times(x.coo()?, y.coo()?)?;
            match pressed {
                Some(kind) => Pressed::of_coo(made, kind)?.build(),
                None => made.build(),
            }
        }
    }
}

/// The product of a matrix and a vector, any of which may be sparse.
///
/// # Errors
/// If they do not fit.
pub(crate) fn mv(a: &Tensor, v: &Tensor) -> Result<Tensor> {
    ensure!(
        a.ndim() == 2 && v.ndim() == 1,
        Runtime,
        "mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {}Tensor Dim: {}",
        a.ndim(),
        v.ndim()
    );
    ensure!(
        a.shape()[1] == v.shape()[0],
        Runtime,
        "mv: expected self.size(-1) == vec.size(-1)"
    );
    let column = match Sparse::of(v) {
        Some(s) => f::unsqueeze(&s.coo()?.dense()?, 1)?,
        None => f::unsqueeze(v, 1)?,
    };
    f::squeeze_dim(&mm(a, &column)?, 1)
}

/// The products of the matrices of a sparse batch and a strided one: as that of one matrix, with those of the batch along its
/// diagonal.
///
/// # Errors
/// PyTorch's texts if they do not fit.
pub(crate) fn bmm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ensure!(
        !is_sparse(b),
        Runtime,
        "bmm_sparse: Tensor 'mat2' must be dense"
    );
    let Some(Sparse::Coo(c)) = Sparse::of(a) else {
        bail!(Runtime, "bmm_sparse: Tensor 'self' must be sparse");
    };
    ensure!(
        c.values.ndim() == 1,
        Runtime,
        "bmm_sparse: Tensor 'self' must have 0 dense dims, but has {}",
        c.values.ndim() - 1
    );
    ensure!(
        c.sparse_dims() == 3,
        Runtime,
        "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has {}",
        c.sparse_dims()
    );
    ensure!(
        b.ndim() == 3,
        Runtime,
        "bmm_sparse: Tensor 'mat2' must have 3 dims, but has {}",
        b.ndim()
    );
    let (n, m, width) = (c.shape[1], c.shape[2], b.shape()[2]);
    for (i, j, fits) in [
        (0, 0, c.shape[0] == b.shape()[0]),
        (2, 1, m == b.shape()[1]),
    ] {
        ensure!(
            fits,
            Runtime,
            "bmm_sparse: 'self.size({i})' and 'mat2.size({j})' must match"
        );
    }
    a.dtype().check_same(b.dtype())?;
    let place = |row: usize, size: i64| -> Result<Tensor> {
        f::add(&f::mul(&c.row(0)?, size)?, &c.row(row)?)
    };
    let tall = f::reshape(b, &[c.shape[0] * m, width])?;
    let rows = c.shape[0] * n;
    let made = f::_entries_times(&place(1, n)?, &place(2, m)?, &c.values, &tall, rows)?;
    f::reshape(&made, &[c.shape[0], n, width])
}

fn times_strided(c: Coo, dense: &Tensor) -> Result<Tensor> {
    ensure!(
        c.sparse_dims() == 2,
        Runtime,
        "mm(): a sparse matrix with dense dimensions cannot be multiplied; call to_dense() first"
    );
    f::_entries_times(&c.row(0)?, &c.row(1)?, &c.values, dense, c.shape[0])
}

/// The product of two matrices by coordinates: each entry of the first with a row of the second.
fn sparse_times(x: Coo, y: Coo) -> Result<Coo> {
    ensure!(
        x.sparse_dims() == 2 && y.sparse_dims() == 2,
        Runtime,
        "mm(): sparse matrices with dense dimensions cannot be multiplied; call to_dense() first"
    );
    if has_no_values(&x.indices) || has_no_values(&y.indices) {
        return Err(unknown_shape("mm"));
    }
    let y = y.coalesce()?;
    let mut starts = vec![0usize; y.shape[0] as usize + 1];
    for r in numbers(&y.row(0)?)? {
        starts[r as usize + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let (mut at, mut with) = (Vec::new(), Vec::new());
    for (c, n) in numbers(&x.row(1)?)?.into_iter().zip(0i64..) {
        for k in starts[c as usize]..starts[c as usize + 1] {
            at.push(n);
            with.push(k as i64);
        }
    }
    let list = |v: &[i64]| indices(v, &[v.len() as i64], &x.indices);
    let (at, with) = (list(&at)?, list(&with)?);
    let pick = |t: &Tensor, which: &Tensor| f::index_select(t, 0, which);
    Coo {
        indices: f::stack(&[pick(&x.row(0)?, &at)?, pick(&y.row(1)?, &with)?][..])?,
        values: f::mul(&pick(&x.values, &at)?, &pick(&y.values, &with)?)?,
        shape: [x.shape[0], y.shape[1]].into(),
        coalesced: false,
    }
    .coalesce()
}

fn hspmm(a: &calls::Hspmm) -> Result<Tensor> {
    check(a.mat1, a.mat2)?;
    let Some(Sparse::Coo(c)) = Sparse::of(a.mat1) else {
        bail!(
            Runtime,
            "hspmm: Argument #2: matrices expected, got a strided one"
        );
    };
    let product = times_strided(c.clone(), a.mat2)?;
    let rows = Coo {
        indices: c.rows_of_indices(&[0])?,
        values: f::NewZeros::new(&c.values, &[c.entries(), a.mat2.shape()[1]][..]).call()?,
        shape: product.shape().clone(),
        coalesced: false,
    };
    rows.coalesce()?.filled_from(&product)?.build()
}

fn sampled_addmm(a: &calls::SparseSampledAddmm) -> Result<Tensor> {
    let Some(s) = Sparse::of(a.input) else {
        bail!(
            Runtime,
            "sampled_addmm: Expected input to be sparse, but got a strided tensor"
        );
    };
    let (m, n) = (a.mat1, a.mat2);
    ensure!(
        m.ndim() >= 2 && m.ndim() == n.ndim() && n.ndim() == a.input.ndim(),
        Runtime,
        "sampled_addmm: Expected matrices of as many dimensions as input has, {}",
        a.input.ndim()
    );
    let product = f::matmul(m, n)?;
    ensure!(
        product.shape() == a.input.shape(),
        Runtime,
        "sampled_addmm: self.shape {} must match the shape of the product {}",
        a.input.shape(),
        product.shape()
    );
    let scaled = f::mul(&product, a.alpha)?;
    match s {
        Sparse::Coo(c) => {
            let c = c.coalesce()?;
            let values = f::add(&c.filled_from(&scaled)?.values, &f::mul(&c.values, a.beta)?)?;
            Coo { values, ..c }.build()
        }
        Sparse::Pressed(p) => {
            let picked = p.clone().coo()?.filled_from(&scaled)?.values;
            let picked = f::reshape(&picked, p.values.shape())?;
            let values = f::add(&picked, &f::mul(&p.values, a.beta)?)?;
            Pressed { values, ..p }.build()
        }
    }
}
