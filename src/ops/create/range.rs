//! Sequences: arange, linspace, logspace.

use crate::factory_schema;
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, KernelBody, O, OpDef, Plan, kernel};
use crate::ops::create::factory::{device_at, via_host, write_with};
use crate::{DType, Result, Scalar, Tensor, bail, ensure, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "arange",
        factory_schema!("(Scalar end, *"),
        F | O,
        KernelBody::new(
            |a| infer_range(a, Scalar::Int(0), a.scalar(0)?, Scalar::Int(1), 1, true),
            |a, o| range(o, Scalar::Int(0), Scalar::Int(1), a.scalar(0)?),
        )
        .cuda(via_host),
        "Numbers from 0 up to `end`.",
    ),
    kernel(
        "arange#start",
        factory_schema!("(Scalar start, Scalar end, Scalar step=1, *"),
        F | O,
        KernelBody::new(
            |a| infer_range(a, a.scalar(0)?, a.scalar(1)?, a.scalar(2)?, 3, true),
            |a, o| range(o, a.scalar(0)?, a.scalar(2)?, a.scalar(1)?),
        )
        .cuda(via_host),
        "Numbers from `start` up to `end`.",
    ),
    kernel(
        "range",
        factory_schema!("(Scalar start, Scalar end, Scalar step=1, *"),
        F | O,
        KernelBody::new(
            |a| infer_range(a, a.scalar(0)?, a.scalar(1)?, a.scalar(2)?, 3, false),
            |a, o| range(o, a.scalar(0)?, a.scalar(2)?, a.scalar(1)?),
        )
        .cuda(via_host),
        "Numbers from `start` to `end` inclusive.",
    ),
    kernel(
        "linspace",
        factory_schema!("(Operand start, Operand end, int steps, *"),
        F | O,
        KernelBody::new(|a| infer_space(a, 3), |a, o| space(a, o, None)).cuda(via_host),
        "Evenly spaced numbers.",
    ),
    kernel(
        "logspace",
        factory_schema!("(Operand start, Operand end, int steps, float base=10.0, *"),
        F | O,
        KernelBody::new(|a| infer_space(a, 4), |a, o| space(a, o, Some(a.float(3)?)))
            .cuda(via_host),
        "Powers of a base at evenly spaced exponents.",
    ),
];

fn show(s: Scalar) -> String {
    match s {
        Scalar::Float(f) if f.is_infinite() => {
            if f > 0.0 {
                "inf".into()
            } else {
                "-inf".into()
            }
        }
        Scalar::Float(f) => format!("{f}"),
        other => format!("{}", other.to_i64()),
    }
}

fn infer_range(
    a: &Args,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    first: usize,
    half_open: bool,
) -> Result<Plan> {
    let floating = [start, end, step].iter().any(|s| s.is_floating());
    let dtype = a.dtype(first).unwrap_or(if !half_open || floating {
        mode::default_dtype()
    } else {
        DType::I64
    });
    let (s, e, d) = (start.to_f64(), end.to_f64(), step.to_f64());
    ensure!(!d.is_nan() && d != 0.0, Runtime, "step must be nonzero");
    if dtype.is_integral(false) && step.is_floating() && step.to_i64() == 0 {
        bail!(Value, "step must be nonzero");
    }
    ensure!(
        s.is_finite() && e.is_finite(),
        Runtime,
        "unsupported range: {} -> {}",
        show(start),
        show(end)
    );
    ensure!(
        (d > 0.0 && e >= s) || (d < 0.0 && e <= s),
        Runtime,
        "upper bound and lower bound inconsistent with step sign"
    );
    let n = if dtype == DType::I64 && !floating {
        // Exact for integers beyond 2^53.
        let (s, e, d) = (
            i128::from(start.to_i64()),
            i128::from(end.to_i64()),
            i128::from(step.to_i64()),
        );
        if half_open {
            (e - s + d - d.signum()) / d
        } else {
            (e - s) / d + 1
        }
    } else if half_open {
        ((e - s) / d).ceil() as i128
    } else {
        ((e - s) / d + 1.0).floor() as i128
    };
    let n =
        i64::try_from(n).map_err(|_| crate::err!(Runtime, "invalid size, possible overflow?"))?;
    Ok(Plan::contiguous(&[n], dtype).on(device_at(a, first + 2)?))
}

pub(in crate::ops) fn range(
    outs: &[Tensor],
    start: Scalar,
    step: Scalar,
    _end: Scalar,
) -> Result<()> {
    let out = &outs[0];
    if out.dtype().is_integral(true) {
        let (s, d) = (start.to_i64(), step.to_i64());
        return write_with(out, |i| Scalar::Int(s.wrapping_add(d.wrapping_mul(i))));
    }
    let (s, d) = (start.to_f64(), step.to_f64());
    if out.dtype() == DType::F32 {
        let (s, d) = (s as f32 as f64, d);
        // The vector kernel computes start + step * i in double and rounds once.
        return write_with(out, |i| Scalar::Float(s + d * i as f64));
    }
    write_with(out, |i| Scalar::Float(s + d * i as f64))
}

