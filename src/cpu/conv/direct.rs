//! Convolutions with one channel a group and the channels innermost: sums without gathering.

#![allow(unsafe_code, reason = "slices of checked layouts for each thread")]

use super::super::lines::Shared;
use super::{Geometry, Phase, inside};
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

/// A convolution with one channel a group.
struct Direct<'a, T> {
    src: Shared<u8>,
    dst: Shared<u8>,
    w: &'a [T],
    bias: Option<&'a [T]>,
    g: &'a Geometry,
    phase: &'a Phase,
    taps: usize,
    /// Elements of a channel of an input image, and of an output image.
    plane: usize,
    positions: usize,
    /// Outputs of each input channel.
    multiplier: usize,
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
            taps: phase.taps.len(),
            plane: g.size.iter().product(),
            positions: g.positions(),
            multiplier: g.outputs / g.groups,
        }
    }

    fn run(&self) {
        if self.multiplier == 1 {
            self.pixels()
        } else {
            self.lines()
        }
    }

    fn bias_of(&self, o: usize) -> T {
        self.bias.map_or(T::default(), |b| b[o])
    }

    /// Channels last: the channels of a pixel are one vector operation.
    fn pixels(&self) {
        let (g, taps, c) = (self.g, self.taps, self.g.inputs);
        // Weights as [tap][channel].
        let turned: Vec<T> = (0..taps * c)
            .map(|i| self.w[i % c * taps + i / c])
            .collect();
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
                    let image = self.src.get().cast::<T>().add(n * self.plane * c);
                    let line = self.dst.get().cast::<T>().add(row * g.out[2] * c);
                    (
                        std::slice::from_raw_parts(image, self.plane * c),
                        std::slice::from_raw_parts_mut(line, g.out[2] * c),
                    )
                };
                for (w, pixel) in line.chunks_exact_mut(c).enumerate() {
                    self.pixel(pixel, image, &turned, [d, h, w]);
                }
            }
        });
    }

    fn pixel(&self, pixel: &mut [T], image: &[T], turned: &[T], place: [usize; 3]) {
        let (size, c) = (self.g.size, self.g.inputs);
        match self.bias {
            Some(b) => pixel.copy_from_slice(b),
            None => pixel.fill(T::default()),
        }
        for (k, tap) in self.phase.taps.iter().enumerate() {
            let at: [i64; 3] =
                std::array::from_fn(|i| place[i] as i64 * self.phase.advance[i] + tap.at[i]);
            if (0..3).all(|i| at[i] >= 0 && at[i] < size[i] as i64) {
                let [d, h, w] = at.map(|a| a as usize);
                let q = ((d * size[1] + h) * size[2] + w) * c;
                axpy_each::<T>(pixel, &image[q..q + c], &turned[k * c..(k + 1) * c]);
            }
        }
    }

    /// Channels last with several outputs a channel: a line of one output channel at a time.
    fn lines(&self) {
        let g = self.g;
        self.each_output(|n, o| {
            let mut line = vec![T::default(); g.out[2]];
            let start = n * self.plane * g.inputs + o / self.multiplier;
            let to = n * self.positions * g.outputs + o;
            for row in 0..g.out[0] * g.out[1] {
                line.fill(self.bias_of(o));
                self.line(&mut line, start, row, o);
                for (j, v) in line.iter().enumerate() {
                    let at = to + (row * g.out[2] + j) * g.outputs;
                    // SAFETY: positions of this output channel, which no other task writes.
                    unsafe { *self.dst.get().cast::<T>().add(at) = *v };
                }
            }
        });
    }

    /// Adds all taps to a line of output channel `o`, whose input channel begins at `start`.
    fn line(&self, line: &mut [T], start: usize, row: usize, o: usize) {
        let (g, advance) = (self.g, self.phase.advance);
        let (d, h) = ((row / g.out[1]) as i64, (row % g.out[1]) as i64);
        for (k, tap) in self.phase.taps.iter().enumerate() {
            let (y, z) = (d * advance[0] + tap.at[0], h * advance[1] + tap.at[1]);
            if y < 0 || y >= g.size[0] as i64 || z < 0 || z >= g.size[1] as i64 {
                continue;
            }
            let (lo, hi) = inside(g.out[2], advance[2], tap.at[2], g.size[2]);
            if lo >= hi {
                continue;
            }
            let x0 = (lo as i64 * advance[2] + tap.at[2]) as usize;
            let at = (y as usize * g.size[1] + z as usize) * g.size[2] + x0;
            let stride = advance[2] as usize * g.inputs;
            // SAFETY: `inside` keeps all sources within the row of the plane.
            let source = unsafe {
                let from = self.src.get().cast::<T>().add(start + at * g.inputs);
                std::slice::from_raw_parts(from, (hi - lo - 1) * stride + 1)
            };
            axpy::<T>(&mut line[lo..hi], source, stride, self.w[o * self.taps + k]);
        }
    }

    /// Calls `f` with every image and output channel, in parallel.
    fn each_output(&self, f: impl Fn(usize, usize) + Sync) {
        let outputs = self.g.outputs;
        let grain = (32768 / (self.positions * self.taps).max(1)).max(1);
        pool::parallel_for(self.g.batch * outputs, grain, |range| {
            for i in range {
                f(i / outputs, i % outputs);
            }
        });
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
    /// `out[i] += x[i * step] * w`.
    fn axpy<T: Real>(out: &mut [T], x: &[T], step: usize, w: T) {
        if step == 1 {
            for (o, &v) in out.iter_mut().zip(x) {
                *o = o.fma(v, w);
            }
        } else {
            for (o, v) in out.iter_mut().zip(x.chunks(step)) {
                *o = o.fma(v[0], w);
            }
        }
    }
}

simd_fn! { wide
    /// `out[i] += x[i] * w[i]`.
    pub(super) fn axpy_each<T: Real>(out: &mut [T], x: &[T], w: &[T]) {
        for ((o, &v), &k) in out.iter_mut().zip(x).zip(w) {
            *o = o.fma(v, k);
        }
    }
}
