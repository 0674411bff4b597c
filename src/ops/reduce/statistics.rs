//! Variances, covariances, and comparisons of whole tensors.

use crate::dims::reduced_shape;
use crate::ops::core::args::Args;
use crate::ops::core::op::{
    F, FM, FMO, KernelBody, M, O, OpDef, Plan, Ret, Value, kernel, old_compose,
};
use crate::ops::core::rules::dim_list;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, ensure, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "var",
        "(Tensor self, bool unbiased=True)",
        FM,
        KernelBody::new(|a| infer_var(a, false), |a, o| var_cpu(a, o, false)),
        "The variance of all elements.",
    ),
    kernel(
        "var#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)",
        FMO,
        KernelBody::new(|a| infer_var(a, false), |a, o| var_cpu(a, o, false)),
        "The variance over dimensions.",
    ),
    kernel(
        "var#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
        FMO,
        KernelBody::new(|a| infer_var(a, false), |a, o| var_cpu(a, o, false)),
        "The variance over dimensions.",
    ),
    kernel(
        "std",
        "(Tensor self, bool unbiased=True)",
        FM,
        KernelBody::new(|a| infer_var(a, false), |a, o| var_cpu(a, o, true)),
        "The standard deviation of all elements.",
    ),
    kernel(
        "std#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False)",
        FMO,
        KernelBody::new(|a| infer_var(a, false), |a, o| var_cpu(a, o, true)),
        "The standard deviation over dimensions.",
    ),
    kernel(
        "std#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)",
        FMO,
        KernelBody::new(|a| infer_var(a, false), |a, o| var_cpu(a, o, true)),
        "The standard deviation over dimensions.",
    ),
    kernel(
        "var_mean",
        "(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
        F,
        KernelBody::new(|a| infer_var(a, true), |a, o| var_cpu(a, o, false)),
        "The variance and mean of all elements.",
    ),
    kernel(
        "var_mean#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        KernelBody::new(|a| infer_var(a, true), |a, o| var_cpu(a, o, false)),
        "The variance and mean over dimensions.",
    ),
    kernel(
        "var_mean#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        KernelBody::new(|a| infer_var(a, true), |a, o| var_cpu(a, o, false)),
        "The variance and mean over dimensions.",
    ),
    kernel(
        "std_mean",
        "(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
        F,
        KernelBody::new(|a| infer_var(a, true), |a, o| var_cpu(a, o, true)),
        "The standard deviation and mean of all elements.",
    ),
    kernel(
        "std_mean#dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        KernelBody::new(|a| infer_var(a, true), |a, o| var_cpu(a, o, true)),
        "The standard deviation and mean over dimensions.",
    ),
    kernel(
        "std_mean#correction",
        "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
        F,
        KernelBody::new(|a| infer_var(a, true), |a, o| var_cpu(a, o, true)),
        "The standard deviation and mean over dimensions.",
    ),
    old_compose(
        "dist",
        "(Tensor self, Tensor other, Scalar p=2)",
        FM | O,
        dist,
        "The norm of the difference.",
    ),
    old_compose(
        "sum_to_size",
        "(Tensor self, int[*] size)",
        M,
        sum_to_size,
        "Summed to a shape that broadcasts to this one.",
    ),
    old_compose(
        "equal",
        "(Tensor self, Tensor other) -> bool",
        FM,
        equal,
        "True if shapes and all elements are equal.",
    ),
    old_compose(
        "allclose",
        "(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool",
        FM,
        allclose,
        "True if all elements are close.",
    ),
    old_compose(
        "is_nonzero",
        "(Tensor self) -> bool",
        FM,
        is_nonzero,
        "True if the only element is not zero.",
    ),
    old_compose(
        "trace",
        "(Tensor self)",
        FM | O,
        trace,
        "The sum of a matrix's diagonal.",
    ),
    old_compose(
        "cov",
        "(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None)",
        FM,
        cov,
        "The covariance matrix of variables in rows.",
    ),
    old_compose(
        "corrcoef",
        "(Tensor self)",
        FM,
        corrcoef,
        "The correlation matrix of variables in rows.",
    ),
];

