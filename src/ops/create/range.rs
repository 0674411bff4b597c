//! Sequences: arange, linspace, logspace.

use crate::cpu::halves;
use crate::cpu::ramp::{self, Between};
use crate::ops::core::fits::{check_filling, check_fits};
use crate::ops::core::helpers;
use crate::ops::core::op::{F, K, O, OpDef, Plan, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::create::factory::{device_or_default, via_host, write_with};
use crate::{DType, Device, Element, Result, Scalar, Tensor, bail, ensure, kernels, mode};
use num_complex::{Complex32, Complex64};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "arange",
        "(Scalar end, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O | K,
        body!(|a| Steps { start: Scalar::Int(0), end: a.end, step: Scalar::Int(1), half_open: true }.rule(a.dtype, a.device), |_, found, outs| found.fill(&outs[0]), cuda: |_, found, outs| kernels::arrange::range(&outs[0], found.start, found.step)),
        "Numbers from 0 up to `end`.",
    ).samples("3, dtype=f32, device=dev").no_grad(),
    kernel(
        "arange#start",
        "(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O | K,
        body!(|a| Steps { start: a.start, end: a.end, step: a.step, half_open: true }.rule(a.dtype, a.device), |_, found, outs| found.fill(&outs[0]), cuda: |_, found, outs| kernels::arrange::range(&outs[0], found.start, found.step)),
        "Numbers from `start` up to `end`.",
    ).samples("1, 1, 1, dtype=f32, device=dev").no_grad(),
    kernel(
        "range",
        "(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O | K,
        body!(|a| {
            crate::warning::say("torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's range builtin. Instead, use torch.arange, which produces values in [start, end).");
            Steps { start: a.start, end: a.end, step: a.step, half_open: false }.rule(a.dtype, a.device)
        }, |_, found, outs| found.fill(&outs[0]), cuda: |_, found, outs| kernels::arrange::range(&outs[0], found.start, found.step)),
        "Numbers from `start` to `end` inclusive.",
    ).samples("0, 4, dtype=f32, device=dev; 1.0, 3.0, 0.5, device=dev").no_grad(),
    kernel(
        "linspace",
        "(Operand start, Operand end, int steps, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O | K,
        body!(|a| space_rule(a.start, a.end, a.steps, a.dtype, a.device, "linspace"), |a, _, outs| space(&outs[0], a.start, a.end, None), cuda: |a, _, outs| via_host(&outs[0], |host| space(host, a.start, a.end, None))),
        "Evenly spaced numbers.",
    ).samples("f32[()], -3, 0, dtype=c128, device=dev")
    .no_grad(),
    kernel(
        "logspace",
        "(Operand start, Operand end, int steps, float base=10.0, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O | K,
        body!(|a| space_rule(a.start, a.end, a.steps, a.dtype, a.device, "logspace"), |a, _, outs| space(&outs[0], a.start, a.end, Some(a.base)), cuda: |a, _, outs| via_host(&outs[0], |host| space(host, a.start, a.end, Some(a.base)))),
        "Powers of a base at evenly spaced exponents.",
    ).samples("1, 3, 1, 2.0, device=dev; 0, 0, 0, 2.0, dtype=u8, device=dev")
    .no_grad(),
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
        Scalar::Float(f) if f.is_nan() => "nan".into(),
        Scalar::Float(f) => format!("{f}"),
        other => format!("{}", other.to_i64()),
    }
}

/// Numbers from `start` in equal steps up to `end`, which is left out of half-open ranges.
struct Steps {
    start: Scalar,
    end: Scalar,
    step: Scalar,
    half_open: bool,
}

impl Steps {
    fn rule(self, dtype: Option<DType>, device: Option<Device>) -> Result<(Plan, Self)> {
        let floating = [self.start, self.end, self.step]
            .iter()
            .any(|s| s.is_floating());
        let dtype = dtype.unwrap_or(if !self.half_open || floating {
            mode::default_dtype()
        } else {
            DType::I64
        });
        if self.half_open {
            dtype.check_kernel(dtype != DType::Bool && !dtype.is_complex(), "arange_cpu")?;
        }
        self.check(dtype)?;
        // Numbers of 64 bits are cut to integers before they are counted, those of all other types after.
        let n = if dtype == DType::I64 {
            self.exact_count()
        } else {
            self.count()
        };
        let n = i64::try_from(n)
            .map_err(|_| crate::err!(Runtime, "invalid size, possible overflow?"))?;
        let plan = Plan::contiguous(&[n], dtype).on(device_or_default(device)?);
        Ok((plan, self))
    }

