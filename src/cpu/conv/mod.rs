//! Convolutions: products with windows that are read where they lie ([`windows`]), or gathered into blocks (im2col) where that
//! does not suit; one channel a group with the channels innermost is summed directly.
//!
//! A transposed convolution is a few ordinary ones, one for each residue of the output position modulo the stride.

mod backward;
mod blocks;
pub mod bytes;
mod direct;
mod fold;
mod frame;
mod gather;
mod pairs;
mod pairs_backward;
mod pieces;
mod pixels;
mod planes;
pub mod room;
mod runs;
mod tasks;
mod tiles;
mod windows;
mod winograd;
mod winograd_backward;

use super::{copy, pool};
use crate::{DType, Device, Result, Tensor};
use backward::innermost;
pub use backward::weight_gradient;
use blocks::{Block, blocks};
use direct::{direct, repeated, turned};
pub use fold::{fold, summed_in};
pub use gather::columns;
use windows::{frames_of, suits, windows};

/// Sizes of a convolution; missing leading dimensions have size 1.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub inputs: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Spatial sizes of the input.
    pub size: [usize; 3],
    /// Spatial sizes of the output.
    pub out: [usize; 3],
    /// Sizes of the window.
    pub window: [usize; 3],
    /// Steps of the window.
    pub stride: [i64; 3],
    /// Zeros in front.
    pub pad: [i64; 3],
    /// Steps within the window.
    pub dilation: [i64; 3],
    /// Gradient-like direction: each input is spread over a window.
    pub transposed: bool,
    /// Channels innermost in memory.
    pub channels_last: bool,
    /// Whether numbers are integers whose sums fit their type: in no way that would round.
    pub exact: bool,
}

/// One place in the window: which weight, and where the input lies relative to the output's position.
#[derive(Clone, Copy)]
struct Tap {
    weight: usize,
    at: [i64; 3],
}

/// An ordinary convolution with output positions `first + step * t`.
struct Phase {
    taps: Vec<Tap>,
    /// Input steps for each `t`.
    advance: [i64; 3],
    first: [usize; 3],
    step: [usize; 3],
    count: [usize; 3],
}

impl Phase {
    /// The window is one element and the output as large as the input: the input is the block.
    fn is_plain(&self, g: &Geometry) -> bool {
        let one = self.taps.len() == 1 && self.taps[0].at == [0; 3];
        one && self.advance == [1; 3] && self.count == g.size
    }
}

impl Geometry {
    fn positions(&self) -> usize {
        self.out.iter().product()
    }

    fn taps_where(&self, at: impl Fn(usize, i64) -> Option<i64>) -> Vec<Tap> {
        let [kd, kh, kw] = self.window;
        let mut taps = Vec::with_capacity(kd * kh * kw);
        for d in 0..kd {
            for h in 0..kh {
                for w in 0..kw {
                    if let (Some(a), Some(b), Some(c)) =
                        (at(0, d as i64), at(1, h as i64), at(2, w as i64))
                    {
                        taps.push(Tap {
                            weight: (d * kh + h) * kw + w,
                            at: [a, b, c],
                        });
                    }
                }
            }
        }
        taps
    }

    fn phases(&self) -> Vec<Phase> {
        if !self.transposed {
            let taps = self.taps_where(|i, k| Some(k * self.dilation[i] - self.pad[i]));
            return vec![Phase {
                taps,
                advance: self.stride,
                first: [0; 3],
                step: [1; 3],
                count: self.out,
            }];
        }
        let step = self.stride.map(|s| s as usize);
        let mut phases = Vec::new();
        for d in 0..step[0].min(self.out[0]) {
            for h in 0..step[1].min(self.out[1]) {
                for w in 0..step[2].min(self.out[2]) {
                    let first = [d, h, w];
                    let taps = self.taps_where(|i, k| {
                        let v = first[i] as i64 + self.pad[i] - k * self.dilation[i];
                        (v.rem_euclid(self.stride[i]) == 0).then(|| v.div_euclid(self.stride[i]))
                    });
                    let count = std::array::from_fn(|i| (self.out[i] - first[i]).div_ceil(step[i]));
                    phases.push(Phase {
                        taps,
                        advance: [1; 3],
                        first,
                        step,
                        count,
                    });
                }
            }
        }
        phases
    }
}

