//! The elements that places of a grid read: found for a run of places, one beside the other, so that loops vectorise.

#![allow(unsafe_code, reason = "conversions of checked places to whole numbers")]

use super::{Layout, Mode, Outside, Sampling};
use crate::cpu::lanes;
use crate::cpu::simd::simd_fn;
use crate::cpu::taps::{CUBIC, cubic, cubic_slope};

/// Real numbers that places are computed in.
pub(super) trait Real: lanes::Real + Default {
    fn floor(self) -> Self;
    fn round(self) -> Self;
    /// Of a whole number that an `i64` holds.
    unsafe fn index(self) -> i64;
}
macro_rules! real {
    ($($t:ty)+) => { $(
        impl Real for $t {
            #[inline(always)]
            fn floor(self) -> Self {
                self.floor()
            }
            #[inline(always)]
            fn round(self) -> Self {
                self.round_ties_even()
            }
            #[inline(always)]
            unsafe fn index(self) -> i64 {
                // SAFETY: the caller's.
                unsafe { self.to_int_unchecked() }
            }
        }
    )+ };
}
real! { f32 f64 }

/// Places whose elements are found before the channels are read: neighbours of a channel lie side by side, channels far apart.
pub(super) const RUN: usize = 64;

/// The elements along a dimension that a run of places reads: where they are (-1: beyond the image), their weights, and how
/// those change with the place.
struct Axis<T> {
    at: [[i64; RUN]; 4],
    weight: [[T; RUN]; 4],
    slope: [[T; RUN]; 4],
    /// How many each place reads.
    len: usize,
}

impl<T: Real> Axis<T> {
    /// The only element of a dimension that is not there.
    fn whole() -> Self {
        Self {
            at: [[0; RUN]; 4],
            weight: [[T::of(1.0); RUN]; 4],
            slope: [[T::default(); RUN]; 4],
            len: 1,
        }
    }

    #[inline(always)]
    fn set(&mut self, k: usize, j: usize, place: T, size: T, [weight, slope]: [T; 2]) {
        let inside = place >= T::default() && place < size;
        let place = if inside { place } else { T::of(-1.0) };
        // SAFETY: a whole number from -1 to a size.
        self.at[k][j] = unsafe { place.index() };
        (self.weight[k][j], self.slope[k][j]) = (weight, slope);
    }
}

impl Sampling {
    /// A place of the grid in elements of the image, and how many those are for each step of the grid.
    #[inline(always)]
    fn unnormal<T: Real>(&self, v: T, size: T) -> (T, T) {
        let (one, half) = (T::of(1.0), T::of(0.5));
        if self.align {
            let factor = (size - one) * half;
            ((v + one) * factor, factor)
        } else {
            let factor = size * half;
            ((v + one) * factor - half, factor)
        }
    }

    /// The place within the image that stands for a place outside, and the factor of its gradient.
    #[inline(always)]
    fn inside<T: Real>(&self, v: T, size: T) -> (T, T) {
        let (zero, one) = (T::default(), T::of(1.0));
        let (v, sign) = match self.outside {
            Outside::Zeros => return (v, one),
            Outside::Border => (v, one),
            Outside::Reflection => self.reflected(v, size),
        };
        let last = size - one;
        if v > zero && v < last {
            (v, sign)
        } else if v >= last {
            (last, zero)
        } else {
            (zero, zero)
        }
    }

    #[inline(always)]
    fn reflected<T: Real>(&self, v: T, size: T) -> (T, T) {
        let (zero, one, two) = (T::default(), T::of(1.0), T::of(2.0));
        let (low, span) = if self.align {
            (zero, size - one)
        } else {
            (T::of(-0.5), size)
        };
        if span <= zero {
            return (zero, zero);
        }
        let (v, sign) = if v < low {
            (low - v, -one)
        } else {
            (v - low, one)
        };
        // NaN where a place is known to no half of an image.
        let (rest, flips) = (v.rem_(span), (v / span).floor());
        if flips == two * (flips * T::of(0.5)).floor() {
            (rest + low, sign)
        } else {
            (span - rest + low, -sign)
        }
    }
}

