//! The window functions of `signal.windows`.

use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, kernel};
use crate::ops::create::factory::write_with;
use crate::ops::nn::dropout::py_float;
use crate::{DType, Device, Result, Scalar, Tensor, bail, cpu, ensure, mode};
use std::f64::consts::{PI, SQRT_2};
use torchlike_macros::operators;

/// A row: name, own arguments, position of `sym`, sentence.
macro_rules! window {
    ($name:literal, $args:literal, $sym:literal, $doc:literal) => {
        kernel(
            concat!("signal.windows.", $name),
            concat!("(int M, *, ", $args, "bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)"),
            F,
            KernelBody::new(|a| infer(a, $sym), |a, o| fill(a, o, $sym)),
            $doc,
        )
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    window!("bartlett", "", 1, "A triangle that begins and ends with 0."),
    window!("blackman", "", 1, "Three cosines with weights by Blackman."),
    window!("cosine", "", 1, "Half a period of a sine."),
    window!(
        "exponential",
        "float? center=None, float tau=1.0, ",
        3,
        "An exponential that falls to both sides."
    ),
    window!("gaussian", "float std=1.0, ", 2, "A bell curve."),
    window!("general_cosine", "float[] a, ", 2, "A sum of cosines."),
    window!(
        "general_hamming",
        "float alpha=0.54, ",
        2,
        "A raised cosine."
    ),
    window!("hamming", "", 1, "A cosine raised as by Hamming."),
    window!("hann", "", 1, "A cosine raised to touch 0."),
    window!(
        "kaiser",
        "float beta=12.0, ",
        2,
        "Kaiser's window of Bessel functions."
    ),
    window!("nuttall", "", 1, "Four cosines with weights by Nuttall."),
];

/// Weights of the cosines; none for windows that are no sums of cosines.
fn cosines(a: &Args) -> Result<Option<Vec<f64>>> {
    Ok(Some(match a.name() {
        "blackman" => vec![0.42, 0.5, 0.08],
        "hamming" => vec![0.54, 0.46],
        "hann" => vec![0.5, 0.5],
        "nuttall" => vec![0.363_581_9, 0.489_177_5, 0.136_599_5, 0.010_641_1],
        "general_hamming" => vec![a.float(1)?, 1.0 - a.float(1)?],
        "general_cosine" => a.opt_floats(1).unwrap_or_default().to_vec(),
        _ => return Ok(None),
    }))
}

fn infer(a: &Args, sym: usize) -> Result<Plan> {
    let m = a.int(0)?;
    let dtype = a.dtype(sym + 1).unwrap_or_else(mode::default_dtype);
    let weights = cosines(a)?;
    let shown = if weights.is_some() {
        "general_cosine"
    } else {
        a.name()
    };
    ensure!(
        m >= 0,
        Value,
        "{shown} requires non-negative window length, got M={m}"
    );
    ensure!(
        matches!(dtype, DType::F32 | DType::F64),
        Value,
        "{shown} expects float32 or float64 dtypes, got: torch.{dtype}"
    );
    match a.name() {
        "exponential" => {
            let tau = a.float(2)?;
            ensure!(
                tau > 0.0,
                Value,
                "Tau must be positive, got: {} instead.",
                py_float(tau)
            );
            ensure!(
                !a.bool(sym) || a.opt_float(1).is_none(),
                Value,
                "Center must be None for symmetric windows"
            );
        }
        "gaussian" => {
            ensure!(
                a.float(1)? > 0.0,
                Value,
                "Standard deviation must be positive, got: {} instead.",
                py_float(a.float(1)?)
            );
        }
        "kaiser" => ensure!(
            a.float(1)? >= 0.0,
            Value,
            "beta must be non-negative, got: {} instead.",
            py_float(a.float(1)?)
        ),
        _ => {}
    }
    if weights.is_some_and(|w| w.is_empty()) {
        bail!(Value, "Coefficients cannot be empty");
    }
    let device = a.device(sym + 3).unwrap_or_else(mode::default_device);
    Ok(Plan::contiguous(&[m], dtype).on(device))
}

fn fill(a: &Args, outs: &[Tensor], sym: usize) -> Result<()> {
    let out = &outs[0];
    let m = a.int(0)?;
    // A window for periodic use is one longer, without its last value.
    let longer = if !a.bool(sym) && m > 1 { m + 1 } else { m };
    let last = (longer - 1) as f64;
    let weights = cosines(a)?;
    let number = |i: usize| a.opt_float(i).unwrap_or(1.0);
    let value = |i: f64| -> f64 {
        if let Some(w) = &weights {
            let k = 2.0 * PI * i / last;
            return w
                .iter()
                .enumerate()
                .map(|(j, w)| if j % 2 == 0 { *w } else { -w } * (j as f64 * k).cos())
                .sum();
        }
        match a.name() {
            "bartlett" => 1.0 - (2.0 * i / last - 1.0).abs(),
            "cosine" => ((i + 0.5) * PI / longer as f64).sin(),
            "exponential" => {
                (-((i - a.opt_float(1).unwrap_or(last / 2.0)) / number(2)).abs()).exp()
            }
            "gaussian" => {
                let x = (i - last / 2.0) / (number(1) * SQRT_2);
                (-x * x).exp()
            }
            _ => {
                let beta = number(1);
                let k = (2.0 * beta * i / last - beta).clamp(-beta, beta);
                // Overflow shows as it does in the result's own precision.
                let own = |v: f64| {
                    if out.dtype() == DType::F32 {
                        f64::from(v as f32)
                    } else {
                        v
                    }
                };
                own(bessel_i0((beta * beta - k * k).max(0.0).sqrt())) / own(bessel_i0(beta))
            }
        }
    };
    let alone = m == 1 && !matches!(a.name(), "cosine" | "exponential" | "gaussian");
    let host = Tensor::empty(&[m], out.dtype(), Device::CPU)?;
    write_with(&host, |i| {
        Scalar::Float(if alone { 1.0 } else { value(i as f64) })
    })?;
    cpu::copy::copy(out, &host)
}

/// The modified Bessel function of order 0, by its power series (all terms are positive).
fn bessel_i0(x: f64) -> f64 {
    let q = x * x / 4.0;
    let (mut term, mut sum, mut k) = (1.0f64, 1.0f64, 1.0);
    while term > sum * 1e-17 && k < 2000.0 && sum.is_finite() {
        term *= q / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}