fn space_end(v: &Arg) -> Result<Scalar> {
    match v {
        Arg::Tensor(t) => t.item(),
        other => crate::ops::pointwise::rule::scalar_of(other)
            .ok_or_else(|| crate::err!(Type, "linspace() needs numbers")),
    }
}

fn infer_space(a: &Args, first: usize) -> Result<Plan> {
    let steps = a.int(2)?;
    ensure!(steps >= 0, Runtime, "number of steps must be non-negative");
    let mut complex = false;
    for v in &a.values[..2] {
        match v {
            Arg::Tensor(t) => {
                ensure!(
                    t.ndim() == 0,
                    Runtime,
                    "linspace only supports 0-dimensional start and end tensors"
                );
                complex |= t.dtype().is_complex();
            }
            other => {
                complex |= matches!(
                    crate::ops::pointwise::rule::scalar_of(other),
                    Some(Scalar::Complex(_))
                )
            }
        }
    }
    let default = if complex {
        mode::default_dtype().to_complex()
    } else {
        mode::default_dtype()
    };
    let device = match &a.values[0] {
        Arg::Tensor(t) if a.device(first + 2).is_none() => t.device(),
        _ => device_at(a, first + 2)?,
    };
    Ok(Plan::contiguous(&[steps], a.dtype(first).unwrap_or(default)).on(device))
}

fn space(a: &Args, outs: &[Tensor], base: Option<f64>) -> Result<()> {
    let (start, end) = (space_end(&a.values[0])?, space_end(&a.values[1])?);
    let out = &outs[0];
    let n = out.numel();
    let power = |v: Scalar| match (base, v) {
        (None, v) => v,
        (Some(b), Scalar::Complex(c)) => {
            Scalar::Complex(num_complex::Complex64::new(b, 0.0).powc(c))
        }
        (Some(b), v) => Scalar::Float(b.powf(v.to_f64())),
    };
    if n == 1 {
        return write_with(out, |_| power(start));
    }
    if out.dtype().is_complex() {
        let (s, e) = (start.to_c64(), end.to_c64());
        let step = if n > 1 {
            (e - s) / (n - 1) as f64
        } else {
            s * 0.0
        };
        return write_with(out, |i| {
            power(Scalar::Complex(if i < n / 2 {
                s + step * i as f64
            } else {
                e - step * (n - 1 - i) as f64
            }))
        });
    }
    if out.dtype().is_integral(true) && base.is_none() {
        let (s, e) = (start.to_i64(), end.to_i64());
        let step = if n > 1 {
            (e as f32 - s as f32) / (n - 1) as f32
        } else {
            0.0
        };
        return write_with(out, |i| {
            Scalar::Int(if i < n / 2 {
                (s as f32 + step * i as f32) as i64
            } else {
                (e as f32 - step * (n - 1 - i) as f32) as i64
            })
        });
    }
    if out.dtype() == DType::F64 {
        let (s, e) = (start.to_f64(), end.to_f64());
        let step = if n > 1 { (e - s) / (n - 1) as f64 } else { 0.0 };
        return write_with(out, |i| {
            power(Scalar::Float(if i < n / 2 {
                step.mul_add(i as f64, s)
            } else {
                (-step).mul_add((n - 1 - i) as f64, e)
            }))
        });
    }
    if out.dtype().is_reduced_float() && base.is_none() {
        return space_16bit(out, start.to_f64() as f32, end.to_f64() as f32);
    }
    // Symmetric about the middle, in single precision with fused steps as the vector kernel has it.
    let (s, e) = (start.to_f64() as f32, end.to_f64() as f32);
    let step = if n > 1 { (e - s) / (n - 1) as f32 } else { 0.0 };
    write_with(out, |i| {
        let v = if i < n / 2 {
            step.mul_add(i as f32, s)
        } else {
            (-step).mul_add((n - 1 - i) as f32, e)
        };
        match base {
            None => Scalar::Float(f64::from(v)),
            Some(b) => Scalar::Float(f64::from((b as f32).powf(v))),
        }
    })
}

/// Evenly spaced 16-bit numbers: every intermediate value is rounded to the type, as PyTorch's scalar arithmetic does.
fn space_16bit(out: &Tensor, start: f32, end: f32) -> Result<()> {
    let bf16 = out.dtype() == DType::BF16;
    let r = |v: f32| {
        if bf16 {
            half::bf16::from_f32(v).to_f32()
        } else {
            half::f16::from_f32(v).to_f32()
        }
    };
    let n = out.numel();
    let (start, end) = (r(start), r(end));
    let step = if n > 1 {
        r(r(end - start) / r((n - 1) as f32))
    } else {
        0.0
    };
    write_with(out, |i| {
        let v = if n == 1 || i < n / 2 {
            start + r(step * r(i as f32))
        } else {
            end - r(step * r((n - 1 - i) as f32))
        };
        Scalar::Float(f64::from(r(v)))
    })
}
