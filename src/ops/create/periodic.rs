//! The window functions that are older than `signal.windows`: periodic unless asked otherwise, of every type of floats, computed in that type.

use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::create::window::bessel_i0;
use crate::ops::f;
use crate::{DType, Device, Result, Tensor, ensure, mode};
use std::f64::consts::PI;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "bartlett_window",
        "(int window_length, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "bartlett_window", length: a.window_length, periodic: true, dtype: a.dtype, device: a.device }.made(Shape::Triangle),
        "A triangle that begins and ends with 0.",
    ).samples("5, device=dev; 1, device=dev; 0, device=dev, dtype=f64; 4, device=dev, dtype=f16"),
    compose(
        "bartlett_window#periodic",
        "(int window_length, bool periodic, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "bartlett_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Triangle),
        "A triangle that begins and ends with 0.",
    ).samples("5, False, device=dev; 4, True, device=dev, dtype=bf16"),
    compose(
        "blackman_window",
        "(int window_length, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "blackman_window", length: a.window_length, periodic: true, dtype: a.dtype, device: a.device }.made(Shape::Blackman),
        "Three cosines with weights by Blackman.",
    ).samples("5, device=dev; 1, device=dev; 0, device=dev, dtype=f64; 4, device=dev, dtype=f16"),
    compose(
        "blackman_window#periodic",
        "(int window_length, bool periodic, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "blackman_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Blackman),
        "Three cosines with weights by Blackman.",
    ).samples("5, False, device=dev; 4, True, device=dev, dtype=bf16"),
    compose(
        "hann_window",
        "(int window_length, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "hann_window", length: a.window_length, periodic: true, dtype: a.dtype, device: a.device }.made(Shape::Raised { alpha: 0.5, beta: 0.5 }),
        "A cosine raised to touch 0.",
    ).samples("5, device=dev; 1, device=dev; 0, device=dev, dtype=f64; 4, device=dev, dtype=f16"),
    compose(
        "hann_window#periodic",
        "(int window_length, bool periodic, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "hann_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Raised { alpha: 0.5, beta: 0.5 }),
        "A cosine raised to touch 0.",
    ).samples("5, False, device=dev; 4, True, device=dev, dtype=bf16"),
    compose(
        "hamming_window",
        "(int window_length, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "hamming_window", length: a.window_length, periodic: true, dtype: a.dtype, device: a.device }.made(Shape::Raised { alpha: 0.54, beta: 0.46 }),
        "A cosine raised as by Hamming: alpha - beta cos(x).",
    ).samples("5, device=dev; 4, device=dev, dtype=f64"),
    compose(
        "hamming_window#periodic",
        "(int window_length, bool periodic, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "hamming_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Raised { alpha: 0.54, beta: 0.46 }),
        "A cosine raised as by Hamming: alpha - beta cos(x).",
    ).samples("5, False, device=dev"),
    compose(
        "hamming_window#periodic_alpha",
        "(int window_length, bool periodic, float alpha, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "hamming_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Raised { alpha: a.alpha, beta: 0.46 }),
        "A cosine raised as by Hamming: alpha - beta cos(x).",
    ).samples("5, True, 0.5, device=dev"),
    compose(
        "hamming_window#periodic_alpha_beta",
        "(int window_length, bool periodic, float alpha, float beta, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "hamming_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Raised { alpha: a.alpha, beta: a.beta }),
        "A cosine raised as by Hamming: alpha - beta cos(x).",
    ).samples("5, True, 0.5, 0.25, device=dev"),
    compose(
        "kaiser_window",
        "(int window_length, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "kaiser_window", length: a.window_length, periodic: true, dtype: a.dtype, device: a.device }.made(Shape::Kaiser(12.0)),
        "Kaiser's window of Bessel functions.",
    ).samples("5, device=dev; 4, device=dev, dtype=f16"),
    compose(
        "kaiser_window#periodic",
        "(int window_length, bool periodic, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "kaiser_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Kaiser(12.0)),
        "Kaiser's window of Bessel functions.",
    ).samples("5, False, device=dev; 5, True, device=dev, dtype=f64"),
    compose(
        "kaiser_window#beta",
        "(int window_length, bool periodic, float beta, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F,
        |a| Window { name: "kaiser_window", length: a.window_length, periodic: a.periodic, dtype: a.dtype, device: a.device }.made(Shape::Kaiser(a.beta)),
        "Kaiser's window of Bessel functions.",
    ).samples("5, True, 3.0, device=dev"),
];