/// Position of a parameter of this op.
fn at(a: &Args, name: &str) -> Option<usize> {
    a.op.schema.position(name)
}

fn infer_var(a: &Args, with_mean: bool) -> Result<Plan> {
    let t = a.tensor(0)?;
    let d = t.dtype();
    if !(d.is_float() || d.is_complex()) {
        let name = a.name();
        ensure!(
            !with_mean,
            Runtime,
            "{name} only support floating point and complex dtypes"
        );
        bail!(
            Runtime,
            "std and var only support floating point and complex dtypes"
        );
    }
    if d.is_storage_only() && d != DType::C32 {
        return Err(d.no_kernel("std_cpu"));
    }
    let dims = dim_list(
        at(a, "dim").and_then(|i| a.opt_ints(i)).map(|d| &**d),
        t.ndim(),
    )?;
    let shape = reduced_shape(
        t.shape(),
        &dims,
        at(a, "keepdim").is_some_and(|i| a.bool(i)),
    );
    Ok(if with_mean {
        Plan::many(&[(&shape, d.to_real()), (&shape, d)])
    } else {
        Plan::contiguous(&shape, d.to_real())
    })
}

fn var_cpu(a: &Args, outs: &[Tensor], root: bool) -> Result<()> {
    let t = a.tensor(0)?;
    let dims = dim_list(
        at(a, "dim").and_then(|i| a.opt_ints(i)).map(|d| &**d),
        t.ndim(),
    )?;
    let correction = match at(a, "unbiased") {
        Some(i) => f64::from(u8::from(a.bool(i))),
        None => at(a, "correction")
            .and_then(|i| a.opt_scalar(i))
            .map_or(1.0, Scalar::to_f64),
    };
    cpu::moments::variance(&outs[0], outs.get(1), t, &dims, correction, root)
}

fn dist(a: &Args) -> Result<Ret> {
    let delta = run1!("sub", a.tensor(0)?, a.tensor(1)?)?;
    let d = delta.dtype();
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "norm(): input dtype should be either floating point or complex. Got {} instead.",
        d.scalar_type()
    );
    run1!("linalg.vector_norm", &delta, a.scalar(2)?).map(Ret::from)
}

fn sum_to_size(a: &Args) -> Result<Ret> {
    let (t, size) = (a.tensor(0)?, a.ints(1)?);
    if size.is_empty() {
        return run1!("sum", t).map(Ret::from);
    }
    let lead = t.ndim().checked_sub(size.len());
    let fits = lead.is_some_and(|lead| {
        size.iter()
            .zip(&t.shape()[lead..])
            .all(|(&to, &from)| to == from || to == 1)
    });
    let Some(lead) = lead.filter(|_| fits) else {
        bail!(
            Runtime,
            "size {{{size}}} is not expandable to size {{{}}}.",
            t.shape()
        );
    };
    let dims: Dims = (0..t.ndim())
        .filter(|&d| d < lead || (size[d - lead] == 1 && t.shape()[d] != 1))
        .map(|d| d as i64)
        .collect();
    if dims.is_empty() {
        return Ok(t.clone().into());
    }
    let sum = run1!("sum#dim", t, dims, true)?;
    if lead == 0 {
        Ok(sum.into())
    } else {
        run1!("reshape", &sum, size.clone()).map(Ret::from)
    }
}

fn truth(t: &Tensor) -> Result<Ret> {
    let all = run1!("all", t)?;
    Ok(Ret::Value(Value::Scalar(Scalar::Bool(
        crate::ops::core::helpers::item(&all)?.to_bool(),
    ))))
}

fn readable(a: &Args, i: usize) -> Result<Tensor> {
    crate::ops::core::helpers::readable(
        a.tensor(i)?,
        &format!(
            "{}() cannot be called on meta tensors: they have no data",
            a.name()
        ),
    )
}

