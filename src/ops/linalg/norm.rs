//! Norms of matrices, and of what may be a matrix or a vector.

use crate::ops::core::op::{Cast, F, O, OpDef, X, compose};
use crate::ops::f;
use crate::ops::reduce::extreme::takes_norm;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "linalg.matrix_norm",
        "(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        |a| by_number(a.input, a.ord, a.dim, Rest { keepdim: a.keepdim, dtype: a.dtype }),
        "The norm of matrices.",
    )
    .samples("f32[3, 4], 1; c64[2, 3, 4], -2; f32[2, 3, 4], inf, (0, 2), True; f32[3, 4], 2, dtype=f64")
    .amp(Cast::Kept, Cast::Result),
    compose(
        "linalg.matrix_norm#str",
        "(Tensor self, str ord='fro', int[] dim=[-2, -1], bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        |a| by_word(a.input, a.ord, a.dim, Rest { keepdim: a.keepdim, dtype: a.dtype }),
        "The Frobenius or nuclear norm of matrices.",
    )
    .samples("f32[3, 4]; c64[3, 4], 'nuc'; f32[2, 3, 4], 'nuc', (0, 2), True")
    .amp(Cast::Kept, Cast::Result),
    compose(
        "linalg.norm",
        "(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        |a| {
            let rest = Rest { keepdim: a.keepdim, dtype: a.dtype };
            let Some(ord) = a.ord else {
                if a.dim.is_some() {
                    check(a.input, a.dim)?;
                }
                return vectors(a.input, Scalar::Int(2), a.dim, rest);
            };
            check(a.input, a.dim)?;
            match (a.dim, a.input.ndim()) {
                (Some([_]), _) | (None, 1) => vectors(a.input, ord, a.dim, rest),
                (Some(pair), _) => matrices(a.input, Ok(ord), pair, rest),
                (None, _) => matrices(a.input, Ok(ord), &[0, 1], rest),
            }
        },
        "The norm of vectors or matrices.",
    )
    .samples("f32[3, 4]; f32[3], 1; f32[3, 4], 2; c64[3, 4], inf, (0, 1); f32[3, 4], 3, 0, True"),
    compose(
        "linalg.norm#str",
        "(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        |a| {
            check(a.input, a.dim)?;
            let rest = Rest { keepdim: a.keepdim, dtype: a.dtype };
            matrices(a.input, Err(a.ord), a.dim.unwrap_or(&[0, 1]), rest)
        },
        "The Frobenius or nuclear norm of matrices.",
    )
    .samples("f32[3, 4], 'fro'; f32[2, 3, 4], 'nuc', (1, 2), True"),
    compose(
        "linalg.cond",
        "(Tensor self, Scalar? p=None)",
        F | O,
        |a| {
            let p = a.p.unwrap_or(Scalar::Int(2)).to_f64();
            if p.abs() == 2.0 {
                return by_extremes(a.input, p);
            }
            ensure!(
                p.abs() == 1.0 || p.abs() == f64::INFINITY,
                Runtime,
                "linalg.cond got an invalid norm type: {p}"
            );
            by_inverse(a.input, &format!("{p}"), |t| {
                f::LinalgMatrixNorm::new(t, Scalar::Float(p)).call()
            })
        },
        "How much larger the errors of solutions may be than those of a matrix.",
    )
    .samples("f32[3, 4]; f64[3, 3], 1; c64[2, 3, 3], -2"),
    compose(
        "linalg.cond#str",
        "(Tensor self, str p)",
        F | O,
        |a| match a.p {
            "nuc" => by_sums(a.input),
            "fro" => by_inverse(a.input, "fro", |t| f::LinalgMatrixNormStr::new(t).call()),
            other => bail!(Runtime, "linalg.cond got an invalid norm type: {other}"),
        },
        "The same by the Frobenius or nuclear norm.",
    )
    .samples("f64[3, 3], 'fro'; f32[2, 3, 3], 'nuc'"),
];

