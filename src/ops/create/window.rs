//! The window functions of `signal.windows`.

use crate::ops::core::op::{F, OpDef, Plan, kernel};
use crate::ops::create::factory::write_with;
use crate::ops::nn::dropout::py_float;
use crate::{DType, Device, Result, Scalar, Tensor, ensure, mode};
use std::f64::consts::{PI, SQRT_2};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "signal.windows.bartlett",
        "(int M, *, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Triangle
            }
            .rule("bartlett", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "A triangle that begins and ends with 0.",
    ).samples("16, device=dev; 1, sym=False, device=dev, dtype=f32").no_grad(),
    kernel(
        "signal.windows.blackman",
        "(int M, *, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Cosines(vec![0.42, 0.5, 0.08])
            }
            .rule("blackman", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "Three cosines with weights by Blackman.",
    ).samples("16, device=dev; 1, sym=False, device=dev, dtype=f32").no_grad(),
    kernel(
        "signal.windows.cosine",
        "(int M, *, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Sine
            }
            .rule("cosine", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "Half a period of a sine.",
    ).samples("32, device=dev; 0, sym=False, device=dev, dtype=f32").no_grad(),
    kernel(
        "signal.windows.exponential",
        "(int M, *, float? center=None, float tau=1.0, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Exponential {
                    center: a.center,
                    tau: a.tau
                }
            }
            .rule("exponential", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "An exponential that falls to both sides.",
    ).samples("256, tau=10, device=dev; 8, sym=False, center=4, tau=0.5, device=dev").no_grad(),
    kernel(
        "signal.windows.gaussian",
        "(int M, *, float std=1.0, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Gaussian(a.std)
            }
            .rule("gaussian", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "A bell curve.",
    ).samples("16, std=1.2, device=dev; 0, sym=False, device=dev, dtype=f32, std=1.92").no_grad(),
    kernel(
        "signal.windows.general_cosine",
        "(int M, *, float[] a, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Cosines(a.a.to_vec())
            }
            .rule("general_cosine", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "A sum of cosines.",
    ).samples("16, a=[0.46, 0.54], device=dev; 1, sym=False, device=dev, dtype=f32, a=[0.54, 0.46]").no_grad(),
    kernel(
        "signal.windows.general_hamming",
        "(int M, *, float alpha=0.54, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Cosines(vec![a.alpha, 1.0 - a.alpha])
            }
            .rule("general_cosine", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "A raised cosine.",
    ).samples("2, device=dev, dtype=f32; 2, sym=False, device=dev, dtype=f32").no_grad(),
    kernel(
        "signal.windows.hamming",
        "(int M, *, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Cosines(vec![0.54, 0.46])
            }
            .rule("general_cosine", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "A cosine raised as by Hamming.",
    ).samples("32, device=dev; 0, sym=False, device=dev, dtype=f32").no_grad(),
    kernel(
        "signal.windows.hann",
        "(int M, *, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Cosines(vec![0.5, 0.5])
            }
            .rule("general_cosine", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "A cosine raised to touch 0.",
    ).samples("32, device=dev; 3, sym=False, device=dev, dtype=f32").no_grad(),
    kernel(
        "signal.windows.kaiser",
        "(int M, *, float beta=12.0, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Kaiser(a.beta)
            }
            .rule("kaiser", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "Kaiser's window of Bessel functions.",
    ).samples("32, beta=30, device=dev; 16, sym=False, beta=12, device=dev").no_grad(),
    kernel(
        "signal.windows.nuttall",
        "(int M, *, bool sym=True, dtype? dtype=None, layout? layout=None, device? device=None, bool? requires_grad=False)",
        F,
        body!(
            |a| Window {
                length: a.M,
                sym: a.sym,
                curve: Curve::Cosines(vec![0.363_581_9, 0.489_177_5, 0.136_599_5, 0.010_641_1])
            }
            .rule("general_cosine", a.dtype, a.device),
            |_, window, outs| window.fill(&outs[0]),
        ),
        "Four cosines with weights by Nuttall.",
    ).samples("32, device=dev; 1, sym=False, device=dev, dtype=f32").no_grad(),
];

/// The form of a window.
enum Curve {
    /// A sum of cosines with these weights.
    Cosines(Vec<f64>),
    Triangle,
    Sine,
    Exponential {
        center: Option<f64>,
        tau: f64,
    },
    /// With this standard deviation.
    Gaussian(f64),
    /// With this shape parameter.
    Kaiser(f64),
}

