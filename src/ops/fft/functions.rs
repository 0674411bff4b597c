//! The functions of `fft`: sizes, types and norms, around the three kernels.

use super::dimension;
use crate::cpu::halves;
use crate::ops::core::helpers::at_hand;
use crate::ops::core::op::{Cast, F, O, OpDef, Plan, R, compose, kernel};
use crate::ops::create::factory::write_with;
use crate::ops::f;
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, ensure, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose("fft.fft", "(Tensor self, int? n=None, int dim=-1, str? norm=None)", F | O | R,
        |a| Line::of(a.n, a.dim, a.norm, true).any(a.input, "fft"),
        "The discrete Fourier transform.")
    .samples("f32[3, 4]; c64[3, 4], 5, 0, 'ortho'; i64[4], norm='forward'")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.ifft", "(Tensor self, int? n=None, int dim=-1, str? norm=None)", F | O | R,
        |a| Line::of(a.n, a.dim, a.norm, false).any(a.input, "ifft"),
        "The inverse of the discrete Fourier transform.")
    .samples("f32[3, 4]; c64[3, 4], 3, 0, 'ortho'; i64[4]")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.rfft", "(Tensor self, int? n=None, int dim=-1, str? norm=None)", F | O | R,
        |a| Line::of(a.n, a.dim, a.norm, true).real(a.input, "rfft", true),
        "The half that says all of the Fourier transform of real numbers.")
    .samples("f32[3, 4]; f64[3, 5], 6, 0; i64[4]")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.irfft", "(Tensor self, int? n=None, int dim=-1, str? norm=None)", F | O | R,
        |a| Line::of(a.n, a.dim, a.norm, false).inverse(a.input),
        "The inverse of `rfft`.")
    .samples("c64[3, 4]; c128[3, 5], 7, 0; f32[4]")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.hfft", "(Tensor self, int? n=None, int dim=-1, str? norm=None)", F | O | R,
        |a| Line::of(a.n, a.dim, a.norm, true).inverse(a.input),
        "The Fourier transform of a Hermitian signal, given its first half.")
    .samples("c64[3, 4]; c128[3, 5], 7, 0; f32[4]")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.ihfft", "(Tensor self, int? n=None, int dim=-1, str? norm=None)", F | O | R,
        |a| Line::of(a.n, a.dim, a.norm, false).real(a.input, "ihfft", true),
        "The inverse of `hfft`.")
    .samples("f32[3, 4]; f64[3, 5], 6, 0; i64[4]")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.fft2", "(Tensor self, int[1]? s=None, int[1] dim=[-2,-1], str? norm=None)", F | O | R,
        |a| Many::of(a.input, a.s, Some(a.dim))?.any(a.input, a.norm, true),
        "The Fourier transform along two dimensions.")
    .samples("f32[3, 4]; c64[3, 4, 2], (5, 2), (0, 1), 'ortho'")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.ifft2", "(Tensor self, int[1]? s=None, int[1] dim=[-2,-1], str? norm=None)", F | O | R,
        |a| Many::of(a.input, a.s, Some(a.dim))?.any(a.input, a.norm, false),
        "The inverse of `fft2`.")
    .samples("f32[3, 4]; c64[3, 4, 2], (5, 2), (0, 1), 'ortho'")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.rfft2", "(Tensor self, int[1]? s=None, int[1] dim=[-2,-1], str? norm=None)", F | O | R,
        |a| real(a.input, a.s, Some(a.dim), a.norm),
        "The half that says all of the Fourier transform of real numbers along two dimensions.")
    .samples("f32[3, 4]; f64[3, 4, 2], (5, 2), (0, 1), 'ortho'")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.irfft2", "(Tensor self, int[1]? s=None, int[1] dim=[-2,-1], str? norm=None)", F | O | R,
        |a| inverse(a.input, a.s, Some(a.dim), a.norm),
        "The inverse of `rfft2`.")
    .samples("c64[3, 4]; c128[3, 4, 2], (5, 3), (0, 1), 'ortho'")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.hfft2", "(Tensor self, int[1]? s=None, int[1] dim=[-2,-1], str? norm=None)", F | O | R,
        |a| hermitian(a.input, a.s, Some(a.dim), a.norm),
        "The Fourier transform of a Hermitian signal along two dimensions.")
    .samples("c64[3, 4]; c128[3, 4, 2], (5, 3), (0, 1), 'ortho'"),
    compose("fft.ihfft2", "(Tensor self, int[1]? s=None, int[1] dim=[-2,-1], str? norm=None)", F | O | R,
        |a| inverse_hermitian(a.input, a.s, Some(a.dim), a.norm),
        "The inverse of `hfft2`.")
    .samples("f32[3, 4]; f64[3, 4, 2], (5, 2), (0, 1), 'ortho'"),
    compose("fft.fftn", "(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None)", F | O | R,
        |a| Many::of(a.input, a.s, a.dim)?.any(a.input, a.norm, true),
        "The Fourier transform along several dimensions.")
    .samples("f32[3, 4]; c64[3, 4, 2], (5, 2); f32[()]")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.ifftn", "(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None)", F | O | R,
        |a| Many::of(a.input, a.s, a.dim)?.any(a.input, a.norm, false),
        "The inverse of `fftn`.")
    .samples("f32[3, 4]; c64[3, 4, 2], dim=(0, 2)")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.rfftn", "(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None)", F | O | R,
        |a| real(a.input, a.s, a.dim, a.norm),
        "The half that says all of the Fourier transform of real numbers along several dimensions.")
    .samples("f32[3, 4]; f64[3, 4, 2], (5, 2)")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.irfftn", "(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None)", F | O | R,
        |a| inverse(a.input, a.s, a.dim, a.norm),
        "The inverse of `rfftn`.")
    .samples("c64[3, 4]; c128[3, 4, 2], (5, 3)")
    .amp(Cast::Single, Cast::Kept),
    compose("fft.hfftn", "(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None)", F | O | R,
        |a| hermitian(a.input, a.s, a.dim, a.norm),
        "The Fourier transform of a Hermitian signal along several dimensions.")
    .samples("c64[3, 4]; c128[3, 4, 2], (5, 3)"),
    compose("fft.ihfftn", "(Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None)", F | O | R,
        |a| inverse_hermitian(a.input, a.s, a.dim, a.norm),
        "The inverse of `hfftn`.")
    .samples("f32[3, 4]; f64[3, 4, 2], (5, 2)"),
    compose("fft.fftshift", "(Tensor self, int[1]? dim=None)", F,
        |a| shift(a.input, a.dim, |n| n / 2),
        "Zero frequency moved to the middle.")
    .samples("f32[3, 4]; i64[5], 0"),
    compose("fft.ifftshift", "(Tensor self, int[1]? dim=None)", F,
        |a| shift(a.input, a.dim, |n| (n + 1) / 2),
        "The inverse of `fftshift`.")
    .samples("f32[3, 4]; i64[5], 0"),
    kernel("fft.fftfreq", "(int n, float d=1.0, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)", F | O | R,
        body!(|a| frequencies(a.n, "fftfreq", a.dtype, a.device), |a, _, outs| write_frequencies(&outs[0], a.n, a.d, (a.n + 1) / 2)),
        "The frequencies of the results of a transform of n values, d apart.")
    .samples("5, 0.1, device=dev; 4, dtype=f64, device=dev").no_grad(),
    kernel("fft.rfftfreq", "(int n, float d=1.0, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)", F | O | R,
        body!(|a| frequencies(a.n / 2 + 1, "rfftfreq", a.dtype, a.device), |a, _, outs| write_frequencies(&outs[0], a.n, a.d, a.n)),
        "The frequencies of the results of `rfft` of n values, d apart.")
    .samples("5, 0.1, device=dev; 4, dtype=f64, device=dev").no_grad(),
];

