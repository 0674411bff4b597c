//! Convolutions with one channel a group: sums without gathering.

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

/// A transposed convolution of one channel a group as an ordinary one, of the input with zeros between its elements and
/// with the window turned round; `None` where those zeros would be most of the work. `x` is laid out as the geometry says.
pub(super) fn turned(
    x: &Tensor,
    w: &Tensor,
    g: &Geometry,
) -> Result<Option<(Tensor, Tensor, Geometry)>> {
    let spread = |i: usize| (g.size[i] as i64 - 1).saturating_mul(g.stride[i]) + 1;
    let size: [i64; 3] = std::array::from_fn(spread);
    let room = 4 * (g.positions() + g.size.iter().product::<usize>()) as i64;
    let needed = size.iter().fold(1i64, |a, &b| a.saturating_mul(b));
    if x.numel() == 0 || needed > room {
        return Ok(None);
    }
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
        match (self.g.channels_last, self.multiplier) {
            (true, 1) => self.pixels(),
            (false, _) => self.planes(),
            (true, _) => self.lines(),
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

    /// Row-major images: a plane of outputs at a time, from a copy of the plane that has zeros around it.
    fn planes(&self) {
        let (g, taps, plane, positions) = (self.g, self.taps, self.plane, self.positions);
        let frame = Frame::of(g, self.phase);
        let grain = (32768 / (positions * taps).max(1)).max(1);
        pool::parallel_for(g.batch * g.outputs, grain, |range| {
            let mut framed = vec![T::default(); frame.volume()];
            let mut held = None;
            for i in range {
                let (n, o) = (i / g.outputs, i % g.outputs);
                let channel = n * g.inputs + o / self.multiplier;
                // SAFETY: planes of the dense tensors; one output plane a step.
                let (from, to) = unsafe {
                    let from = self.src.get().cast::<T>().add(channel * plane);
                    let to = self.dst.get().cast::<T>().add(i * positions);
                    (
                        std::slice::from_raw_parts(from, plane),
                        std::slice::from_raw_parts_mut(to, positions),
                    )
                };
                let (phase, w) = (self.phase, &self.w[o * taps..(o + 1) * taps]);
                let bias = self.bias_of(o);
                let (x, at, size) = if frame.is_none() {
                    (from, &phase.taps, g.size)
                } else {
                    if held != Some(channel) {
                        frame.fill(&mut framed, from, g.size);
                        held = Some(channel);
                    }
                    (&framed[..], &frame.taps, frame.size)
                };
                slide::<T>(to, x, w, at, phase.advance, size, g.out, bias);
            }
        });
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

/// Zeros around a plane, so that all taps of all outputs lie within it.
struct Frame {
    front: [usize; 3],
    size: [usize; 3],
    /// The taps as they lie in the framed plane.
    taps: Vec<Tap>,
}

impl Frame {
    fn of(g: &Geometry, phase: &Phase) -> Self {
        let all = |i: usize| phase.taps.iter().map(move |t| t.at[i]);
        let front: [i64; 3] = std::array::from_fn(|i| -all(i).min().unwrap_or(0).min(0));
        let size = std::array::from_fn(|i| {
            let last = (g.out[i] as i64 - 1) * phase.advance[i] + all(i).max().unwrap_or(0);
            (front[i] + (last + 1).max(g.size[i] as i64)) as usize
        });
        let shifted = |t: &Tap| Tap {
            weight: t.weight,
            at: std::array::from_fn(|i| t.at[i] + front[i]),
        };
        Self {
            front: front.map(|f| f as usize),
            size,
            taps: phase.taps.iter().map(shifted).collect(),
        }
        .if_useful(g)
    }

    /// No frame where none is needed, or where it would be most of the plane.
    fn if_useful(self, g: &Geometry) -> Self {
        let needed = self.size.iter().fold(1usize, |a, &b| a.saturating_mul(b));
        let most = 4 * g.size.iter().product::<usize>() + 4 * g.positions();
        if needed <= most && self.size != g.size {
            return self;
        }
        Self {
            size: [0; 3],
            ..self
        }
    }

    fn is_none(&self) -> bool {
        self.volume() == 0
    }

    fn volume(&self) -> usize {
        self.size.iter().product()
    }

    /// Puts a plane of `size` into its frame, whose zeros are there.
    fn fill<T: Copy>(&self, framed: &mut [T], plane: &[T], size: [usize; 3]) {
        for (row, line) in plane.chunks_exact(size[2].max(1)).enumerate() {
            let (d, h) = (row / size[1] + self.front[0], row % size[1] + self.front[1]);
            let start = (d * self.size[1] + h) * self.size[2] + self.front[2];
            framed[start..start + line.len()].copy_from_slice(line);
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

/// `C` neighbouring outputs of a row, from the starts of their lines and the weights.
#[inline(always)]
fn chunk<T: Real, const C: usize, const STEP: usize>(
    out: &mut [T],
    x: &[T],
    lines: &[(usize, T)],
    shift: usize,
    bias: T,
) {
    let mut sum = [bias; C];
    for &(start, w) in lines {
        let from = &x[start + shift..][..(C - 1) * STEP + 1];
        for i in 0..C {
            sum[i] = sum[i].fma(from[i * STEP], w);
        }
    }
    out[..C].copy_from_slice(&sum);
}

/// The outputs `lo..hi` of a row, for which all lines lie within the input; the last chunk overlaps its neighbour.
#[inline(always)]
fn middle<T: Real, const STEP: usize>(out: &mut [T], x: &[T], lines: &[(usize, T)], bias: T) {
    let n = out.len();
    macro_rules! by {
        ($c:literal) => {
            for j in (0..n).step_by($c) {
                let j = j.min(n - $c);
                chunk::<T, $c, STEP>(&mut out[j..], x, lines, j * STEP, bias);
            }
        };
    }
    if n >= 16 {
        by!(16);
    } else if n >= 8 {
        by!(8);
    } else {
        by!(1);
    }
}

simd_fn! { wide
    /// A plane of outputs from a plane of inputs.
    #[allow(clippy::too_many_arguments)]
    fn slide<T: Real>(out: &mut [T], x: &[T], w: &[T], taps: &[Tap], advance: [i64; 3], size: [usize; 3], count: [usize; 3], bias: T) {
        // Columns that all taps have an input for.
        let (mut lo, mut hi) = (0, count[2]);
        for tap in taps {
            let (a, b) = inside(count[2], advance[2], tap.at[2], size[2]);
            (lo, hi) = (lo.max(a), hi.min(b));
        }
        hi = hi.max(lo);
        // Other steps than 1 and 2 are rare: all columns are made like those at the edges.
        if advance[2] > 2 {
            (lo, hi) = (0, 0);
        }
        let mut lines: Vec<(usize, T)> = Vec::with_capacity(taps.len());
        for (row, to) in out.chunks_exact_mut(count[2]).enumerate() {
            lines.clear();
            let base = [(row / count[1]) as i64 * advance[0], (row % count[1]) as i64 * advance[1]];
            for edge in (0..lo.min(count[2])).chain(hi..count[2]) {
                let at = edge as i64 * advance[2];
                let mut sum = bias;
                for (tap, &k) in taps.iter().zip(w) {
                    let p = [base[0] + tap.at[0], base[1] + tap.at[1], at + tap.at[2]];
                    if (0..3).all(|i| p[i] >= 0 && p[i] < size[i] as i64) {
                        sum = sum.fma(x[(p[0] as usize * size[1] + p[1] as usize) * size[2] + p[2] as usize], k);
                    }
                }
                to[edge] = sum;
            }
            if lo >= hi {
                continue;
            }
            for (tap, &k) in taps.iter().zip(w) {
                let (y, z) = (base[0] + tap.at[0], base[1] + tap.at[1]);
                if y >= 0 && y < size[0] as i64 && z >= 0 && z < size[1] as i64 {
                    let x0 = (lo as i64 * advance[2] + tap.at[2]) as usize;
                    lines.push(((y as usize * size[1] + z as usize) * size[2] + x0, k));
                }
            }
            if advance[2] == 1 {
                middle::<T, 1>(&mut to[lo..hi], x, &lines, bias);
            } else {
                middle::<T, 2>(&mut to[lo..hi], x, &lines, bias);
            }
        }
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