/// The condition by the largest and the smallest singular value.
fn by_extremes(t: &Tensor, p: f64) -> Result<Tensor> {
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.cond: The input tensor must have at least 2 dimensions."
    );
    let values = f::linalg_svdvals(t)?;
    let k = values.size(-1)?;
    if k == 0 {
        return f::SumDim::new(&values, &[-1][..]).call();
    }
    let at = |i: i64| f::narrow(&values, -1, i, 1);
    let ratio = if p > 0.0 {
        f::div(&at(0)?, &at(k - 1)?)?
    } else {
        f::div(&at(k - 1)?, &at(0)?)?
    };
    f::squeeze_dim(&ratio, -1)
}

/// Whether a condition is that of square matrices.
fn check_square(t: &Tensor, p: &str) -> Result<()> {
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.cond(ord={p}): The input tensor A must have at least 2 dimensions."
    );
    let (m, n) = (t.size(-2)?, t.size(-1)?);
    ensure!(
        m == n,
        Runtime,
        "linalg.cond(ord={p}): A must be batches of square matrices, but they are {m} by {n} matrices"
    );
    Ok(())
}

/// The condition by a norm of the matrices and of their inverses; those of singular ones are infinite.
fn by_inverse(t: &Tensor, p: &str, norm: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    check_square(t, p)?;
    let [inverse, info] = f::linalg_inv_ex(t)?;
    let singular = f::gt(&f::unsqueeze(&f::unsqueeze(&info, -1)?, -1)?, 0)?;
    let inverse = f::masked_fill(&inverse, &singular, f64::INFINITY)?;
    let product = f::mul(&norm(t)?, &norm(&inverse)?)?;
    f::NanToNum::new(&product)
        .nan(Some(f64::INFINITY))
        .posinf(Some(f64::INFINITY))
        .neginf(Some(f64::NEG_INFINITY))
        .call()
}

/// The condition by the sums of the singular values and of their reciprocals.
fn by_sums(t: &Tensor) -> Result<Tensor> {
    check_square(t, "nuc")?;
    let values = f::linalg_svdvals(t)?;
    let sum = |t: &Tensor| f::SumDim::new(t, &[-1][..]).call();
    f::mul(&sum(&values)?, &sum(&f::reciprocal(&values)?)?)
}

/// How a norm is given back.
#[derive(Clone, Copy)]
struct Rest {
    keepdim: bool,
    dtype: Option<DType>,
}

/// Which dimensions `linalg.norm` takes.
fn check(t: &Tensor, dim: Option<&[i64]>) -> Result<()> {
    match dim {
        Some(d) => ensure!(
            matches!(d.len(), 1 | 2),
            Runtime,
            "linalg.norm: If dim is specified, it must be of length 1 or 2. Got [{}]",
            d.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
        ),
        None => ensure!(
            matches!(t.ndim(), 1 | 2),
            Runtime,
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {}D.",
            t.ndim()
        ),
    }
    Ok(())
}

fn vectors(t: &Tensor, ord: Scalar, dim: Option<&[i64]>, rest: Rest) -> Result<Tensor> {
    f::LinalgVectorNorm::new(t)
        .ord(ord)
        .dim(dim)
        .keepdim(rest.keepdim)
        .dtype(rest.dtype)
        .call()
}

/// A call of `linalg.matrix_norm`, by a number or a word.
fn matrices(
    t: &Tensor,
    ord: std::result::Result<Scalar, &str>,
    dim: &[i64],
    rest: Rest,
) -> Result<Tensor> {
    match ord {
        Ok(ord) => f::LinalgMatrixNorm::new(t, ord)
            .dim(dim)
            .keepdim(rest.keepdim)
            .dtype(rest.dtype)
            .call(),
        Err(ord) => f::LinalgMatrixNormStr::new(t)
            .ord(ord)
            .dim(dim)
            .keepdim(rest.keepdim)
            .dtype(rest.dtype)
            .call(),
    }
}

