//! Running sums, products and extremes; differences and trapezoids; renorm.

use crate::cpu::{extreme, scan};
use crate::dims::wrap_dim;
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FMIO, FMO, KernelBody, OpDef, Plan, Ret, X, kernel, old_compose};
use crate::ops::core::rules::sum_dtype;
use crate::ops::reduce::sums::comparable;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "cumsum",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        FMIO,
        KernelBody::new(
            |a| infer_cumulative(a, "cumsum_out_cpu"),
            |a, o| scan_cpu(a, o, scan::Kind::Sum),
        ),
        "Sums of the elements so far.",
    ),
    kernel(
        "cumprod",
        "(Tensor self, int dim, *, dtype? dtype=None)",
        FMIO,
        KernelBody::new(
            |a| infer_cumulative(a, "cumprod_out_cpu"),
            |a, o| scan_cpu(a, o, scan::Kind::Prod),
        ),
        "Products of the elements so far.",
    ),
    kernel(
        "logcumsumexp",
        "(Tensor self, int dim)",
        FMO | X,
        KernelBody::new(infer_logcumsumexp, |a, o| {
            scan_cpu(a, o, scan::Kind::LogSumExp)
        }),
        "Logarithms of the sums of exponentials so far.",
    ),
    kernel(
        "cummax",
        "(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(
            |a| infer_cumextreme(a, "cummax_cpu"),
            |a, o| extreme::running_extreme(&o[0], &o[1], a.tensor(0)?, dim(a)?, true),
        ),
        "The largest element so far and its index.",
    ),
    kernel(
        "cummin",
        "(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(
            |a| infer_cumextreme(a, "cummin_cpu"),
            |a, o| extreme::running_extreme(&o[0], &o[1], a.tensor(0)?, dim(a)?, false),
        ),
        "The smallest element so far and its index.",
    ),
    kernel(
        "renorm",
        "(Tensor self, Scalar p, int dim, Scalar maxnorm)",
        FMIO,
        KernelBody::new(infer_renorm, renorm_cpu),
        "Slices along a dimension scaled down to a norm.",
    ),
    old_compose(
        "diff",
        "(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None)",
        FMO,
        diff,
        "Differences of neighbours.",
    ),
    old_compose(
        "trapezoid",
        "(Tensor y, Tensor x, *, int dim=-1)",
        F,
        |a| trapezoid(a, false),
        "The integral by the trapezoid rule.",
    ),
    old_compose(
        "trapezoid#dx",
        "(Tensor y, *, Scalar dx=1, int dim=-1)",
        F,
        |a| trapezoid(a, false),
        "The integral by the trapezoid rule with a fixed step.",
    ),
    old_compose(
        "trapz",
        "(Tensor y, Tensor x, *, int dim=-1)",
        F,
        |a| trapezoid(a, false),
        "The integral by the trapezoid rule.",
    ),
    old_compose(
        "trapz#dx",
        "(Tensor y, *, float dx=1, int dim=-1)",
        F,
        |a| trapezoid(a, false),
        "The integral by the trapezoid rule with a fixed step.",
    ),
    old_compose(
        "cumulative_trapezoid",
        "(Tensor y, Tensor x, *, int dim=-1)",
        F,
        |a| trapezoid(a, true),
        "Integrals so far by the trapezoid rule.",
    ),
    old_compose(
        "cumulative_trapezoid#dx",
        "(Tensor y, *, Scalar dx=1, int dim=-1)",
        F,
        |a| trapezoid(a, true),
        "Integrals so far by the trapezoid rule with a fixed step.",
    ),
];

fn dim(a: &Args) -> Result<usize> {
    wrap_dim(a.int(1)?, a.tensor(0)?.ndim())
}

fn infer_cumulative(a: &Args, kernel: &str) -> Result<Plan> {
    let t = a.tensor(0)?;
    dim(a)?;
    let d = sum_dtype(t.dtype(), a.dtype(2));
    if d.is_storage_only() || d == DType::Bool {
        return Err(d.no_kernel(kernel));
    }
    Ok(Plan::contiguous(t.shape(), d))
}

fn infer_logcumsumexp(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    dim(a)?;
    if t.dtype().is_storage_only() || t.dtype().is_integral(true) {
        return Err(t.dtype().no_kernel("logcumsumexp_out_cpu"));
    }
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn infer_cumextreme(a: &Args, kernel: &str) -> Result<Plan> {
    let t = a.tensor(0)?;
    dim(a)?;
    comparable(kernel, t.dtype())?;
    Ok(Plan::many(&[
        (t.shape(), t.dtype()),
        (t.shape(), DType::I64),
    ]))
}

fn scan_cpu(a: &Args, outs: &[Tensor], kind: scan::Kind) -> Result<()> {
    scan::scan(&outs[0], a.tensor(0)?, dim(a)?, kind)
}

fn infer_renorm(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (p, max) = (a.scalar(1)?, a.scalar(3)?);
    ensure!(
        !matches!(p, Scalar::Complex(_)),
        Runtime,
        "renorm: p must be real-valued"
    );
    ensure!(
        p.to_f64() > 0.0,
        Runtime,
        "renorm: non-positive-norm not supported"
    );
    ensure!(
        !matches!(max, Scalar::Complex(_)),
        Runtime,
        "renorm: maxnorm must be real-valued"
    );
    ensure!(
        max.to_f64() >= 0.0,
        Runtime,
        "renorm: expected maxnorm to be >= 0 but got {}",
        max.to_f64()
    );
    ensure!(
        t.ndim() > 1,
        Runtime,
        "renorm: input needs at least 2 dimensions, got {} dimensions",
        t.ndim()
    );
    wrap_dim(a.int(2)?, t.ndim())?;
    let d = t.dtype();
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    if d.is_storage_only() {
        return Err(d.no_kernel("renorm_scale_factors_cpu"));
    }
    Ok(Plan::contiguous(t.shape(), d))
}

fn renorm_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    scan::renorm(
        &outs[0],
        t,
        a.scalar(1)?.to_f64(),
        wrap_dim(a.int(2)?, t.ndim())?,
        a.scalar(3)?.to_f64(),
    )
}

