//! Products of any number of dimensions, made of matrix products.

use crate::ops::core::op::{Cast, F, FMO, M, O, OpDef, X, compose};
use crate::ops::core::typed;
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "inner",
        "(Tensor self, Tensor other)",
        FMO | X,
        inner,
        "Sums of products over the last dimensions.",
    )
    .samples("c64[5], c64[5]"),
    compose(
        "matmul",
        "(Tensor self, Tensor other)",
        FMO | X,
        |a| matmul(a.input, a.other),
        "The product of vectors, matrices or batches of them.",
    )
    .samples("f64[20], f64[20]; c64[20], c64[20]")
    .amp(Cast::Low, Cast::Low),
    compose(
        "linalg.matmul",
        "(Tensor input, Tensor other)",
        F | O | X,
        |a| f::matmul(a.input, a.other),
        "As matmul.",
    )
    .samples("f32[5, 10], f32[10]"),
    compose(
        "__matmul__",
        "(Tensor self, Tensor other)",
        M,
        |a| f::matmul(a.input, a.other),
        "As matmul.",
    )
    .samples("f32[2, 3], f32[3, 2]; i64[3], i64[3]"),
    compose(
        "__rmatmul__",
        "(Tensor self, Tensor other)",
        M,
        |a| f::matmul(a.other, a.input),
        "matmul with the operands exchanged.",
    )
    .samples("f32[2, 3], f32[3, 2]"),
    compose(
        "tensordot",
        "(Tensor self, Tensor other, int[] dims_self, int[] dims_other)",
        F | O | X,
        tensordot,
        "Sums of products over chosen dimensions.",
    )
    .samples("f32[2, 3, 4], f32[4, 3], [2], [0]; f32[2, 3], f32[3, 2], [0, 1], [1, 0]")
    .amp(Cast::Kept, Cast::Widest),
    compose(
        "linalg.multi_dot",
        "(Tensor[] tensors)",
        F | O | X,
        |a| multi_dot(&a.tensors.refs()),
        "The product of several matrices, in the cheapest order.",
    )
    .samples("[f32[2, 3], f32[3, 4], f32[4, 5]]; [c64[1, 2], c64[2, 1]]")
    .amp(Cast::Kept, Cast::Low),
    compose(
        "chain_matmul",
        "(Tensor[*] matrices)",
        F | O | X,
        chain_matmul,
        "The product of several matrices.",
    )
    .samples("f32[2, 3], f32[3, 4], f32[4, 1]")
    .amp(Cast::Kept, Cast::Low),
];

fn inner(a: &calls::Inner) -> Result<Tensor> {
    let (x, y) = (a.input, a.other);
    if x.ndim() == 0 || y.ndim() == 0 {
        return f::mul(x, y);
    }
    let (nx, ny) = (x.ndim() - 1, y.ndim() - 1);
    ensure!(
        x.shape()[nx] == y.shape()[ny],
        Runtime,
        "inner() the last dimension must match on both input tensors but got shapes {} and {}",
        x.shape(),
        y.shape()
    );
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "both inputs should have same dtype"
    );
    contract(x, y, &[nx], &[ny])
}

/// By PyTorch's choice of products.
fn matmul(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (nx, ny) = (x.ndim(), y.ndim());
    ensure!(
        nx > 0 && ny > 0,
        Runtime,
        "both arguments to matmul need to be at least 1D, but they are {nx}D and {ny}D"
    );
    match (nx, ny) {
        (1, 1) => f::dot(x, y),
        (2, 1) => f::mv(x, y),
        (1, 2) => {
            let row = f::mm(&f::unsqueeze(x, 0)?, y)?;
            typed::changed(&f::SqueezeDim::new(&row, 0).args()?)
        }
        (2, 2) => f::mm(x, y),
        (3, 3) if is_single(y) && !is_single(x) => matmul(x, &f::squeeze_dim(y, 0)?),
        (3, 3) if is_single(x) && !is_single(y) => matmul(&f::squeeze_dim(x, 0)?, y),
        _ if nx >= 3 && ny <= 2 && (y.requires_grad() || folds(x)) => matmul_folded(x, y),
        _ if ny >= 3 && nx <= 2 => matmul_turned(x, y),
        _ => matmul_batched(x, y),
    }
}