    fn check(&self, dtype: DType) -> Result<()> {
        let all = [self.start, self.end, self.step];
        ensure!(
            !all.iter()
                .any(|s| matches!(s, Scalar::Complex(c) if c.im != 0.0)),
            Runtime,
            "value cannot be converted to type double without overflow"
        );
        let (s, e, d) = (self.start.to_f64(), self.end.to_f64(), self.step.to_f64());
        ensure!(!d.is_nan() && d != 0.0, Runtime, "step must be nonzero");
        if dtype == DType::I64 && self.step.is_floating() && self.step.to_i64() == 0 {
            bail!(Value, "step must be nonzero");
        }
        ensure!(
            s.is_finite() && e.is_finite(),
            Runtime,
            "unsupported range: {} -> {}",
            show(self.start),
            show(self.end)
        );
        ensure!(
            (d > 0.0 && e >= s) || (d < 0.0 && e <= s),
            Runtime,
            "upper bound and lower bound inconsistent with step sign"
        );
        if self.half_open && dtype.is_integral(false) {
            all.iter().try_for_each(|&s| check_fits(s, DType::I64))?;
        }
        Ok(())
    }

    /// How many there are, for integers beyond 2^53 too.
    fn exact_count(&self) -> i128 {
        let (s, e, d) = (
            i128::from(self.start.to_i64()),
            i128::from(self.end.to_i64()),
            i128::from(self.step.to_i64()),
        );
        if self.half_open {
            (e - s + d - d.signum()) / d
        } else {
            (e - s) / d + 1
        }
    }

    fn count(&self) -> i128 {
        let (s, e, d) = (self.start.to_f64(), self.end.to_f64(), self.step.to_f64());
        if self.half_open {
            ((e - s) / d).ceil() as i128
        } else {
            ((e - s) / d + 1.0).floor() as i128
        }
    }

    fn fill(&self, out: &Tensor) -> Result<()> {
        if out.dtype().is_integral(true) {
            let (s, d) = (self.start.to_i64(), self.step.to_i64());
            return fill(out, |at, to| ramp::whole_steps(to, at, s, d));
        }
        let (s, d) = (self.start.to_f64(), self.step.to_f64());
        match out.dtype() {
            DType::F64 => fill(out, |at, to| ramp::steps(to, at, s, d)),
            DType::F32 => {
                // The vector kernel computes start + step * i in double, from a rounded start, and rounds once.
                let s = f64::from(s as f32);
                fill(out, |at, to| ramp::single_steps(to, at, s, d))
            }
            _ => fill(out, |at, to| ramp::single_steps(to, at, s, d)),
        }
    }
}

/// Fills a sequence block by block.
fn fill<T: Element + Default>(out: &Tensor, f: impl Fn(usize, &mut [T]) + Sync) -> Result<()> {
    let d = out.dtype();
    d.check_kernel(!d.is_storage_only() && d != DType::C32, "arange_cpu")?;
    ramp::fill(out, f)
}

/// The number at an end of `linspace`.
fn end_value(v: Operand) -> Result<Scalar> {
    match v {
        Operand::Tensor(t) => helpers::item(t),
        Operand::Scalar(s) => Ok(s),
    }
}

/// Ends are numbers, or tensors without dimensions.
fn check_ends(start: Operand, end: Operand, name: &str) -> Result<()> {
    let tensors = [("start", start.tensor()), ("end", end.tensor())];
    let found: Vec<_> = tensors
        .iter()
        .filter_map(|(end, t)| t.map(|t| format!("{end} with {} dimension(s)", t.ndim())))
        .collect();
    ensure!(
        tensors.iter().flat_map(|(_, t)| t).all(|t| t.ndim() == 0),
        Runtime,
        "{name} only supports 0-dimensional start and end tensors, but got {}.",
        found.join(" and ")
    );
    Ok(())
}

fn space_rule(
    start: Operand,
    end: Operand,
    steps: i64,
    dtype: Option<DType>,
    device: Option<Device>,
    name: &str,
) -> Result<Plan> {
    ensure!(steps >= 0, Runtime, "number of steps must be non-negative");
    check_ends(start, end, name)?;
    let complex = [start, end].iter().any(|v| match v {
        Operand::Tensor(t) => t.dtype().is_complex(),
        Operand::Scalar(s) => matches!(s, Scalar::Complex(_)),
    });
    let inferred = if complex {
        mode::default_dtype().to_complex()
    } else {
        mode::default_dtype()
    };
    let dtype = dtype.unwrap_or(inferred);
    ensure!(
        !complex || dtype.is_complex(),
        Runtime,
        "torch.{name}(): inferred dtype {} can't be safely cast to passed dtype {}",
        inferred.cpp_name(),
        dtype.scalar_type()
    );
    // Nothing is computed for one number, or none.
    dtype.check_kernel(
        dtype != DType::Bool || steps < 2,
        format_args!("{name}_cpu"),
    )?;
    let device = match (start.tensor().or(end.tensor()), device) {
        (Some(t), None) => t.device(),
        _ => device_or_default(device)?,
    };
    Ok(Plan::contiguous(&[steps], dtype).on(device))
}