fn diff(a: &Args) -> Result<Ret> {
    let (t, n) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        t.ndim() >= 1,
        Runtime,
        "diff expects input to be at least one-dimensional"
    );
    ensure!(n >= 0, Runtime, "order must be non-negative but got {n}");
    let d = wrap_dim(a.int(2)?, t.ndim())?;
    let mut parts = vec![t.clone()];
    for (i, first) in [(3, true), (4, false)] {
        let Some(other) = a.opt_tensor(i) else {
            continue;
        };
        ensure!(
            other.ndim() == t.ndim(),
            Runtime,
            "diff expects prepend or append to be the same dimension as input"
        );
        for k in (0..t.ndim()).filter(|&k| k != d) {
            ensure!(
                other.shape()[k] == t.shape()[k],
                Runtime,
                "diff expects the shape of tensor to prepend or append to match that of input except along the differencing dimension; \
                 input.size({k}) = {}, but got tensor.size({k}) = {}",
                t.shape()[k],
                other.shape()[k]
            );
        }
        parts.insert(if first { 0 } else { parts.len() }, other.clone());
    }
    if n == 0 {
        return run1!("clone", t).map(Ret::from);
    }
    let mut x = if parts.len() > 1 {
        run1!("cat", &parts, d as i64)?
    } else {
        t.clone()
    };
    for _ in 0..n.min(x.shape()[d]) {
        let len = x.shape()[d] - 1;
        let (left, right) = (x.narrowed(d, 0, len), x.narrowed(d, 1, len));
        x = if x.dtype() == DType::Bool {
            run1!("logical_xor", &right, &left)?
        } else {
            run1!("sub", &right, &left)?
        };
    }
    Ok(x.into())
}

/// Both forms of trapezoid and cumulative_trapezoid.
fn trapezoid(a: &Args, running: bool) -> Result<Ret> {
    let (y, name) = (
        a.tensor(0)?,
        if running {
            "cumulative_trapezoid"
        } else {
            "trapezoid"
        },
    );
    let with_x = a.op.schema.params[1].name == "x";
    let given = a.int(2)?;
    if y.ndim() == 0 {
        ensure!(
            running,
            Index,
            "Dimension specified as {given} but tensor has no dimensions"
        );
        bail!(Index, "slice() cannot be applied to a 0-dim tensor.");
    }
    let d = wrap_dim(given, y.ndim())?;
    let n = y.shape()[d];
    if !running && n == 0 {
        let kept = y.shape().removed(d);
        return Ok(run1!("new_zeros", y, kept)?.into());
    }
    if !with_x {
        ensure!(
            y.dtype() != DType::Bool,
            Runtime,
            "{name}: received a bool input for `y`, but bool is not supported"
        );
        let dx = a.scalar(1)?;
        ensure!(
            !matches!(dx, Scalar::Complex(_) | Scalar::Bool(_)),
            Runtime,
            "{name}: Currently, we only support dx as a real number."
        );
        let half = dx.to_f64() / 2.0;
        let sums = neighbours(y, d, "add")?;
        let total = if running {
            run1!("cumsum", &sums, d as i64)?
        } else {
            run1!("sum#dim", &sums, Dims::from([d as i64]))?
        };
        return run1!("mul", &total, half).map(Ret::from);
    }
    let x = a.tensor(1)?;
    ensure!(
        y.dtype() != DType::Bool && x.dtype() != DType::Bool,
        Runtime,
        "{name}: received a bool input for `x` or `y`, but bool is not supported"
    );
    let x = if x.ndim() == 1 {
        ensure!(
            x.shape()[0] == n,
            Runtime,
            "{name}: There must be one `x` value for each sample point"
        );
        x.view_with(
            Dims::filled(y.ndim(), 1).with(d, n),
            Dims::filled(y.ndim(), 1).with(d, x.strides()[0]),
            x.offset(),
        )
    } else if x.ndim() < y.ndim() {
        let lead = Dims::filled(y.ndim() - x.ndim(), 1);
        x.view_with(lead.concat(x.shape()), lead.concat(x.strides()), x.offset())
    } else {
        x.clone()
    };
    let steps = neighbours(&x, d, "sub")?;
    let areas = run1!("mul", &neighbours(y, d, "add")?, &steps)?;
    let total = if running {
        run1!("cumsum", &areas, d as i64)?
    } else {
        run1!("sum#dim", &areas, Dims::from([d as i64]))?
    };
    run1!("div", &total, Scalar::Float(2.0)).map(Ret::from)
}

/// Neighbours along a dimension added or subtracted.
fn neighbours(t: &Tensor, d: usize, op: &str) -> Result<Tensor> {
    ensure!(
        d < t.ndim(),
        Index,
        "Dimension out of range (expected to be in range of [{}, {}], but got {d})",
        -(t.ndim() as i64),
        t.ndim() as i64 - 1
    );
    let len = (t.shape()[d] - 1).max(0);
    let start = (t.shape()[d]).min(1);
    let (left, right) = (t.narrowed(d, 0, len), t.narrowed(d, start, len));
    if op == "add" {
        run1!("add", &right, &left)
    } else {
        run1!("sub", &right, &left)
    }
}
