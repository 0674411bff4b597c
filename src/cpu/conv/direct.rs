//! Convolutions with one channel a group and the channels innermost: sums over the taps of each piece of a line, without gathering.

#![allow(unsafe_code, reason = "slices of checked layouts for each thread")]

use super::super::lines::Shared;
use super::pieces::{reach, segments, sum_taps, tile};
use super::{Geometry, Operands, Phase};
use crate::cpu::dense::number::Real;
use crate::cpu::{copy, fill, pool, slice};
use crate::{DType, Device, Dims, Result, Scalar, Tensor};

/// One channel a group: sums without gathering.
pub(super) fn direct(o: &Operands, g: &Geometry) -> Result<()> {
    let Operands { out, x, w, bias } = *o;
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

/// A convolution with one channel a group and one output a channel.
struct Direct<'a, T> {
    src: Shared<u8>,
    dst: Shared<u8>,
    w: &'a [T],
    bias: Option<&'a [T]>,
    g: &'a Geometry,
    phase: &'a Phase,
}

impl<'a, T: Real> Direct<'a, T> {
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
        let (tile, reach) = (tile(g, self.phase), reach(g, self.phase));
        // Weights as [tap][tile].
        let mut turned = Vec::with_capacity(taps * tile);
        for k in 0..taps {
            for _ in 0..tile / c {
                turned.extend((0..c).map(|channel| self.w[channel * taps + k]));
            }
        }
        let bias = self
            .bias
            .map_or(vec![T::zero(); tile], |b| b.repeat(tile / c));
        let segments = segments(g, self.phase);
        let rows = g.batch * g.out[0] * g.out[1];
        let grain = (32768 / (g.out[2] * c * taps).max(1)).max(1);
        pool::parallel_for(rows, grain, |range| {
            let mut met = Vec::with_capacity(taps);
            for row in range {
                let (n, d) = (row / (g.out[0] * g.out[1]), row / g.out[1] % g.out[0]);
                // SAFETY: image and row lie within the dense tensors, and no other task writes the row.
                let (image, line) = unsafe {
                    let image = self.src.get().cast::<T>().add(n * plane);
                    let line = self.dst.get().cast::<T>().add(row * g.out[2] * c);
                    (
                        std::slice::from_raw_parts(image, plane),
                        std::slice::from_raw_parts_mut(line, g.out[2] * c),
                    )
                };
                for s in &segments {
                    s.met(g, self.phase, [d, row % g.out[1]], &mut met);
                    let part = &mut line[s.lo * c..s.hi * c];
                    sum_taps(part, image, reach, &met, &turned, &bias);
                }
            }
        });
    }
}
