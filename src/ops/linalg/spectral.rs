//! Singular values and eigenvalues.

use crate::cpu::dense::{self, Matrix, ZERO};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FMO, KernelBody, O, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::ops::linalg::solve::{batch_note, check, columnwise, lead, read, write, write_flat};
use crate::{Result, Tensor, bail, ensure, run, run1};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.svd",
        "(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
        F | O,
        KernelBody::new(infer_svd, run_svd),
        "The singular value decomposition.",
    ),
    kernel(
        "linalg.svdvals",
        "(Tensor A, *, str? driver=None)",
        F | O,
        KernelBody::new(infer_svdvals, run_svdvals),
        "The singular values.",
    ),
    old_compose(
        "svd",
        "(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
        FMO,
        svd,
        "The singular value decomposition, V not conjugated.",
    ),
    kernel(
        "linalg.eigh",
        "(Tensor A, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
        F | O,
        KernelBody::new(|a| infer_eigh(a, "linalg.eigh", true), run_eigh),
        "Eigenvalues and eigenvectors of a Hermitian matrix.",
    ),
    kernel(
        "linalg.eigvalsh",
        "(Tensor A, str UPLO='L')",
        F | O,
        KernelBody::new(|a| infer_eigh(a, "linalg.eigvalsh", false), run_eigh),
        "Eigenvalues of a Hermitian matrix.",
    ),
];

fn infer_svd(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.svd", false)?;
    let k = m.min(n);
    let (mu, nv) = if a.bool(1) { (m, n) } else { (k, k) };
    let outs = [
        columnwise(batch.concat(&[m, mu]), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[k]), t.dtype().to_real()),
        columnwise(batch.concat(&[nv, n]), t.dtype()),
    ];
    Ok(Plan {
        outs: outs.into_iter().collect(),
        device: None,
    })
}

fn finite(t: &Tensor, name: &str, all: &[Matrix]) -> Result<()> {
    match all.iter().position(|m| {
        m.data
            .iter()
            .any(|c| !c.re.is_finite() || !c.im.is_finite())
    }) {
        Some(i) => bail!(
            LinAlg,
            "{name}: {}The algorithm failed to converge because the input matrix contained non-finite values.",
            batch_note(t, i)
        ),
        None => Ok(()),
    }
}

fn wider(m: Matrix, columns: usize) -> Matrix {
    let have = m.columns;
    if have == columns {
        return m;
    }
    let mut out = Matrix::from_fn(
        m.rows,
        columns,
        |i, j| if j < have { m[(i, j)] } else { ZERO },
    );
    dense::complete(&mut out, have);
    out
}

fn run_svd(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let all = read(t, &lead(t))?;
    finite(t, "linalg.svd", &all)?;
    let (mut us, mut ss, mut vs) = (Vec::new(), Vec::new(), Vec::new());
    for m in all {
        let (rows, columns) = (m.rows, m.columns);
        let (u, s, v) = dense::singular(&m);
        ss.extend(s.into_iter().map(|v| C::new(v, 0.0)));
        us.push(if a.bool(1) { wider(u, rows) } else { u });
        vs.push(if a.bool(1) { wider(v, columns) } else { v }.adjoint());
    }
    write(&outs[0], &us)?;
    write_flat(&outs[1], &ss)?;
    write(&outs[2], &vs)
}

fn infer_svdvals(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.svd", false)?;
    Ok(Plan::contiguous(
        &batch.concat(&[m.min(n)]),
        t.dtype().to_real(),
    ))
}

fn run_svdvals(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let all = read(t, &lead(t))?;
    finite(t, "linalg.svd", &all)?;
    let values: Vec<C> = all
        .iter()
        .flat_map(|m| dense::singular(m).1)
        .map(|v| C::new(v, 0.0))
        .collect();
    write_flat(&outs[0], &values)
}

fn svd(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.svd: input should have at least 2 dimensions, but has {} dimensions instead",
        t.ndim()
    );
    if !a.bool(2) {
        let s = run1!("linalg.svdvals", t)?;
        let (m, n) = (t.shape()[t.ndim() - 2], t.shape()[t.ndim() - 1]);
        let zeros = |k: i64| {
            run1!(
                "zeros",
                lead(t).concat(&[k, k]),
                t.dtype(),
                crate::ops::core::args::Arg::None,
                t.device()
            )
        };
        return Ok(Ret::Tuple([zeros(m)?, s, zeros(n)?].into_iter().collect()));
    }
    let all = run!("linalg.svd", t, !a.bool(1))?.tensors();
    let v = crate::ops::view::shape::matrix_transpose(&all[2], "mH", true)?.one()?;
    Ok(Ret::Tuple(
        [all[0].clone(), all[1].clone(), v].into_iter().collect(),
    ))
}

fn infer_eigh(a: &Args, name: &str, vectors: bool) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, n, _) = check(t, name, true)?;
    let uplo = a.str(1).unwrap_or("L");
    ensure!(
        matches!(uplo, "L" | "U" | "l" | "u"),
        Runtime,
        "Expected UPLO argument to be 'L' or 'U', but got {uplo}"
    );
    let mut plan = Plan::contiguous(&batch.concat(&[n]), t.dtype().to_real());
    if vectors {
        plan.outs.push(columnwise(t.shape().clone(), t.dtype()));
    }
    Ok(plan)
}

fn run_eigh(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let upper = matches!(a.str(1), Some("U" | "u"));
    let all = read(t, &lead(t))?;
    finite(t, "linalg.eigh", &all)?;
    let (mut values, mut vectors) = (Vec::new(), Vec::new());
    for m in all {
        let whole = Matrix::from_fn(m.rows, m.columns, |i, j| match (i == j, (j < i) != upper) {
            (true, _) => C::new(m[(i, i)].re, 0.0),
            (_, true) => m[(i, j)],
            _ => m[(j, i)].conj(),
        });
        let (v, w) = dense::hermitian(&whole);
        values.extend(v.into_iter().map(|v| C::new(v, 0.0)));
        vectors.push(w);
    }
    write_flat(&outs[0], &values)?;
    if outs.len() > 1 {
        write(&outs[1], &vectors)
    } else {
        Ok(())
    }
}
