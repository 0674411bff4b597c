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
    /// Turns places of the grid into elements of the image; how many those are for each step of the grid.
    #[inline(always)]
    fn unnormal<T: Real>(&self, places: &mut [T; RUN], size: T) -> T {
        let (one, half) = (T::of(1.0), T::of(0.5));
        let (factor, back) = if self.align {
            ((size - one) * half, T::default())
        } else {
            (size * half, half)
        };
        for v in places {
            *v = (*v + one) * factor - back;
        }
        factor
    }

    /// Puts places within the image for those outside, with the factors of their gradients, which are 1 before. One loop
    /// after the other, so that those that can be are of vectors.
    #[inline(always)]
    fn bring<T: Real>(&self, places: &mut [T; RUN], signs: &mut [T; RUN], size: T) {
        match self.outside {
            Outside::Zeros => return,
            Outside::Border => {}
            Outside::Reflection => {
                for (v, sign) in places.iter_mut().zip(signs.iter_mut()) {
                    (*v, *sign) = self.reflected(*v, size);
                }
            }
        }
        let (zero, last) = (T::default(), size - T::of(1.0));
        for (v, sign) in places.iter_mut().zip(signs) {
            let (beyond, after) = (*v >= last, *v > zero);
            *sign = if after & !beyond { *sign } else { zero };
            let near = if after { *v } else { zero };
            *v = if beyond { last } else { near };
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
        let (mut at, mut signs) = (*places, [one; RUN]);
        let factor = s.unnormal(&mut at, size);
        match s.mode {
            Mode::Cubic => {
                for k in 0..4 {
                    let step = k as f64 - 1.0;
                    let mut read = at;
                    for v in &mut read {
                        *v = v.floor() + T::of(step);
                    }
                    s.bring(&mut read, &mut signs, size);
                    for j in 0..RUN {
                        let t = (at[j] - at[j].floor()).f64_();
                        let slope = cubic_slope(t - step, CUBIC) * factor.f64_();
                        to.set(k, j, read[j], size, [cubic(t - step, CUBIC), slope].map(T::of));
                    }
                }
                to.len = 4;
            }
            Mode::Nearest => {
                s.bring(&mut at, &mut signs, size);
                for j in 0..RUN {
                    to.set(0, j, at[j].round(), size, [one, T::default()]);
                }
                to.len = 1;
            }
            Mode::Linear => {
                s.bring(&mut at, &mut signs, size);
                for j in 0..RUN {
                    let first = at[j].floor();
                    let (t, slope) = (at[j] - first, signs[j] * factor);
                    to.set(0, j, first, size, [one - t, -slope]);
                    to.set(1, j, first + one, size, [t, slope]);
                }
                to.len = 2;
            }
        }
    }
}

/// What a run of places reads of a row of the image: two neighbours each, at once.
pub(super) struct Pairs<T> {
    /// Where the first of them is in a plane.
    pub at: [i64; RUN],
    /// The weights of the first ones, and of the second ones.
    pub weight: [[T; RUN]; 2],
}

