//! Backward of poolings: gradients go to the maxima's places, or evenly over windows.

#![allow(unsafe_code, reason = "walks planes of dense tensors")]

use super::lines::Shared;
use super::pooling::{Sum, Window, Windows, plus};
use super::{copy, fill, pool};
use crate::{DType, Device, MemoryFormat, Result, Scalar, Tensor, bail, dims};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A gradient of pooled elements on its way to the elements that were pooled.
pub struct Spread<'a> {
    /// Spatial dimensions.
    pub n: usize,
    /// The format that the kernel reads and writes.
    pub format: MemoryFormat,
    /// Where it goes.
    pub to: To<'a>,
}

/// Where the gradient of a window goes.
pub enum To<'a> {
    /// To one element of each plane: its position. No position is -1.
    Places(&'a Tensor),
    /// To all elements of the window, divided by this number or by that of the elements.
    Windows {
        /// The windows of all planes.
        windows: &'a Windows,
        /// A fixed divisor.
        divisor: Option<i64>,
        /// Whether padding counts as elements.
        padding: bool,
    },
}

/// Sizes of the tensors: planes outside, channels inside (1 where each plane is one channel).
#[derive(Clone, Copy)]
struct Layout {
    planes: usize,
    size: [usize; 3],
    out: [usize; 3],
    inner: usize,
}

/// Real numbers that gradients are summed in.
trait Real: Sum {
    fn over(self, n: i64) -> Self;
}
impl Real for f32 {
    fn over(self, n: i64) -> Self {
        self / n as f32
    }
}
impl Real for f64 {
    fn over(self, n: i64) -> Self {
        self / n as f64
    }
}

impl Spread<'_> {
    /// Spreads `grad` over `out`, which has the shape of the input.
    ///
    /// # Errors
    /// If memory cannot be had, or a position lies outside of its plane.
    pub fn run(&self, out: &Tensor, grad: &Tensor) -> Result<()> {
        let wide = if out.dtype() == DType::F64 {
            DType::F64
        } else {
            DType::F32
        };
        let strides = dims::format_strides(out.shape(), self.format)?;
        let sum = if out.dtype() == wide && *out.strides() == strides {
            out.clone()
        } else {
            Tensor::empty_strided(out.shape().clone(), strides, wide, Device::CPU)?
        };
        fill(&sum, Scalar::Int(0))?;
        if grad.numel() > 0 && out.numel() > 0 {
            let layout = self.layout(grad, out);
            if wide == DType::F32 {
                self.typed::<f32>(&sum, grad, wide, layout)?;
            } else {
                self.typed::<f64>(&sum, grad, wide, layout)?;
            }
        }
        if sum.shares_storage(out) {
            Ok(())
        } else {
            copy::copy(out, &sum)
        }
    }

    fn typed<T: Real>(&self, out: &Tensor, grad: &Tensor, wide: DType, l: Layout) -> Result<()> {
        let grad = self.laid(grad, wide)?;
        let from = super::slice::<T>(&grad);
        match &self.to {
            To::Places(at) => {
                let at = self.laid(at, DType::I64)?;
                scatter(out, from, super::slice::<i64>(&at), l)
            }
            To::Windows {
                windows,
                divisor,
                padding,
            } => {
                let count = |w: [&Window; 3]| {
                    divisor.unwrap_or_else(|| w.iter().map(|w| w.counted(*padding)).product())
                };
                share(out, from, windows, count, l);
                Ok(())
            }
        }
    }

    /// A tensor in the order of the format, dense.
    fn laid(&self, t: &Tensor, dtype: DType) -> Result<Tensor> {
        if self.format == MemoryFormat::Contiguous {
            return copy::dense(t, dtype);
        }
        let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
        copy::dense(&t.permuted(&order), dtype)
    }

    fn layout(&self, grad: &Tensor, out: &Tensor) -> Layout {
        let n = self.n;
        let triple = |t: &Tensor| -> [usize; 3] {
            let s = &t.shape()[t.ndim() - n..];
            std::array::from_fn(|i| if i + n < 3 { 1 } else { s[i + n - 3] as usize })
        };
        let lead: i64 = out.shape()[..out.ndim() - n].iter().product();
        let inner = if self.format == MemoryFormat::Contiguous {
            1
        } else {
            out.shape()[1]
        };
        Layout {
            planes: (lead / inner) as usize,
            size: triple(out),
            out: triple(grad),
            inner: inner as usize,
        }
    }
}

