//! Sampling of images and volumes at the places of a grid, and its backward: each result is a weighted sum of a few elements,
//! the product of one-dimensional weights.

#![allow(unsafe_code, reason = "walks planes of dense tensors")]

use super::lines::Shared;
use super::taps::{CUBIC, cubic, cubic_slope};
use super::{copy, pool, slice, slice_mut};
use crate::{DType, Device, Element, Result, Scalar, Tensor};

/// How values between elements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the line between neighbours.
    Linear,
    /// The nearest element.
    Nearest,
    /// On a cubic curve through four neighbours.
    Cubic,
}

/// What lies outside of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Zeros.
    Zeros,
    /// The element at the edge.
    Border,
    /// The mirror image.
    Reflection,
}

/// A sampling: the grid holds a place in every last dimension, -1 to 1 from one end of the image to the other.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// How values between elements are made.
    pub mode: Mode,
    /// What lies outside.
    pub outside: Outside,
    /// -1 and 1 are the middles of the elements at the ends, else their edges.
    pub align: bool,
}

/// Real numbers that places are computed in.
trait Real: Element + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    fn of(v: f64) -> Self;
    fn wide(self) -> f64;
}
impl Real for f32 {
    #[inline(always)]
    fn of(v: f64) -> Self {
        v as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}
impl Real for f64 {
    #[inline(always)]
    fn of(v: f64) -> Self {
        v
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

/// Places whose elements are found before the channels are read: neighbours of a channel lie side by side, channels far apart.
const RUN: usize = 64;

/// One element along a dimension: where it is (beyond the image: nowhere), its weight, and how that changes with the place.
#[derive(Clone, Copy, Default)]
struct Tap {
    at: Option<usize>,
    weight: f64,
    slope: f64,
}

/// The elements along a dimension that a place reads.
#[derive(Clone, Copy, Default)]
struct Taps {
    list: [Tap; 4],
    len: usize,
}

impl Taps {
    /// The only element of a dimension that is not there.
    fn whole() -> Self {
        let mut taps = Self::default();
        taps.push(Some(0), 1.0, 0.0);
        taps
    }

    fn push(&mut self, at: Option<usize>, weight: f64, slope: f64) {
        self.list[self.len] = Tap { at, weight, slope };
        self.len += 1;
    }

    fn iter(&self) -> impl Iterator<Item = &Tap> + Clone {
        self.list[..self.len].iter()
    }
}

/// The element at a whole place, if it lies in the image.
fn element(place: f64, size: usize) -> Option<usize> {
    (place >= 0.0 && place < size as f64).then_some(place as usize)
}

impl Sampling {
    /// A place of the grid in elements of the image, and how many those are for each step of the grid.
    fn unnormal(&self, v: f64, size: usize) -> (f64, f64) {
        let size = size as f64;
        if self.align {
            let factor = (size - 1.0) / 2.0;
            ((v + 1.0) * factor, factor)
        } else {
            let factor = size / 2.0;
            ((v + 1.0) * factor - 0.5, factor)
        }
    }

    /// The place within the image that stands for a place outside, and the factor of its gradient.
    fn inside(&self, v: f64, size: usize) -> (f64, f64) {
        let (v, sign) = match self.outside {
            Outside::Zeros => return (v, 1.0),
            Outside::Border => (v, 1.0),
            Outside::Reflection => self.reflected(v, size),
        };
        let last = size as f64 - 1.0;
        if v > 0.0 && v < last {
            (v, sign)
        } else if v >= last {
            (last, 0.0)
        } else {
            (0.0, 0.0)
        }
    }

    fn reflected(&self, v: f64, size: usize) -> (f64, f64) {
        let (low, span) = if self.align {
            (0.0, size as f64 - 1.0)
        } else {
            (-0.5, size as f64)
        };
        if span <= 0.0 {
            return (0.0, 0.0);
        }
        let (v, sign) = if v < low {
            (low - v, -1.0)
        } else {
            (v - low, 1.0)
        };
        let (rest, flips) = (v % span, (v / span).floor());
        if flips % 2.0 == 0.0 {
            (rest + low, sign)
        } else {
            (span - rest + low, -sign)
        }
    }

    /// The elements that place `v` of the grid reads along a dimension; slopes are in steps of the grid.
    fn taps(&self, v: f64, size: usize) -> Taps {
        let (at, factor) = self.unnormal(v, size);
        let mut taps = Taps::default();
        if self.mode == Mode::Cubic {
            let first = at.floor();
            let t = at - first;
            for k in -1..3 {
                let k = f64::from(k);
                let place = self.inside(first + k, size).0;
                let slope = cubic_slope(t - k, CUBIC) * factor;
                taps.push(element(place, size), cubic(t - k, CUBIC), slope);
            }
            return taps;
        }
        let (at, sign) = self.inside(at, size);
        if self.mode == Mode::Nearest {
            taps.push(element(at.round_ties_even(), size), 1.0, 0.0);
            return taps;
        }
        let first = at.floor();
        let (t, slope) = (at - first, sign * factor);
        taps.push(element(first, size), 1.0 - t, -slope);
        taps.push(element(first + 1.0, size), t, slope);
        taps
    }

    /// The taps of a place, whose coordinates stand in the order width, height, depth.
    fn place<T: Real>(&self, place: &[T], size: [usize; 3]) -> [Taps; 3] {
        std::array::from_fn(|i| match place.get(2 - i) {
            Some(&v) => self.taps(v.wide(), size[i]),
            None => Taps::whole(),
        })
    }

    /// The samples of `x` `[batch, channels, ...]` at `grid` `[batch, ..., dimensions]` into `out` `[batch, channels, ...]`.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn forward(&self, out: &Tensor, x: &Tensor, grid: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let wide = working(x.dtype());
        let dense = Tensor::empty(out.shape(), wide, Device::CPU)?;
        let (x, grid) = (copy::dense(x, wide)?, copy::dense(grid, wide)?);
        if wide == DType::F32 {
            self.forward_in::<f32>(&dense, &x, &grid);
        } else {
            self.forward_in::<f64>(&dense, &x, &grid);
        }
        copy::copy(out, &dense)
    }

    fn forward_in<T: Real>(&self, out: &Tensor, x: &Tensor, grid: &Tensor) {
        let l = Layout::of(x, grid);
        let (from, places, to) = (
            slice::<T>(x),
            slice::<T>(grid),
            Shared::new(slice_mut::<T>(out)),
        );
        pool::parallel_for(
            l.batch * l.places,
            (2048 / l.channels.max(1)).max(16),
            |r| {
                let mut list = Vec::new();
                let mut i = r.start;
                while i < r.end {
                    let (n, p) = (i / l.places, i % l.places);
                    let run = i..r.end.min(i + RUN).min(i - p + l.places);
                    list.clear();
                    for i in run.clone() {
                        let taps = self.place(&places[i * l.dims..(i + 1) * l.dims], l.size);
                        corners::<T>(&taps, l.size, &mut list);
                    }
                    // As many for every place.
                    let each = list.len() / run.len();
                    for c in n * l.channels..(n + 1) * l.channels {
                        let plane = &from[c * l.volume..][..l.volume];
                        let read = |k: &Corner<T>| k.at.map_or(T::default(), |at| plane[at]);
                        // SAFETY: the places of these samples in the dense result.
                        let to = unsafe { to.part(c * l.places + p, run.len()) };
                        for (to, list) in to.iter_mut().zip(list.chunks_exact(each)) {
                            *to = list
                                .iter()
                                .fold(T::default(), |s, k| s + read(k) * k.weight);
                        }
                    }
                    i = run.end;
                }
            },
        );
    }

    /// The gradients of the image (if it is asked for) and of the grid.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn backward(
        &self,
        to_x: Option<&Tensor>,
        to_grid: &Tensor,
        grad: &Tensor,
        x: &Tensor,
        grid: &Tensor,
    ) -> Result<()> {
        let wide = working(x.dtype());
        let sum_x = match to_x {
            Some(t) => Some(Tensor::empty(t.shape(), wide, Device::CPU)?),
            None => None,
        };
        let sum_grid = Tensor::empty(to_grid.shape(), wide, Device::CPU)?;
        for t in sum_x.iter().chain([&sum_grid]) {
            super::fill(t, Scalar::Int(0))?;
        }
        let operands = [grad, x, grid].map(|t| copy::dense(t, wide));
        let [grad, x, grid] = operands;
        let (grad, x, grid) = (grad?, x?, grid?);
        if grad.numel() > 0 {
            if wide == DType::F32 {
                self.backward_in::<f32>(sum_x.as_ref(), &sum_grid, &grad, &x, &grid);
            } else {
                self.backward_in::<f64>(sum_x.as_ref(), &sum_grid, &grad, &x, &grid);
            }
        }
        if let (Some(to), Some(sum)) = (to_x, &sum_x) {
            copy::copy(to, sum)?;
        }
        copy::copy(to_grid, &sum_grid)
    }