fn equal(a: &Args) -> Result<Ret> {
    let (x, y) = (a.tensor(0)?, a.tensor(1)?);
    if x.device() != y.device() {
        bail!(
            Runtime,
            "Cannot compare two tensors on different devices. Got: {} and {}",
            x.device(),
            y.device()
        );
    }
    let (x, y) = (readable(a, 0)?, readable(a, 1)?);
    if x.shape() != y.shape() {
        return Ok(Ret::Value(Value::Scalar(Scalar::Bool(false))));
    }
    truth(&run1!("eq", &x, &y)?)
}

fn allclose(a: &Args) -> Result<Ret> {
    let (x, y, rtol, atol) = (a.tensor(0)?, a.tensor(1)?, a.float(2)?, a.float(3)?);
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "{} did not match {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    ensure!(
        rtol >= 0.0,
        Runtime,
        "rtol must be greater than or equal to zero, but got {rtol}"
    );
    ensure!(
        atol >= 0.0,
        Runtime,
        "atol must be greater than or equal to zero, but got {atol}"
    );
    let read = |i: usize| {
        crate::ops::core::helpers::readable(
            a.tensor(i)?,
            "Tensor.item() cannot be called on meta tensors",
        )
    };
    let (x, mut y) = (read(0)?, read(1)?);
    let mut close = run1!("eq", &x, &y)?;
    if a.bool(4) && (x.dtype().is_float() || x.dtype().is_complex()) {
        let both = run1!("logical_and", &run1!("isnan", &x)?, &run1!("isnan", &y)?)?;
        close = run1!("logical_or", &close, &both)?;
    }
    if rtol != 0.0 || atol != 0.0 {
        if y.dtype().is_integral(true) {
            y = y.to_dtype(crate::mode::default_dtype())?;
        }
        let allowed = run1!("add", &run1!("abs", &run1!("mul", &y, rtol)?)?, atol)?;
        let actual = run1!("abs", &run1!("sub", &x.to_dtype(y.dtype())?, &y)?)?;
        let within = run1!(
            "logical_and",
            &run1!("isfinite", &actual)?,
            &run1!("le", &actual, &allowed)?
        )?;
        close = run1!("logical_or", &close, &within)?;
    }
    truth(&close)
}

fn is_nonzero(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.numel() != 0,
        Runtime,
        "Boolean value of Tensor with no values is ambiguous"
    );
    ensure!(
        t.numel() == 1,
        Runtime,
        "Boolean value of Tensor with more than one value is ambiguous"
    );
    Ok(Ret::Value(Value::Scalar(Scalar::Bool(
        crate::ops::core::helpers::item(t)?.to_bool(),
    ))))
}

fn trace(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() == 2,
        Runtime,
        "trace: expected a matrix, but got tensor with dim {}",
        t.ndim()
    );
    if matches!(
        t.dtype(),
        DType::Bool | DType::U16 | DType::U32 | DType::U64
    ) || t.dtype().is_storage_only()
    {
        return Err(t.dtype().no_kernel("trace"));
    }
    run1!("sum", &run1!("diagonal", t)?).map(Ret::from)
}

