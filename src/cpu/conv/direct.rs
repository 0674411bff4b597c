//! Convolutions with one channel a group and the channels innermost: sums of lines, tap after tap, without gathering.

#![allow(unsafe_code, reason = "slices of checked layouts for each thread")]

use super::super::lines::Shared;
use super::{Geometry, Phase, Tap, inside};
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, fill, pool, slice};
use crate::{DType, Device, Dims, Element, Result, Scalar, Tensor};

/// One channel a group: sums without gathering.
pub(super) fn direct(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    let phases = g.phases();
    let Some(phase) = phases.first() else {
        return Ok(());
    };
    let w = copy::dense(w, w.dtype())?;
    let bias = bias.map(|b| copy::dense(b, b.dtype())).transpose()?;
    if out.dtype() == DType::F32 {
        Direct::<f32>::new(out, x, &w, bias.as_ref(), g, phase).run();
    } else {
        Direct::<f64>::new(out, x, &w, bias.as_ref(), g, phase).run();
    }
    Ok(())
}

/// The sizes of an input with zeros between its elements; `None` where those would be most of the work.
pub(super) fn spread(x: &Tensor, g: &Geometry) -> Option<[i64; 3]> {
    let spread = |i: usize| (g.size[i] as i64 - 1).saturating_mul(g.stride[i]) + 1;
    let size: [i64; 3] = std::array::from_fn(spread);
    let room = 4 * (g.positions() + g.size.iter().product::<usize>()) as i64;
    let needed = size.iter().fold(1i64, |a, &b| a.saturating_mul(b));
    (x.numel() > 0 && needed <= room).then_some(size)
}

/// A transposed convolution of one channel a group as an ordinary one, of the input with zeros between its elements and
/// with the window turned round; `None` where those zeros would be most of the work. `x` is laid out as the geometry says.
pub(super) fn turned(
    x: &Tensor,
    w: &Tensor,
    g: &Geometry,
) -> Result<Option<(Tensor, Tensor, Geometry)>> {
    let Some(size) = spread(x, g) else {
        return Ok(None);
    };
    let ordinary = Geometry {
        size: size.map(|s| s as usize),
        stride: [1; 3],
        pad: std::array::from_fn(|i| g.dilation[i] * (g.window[i] as i64 - 1) - g.pad[i]),
        transposed: false,
        ..g.clone()
    };
    let taps = g.window.iter().product::<usize>() as i64;
    let shape = Dims::from([g.outputs as i64, taps]);
    let w = copy::dense(w, w.dtype())?;
    let w = w.view_with(shape.clone(), [taps, 1].into(), w.offset());
    let back = Tensor::empty(&shape, w.dtype(), Device::CPU)?;
    for i in 0..taps {
        copy::copy(&back.narrowed(1, i, 1), &w.narrowed(1, taps - 1 - i, 1))?;
    }
    if g.stride == [1; 3] {
        return Ok(Some((x.clone(), back, ordinary)));
    }
    let first = if g.channels_last { 1 } else { 2 };
    let n = x.ndim() - 2;
    let mut shape = x.shape().clone();
    for i in 0..n {
        shape[first + i] = size[3 - n + i];
    }
    let wide = Tensor::empty(&shape, x.dtype(), Device::CPU)?;
    fill(&wide, Scalar::Int(0))?;
    let mut strides = wide.strides().clone();
    for i in 0..n {
        strides[first + i] *= g.stride[3 - n + i];
    }
    copy::copy(&wide.view_with(x.shape().clone(), strides, 0), x)?;
    Ok(Some((wide, back, ordinary)))
}

/// Each channel as often as it has outputs, side by side (`x` itself, if that is once), and the geometry of one output a
/// channel; `x` has its channels innermost.
pub(super) fn repeated(x: &Tensor, g: &Geometry) -> Result<(Tensor, Geometry)> {
    let times = (g.outputs / g.inputs) as i64;
    let (shape, strides) = (x.shape(), x.strides());
    let wide = x.view_with(shape.concat(&[times]), strides.concat(&[0]), x.offset());
    let each = Geometry {
        inputs: g.outputs,
        groups: g.outputs,
        ..g.clone()
    };
    Ok((copy::dense(&wide, x.dtype())?, each))
}

/// Elements that one step of a loop over pixels covers, where neighbours are read together: enough for vectors.
const WIDTH: usize = 64;

/// Elements of a line that are summed at a time, as they stay in the first cache.
const PIECE: usize = 2048;

/// Elements that the factors of a tap are written out for: those of one pixel, or of several if these are neighbours.
pub(super) fn tile(g: &Geometry, phase: &Phase) -> usize {
    if phase.advance[2] == 1 {
        g.inputs * WIDTH.div_ceil(g.inputs)
    } else {
        g.inputs
    }
}