    /// Images are summed each by one task.
    fn backward_in<T: Real>(
        &self,
        to_x: Option<&Tensor>,
        to_grid: &Tensor,
        grad: &Tensor,
        x: &Tensor,
        grid: &Tensor,
    ) {
        let l = Layout::of(x, grid);
        let (from, places, grads) = (slice::<T>(x), slice::<T>(grid), slice::<T>(grad));
        let to_x = to_x.map(|t| Shared::at(t.data_ptr()));
        let to_grid = Shared::at(to_grid.data_ptr());
        pool::parallel_items(l.batch, |n| {
            let image = n * l.channels * l.volume..(n + 1) * l.channels * l.volume;
            let from = &from[image.clone()];
            // SAFETY: the sums of one image, which no other task writes.
            let mut sums = to_x.map(|t| unsafe {
                let start = t.get().cast::<T>().add(image.start);
                std::slice::from_raw_parts_mut(start, image.len())
            });
            let mut list = Vec::new();
            for p in 0..l.places {
                let i = n * l.places + p;
                let at = i * l.dims..(i + 1) * l.dims;
                let taps = self.place(&places[at.clone()], l.size);
                list.clear();
                corners::<T>(&taps, l.size, &mut list);
                let mut slopes = [T::default(); 3];
                for c in 0..l.channels {
                    let g = grads[(n * l.channels + c) * l.places + p];
                    for k in &list {
                        let Some(at) = k.at else { continue };
                        let at = c * l.volume + at;
                        for (slope, &s) in slopes.iter_mut().zip(&k.slopes) {
                            *slope = *slope + g * from[at] * s;
                        }
                        if let Some(sums) = &mut sums {
                            sums[at] = sums[at] + g * k.weight;
                        }
                    }
                }
                for (j, at) in at.enumerate() {
                    // SAFETY: a coordinate of this place in the dense gradient.
                    unsafe { *to_grid.get().cast::<T>().add(at) = slopes[2 - j] };
                }
            }
        });
    }
}

/// The dtype that a dtype is sampled in.
fn working(d: DType) -> DType {
    if d == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Sizes of the tensors.
struct Layout {
    batch: usize,
    channels: usize,
    /// Spatial sizes of the image; those that it lacks are 1.
    size: [usize; 3],
    volume: usize,
    /// Places of the grid for each image.
    places: usize,
    dims: usize,
}

impl Layout {
    fn of(x: &Tensor, grid: &Tensor) -> Self {
        let dims = x.ndim() - 2;
        let size = std::array::from_fn(|i| {
            if i + dims < 3 {
                1
            } else {
                x.shape()[i + dims - 1] as usize
            }
        });
        let spatial = &grid.shape()[1..grid.ndim() - 1];
        Self {
            batch: x.shape()[0] as usize,
            channels: x.shape()[1] as usize,
            size,
            volume: size.iter().product(),
            places: spatial.iter().product::<i64>() as usize,
            dims,
        }
    }
}

/// One element that a place reads, its weight, and how that changes along depth, height and width.
struct Corner<T> {
    at: Option<usize>,
    weight: T,
    slopes: [T; 3],
}

/// Adds the products of the taps of all dimensions.
fn corners<T: Real>([d, h, w]: &[Taps; 3], size: [usize; 3], list: &mut Vec<Corner<T>>) {
    for z in d.iter() {
        for y in h.iter() {
            for x in w.iter() {
                let at = match (z.at, y.at, x.at) {
                    (Some(z), Some(y), Some(x)) => Some((z * size[1] + y) * size[2] + x),
                    _ => None,
                };
                let slopes = [
                    z.slope * y.weight * x.weight,
                    z.weight * y.slope * x.weight,
                    z.weight * y.weight * x.slope,
                ];
                list.push(Corner {
                    at,
                    weight: T::of(z.weight * y.weight * x.weight),
                    slopes: slopes.map(T::of),
                });
            }
        }
    }
}