struct Window {
    length: i64,
    /// For filters; a window for periodic use is one longer, without its last value.
    sym: bool,
    curve: Curve,
}

impl Window {
    fn rule(
        self,
        name: &str,
        dtype: Option<DType>,
        device: Option<Device>,
    ) -> Result<(Plan, Self)> {
        let dtype = dtype.unwrap_or_else(mode::default_dtype);
        ensure!(
            self.length >= 0,
            Value,
            "{name} requires non-negative window length, got M={}",
            self.length
        );
        ensure!(
            matches!(dtype, DType::F32 | DType::F64),
            Value,
            "{name} expects float32 or float64 dtypes, got: torch.{dtype}"
        );
        self.check()?;
        let device = device.unwrap_or_else(mode::default_device);
        Ok((Plan::contiguous(&[self.length], dtype).on(device), self))
    }

    fn check(&self) -> Result<()> {
        match self.curve {
            Curve::Exponential { center, tau } => {
                ensure!(
                    tau > 0.0,
                    Value,
                    "Tau must be positive, got: {} instead.",
                    py_float(tau)
                );
                ensure!(
                    !self.sym || center.is_none(),
                    Value,
                    "Center must be None for symmetric windows"
                );
            }
            Curve::Gaussian(std) => ensure!(
                std > 0.0,
                Value,
                "Standard deviation must be positive, got: {} instead.",
                py_float(std)
            ),
            Curve::Kaiser(beta) => ensure!(
                beta >= 0.0,
                Value,
                "beta must be non-negative, got: {} instead.",
                py_float(beta)
            ),
            Curve::Cosines(ref weights) => {
                ensure!(!weights.is_empty(), Value, "Coefficients cannot be empty");
            }
            Curve::Triangle | Curve::Sine => {}
        }
        Ok(())
    }

    /// The value at a position of a window of `length` positions, for a result of single precision or not.
    fn value(&self, i: f64, length: i64, single: bool) -> f64 {
        let last = (length - 1) as f64;
        match self.curve {
            Curve::Cosines(ref weights) => {
                let k = 2.0 * PI * i / last;
                weights
                    .iter()
                    .enumerate()
                    .map(|(j, w)| if j % 2 == 0 { *w } else { -w } * (j as f64 * k).cos())
                    .sum()
            }
            Curve::Triangle => 1.0 - (2.0 * i / last - 1.0).abs(),
            Curve::Sine => ((i + 0.5) * PI / length as f64).sin(),
            Curve::Exponential { center, tau } => {
                (-((i - center.unwrap_or(last / 2.0)) / tau).abs()).exp()
            }
            Curve::Gaussian(std) => {
                let x = (i - last / 2.0) / (std * SQRT_2);
                (-x * x).exp()
            }
            Curve::Kaiser(beta) => {
                let k = (2.0 * beta * i / last - beta).clamp(-beta, beta);
                // Overflow shows where that of an exponential does in the result's own precision.
                let top = if single {
                    f64::from(f32::MAX)
                } else {
                    f64::MAX
                };
                let own = |x: f64| match x > top.ln() {
                    true => f64::INFINITY,
                    false if single => f64::from(bessel_i0(x) as f32),
                    false => bessel_i0(x),
                };
                own((beta * beta - k * k).max(0.0).sqrt()) / own(beta)
            }
        }
    }

    fn fill(&self, out: &Tensor) -> Result<()> {
        let m = self.length;
        let length = if !self.sym && m > 1 { m + 1 } else { m };
        let alone = m == 1
            && matches!(
                self.curve,
                Curve::Cosines(_) | Curve::Triangle | Curve::Kaiser(_)
            );
        let single = out.dtype() == DType::F32;
        write_with(out, |i| {
            Scalar::Float(if alone {
                1.0
            } else {
                self.value(i as f64, length, single)
            })
        })
    }
}

/// The modified Bessel function of order 0, by its power series (all terms are positive).
pub fn bessel_i0(x: f64) -> f64 {
    let q = x * x / 4.0;
    let (mut term, mut sum, mut k) = (1.0f64, 1.0f64, 1.0);
    while term > sum * 1e-17 && k < 2000.0 && sum.is_finite() {
        term *= q / (k * k);
        sum += term;
        k += 1.0;
    }
    sum
}
