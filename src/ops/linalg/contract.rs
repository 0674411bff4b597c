//! Products of any number of dimensions, made of matrix products.

use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FMO, M, O, OpDef, Ret, old_compose};
use crate::ops::linalg::matrix::cpp_name;
use crate::{Dims, Result, Tensor, dims, ensure, err, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "outer",
        "(Tensor self, Tensor vec2)",
        FMO,
        outer,
        "All products of elements of two vectors.",
    ),
    old_compose(
        "inner",
        "(Tensor self, Tensor other)",
        FMO,
        inner,
        "Sums of products over the last dimensions.",
    ),
    old_compose(
        "matmul",
        "(Tensor self, Tensor other)",
        FMO,
        |a| matmul(a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "The product of vectors, matrices or batches of them.",
    ),
    old_compose(
        "linalg.matmul",
        "(Tensor input, Tensor other)",
        F | O,
        |a| matmul(a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "As matmul.",
    ),
    old_compose(
        "__matmul__",
        "(Tensor self, Tensor other)",
        M,
        |a| matmul(a.tensor(0)?, a.tensor(1)?).map(Ret::from),
        "As matmul.",
    ),
    old_compose(
        "__rmatmul__",
        "(Tensor self, Tensor other)",
        M,
        |a| matmul(a.tensor(1)?, a.tensor(0)?).map(Ret::from),
        "matmul with the operands exchanged.",
    ),
    old_compose(
        "tensordot",
        "(Tensor self, Tensor other, int[] dims_self, int[] dims_other)",
        F | O,
        tensordot,
        "Sums of products over chosen dimensions.",
    ),
    old_compose(
        "kron",
        "(Tensor self, Tensor other)",
        FMO,
        kron,
        "The Kronecker product.",
    ),
    old_compose(
        "linalg.vecdot",
        "(Tensor x, Tensor y, *, int dim=-1)",
        F | O,
        vecdot,
        "Inner products along a dimension.",
    ),
    old_compose(
        "linalg.multi_dot",
        "(Tensor[] tensors)",
        F | O,
        |a| multi_dot(a.tensors(0)?).map(Ret::from),
        "The product of several matrices, in the cheapest order.",
    ),
    old_compose(
        "chain_matmul",
        "(Tensor[*] matrices)",
        F | O,
        chain_matmul,
        "The product of several matrices.",
    ),
    old_compose(
        "linalg.matrix_power",
        "(Tensor A, int n)",
        F | O,
        matrix_power,
        "A matrix to an integer power.",
    ),
    old_compose(
        "matrix_power",
        "(Tensor self, int n)",
        FMO,
        matrix_power,
        "A matrix to an integer power.",
    ),
];

pub(in crate::ops) fn outer_product(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    run1!("mul", &run1!("unsqueeze", x, 1i64)?, y)
}

pub(in crate::ops) fn outer(a: &Args) -> Result<Ret> {
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
        return Ok(run1!("mul", &crate::ops::view::complex::conj(x), y)?.into());
    }
    let end = |t: &Tensor| -> Result<Tensor> {
        run1!(
            "movedim#int",
            &run1!("broadcast_to", t, shape.clone())?,
            d as i64,
            -1i64
        )
    };
    let (x, y) = (end(&crate::ops::view::complex::conj(x))?, end(y)?);
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
        let out = run1!(
            "eye#m",
            r,
            r,
            t.dtype(),
            crate::ops::core::args::Arg::None,
            t.device()
        )?;
        return Ok(crate::ops::core::helpers::clone(
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
            crate::ops::core::helpers::clone(&base, crate::MemoryFormat::Preserve)?
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