/// The number of a norm's name: 0 none, 1 orthonormal, 2 divided by the number of values.
fn normalization(norm: Option<&str>, forward: bool) -> Result<i64> {
    Ok(match norm {
        None | Some("backward") => 2 * i64::from(!forward),
        Some("forward") => 2 * i64::from(forward),
        Some("ortho") => 1,
        Some(other) => bail!(Runtime, "Invalid normalization mode: \"{other}\""),
    })
}

/// The values in a type that transforms have; `complex`: a complex one.
fn promoted(t: &Tensor, complex: bool) -> Result<Tensor> {
    let d = t.dtype();
    let d = if d.is_integral(true) {
        mode::default_dtype()
    } else {
        d
    };
    // Half precision has kernels on GPUs alone.
    let half = d == DType::F16 && !at_hand(t);
    ensure!(
        d.is_complex() || matches!(d, DType::F32 | DType::F64) || half,
        Runtime,
        "Unsupported dtype {}",
        d.scalar_type()
    );
    let d = if complex { d.to_complex() } else { d };
    if d == t.dtype() {
        return Ok(t.clone());
    }
    f::to_dtype(t, d)
}

/// The values of dimensions cut off or padded with zeros to these sizes.
fn resized(t: &Tensor, dims: &[usize], sizes: &[i64]) -> Result<Tensor> {
    let mut t = t.clone();
    let mut pad = vec![0; 2 * t.ndim()];
    for (&d, &n) in dims.iter().zip(sizes) {
        let have = t.shape()[d];
        if have < n {
            pad[2 * (t.ndim() - 1 - d) + 1] = n - have;
        }
        if have > n {
            t = f::narrow(&t, d as i64, 0, n)?;
        }
    }
    if pad.iter().all(|n| *n == 0) {
        return Ok(t);
    }
    f::constant_pad_nd(&t, &pad)
}