simd_fn! { wide
    /// The elements that a run of places of the grid reads along a dimension; slopes are in steps of the grid.
    fn along<T: Real>(s: &Sampling, places: &[T; RUN], size: usize, to: &mut Axis<T>) {
        let (one, size) = (T::of(1.0), T::of(size as f64));
        match s.mode {
            Mode::Cubic => {
                for (j, &v) in places.iter().enumerate() {
                    let (at, factor) = s.unnormal(v, size);
                    let first = at.floor();
                    let t = (at - first).f64_();
                    for k in 0..4 {
                        let step = k as f64 - 1.0;
                        let place = s.inside(first + T::of(step), size).0;
                        let slope = cubic_slope(t - step, CUBIC) * factor.f64_();
                        to.set(k, j, place, size, [cubic(t - step, CUBIC), slope].map(T::of));
                    }
                }
                to.len = 4;
            }
            Mode::Nearest => {
                for (j, &v) in places.iter().enumerate() {
                    let at = s.inside(s.unnormal(v, size).0, size).0.round();
                    to.set(0, j, at, size, [one, T::default()]);
                }
                to.len = 1;
            }
            Mode::Linear => {
                for (j, &v) in places.iter().enumerate() {
                    let (at, factor) = s.unnormal(v, size);
                    let (at, sign) = s.inside(at, size);
                    let first = at.floor();
                    let (t, slope) = (at - first, sign * factor);
                    to.set(0, j, first, size, [one - t, -slope]);
                    to.set(1, j, first + one, size, [t, slope]);
                }
                to.len = 2;
            }
        }
    }
}

/// What a thread works in: all elements that a run of places reads, one place beside the other.
pub(super) struct Reads<T> {
    /// Depth, height and width.
    axes: [Axis<T>; 3],
    /// Where they are in a plane; -1: beyond the image.
    pub at: Vec<[i64; RUN]>,
    pub weight: Vec<[T; RUN]>,
    /// Places and weights once more: the plane's first element without weight in place of what is beyond the image.
    pub near: Vec<([i64; RUN], [T; RUN])>,
    /// How the weights change along depth, height and width.
    pub slopes: Vec<[[T; RUN]; 3]>,
}

impl<T: Real> Reads<T> {
    pub fn new() -> Self {
        Self {
            axes: std::array::from_fn(|_| Axis::whole()),
            at: Vec::new(),
            weight: Vec::new(),
            near: Vec::new(),
            slopes: Vec::new(),
        }
    }

    /// Finds what is read of planes whose first element is finite.
    pub fn find_near(&mut self) {
        self.near
            .resize(self.at.len(), ([0; RUN], [T::default(); RUN]));
        for (near, (at, weight)) in self.near.iter_mut().zip(self.at.iter().zip(&self.weight)) {
            for j in 0..RUN {
                let beyond = at[j] < 0;
                near.0[j] = at[j].max(0);
                let factor = if beyond { T::default() } else { T::of(1.0) };
                // Weights of places that are no number stay that.
                near.1[j] = weight[j] * factor;
            }
        }
    }

    /// Finds them for a run of places, whose coordinates stand in the order width, height, depth.
    pub fn find(&mut self, s: &Sampling, places: &[T], l: &Layout, slopes: bool) {
        for (dim, axis) in self.axes[3 - l.dims..].iter_mut().rev().enumerate() {
            let mut run = [T::default(); RUN];
            for (to, place) in run.iter_mut().zip(places.chunks_exact(l.dims)) {
                *to = place[dim];
            }
            along(s, &run, l.size[2 - dim], axis);
        }
        let each = self.axes.iter().map(|a| a.len).product();
        self.at.resize(each, [0; RUN]);
        self.weight.resize(each, [T::default(); RUN]);
        self.slopes
            .resize(if slopes { each } else { 0 }, [[T::default(); RUN]; 3]);
        let [d, h, w] = &self.axes;
        let mut k = 0;
        for z in 0..d.len {
            for y in 0..h.len {
                for x in 0..w.len {
                    joined([&d.at[z], &h.at[y], &w.at[x]], &l.size, &mut self.at[k]);
                    let weights = [&d.weight[z], &h.weight[y], &w.weight[x]];
                    multiplied(weights, &mut self.weight[k]);
                    if let Some(slopes) = self.slopes.get_mut(k) {
                        for (i, slope) in [&d.slope[z], &h.slope[y], &w.slope[x]]
                            .into_iter()
                            .enumerate()
                        {
                            let mut factors = weights;
                            factors[i] = slope;
                            multiplied(factors, &mut slopes[i]);
                        }
                    }
                    k += 1;
                }
            }
        }
    }
}

simd_fn! { wide
    /// Where elements are in a plane, from where they are along its dimensions.
    fn joined(at: [&[i64; RUN]; 3], size: &[usize; 3], to: &mut [i64; RUN]) {
        let (h, w) = (size[1] as i64, size[2] as i64);
        for (j, to) in to.iter_mut().enumerate() {
            let [z, y, x] = [at[0][j], at[1][j], at[2][j]];
            *to = if (z | y | x) < 0 { -1 } else { (z * h + y) * w + x };
        }
    }
}

simd_fn! { wide
    fn multiplied<T: Real>(factors: [&[T; RUN]; 3], to: &mut [T; RUN]) {
        for (j, to) in to.iter_mut().enumerate() {
            *to = factors[0][j] * factors[1][j] * factors[2][j];
        }
    }
}