/// `base` to the power of a number; the number itself without a base.
fn power(base: Option<f64>, v: Scalar) -> Scalar {
    match (base, v) {
        (None, v) => v,
        (Some(b), Scalar::Complex(c)) => Scalar::Complex(Complex64::new(b, 0.0).powc(c)),
        (Some(b), v) => Scalar::Float(b.powf(v.to_f64())),
    }
}

/// Evenly spaced numbers, or powers of a base; symmetric about the middle, in the precision PyTorch computes them in.
fn space(out: &Tensor, start: Operand, end: Operand, base: Option<f64>) -> Result<()> {
    let dtype = out.dtype();
    let (start, end) = (end_value(start)?, end_value(end)?);
    if out.numel() == 0 {
        return Ok(());
    }
    if out.numel() == 1 {
        check_filling(power(base, start), dtype, 1)?;
        return write_with(out, |_| power(base, start));
    }
    check_fits(start, dtype)?;
    check_fits(end, dtype)?;
    if dtype.is_complex() {
        return space_complex(out, start.to_c64(), end.to_c64(), base);
    }
    if dtype.is_integral(true) {
        // Negative ends wrap before anything is computed.
        let wrapped = |s: Scalar| match dtype {
            DType::U8 => i64::from(s.to_i64() as u8),
            _ => s.to_i64(),
        };
        let (start, end) = (wrapped(start), wrapped(end));
        return match base {
            None => space_integral(out, start, end),
            Some(_) => space_single(out, start as f32, end as f32, base),
        };
    }
    if dtype == DType::F64 {
        return space_double(out, start.to_f64(), end.to_f64(), base);
    }
    let (start, end) = (start.to_f64() as f32, end.to_f64() as f32);
    if dtype.is_reduced_float() && base.is_none() {
        return space_16bit(out, start, end);
    }
    if dtype == DType::F32 && base.is_some() {
        return space_double(out, f64::from(start), f64::from(end), base);
    }
    space_single(out, start, end, base)
}

fn space_complex(out: &Tensor, s: Complex64, e: Complex64, base: Option<f64>) -> Result<()> {
    let (re, im) = (between(out, s.re, e.re), between(out, s.im, e.im));
    if out.dtype() == DType::C64 && base.is_none() {
        return fill(out, |at, to: &mut [Complex32]| {
            ramp::complex(to, at, re, im)
        });
    }
    fill(out, |at, to: &mut [Complex64]| {
        ramp::complex(to, at, re, im);
        if let Some(b) = base {
            let b = Complex64::new(b, 0.0);
            to.iter_mut().for_each(|o| *o = b.powc(*o));
        }
    })
}

/// In double precision with fused steps, cut off.
fn space_integral(out: &Tensor, s: i64, e: i64) -> Result<()> {
    let all = between(out, s as f64, e as f64);
    fill(out, |at, to| ramp::integers(to, at, all))
}

fn between(out: &Tensor, s: f64, e: f64) -> Between<f64> {
    let n = out.numel() as usize;
    let step = if n > 1 { (e - s) / (n - 1) as f64 } else { 0.0 };
    let ends = [s, e];
    Between { n, ends, step }
}

fn space_double(out: &Tensor, s: f64, e: f64, base: Option<f64>) -> Result<()> {
    let all = between(out, s, e);
    fill(out, |at, to: &mut [f64]| {
        ramp::doubles(to, at, all);
        if let Some(b) = base {
            to.iter_mut().for_each(|o| *o = b.powf(*o));
        }
    })
}

/// In single precision with fused steps, as the vector kernel has it.
fn space_single(out: &Tensor, s: f32, e: f32, base: Option<f64>) -> Result<()> {
    let n = out.numel() as usize;
    let step = if n > 1 { (e - s) / (n - 1) as f32 } else { 0.0 };
    let ends = [s, e];
    let all = Between { n, ends, step };
    fill(out, |at, to: &mut [f32]| {
        ramp::singles(to, at, all);
        if let Some(b) = base {
            to.iter_mut().for_each(|o| *o = (b as f32).powf(*o));
        }
    })
}

/// Evenly spaced 16-bit numbers: every intermediate value is rounded to the type, as PyTorch's scalar arithmetic does.
fn space_16bit(out: &Tensor, start: f32, end: f32) -> Result<()> {
    let r = halves::rounding(out.dtype());
    let n = out.numel() as usize;
    let ends = [r(start), r(end)];
    let step = if n > 1 {
        r(r(ends[1] - ends[0]) / r((n - 1) as f32))
    } else {
        0.0
    };
    let all = Between { n, ends, step };
    fill(out, |at, to| match out.dtype() {
        DType::F16 => ramp::rounded::<half::f16>(to, at, all),
        _ => ramp::rounded::<half::bf16>(to, at, all),
    })
}