/// Whether a batch is of one matrix.
fn is_single(t: &Tensor) -> bool {
    t.shape()[0] == 1
}

/// The product of many rows and one matrix or vector.
fn matmul_folded(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (lead, k) = (&x.shape()[..x.ndim() - 1], x.shape()[x.ndim() - 1]);
    let rows = f::reshape(x, &[dims::numel(lead)?, k])?;
    let shape = Dims::new(lead);
    if y.ndim() == 1 {
        f::_unsafe_view(&f::mv(&rows, y)?, &shape)
    } else {
        f::_unsafe_view(&f::mm(&rows, y)?, &shape.concat(&y.shape()[1..]))
    }
}

/// The product of one matrix or vector and many matrices, which are turned if they fold then; an operand that wants a gradient
/// is not spread over a batch.
fn matmul_turned(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let turned = f::mT(y)?;
    if !x.requires_grad() && (x.ndim() == 2 || !folds(&turned)) {
        return matmul_batched(x, y);
    }
    if x.ndim() == 1 {
        return matmul_folded(&turned, x);
    }
    let made = matmul_folded(&turned, &f::t(x)?)?;
    f::contiguous(&f::mT(&made)?)
}

/// The products of batches of matrices.
fn matmul_batched(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (nx, ny) = (x.ndim(), y.ndim());
    let y = if ny == 1 {
        f::unsqueeze(y, 1)?
    } else {
        y.clone()
    };
    let lead = |t: &Tensor| Dims::new(&t.shape()[..t.ndim().saturating_sub(2)]);
    let batch = dims::broadcast(&lead(x), &lead(&y))?;
    let count = dims::numel(&batch)?;
    let spread = |t: &Tensor, rows: i64, columns: i64| -> Result<Tensor> {
        let t = f::expand(t, &batch.concat(&[rows, columns]))?;
        f::reshape(&t, &[count, rows, columns])
    };
    let rows = if nx > 1 { x.shape()[nx - 2] } else { 1 };
    let (k, columns) = (y.shape()[y.ndim() - 2], y.shape()[y.ndim() - 1]);
    let out = f::bmm(
        &spread(x, rows, x.shape()[nx - 1])?,
        &spread(&y, k, columns)?,
    )?;
    let mut shape = batch;
    if nx > 1 {
        shape = shape.concat(&[rows]);
    }
    if ny > 1 {
        shape = shape.concat(&[columns]);
    }
    f::_unsafe_view(&out, &shape)
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
    if m == 1 && n == 1 {
        let line = |t: &Tensor, d: &[usize], rest: &[usize]| {
            f::reshape(&f::permute(t, &order(d, rest))?, &[-1])
        };
        let sum = f::dot(&line(x, dx, &rx)?, &line(y, dy, &ry)?)?;
        return f::reshape(&sum, &sizes(x, &rx).concat(&sizes(y, &ry)));
    }
    let left = f::reshape(&f::permute(x, &order(&rx, dx))?, &[m, k])?;
    let right = f::reshape(&f::permute(y, &order(dy, &ry))?, &[k, n])?;
    f::reshape(
        &f::mm(&left, &right)?,
        &sizes(x, &rx).concat(&sizes(y, &ry)),
    )
}

fn tensordot(a: &calls::Tensordot) -> Result<Tensor> {
    let (dx, dy) = (a.dims_self, a.dims_other);
    ensure!(
        dx.len() == dy.len(),
        Runtime,
        "both dimension lists should have same length"
    );
    ensure!(
        a.input.dtype() == a.other.dtype(),
        Runtime,
        "both inputs should have same dtype"
    );
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let (mut x, mut y) = (a.input.clone(), a.other.clone());
    for (&i, &j) in dx.iter().zip(dy) {
        let (p, q) = (dims::wrap_dim(i, x.ndim())?, dims::wrap_dim(j, y.ndim())?);
        ensure!(
            x.ndim() > 0 && y.ndim() > 0,
            Index,
            "Dimension specified as {i} but tensor has no dimensions"
        );
        match (x.shape()[p], y.shape()[q]) {
            (s, t) if s == t => {}
            (_, 1) => x = summed(&x, p)?,
            (1, _) => y = summed(&y, q)?,
            (s, t) => bail!(
                Runtime,
                "contracted dimensions need to match, but first has size {s} in dim {i} and second has size {t} in dim {j}"
            ),
        }
        for (list, d) in [(&mut from, p), (&mut to, q)] {
            ensure!(
                !list.contains(&d),
                Runtime,
                "dim {d} appears multiple times in the list of dims"
            );
            list.push(d);
        }
    }
    contract(&x, &y, &from, &to)
}