/// The form of a window.
#[derive(Clone, Copy)]
enum Shape {
    Triangle,
    Blackman,
    /// alpha - beta cos(x).
    Raised {
        alpha: f64,
        beta: f64,
    },
    /// With this shape parameter.
    Kaiser(f64),
}

struct Window {
    name: &'static str,
    length: i64,
    /// One value longer, without the last.
    periodic: bool,
    dtype: Option<DType>,
    device: Option<Device>,
}

impl Window {
    fn made(self, shape: Shape) -> Result<Tensor> {
        let dtype = self.dtype.unwrap_or_else(mode::default_dtype);
        let device = self.device.unwrap_or_else(mode::default_device);
        ensure!(
            dtype.is_float() || dtype.is_complex(),
            Runtime,
            "{} expects floating point dtypes, got: TensorOptions(dtype={}, device={device}, layout=Strided (default), \
             requires_grad=false (default), pinned_memory=false, memory_format=(nullopt))",
            self.name,
            dtype.cpp_name()
        );
        ensure!(
            self.length >= 0,
            Runtime,
            "{} requires non-negative window_length, got window_length={}",
            self.name,
            self.length
        );
        if self.length <= 1 {
            return f::Ones::new(&[self.length][..])
                .dtype(dtype)
                .device(device)
                .call();
        }
        let length = self.length + i64::from(self.periodic);
        let positions = f::Arange::new(length).dtype(dtype).device(device).call()?;
        let window = shape.at(&positions, (length - 1) as f64)?;
        match self.periodic {
            true => f::narrow(&window, 0, 0, self.length),
            false => Ok(window),
        }
    }
}

impl Shape {
    /// The values at positions from 0 to `last`.
    fn at(self, positions: &Tensor, last: f64) -> Result<Tensor> {
        match self {
            Self::Triangle => {
                let half = (last / 2.0).floor() as i64 + 1;
                let rising = f::mul(positions, 2.0 / last)?;
                let rest = f::narrow(&rising, 0, half, last as i64 + 1 - half)?;
                let falling = f::add(&f::mul(&rest, -1.0)?, 2.0)?;
                f::cat(&[&f::narrow(&rising, 0, 0, half)?, &falling])
            }
            Self::Blackman => {
                let x = f::mul(positions, PI / last)?;
                let fast = f::mul(&f::cos(&f::mul(&x, 4.0)?)?, 0.08)?;
                let slow = f::mul(&f::cos(&f::mul(&x, 2.0)?)?, 0.5)?;
                f::add(&f::sub(&fast, &slow)?, 0.42)
            }
            Self::Raised { alpha, beta } => {
                let wave = f::cos(&f::mul(positions, 2.0 * PI / last)?)?;
                f::add(&f::mul(&wave, -beta)?, alpha)
            }
            Self::Kaiser(beta) => kaiser(positions, last, beta),
        }
    }
}

/// i0(beta sqrt(1 - x^2)) / i0(beta), of x from -1 to 1; short floats in single precision.
fn kaiser(positions: &Tensor, last: f64, beta: f64) -> Result<Tensor> {
    let dtype = positions.dtype();
    let wide = match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let half = last / 2.0;
    let x = f::div(
        &f::sub(&f::_ToCopy::new(positions).dtype(wide).call()?, half)?,
        half,
    )?;
    let root = f::sqrt(&f::ClampMin::new(&f::sub(1.0, &f::mul(&x, &x)?)?, 0.0).call()?)?;
    let window = f::div(&f::i0(&f::mul(&root, beta)?)?, bessel_i0(beta))?;
    f::_ToCopy::new(&window).dtype(dtype).call()
}