/// An element that a sample reads, of those in the image.
pub(super) struct Read<T> {
    pub at: usize,
    pub weight: T,
    /// Which place of the run.
    pub place: usize,
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
    /// Neighbours in a row that are read at once: the plane's first two without weight in place of those beyond the image.
    pub pairs: Vec<Pairs<T>>,
    /// What is read besides of pairs of which one is beyond the image.
    pub single: Vec<Read<T>>,
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
            pairs: Vec::new(),
            single: Vec::new(),
            slopes: Vec::new(),
        }
    }

    /// Finds what is read of planes whose first element is finite.
    pub fn find_near(&mut self) {
        self.near
            .resize(self.at.len(), ([0; RUN], [T::default(); RUN]));
        for (near, (at, weight)) in self.near.iter_mut().zip(self.at.iter().zip(&self.weight)) {
            near_of(at, weight, &mut near.0, &mut near.1);
        }
    }

    /// Finds the same of planes whose first two elements are finite, in pairs along rows, which have two elements.
    pub fn find_pairs(&mut self, s: &Sampling, places: &[T], l: &Layout) {
        self.find_axes(s, places, l);
        let [d, h, w] = &self.axes;
        self.pairs.resize_with(d.len * h.len, || Pairs {
            at: [0; RUN],
            weight: [[T::default(); RUN]; 2],
        });
        self.single.clear();
        // Noted whether they are or not: a branch would be guessed wrong too often.
        let (mut halves, mut count) = ([0; RUN], 0);
        for j in 0..(places.len() / l.dims).min(RUN) {
            halves[count] = j;
            count += usize::from((w.at[0][j] < 0) != (w.at[1][j] < 0));
        }
        let halves = &halves[..count];
        for z in 0..d.len {
            for y in 0..h.len {
                let row = ([&d.at[z], &h.at[y]], [&d.weight[z], &h.weight[y]]);
                paired(row, w, &l.size, &mut self.pairs[z * h.len + y]);
                for &place in halves {
                    let x = usize::from(w.at[0][place] < 0);
                    let at = [d.at[z][place], h.at[y][place], w.at[x][place]];
                    let weight = d.weight[z][place] * h.weight[y][place] * w.weight[x][place];
                    if let Ok(at) = usize::try_from(place_of(at, &l.size)) {
                        self.single.push(Read { at, weight, place });
                    }
                }
            }
        }
    }

    fn find_axes(&mut self, s: &Sampling, places: &[T], l: &Layout) {
        for (dim, axis) in self.axes[3 - l.dims..].iter_mut().rev().enumerate() {
            let mut run = [T::default(); RUN];
            if let (2, (places, _)) = (l.dims, places.as_chunks::<2>()) {
                for (to, place) in run.iter_mut().zip(places) {
                    *to = place[dim];
                }
            } else {
                for (to, place) in run.iter_mut().zip(places.chunks_exact(l.dims)) {
                    *to = place[dim];
                }
            }
            along(s, &run, l.size[2 - dim], axis);
        }
    }

    /// Finds them for a run of places, whose coordinates stand in the order width, height, depth.
    pub fn find(&mut self, s: &Sampling, places: &[T], l: &Layout, slopes: bool) {
        self.find_axes(s, places, l);
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

/// Where an element is in a plane, from where it is along its dimensions; -1: beyond the image.
#[inline(always)]
fn place_of([z, y, x]: [i64; 3], size: &[usize; 3]) -> i64 {
    let (h, w) = (size[1] as i64, size[2] as i64);
    if (z | y | x) < 0 {
        -1
    } else {
        (z * h + y) * w + x
    }
}

simd_fn! { wide
    fn joined(at: [&[i64; RUN]; 3], size: &[usize; 3], to: &mut [i64; RUN]) {
        for (j, to) in to.iter_mut().enumerate() {
            *to = place_of([at[0][j], at[1][j], at[2][j]], size);
        }
    }
}

simd_fn! { wide
    /// Places and weights with the first element without weight in place of those beyond the image.
    fn near_of<T: Real>(at: &[i64; RUN], weight: &[T; RUN], near: &mut [i64; RUN], factors: &mut [T; RUN]) {
        for j in 0..RUN {
            let factor = if at[j] < 0 { T::default() } else { T::of(1.0) };
            near[j] = at[j].max(0);
            // Weights of places that are no number stay that.
            factors[j] = weight[j] * factor;
        }
    }
}

simd_fn! { wide
    /// The pairs along a row, from where it is and its weights.
    fn paired<T: Real>(row: ([&[i64; RUN]; 2], [&[T; RUN]; 2]), along: &Axis<T>, size: &[usize; 3], to: &mut Pairs<T>) {
        let ([zs, ys], [deep, high]) = row;
        for j in 0..RUN {
            let at = place_of([zs[j], ys[j], along.at[0][j]], size);
            let beyond = (at | along.at[1][j]) < 0;
            to.at[j] = if beyond { 0 } else { at };
            let factor = if beyond { T::default() } else { T::of(1.0) };
            for x in 0..2 {
                to.weight[x][j] = deep[j] * high[j] * along.weight[x][j] * factor;
            }
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