/// Where the indices `t` in `0..count` with `0 <= t * advance + at < size` begin and end.
#[inline(always)]
fn inside(count: usize, advance: i64, at: i64, size: usize) -> (usize, usize) {
    // Most windows move by one, and a division takes longer than all else here.
    let steps = |n: i64| {
        if advance == 1 {
            n
        } else {
            (n + advance - 1) / advance
        }
    };
    let lo = if at >= 0 { 0 } else { steps(-at) };
    let left = size as i64 - at;
    let hi = if left <= 0 { 0 } else { steps(left) };
    let hi = hi.clamp(0, count as i64);
    (lo.clamp(0, hi) as usize, hi as usize)
}

/// What a convolution reads and writes.
#[derive(Clone, Copy)]
struct Operands<'a> {
    out: &'a Tensor,
    x: &'a Tensor,
    w: &'a Tensor,
    bias: Option<&'a Tensor>,
}

/// The convolution of `x` with `w` (and `bias`) into `out`, which is dense in the geometry's format.
///
/// # Errors
/// If memory cannot be had, or the dtype has no products.
pub fn convolve(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let x = if g.channels_last {
        innermost(x, x.dtype())?
    } else {
        copy::dense(x, x.dtype())?
    };
    let o = Operands {
        out,
        x: &x,
        w,
        bias,
    };
    if g.channels_last && g.groups == g.inputs && g.inputs > 1 && out.dtype().is_float() {
        if !g.transposed {
            let (x, g) = repeated(&x, g)?;
            return channels(&Operands { x: &x, ..o }, &g);
        }
        if g.outputs == g.inputs
            && let Some((x, w, g)) = turned(&x, w, g)?
        {
            return channels(&Operands { x: &x, w: &w, ..o }, &g);
        }
    }
    let phases = g.phases();
    if in_single(&phases, out.dtype(), g) {
        return wider(&o, |o| convolve_phases(o, g, &phases));
    }
    convolve_phases(&o, g, &phases)
}

/// Whether a convolution of 16-bit numbers is computed in single precision: there are windows to be read in place, and not on
/// tiles.
fn in_single(phases: &[Phase], dtype: DType, g: &Geometry) -> bool {
    let wide = |p: &Phase| suits(g, p, DType::F32) && !pairs::suits(g, p, dtype);
    dtype.is_reduced_float() && phases.iter().any(wide)
}

/// All phases of a convolution of `x`, which is laid out as the geometry says.
fn convolve_phases(o: &Operands, g: &Geometry, phases: &[Phase]) -> Result<()> {
    let bias = o.bias.map(|b| copy::dense(b, b.dtype())).transpose()?;
    let bias = bias.as_ref();
    let o = &Operands { bias, ..*o };
    for phase in phases {
        let plan = winograd::Plan::of(g, phase, o.out.dtype(), pool::num_threads());
        if let Some(plan) = plan
            && winograd::winograd(&plan, o, g, phase)?
        {
            continue;
        }
        let d = o.out.dtype();
        if pairs::suits(g, phase, d) {
            pairs::convolve(o, g, phase)?;
            continue;
        }
        match frames_of(g, phase, d) {
            None => blocks(o, g, phase)?,
            Some(frames) if d == DType::F32 => windows::<f32>(o, frames)?,
            Some(frames) => windows::<f64>(o, frames)?,
        }
    }
    Ok(())
}

/// Computes in single precision what is rounded once.
fn wider(o: &Operands, f: impl Fn(&Operands) -> Result<()>) -> Result<()> {
    let wide = |t: &Tensor| copy::converted(t, DType::F32);
    let (shape, strides) = (o.out.shape().clone(), o.out.strides().clone());
    let sum = Tensor::empty_strided(shape, strides, DType::F32, Device::CPU)?;
    let bias = o.bias.map(wide).transpose()?;
    f(&Operands {
        out: &sum,
        x: &wide(o.x)?,
        w: &wide(o.w)?,
        bias: bias.as_ref(),
    })?;
    copy::copy(o.out, &sum)
}

/// One channel a group, in single or double precision; `x` is laid out as the geometry says.
fn channels(o: &Operands, g: &Geometry) -> Result<()> {
    if matches!(o.out.dtype(), DType::F32 | DType::F64) {
        return direct(o, g);
    }
    wider(o, |o| direct(o, g))
}