fn cov(a: &Args) -> Result<Ret> {
    let (t, correction) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        t.ndim() <= 2,
        Runtime,
        "cov(): expected input to have two or fewer dimensions but got an input with {} dimensions",
        t.ndim()
    );
    ensure!(
        t.dtype() != DType::Bool,
        Runtime,
        "cov(): bool dtype is not supported for input"
    );
    let mut x = if t.ndim() < 2 {
        run1!("reshape", t, Dims::from([1, -1]))?
    } else {
        t.clone()
    };
    let n = x.shape()[1];
    let mut w: Option<Tensor> = None;
    if let Some(f) = a.opt_tensor(2) {
        check_weights(f, "fweights", n, f.dtype().is_integral(false), "integral")?;
        if !f.is_meta() && n > 0 {
            ensure!(
                crate::ops::core::helpers::item(&run1!("min", f)?)?.to_f64() >= 0.0,
                Runtime,
                "cov(): fweights cannot be negative"
            );
        }
        w = Some(f.clone());
    }
    if let Some(v) = a.opt_tensor(3) {
        check_weights(v, "aweights", n, v.dtype().is_float(), "floating point")?;
        if !v.is_meta() && n > 0 {
            ensure!(
                crate::ops::core::helpers::item(&run1!("min", v)?)?.to_f64() >= 0.0,
                Runtime,
                "cov(): aweights cannot be negative"
            );
        }
        w = Some(match w {
            Some(f) => run1!("mul", &f, v)?,
            None => v.clone(),
        });
    }
    let columns = |x: &Tensor, w: &Option<Tensor>| match w {
        Some(w) => run1!("mul", x, w),
        None => Ok(x.clone()),
    };
    let last = || Dims::from([1]);
    let sums = run1!("sum#dim", &columns(&x, &w)?, last())?;
    let (mean, factor) = match &w {
        None => (
            run1!("div", &sums, n)?,
            Scalar::Int((n - correction).max(0)),
        ),
        Some(w) => {
            let total = run1!("sum", w)?;
            let value = crate::ops::core::helpers::item(&total)?.to_f64();
            ensure!(
                value != 0.0,
                Runtime,
                "cov(): weights sum to zero, can't be normalized"
            );
            let factor = match a.opt_tensor(3) {
                Some(v) if correction != 0 => {
                    let squares =
                        crate::ops::core::helpers::item(&run1!("sum", &run1!("mul", w, v)?)?)?
                            .to_f64();
                    value - correction as f64 * squares / value
                }
                _ => value - correction as f64,
            };
            (run1!("div", &sums, &total)?, Scalar::Float(factor.max(0.0)))
        }
    };
    x = run1!("sub", &x, &run1!("unsqueeze", &mean, 1i64)?)?;
    let right = run1!("conj", &run1!("t", &columns(&x, &w)?)?)?;
    let right = right.to_dtype(x.dtype())?;
    let product = run1!("mm", &x, &right)?;
    run1!("squeeze", &run1!("div", &product, factor)?).map(Ret::from)
}

fn check_weights(w: &Tensor, name: &str, n: i64, right_type: bool, type_name: &str) -> Result<()> {
    ensure!(
        w.ndim() <= 1,
        Runtime,
        "cov(): expected {name} to have one or fewer dimensions but got {name} with {} dimensions",
        w.ndim()
    );
    ensure!(
        right_type,
        Runtime,
        "cov(): expected {name} to have {type_name} dtype but got {name} with {} dtype",
        w.dtype().scalar_type()
    );
    ensure!(
        w.numel() == n,
        Runtime,
        "cov(): expected {name} to have the same numel as there are observations in the input but got {} != {n}",
        w.numel()
    );
    Ok(())
}

fn corrcoef(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() <= 2,
        Runtime,
        "corrcoef(): expected input to have two or fewer dimensions but got an input with {} dimensions",
        t.ndim()
    );
    let c = run1!("cov", t)?;
    if c.ndim() == 0 {
        return run1!("div", &c, &c).map(Ret::from);
    }
    let d = run1!("diagonal", &c)?;
    let d = if d.dtype().is_complex() {
        run1!("real", &d)?
    } else {
        d
    };
    let std = run1!("sqrt", &d)?;
    let c = run1!("div", &c, &run1!("unsqueeze", &std, 1i64)?)?;
    let c = run1!("div", &c, &run1!("unsqueeze", &std, 0i64)?)?;
    if c.dtype().is_complex() {
        let parts = run1!(
            "clamp",
            &run1!("view_as_real", &c)?,
            Scalar::Int(-1),
            Scalar::Int(1)
        )?;
        return run1!("view_as_complex", &parts).map(Ret::from);
    }
    run1!("clamp", &c, Scalar::Int(-1), Scalar::Int(1)).map(Ret::from)
}