fn check_points(n: i64) -> Result<()> {
    ensure!(
        n >= 1,
        Runtime,
        "Invalid number of data points ({n}) specified"
    );
    Ok(())
}

fn indices(dims: &[usize]) -> Dims {
    dims.iter().map(|d| *d as i64).collect()
}

/// A transform along one dimension.
struct Line<'a> {
    n: Option<i64>,
    dim: i64,
    norm: Option<&'a str>,
    forward: bool,
}

impl<'a> Line<'a> {
    fn of(n: Option<i64>, dim: i64, norm: Option<&'a str>, forward: bool) -> Self {
        Self {
            n,
            dim,
            norm,
            forward,
        }
    }

    /// The dimension, and the values with as many along it as are transformed.
    fn sized(&self, t: &Tensor) -> Result<(usize, Tensor)> {
        let d = dimension(t, self.dim)?;
        let n = self.n.unwrap_or(t.shape()[d]);
        check_points(n)?;
        Ok((d, resized(t, &[d], &[n])?))
    }

    fn any(&self, t: &Tensor, name: &str) -> Result<Tensor> {
        if !t.dtype().is_complex() {
            return self.real(t, name, false);
        }
        let (d, t) = self.sized(t)?;
        let norm = normalization(self.norm, self.forward)?;
        f::_fft_c2c(&t, &[d as i64], norm, self.forward)
    }

    fn real(&self, t: &Tensor, name: &str, onesided: bool) -> Result<Tensor> {
        ensure!(
            !t.dtype().is_complex(),
            Runtime,
            "{name} expects a real input tensor, but got {}",
            t.dtype().scalar_type()
        );
        let (d, t) = self.sized(&promoted(t, false)?)?;
        let norm = normalization(self.norm, self.forward)?;
        let made = f::_fft_r2c(&t, &[d as i64], norm, onesided)?;
        if self.forward {
            Ok(made)
        } else {
            f::conj(&made)
        }
    }

    fn inverse(&self, t: &Tensor) -> Result<Tensor> {
        let t = promoted(t, true)?;
        let d = dimension(&t, self.dim)?;
        let n = self.n.unwrap_or(2 * (t.shape()[d] - 1));
        check_points(n)?;
        let t = match self.n {
            Some(_) => resized(&t, &[d], &[n / 2 + 1])?,
            None => t,
        };
        let norm = normalization(self.norm, self.forward)?;
        let t = if self.forward { f::conj(&t)? } else { t };
        f::_fft_c2r(&t, &[d as i64], norm, n)
    }
}

/// A transform along several dimensions.
struct Many {
    dims: Vec<usize>,
    sizes: Vec<i64>,
    /// The last size was given.
    last_given: bool,
}

impl Many {
    /// # Errors
    /// PyTorch's texts if dimensions or sizes do not fit.
    fn of(t: &Tensor, sizes: Option<&[i64]>, dims: Option<&[i64]>) -> Result<Self> {
        let ndim = t.ndim();
        let mut own = Vec::new();
        for &d in dims.unwrap_or_default() {
            own.push(dimension(t, d)?);
        }
        let mut sorted = own.clone();
        sorted.sort_unstable();
        sorted.dedup();
        ensure!(
            sorted.len() == own.len(),
            Runtime,
            "FFT dims must be unique"
        );
        if let Some(s) = sizes {
            ensure!(
                dims.is_none_or(|d| d.len() == s.len()),
                Runtime,
                "When given, dim and shape arguments must have the same length"
            );
            ensure!(
                s.len() <= ndim,
                Runtime,
                "Got shape with {} values but input tensor only has {ndim} dimensions.",
                s.len()
            );
        }
        if dims.is_none() {
            let count = sizes.map_or(ndim, <[i64]>::len);
            own = (ndim - count..ndim).collect();
        }
        let size = |(i, d): (usize, &usize)| match sizes.map(|s| s[i]) {
            None | Some(-1) => t.shape()[*d],
            Some(n) => n,
        };
        let made: Vec<i64> = own.iter().enumerate().map(size).collect();
        made.iter().try_for_each(|n| check_points(*n))?;
        Ok(Self {
            last_given: sizes.is_some_and(|s| s.last().is_some_and(|n| *n != -1)),
            dims: own,
            sizes: made,
        })
    }

    fn any(&self, t: &Tensor, norm: Option<&str>, forward: bool) -> Result<Tensor> {
        let t = self.sized(t, true)?;
        let norm = normalization(norm, forward)?;
        f::_fft_c2c(&t, &indices(&self.dims), norm, forward)
    }

