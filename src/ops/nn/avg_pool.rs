//! Average and power-average pooling.

use crate::cpu::pooling::Rule;
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, O, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::nn::pool::{check_1d, execute, format, plan, regular};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "avg_pool1d",
        "(Tensor input, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True)",
        F,
        avg1,
        "The means of windows.",
    ),
    old_compose(
        "nn.functional.avg_pool1d",
        "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True)",
        F,
        avg1,
        "The means of windows.",
    ),
    kernel(
        "nn.functional.avg_pool2d",
        "(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)",
        F | O,
        KernelBody::new(|a| infer_avg(a, 2), |a, o| run_avg(a, o, 2)),
        "The means of windows.",
    ),
    kernel(
        "nn.functional.avg_pool3d",
        "(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)",
        F | O,
        KernelBody::new(|a| infer_avg(a, 3), |a, o| run_avg(a, o, 3)),
        "The means of windows.",
    ),
    old_compose(
        "nn.functional.lp_pool1d",
        "(Tensor input, float norm_type, int[1] kernel_size, int[1]? stride=None, bool ceil_mode=False)",
        F,
        |a| lp(a, 1),
        "Power means of windows.",
    ),
    old_compose(
        "nn.functional.lp_pool2d",
        "(Tensor input, float norm_type, int[2] kernel_size, int[2]? stride=None, bool ceil_mode=False)",
        F,
        |a| lp(a, 2),
        "Power means of windows.",
    ),
    old_compose(
        "nn.functional.lp_pool3d",
        "(Tensor input, float norm_type, int[3] kernel_size, int[3]? stride=None, bool ceil_mode=False)",
        F,
        |a| lp(a, 3),
        "Power means of windows.",
    ),
];

fn infer_avg(a: &Args, n: usize) -> Result<Plan> {
    let x = a.tensor(0)?;
    let name = a.name();
    if n == 2 && x.ndim() < 3 {
        let k = x.ndim() as i64;
        bail!(
            Index,
            "Dimension out of range (expected to be in range of [{}, {}], but got -3)",
            -k.max(1),
            k.max(1) - 1
        );
    }
    if let Some(d) = a.opt_int(6) {
        ensure!(d != 0, Runtime, "divisor must be not zero");
    }
    let r = regular(a, n, None, a.bool(4))?;
    let d = x.dtype();
    d.check_kernel(
        (d.is_float() && !d.is_storage_only()) || d == DType::I64,
        name,
    )?;
    plan(x, &r.out, format(x, n, false), false)
}

fn run_avg(a: &Args, outs: &[Tensor], n: usize) -> Result<()> {
    let x = a.tensor(0)?;
    let r = regular(a, n, None, a.bool(4))?;
    let sizes = &x.shape()[x.ndim() - n..];
    let rule = Rule::Mean {
        divisor: a.opt_int(6),
        padding: a.bool(5),
    };
    execute(x, outs, n, format(x, n, false), rule, true, &|_| {
        r.windows(sizes, false)
    })
}

fn avg1(a: &Args) -> Result<Ret> {
    let x = a.tensor(0)?;
    check_1d(x, "avg_pool1d")?;
    let (k, p) = (a.ints(1)?, a.ints(3)?);
    let stride = a.opt_ints(2).filter(|s| !s.is_empty()).unwrap_or(k);
    for (list, name) in [(k, "kernel_size"), (stride, "stride"), (p, "padding")] {
        ensure!(
            list.len() == 1,
            Runtime,
            "avg_pool1d() argument '{name}' should contain one int (got {})",
            list.len()
        );
    }
    let wide = run1!("unsqueeze", x, -2i64)?;
    let pair = |first: i64, v: i64| Dims::from([first, v]);
    let out = run1!(
        "nn.functional.avg_pool2d",
        &wide,
        pair(1, k[0]),
        pair(1, stride[0]),
        pair(0, p[0]),
        a.bool(4),
        a.bool(5)
    )?;
    Ok(run1!("squeeze#dim", &out, -2i64)?.into())
}

fn lp(a: &Args, n: usize) -> Result<Ret> {
    let (x, norm, k) = (a.tensor(0)?, a.float(1)?, a.ints(2)?);
    let count: i64 = if k.len() == 1 {
        k[0].pow(n as u32)
    } else {
        k.iter().product()
    };
    let powered = run1!("pow", x, Scalar::Float(norm))?;
    let stride = a.opt_ints(3).cloned();
    let (zero, ceil) = (Dims::filled(n, 0), a.bool(4));
    let out = match n {
        1 => run1!(
            "nn.functional.avg_pool1d",
            &powered,
            k.clone(),
            stride,
            zero,
            ceil
        )?,
        2 => run1!(
            "nn.functional.avg_pool2d",
            &powered,
            k.clone(),
            stride,
            zero,
            ceil
        )?,
        _ => run1!(
            "nn.functional.avg_pool3d",
            &powered,
            k.clone(),
            stride,
            zero,
            ceil
        )?,
    };
    let signed = run1!(
        "mul",
        &run1!("sign", &out)?,
        &run1!("relu", &run1!("abs", &out)?)?
    )?;
    Ok(run1!(
        "pow",
        &run1!("mul", &signed, Scalar::Int(count))?,
        Scalar::Float(1.0 / norm)
    )?
    .into())
}