/// The sum over a dimension, which stays with size 1.
fn summed(t: &Tensor, dim: usize) -> Result<Tensor> {
    f::SumDim::new(t, &[dim as i64][..])
        .keepdim(true)
        .dtype(t.dtype())
        .call()
}

fn chain_matmul(a: &calls::ChainMatmul) -> Result<Tensor> {
    crate::warn_once!(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot \
         instead, which accepts a list of two or more tensors rather than multiple parameters."
    );
    let list = a.matrices.refs();
    ensure!(
        !list.is_empty(),
        Runtime,
        "chain_matmul(): Expected one or more matrices"
    );
    for t in &list {
        ensure!(
            t.ndim() == 2,
            Runtime,
            "Tensor dimension is {}, expected 2 instead.",
            t.ndim()
        );
    }
    if let [only] = list[..] {
        Ok(only.clone())
    } else {
        multi_dot(&list)
    }
}

fn multi_dot(list: &[&Tensor]) -> Result<Tensor> {
    check_chain(list)?;
    let n = list.len();
    let mut all: Vec<Tensor> = list.iter().map(|t| (*t).clone()).collect();
    let mut shape: Vec<i64> = Vec::new();
    if all[0].ndim() == 1 {
        all[0] = f::unsqueeze(&all[0], 0)?;
    } else {
        shape.push(all[0].shape()[0]);
    }
    if all[n - 1].ndim() == 1 {
        all[n - 1] = f::unsqueeze(&all[n - 1], -1)?;
    } else {
        shape.push(all[n - 1].shape()[1]);
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
    let mut cut = cheapest(&all);
    if n == 3 {
        cut[0][2] = usize::from(first_pair_is_cheaper(&all));
    }
    f::view(&chain(&all, &cut, 0, n - 1)?, &shape)
}

/// Dimensions, dtypes and devices of a chain of matrices.
fn check_chain(list: &[&Tensor]) -> Result<()> {
    let n = list.len();
    ensure!(
        n >= 2,
        Runtime,
        "multi_dot(): expected at least 2 tensors but got {n}"
    );
    for (t, which) in [(list[0], "first"), (list[n - 1], "last")] {
        ensure!(
            (1..=2).contains(&t.ndim()),
            Runtime,
            "multi_dot(): the {which} tensor must be 1D or 2D but got {}D",
            t.ndim()
        );
    }
    for (i, t) in list.iter().enumerate() {
        ensure!(
            i == 0 || i == n - 1 || t.ndim() == 2,
            Runtime,
            "multi_dot(): tensor {i} must be 2D but got {}D",
            t.ndim()
        );
        ensure!(
            t.dtype() == list[0].dtype(),
            Runtime,
            "multi_dot(): all tensors must have be the same dtype but tensor 0 is {} and tensor {i} {}",
            list[0].dtype().cpp_name(),
            t.dtype().cpp_name()
        );
        ensure!(
            t.device() == list[0].device(),
            Runtime,
            "multi_dot(): all tensors must be on the same device but tensor 0 is on {} and tensor {i} on {}",
            list[0].device(),
            t.device()
        );
    }
    Ok(())
}

/// Whether a product of three begins with the first two, as it does where both orders cost the same.
fn first_pair_is_cheaper(all: &[Tensor]) -> bool {
    let (a, b) = (all[0].shape()[0] as f64, all[0].shape()[1] as f64);
    let (c, d) = (all[2].shape()[0] as f64, all[2].shape()[1] as f64);
    a * c * (b + d) <= b * d * (a + c)
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
    f::mm(&chain(all, cut, i, k)?, &chain(all, cut, k + 1, j)?)
}