    /// The values in a type that transforms have, cut off or padded to the sizes.
    fn sized(&self, t: &Tensor, complex: bool) -> Result<Tensor> {
        resized(&promoted(t, complex)?, &self.dims, &self.sizes)
    }

    fn check(&self, name: &str) -> Result<()> {
        ensure!(
            !self.dims.is_empty(),
            Runtime,
            "{name} must transform at least one axis"
        );
        Ok(())
    }

    /// The size of the last dimension of a real result; the sizes become those of the half that it is made of.
    fn halved(&mut self, t: &Tensor, name: &str) -> Result<i64> {
        self.check(name)?;
        let at = self.dims.len() - 1;
        let n = if self.last_given {
            self.sizes[at]
        } else {
            2 * (t.shape()[self.dims[at]] - 1)
        };
        check_points(n)?;
        self.sizes[at] = n / 2 + 1;
        Ok(n)
    }
}

type List<'a> = Option<&'a [i64]>;

fn real(t: &Tensor, s: List, dim: List, norm: Option<&str>) -> Result<Tensor> {
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        "rfftn expects a real-valued input tensor, but got {}",
        t.dtype().scalar_type()
    );
    let many = Many::of(t, s, dim)?;
    many.check("rfftn")?;
    let t = many.sized(t, false)?;
    let norm = normalization(norm, true)?;
    f::_fft_r2c(&t, &indices(&many.dims), norm, true)
}

fn inverse(t: &Tensor, s: List, dim: List, norm: Option<&str>) -> Result<Tensor> {
    let mut many = Many::of(t, s, dim)?;
    let n = many.halved(t, "irfftn")?;
    let t = many.sized(t, true)?;
    let norm = normalization(norm, false)?;
    f::_fft_c2r(&t, &indices(&many.dims), norm, n)
}

fn hermitian(t: &Tensor, s: List, dim: List, norm: Option<&str>) -> Result<Tensor> {
    let mut many = Many::of(t, s, dim)?;
    let n = many.halved(t, "hfftn")?;
    let t = many.sized(t, true)?;
    let norm = normalization(norm, true)?;
    let dims = indices(&many.dims);
    let (others, last) = dims.split_at(dims.len() - 1);
    let t = if others.is_empty() {
        t
    } else {
        f::_fft_c2c(&t, others, norm, true)?
    };
    f::_fft_c2r(&f::conj(&t)?, last, norm, n)
}

fn inverse_hermitian(t: &Tensor, s: List, dim: List, norm: Option<&str>) -> Result<Tensor> {
    let many = Many::of(t, s, dim)?;
    many.check("ihfftn")?;
    let t = many.sized(t, false)?;
    let norm = normalization(norm, false)?;
    let dims = indices(&many.dims);
    let (others, last) = dims.split_at(dims.len() - 1);
    let half = f::_fft_r2c(&t, last, norm, true)?;
    if others.is_empty() {
        return f::conj(&half);
    }
    f::_fft_c2c(&f::conj_physical(&half)?, others, norm, false)
}

/// The values rolled along dimensions, all unless some are named.
fn shift(t: &Tensor, dims: List, by: fn(i64) -> i64) -> Result<Tensor> {
    let dims: Vec<usize> = match dims {
        Some(dims) => dims
            .iter()
            .map(|d| dimension(t, *d))
            .collect::<Result<_>>()?,
        None => (0..t.ndim()).collect(),
    };
    let shifts: Vec<i64> = dims.iter().map(|d| by(t.shape()[*d])).collect();
    f::Roll::new(t, &shifts).dims(&indices(&dims)[..]).call()
}

fn frequencies(
    count: i64,
    name: &str,
    dtype: Option<DType>,
    device: Option<Device>,
) -> Result<Plan> {
    let dtype = dtype.unwrap_or_else(mode::default_dtype);
    ensure!(
        dtype.is_float() || dtype.is_complex(),
        Runtime,
        "{name} requires a floating point or complex dtype"
    );
    dtype.check_float_kernel("arange_cpu")?;
    let device = device.unwrap_or_else(mode::default_device);
    Ok(Plan::contiguous(&[count], dtype).on(device))
}

/// Multiples of 1 / (n d); those from `turn` on are negative.
fn write_frequencies(out: &Tensor, n: i64, d: f64, turn: i64) -> Result<()> {
    // PyTorch multiplies by the unit in the result's type.
    let unit = Scalar::Float(1.0 / (n as f64 * d));
    let unit = halves::rounded(unit, out.dtype()).to_f64();
    let single = out.dtype() != DType::F64;
    write_with(out, |i| {
        let i = if i >= turn { i - n } else { i };
        Scalar::Float(if single {
            f64::from(i as f32 * unit as f32)
        } else {
            i as f64 * unit
        })
    })
}