/// The two dimensions of the matrices.
fn pair(t: &Tensor, dim: &[i64], dtype: Option<DType>) -> Result<[usize; 2]> {
    let d = t.dtype();
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
    );
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    let &[p, q] = dim else {
        let given: Vec<_> = dim.iter().map(i64::to_string).collect();
        bail!(
            Runtime,
            "linalg.matrix_norm: dim must be a 2-tuple. Got {}",
            given.join(" ")
        );
    };
    let (p, q) = (dims::wrap_dim(p, t.ndim())?, dims::wrap_dim(q, t.ndim())?);
    ensure!(
        p != q,
        Runtime,
        "linalg.matrix_norm: dims must be different. Got ({p}, {q})"
    );
    if let Some(to) = dtype {
        takes_norm("linalg.matrix_norm", d, to)?;
    }
    Ok([p, q])
}

fn by_number(t: &Tensor, ord: Scalar, dim: &[i64], rest: Rest) -> Result<Tensor> {
    ensure!(
        !matches!(ord, Scalar::Complex(_)),
        Runtime,
        "linalg.matrix_norm: Expected a non-complex scalar as the order of norm."
    );
    let size = ord.to_f64().abs();
    ensure!(
        size == 1.0 || size == 2.0 || size == f64::INFINITY,
        Runtime,
        "linalg.matrix_norm: Order {} not supported.",
        ord.to_f64()
    );
    let [mut p, mut q] = pair(t, dim, rest.dtype)?;
    let extreme = |t: &Tensor, d: i64| {
        if ord.to_f64() > 0.0 && t.size(d)? == 0 {
            // The largest of no sums is that of nothing.
            f::SumDim::new(t, &[d][..]).keepdim(rest.keepdim).call()
        } else if ord.to_f64() > 0.0 {
            f::Amax::new(t).dim(&[d][..]).keepdim(rest.keepdim).call()
        } else {
            f::Amin::new(t).dim(&[d][..]).keepdim(rest.keepdim).call()
        }
    };
    if size == 2.0 {
        return of_singular_values(t, [p, q], rest, |values| extreme(values, -1));
    }
    if size == f64::INFINITY {
        std::mem::swap(&mut p, &mut q);
    }
    let sums = vectors(t, Scalar::Int(1), Some(&[p as i64]), rest)?;
    if !rest.keepdim && p < q {
        q -= 1;
    }
    extreme(&sums, q as i64)
}

fn by_word(t: &Tensor, ord: &str, dim: &[i64], rest: Rest) -> Result<Tensor> {
    ensure!(
        matches!(ord, "fro" | "nuc"),
        Runtime,
        "linalg.matrix_norm: Order {ord} not supported."
    );
    let both = pair(t, dim, rest.dtype)?;
    if ord == "fro" {
        let both = both.map(|d| d as i64);
        return vectors(t, Scalar::Int(2), Some(&both[..]), rest);
    }
    of_singular_values(t, both, rest, |values| {
        f::SumDim::new(values, &[-1][..])
            .keepdim(rest.keepdim)
            .call()
    })
}

/// What is made of the singular values of matrices in two dimensions.
fn of_singular_values(
    t: &Tensor,
    both: [usize; 2],
    rest: Rest,
    made: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let d = t.dtype();
    ensure!(
        !matches!(d, DType::F16 | DType::BF16 | DType::C32),
        Runtime,
        "linalg.matrix_norm: Low precision dtypes not supported. Got {}",
        d.scalar_type()
    );
    let order = cpu::lines::order(t.ndim(), &both);
    let last: Dims = order.iter().map(|&d| d as i64).collect();
    let mut lying = f::permute(t, &last)?;
    if let Some(to) = rest.dtype {
        lying = lying.to_dtype(to)?;
    }
    let result = made(&f::linalg_svdvals(&lying)?)?;
    if !rest.keepdim {
        return Ok(result);
    }
    let back: Dims = (0..t.ndim())
        .map(|d| order.iter().position(|&o| o == d).unwrap_or(d) as i64)
        .collect();
    f::permute(&f::unsqueeze(&result, -1)?, &back)
}