/// Channels of a task: all, or fewer where planes alone would leave threads idle.
fn channels(l: Layout) -> usize {
    let parts = (pool::num_threads() * 2).div_ceil(l.planes.max(1));
    l.inner.div_ceil(parts).next_multiple_of(16).min(l.inner)
}

/// Calls `f` with each plane and each range of its channels, in parallel.
fn each_plane(l: Layout, f: impl Fn(usize, std::ops::Range<usize>) + Sync) {
    let width = channels(l);
    let cuts = l.inner.div_ceil(width);
    let work = l.size.iter().product::<usize>() * width;
    pool::parallel_for(l.planes * cuts, (16384 / work.max(1)).max(1), |r| {
        for i in r {
            let first = i % cuts * width;
            f(i / cuts, first..(first + width).min(l.inner));
        }
    });
}

/// Adds each element of `from` at its place of the plane.
fn scatter<T: Real>(out: &Tensor, from: &[T], at: &[i64], l: Layout) -> Result<()> {
    let (volume, count) = (
        l.size.iter().product::<usize>(),
        l.out.iter().product::<usize>(),
    );
    let (to, outside) = (Shared::at(out.data_ptr()), AtomicBool::new(false));
    each_plane(l, |plane, channels| {
        // SAFETY: the plane lies within the dense tensor; no other task writes these channels of it.
        let base = unsafe { to.get().cast::<T>().add(plane * volume * l.inner) };
        if l.inner == 1 {
            let elements = plane * count..(plane + 1) * count;
            for (&place, &g) in at[elements.clone()].iter().zip(&from[elements]) {
                if (place as u64) < volume as u64 {
                    // SAFETY: the place has just been checked.
                    unsafe { *base.add(place as usize) = *base.add(place as usize) + g };
                } else if place != -1 {
                    outside.store(true, Relaxed);
                }
            }
            return;
        }
        for o in 0..count {
            let row = (plane * count + o) * l.inner;
            for c in channels.clone() {
                let place = at[row + c];
                if place == -1 {
                    continue;
                }
                if place < 0 || place >= volume as i64 {
                    outside.store(true, Relaxed);
                    continue;
                }
                // SAFETY: the place has just been checked.
                unsafe {
                    let target = base.add(place as usize * l.inner + c);
                    *target = *target + from[row + c];
                }
            }
        }
    });
    if outside.into_inner() {
        bail!(
            Runtime,
            "a position of a maximum lies outside of its plane of {volume} elements"
        );
    }
    Ok(())
}

/// Adds to the elements of each window their share of its gradient.
fn share<T: Real>(
    out: &Tensor,
    from: &[T],
    windows: &Windows,
    count: impl Fn([&Window; 3]) -> i64 + Sync,
    l: Layout,
) {
    let (volume, rows) = (l.size.iter().product::<usize>(), l.out[0] * l.out[1]);
    let to = Shared::at(out.data_ptr());
    each_plane(l, |plane, channels| {
        let width = if l.inner == 1 {
            l.size[2]
        } else {
            channels.len()
        };
        let mut line = vec![T::default(); width];
        for row in 0..rows {
            let (d, h) = (&windows[0][row / l.out[1]], &windows[1][row % l.out[1]]);
            let grads = &from[(plane * rows + row) * l.out[2] * l.inner..][..l.out[2] * l.inner];
            // Calls `f` with the start of each line of the plane that the row's windows reach.
            let lines = |f: &mut dyn FnMut(usize)| {
                for y in d.start..d.end {
                    for x in h.start..h.end {
                        f((plane * volume + (y * l.size[1] + x) * l.size[2]) * l.inner);
                    }
                }
            };
            // SAFETY: windows lie within the plane; no other task writes these channels of it.
            let part = |start: usize, len: usize| unsafe {
                std::slice::from_raw_parts_mut(to.get().cast::<T>().add(start), len)
            };
            if l.inner == 1 {
                line.fill(T::default());
                for (&g, w) in grads.iter().zip(&windows[2]) {
                    if w.start < w.end {
                        let g = g.over(count([d, h, w]));
                        line[w.start..w.end].iter_mut().for_each(|v| *v = *v + g);
                    }
                }
                lines(&mut |start| plus(part(start, width), &line));
                continue;
            }
            for (g, w) in grads.chunks_exact(l.inner).zip(&windows[2]) {
                let by = count([d, h, w]);
                for (v, g) in line.iter_mut().zip(&g[channels.clone()]) {
                    *v = g.over(by);
                }
                lines(&mut |start| {
                    for i in w.start..w.end {
                        plus(part(start + i * l.inner + channels.start, width), &line);
                    }
                });
            }
        }
    });
}