/// What of a line of `count` positions from `place` on a tap meets: positions, and where the first one's input begins.
pub(super) fn met(
    g: &Geometry,
    phase: &Phase,
    tap: &Tap,
    place: [usize; 3],
    count: usize,
) -> Option<(usize, usize, usize)> {
    let at: [i64; 3] = std::array::from_fn(|i| place[i] as i64 * phase.advance[i] + tap.at[i]);
    if (0..2).any(|i| at[i] < 0 || at[i] >= g.size[i] as i64) {
        return None;
    }
    let (lo, hi) = inside(count, phase.advance[2], at[2], g.size[2]);
    if lo >= hi {
        return None;
    }
    let first = (at[2] + lo as i64 * phase.advance[2]) as usize;
    let pixel = (at[0] as usize * g.size[1] + at[1] as usize) * g.size[2] + first;
    Some((lo, hi, pixel * g.inputs))
}

/// A convolution with one channel a group and one output a channel.
struct Direct<'a, T> {
    src: Shared<u8>,
    dst: Shared<u8>,
    w: &'a [T],
    bias: Option<&'a [T]>,
    g: &'a Geometry,
    phase: &'a Phase,
}

impl<'a, T: Real + Element> Direct<'a, T> {
    fn new(
        out: &Tensor,
        x: &Tensor,
        w: &'a Tensor,
        bias: Option<&'a Tensor>,
        g: &'a Geometry,
        phase: &'a Phase,
    ) -> Self {
        Self {
            src: Shared::at(x.data_ptr()),
            dst: Shared::at(out.data_ptr()),
            w: slice(w),
            bias: bias.map(slice),
            g,
            phase,
        }
    }

    fn run(&self) {
        let (g, taps, c) = (self.g, self.phase.taps.len(), self.g.inputs);
        let plane = g.size.iter().product::<usize>() * c;
        let tile = tile(g, self.phase);
        // Weights as [tap][tile].
        let mut turned = Vec::with_capacity(taps * tile);
        for k in 0..taps {
            for _ in 0..tile / c {
                turned.extend((0..c).map(|channel| self.w[channel * taps + k]));
            }
        }
        let piece = (PIECE / tile).max(1) * tile;
        let rows = g.batch * g.out[0] * g.out[1];
        let grain = (32768 / (g.out[2] * c * taps).max(1)).max(1);
        pool::parallel_for(rows, grain, |range| {
            for row in range {
                let (n, d, h) = (
                    row / (g.out[0] * g.out[1]),
                    row / g.out[1] % g.out[0],
                    row % g.out[1],
                );
                // SAFETY: image and row lie within the dense tensors, and no other task writes the row.
                let (image, line) = unsafe {
                    let image = self.src.get().cast::<T>().add(n * plane);
                    let line = self.dst.get().cast::<T>().add(row * g.out[2] * c);
                    (
                        std::slice::from_raw_parts(image, plane),
                        std::slice::from_raw_parts_mut(line, g.out[2] * c),
                    )
                };
                for (i, part) in line.chunks_mut(piece).enumerate() {
                    self.part(part, image, &turned, [d, h, i * (piece / c)]);
                }
            }
        });
    }

    /// The sums of the pixels of a line from `place` on.
    fn part(&self, part: &mut [T], image: &[T], turned: &[T], place: [usize; 3]) {
        let (g, c) = (self.g, self.g.inputs);
        match self.bias {
            Some(b) => part.chunks_exact_mut(c).for_each(|p| p.copy_from_slice(b)),
            None => part.fill(T::default()),
        }
        let (tile, step) = (tile(g, self.phase), self.phase.advance[2] as usize * c);
        for (tap, w) in self.phase.taps.iter().zip(turned.chunks_exact(tile)) {
            let count = part.len() / c;
            if let Some((lo, hi, from)) = met(g, self.phase, tap, place, count) {
                let source = &image[from..][..(hi - lo - 1) * step + c];
                let reach = if step == c { tile } else { step };
                axpy_pixels::<T>(&mut part[lo * c..hi * c], source, reach, w);
            }
        }
    }
}

/// Real numbers with fused multiply-add.
pub(super) trait Real: Copy + Default + std::ops::Add<Output = Self> {
    fn fma(self, a: Self, b: Self) -> Self;
}
impl Real for f32 {
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}
impl Real for f64 {
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

simd_fn! { wide
    /// Adds `x * w` to pieces of `out` as long as `w`, which begin every `reach` elements of `x`.
    fn axpy_pixels<T: Real>(out: &mut [T], x: &[T], reach: usize, w: &[T]) {
        for (out, x) in out.chunks_mut(w.len()).zip(x.chunks(reach)) {
            for ((o, &v), &k) in out.iter_mut().zip(x).zip(w) {
                *o = o.fma(v, k);
            }
        }
    }
}

simd_fn! { wide
    /// Adds the products of pieces of `x` and `y` to `sum`, which begin every so many elements.
    pub(super) fn dot_pixels<T: Real>(sum: &mut [T], x: &[T], x_reach: usize, y: &[T], y_reach: usize) {
        for (x, y) in x.chunks(x_reach).zip(y.chunks(y_reach)) {
            for ((s, &a), &b) in sum.iter_mut().zip(x).zip(y) {
                *s = s.fma(a, b);
            }
        }
    }
}
