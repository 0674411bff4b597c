//! Where the lines of a transform lie, and the loops over them: side by side where that is quicker, else one after the other.

#![allow(unsafe_code, reason = "tasks have lines of their own")]

use super::How;
use super::plans::Real;
use super::side::{Block, Side};
use super::vector::{self, Task, Vector, numbers};
use crate::cpu::lines::Shared;
use crate::cpu::{iter, pool};
use crate::{Tensor, dims};
use num_complex::Complex;
use std::cmp::Reverse;
use std::ops::Range;

/// Lines that a task takes at a time: enough that plans pay, few enough that they stay in the caches.
pub(super) fn grain(n: usize) -> usize {
    (iter::GRAIN / (4 * n.max(1))).max(1)
}

/// Lines of one length in memory that is dense.
pub(super) struct Places {
    /// Elements of a line, and from one to the next.
    pub length: usize,
    step: usize,
    /// Lines that begin at neighbouring elements, or where lines are dense, all of them.
    width: usize,
    /// From one of those to the next.
    apart: usize,
    /// Where the first of them begins.
    starts: Vec<usize>,
}

impl Places {
    /// Dense lines, one after the other.
    pub fn dense(count: usize, length: usize) -> Self {
        Self {
            length,
            step: 1,
            width: count,
            apart: length,
            starts: vec![0],
        }
    }

    /// The lines of a tensor along a dimension in which they are not dense, and its memory in the order in which it lies.
    pub fn across(t: &Tensor, dim: usize) -> Option<(Self, Tensor)> {
        let mut order: Vec<usize> = (0..t.ndim()).collect();
        dims::settle(&mut order, |&d| Reverse((t.strides()[d], t.shape()[d])));
        let memory = t.permuted(&order);
        let inner = (0..t.ndim()).find(|&d| t.strides()[d] == 1 && t.shape()[d] > 1)?;
        if inner == dim || !memory.is_contiguous() || t.is_lazy() {
            return None;
        }
        let size = |d: usize| (t.shape()[d] as usize, t.strides()[d] as usize);
        let mut starts = vec![0];
        for d in (0..t.ndim()).filter(|&d| d != dim && d != inner) {
            let (count, step) = size(d);
            let further = |i: usize| starts.iter().map(move |s| s + i * step);
            starts = (0..count).flat_map(further).collect();
        }
        let (length, step) = size(dim);
        let places = Self {
            length,
            step,
            width: size(inner).0,
            apart: 1,
            starts,
        };
        Some((places, memory))
    }

    /// A group of at most `wide` neighbouring lines: where the first begins, and how many they are.
    #[inline(always)]
    fn group(&self, wide: usize, task: usize) -> (usize, usize) {
        let across = self.width.div_ceil(wide);
        let first = task % across * wide;
        let start = self.starts[task / across] + first * self.apart;
        (start, wide.min(self.width - first))
    }

    fn group_count(&self, wide: usize) -> usize {
        self.starts.len() * self.width.div_ceil(wide)
    }

    /// Whether a vector would mostly be filled.
    fn are_many(&self, wide: usize) -> bool {
        self.width > wide / 2
    }
}

/// Transforms lines: those of `from`, which lie alike, or those that are in `data`.
pub(super) fn complex<T: Real>(
    from: Option<&[Complex<T>]>,
    data: &mut [Complex<T>],
    places: &Places,
    how: How,
) {
    /// Longer lines are as quick one by one where the length is a power of two, and need not be brought anywhere.
    const SHORT: usize = 512;
    let single = places.step == 1 && places.length > SHORT && places.length.is_power_of_two();
    let side = !single && places.are_many(T::V::W);
    match T::side_by_side(places.length).filter(|_| side) {
        Some(plan) => side_by_side(from, data, places, &plan, how),
        None if places.step == 1 => dense(from, data, places.length, how),
        None => brought_together(from, data, places, how),
    }
}

/// Dense lines, one after the other.
fn dense<T: Real>(from: Option<&[Complex<T>]>, data: &mut [Complex<T>], n: usize, how: How) {
    let plan = T::complex(n, how.forward);
    let scale = T::of(how.scale);
    let count = data.len() / n.max(1);
    let shared = Shared::new(data);
    pool::parallel_for(count, grain(n), |range| {
        let zero = Complex::new(T::of(0.0), T::of(0.0));
        let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
        // SAFETY: every task has its own lines.
        let part = unsafe { shared.part(range.start * n, range.len() * n) };
        if let Some(from) = from {
            part.copy_from_slice(&from[range.start * n..range.end * n]);
        }
        plan.process_with_scratch(part, &mut scratch);
        if how.scale != 1.0 {
            part.iter_mut().for_each(|x| *x = *x * scale);
        }
    });
}

/// Lines that are not dense: some neighbours are brought together at a time.
fn brought_together<T: Real>(
    from: Option<&[Complex<T>]>,
    data: &mut [Complex<T>],
    places: &Places,
    how: How,
) {
    /// Neighbouring lines that are brought together: whole cache lines.
    const WIDE: usize = 16;
    let n = places.length;
    let plan = T::complex(n, how.forward);
    let scale = T::of(how.scale);
    let shared = Shared::new(data);
    // Lines lie a little apart, so that those of a power of two do not meet in the same places of a cache.
    let apart = n + 8;
    pool::parallel_for(places.group_count(WIDE), grain(n * WIDE), |range| {
        let zero = Complex::new(T::of(0.0), T::of(0.0));
        let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
        let mut lines = vec![zero; apart * WIDE];
        for task in range {
            let (start, count) = places.group(WIDE, task);
            // SAFETY: every task has its own lines.
            let row = |k: usize| unsafe { shared.part(start + k * places.step, count) };
            for k in 0..n {
                let read =
                    from.map_or_else(|| &*row(k), |f| &f[start + k * places.step..][..count]);
                for (line, &x) in lines.chunks_exact_mut(apart).zip(read) {
                    line[k] = x;
                }
            }
            for line in lines.chunks_exact_mut(apart).take(count) {
                plan.process_with_scratch(&mut line[..n], &mut scratch);
            }
            for k in 0..n {
                for (line, x) in lines.chunks_exact(apart).zip(row(k)) {
                    *x = line[k] * scale;
                }
            }
        }
    });
}

/// Lines in the places of vectors.
fn side_by_side<T: Real>(
    from: Option<&[Complex<T>]>,
    data: &mut [Complex<T>],
    places: &Places,
    plan: &Side<T>,
    how: How,
) {
    let shared = Shared::new(data);
    let wide = T::V::W;
    let groups = places.group_count(wide);
    pool::parallel_for(groups, grain(places.length * wide), |range| {
        let task = Complexes {
            from,
            shared,
            places,
            plan,
            how,
            range,
        };
        // SAFETY: there is a plan, so that there are vectors.
        unsafe { vector::with(task) };
    });
}

/// Some groups of complex lines.
struct Complexes<'a, T: Real> {
    from: Option<&'a [Complex<T>]>,
    shared: Shared<Complex<T>>,
    places: &'a Places,
    plan: &'a Side<T>,
    how: How,
    range: Range<usize>,
}

impl<T: Real> Task for Complexes<'_, T> {
    #[inline(always)]
    fn run(self) {
        let places = self.places;
        let n = places.length;
        // SAFETY: there is a plan, so that there are vectors.
        let mut block = unsafe { Block::<T::V>::new(n) };
        let scale = T::of(self.how.scale);
        for task in self.range {
            let (start, count) = places.group(T::V::W, task);
            if places.apart == 1 {
                // SAFETY: every task has its own lines, of which this is where element `k` of the first is.
                let row = |k: usize| unsafe { self.shared.get().add(start + k * places.step) };
                let read = self
                    .from
                    .map_or(row(0).cast_const(), |f| f[start..].as_ptr());
                for k in 0..n {
                    // SAFETY: the others lie beside it, those of `from` as the results.
                    unsafe { block.read_row(k, read.add(k * places.step), count) };
                }
                block.transform(self.plan, self.how.forward);
                for (k, &place) in self.plan.places()[..n].iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { block.write_row(place, row(k), count, scale) };
                }
            } else {
                // SAFETY: every task has its own lines.
                let lines = unsafe { self.shared.part(start, count * n) };
                block.read_lines(
                    self.from.map_or(&*lines, |f| &f[start..start + count * n]),
                    n,
                );
                block.transform(self.plan, self.how.forward);
                block.write_lines(lines, n, &self.plan.places()[..n], scale);
            }
        }
    }
}

/// Dense real lines to the halves of their transforms, side by side; false if that is not for them.
pub(super) fn from_real<T: Real>(
    from: &[T],
    n: usize,
    to: &mut [Complex<T>],
    m: usize,
    scale: f64,
) -> bool {
    let Some((plan, lines)) = in_halves::<T>(n, from.len()) else {
        return false;
    };
    let wide = T::V::W;
    let shared = Shared::new(to);
    pool::parallel_for(lines.div_ceil(wide), grain(n / 2 * wide), |range| {
        let task = FromReal {
            from: pairs(from),
            half: n / 2,
            shared,
            m,
            plan: &plan,
            scale: T::of(0.5 * scale),
            range,
        };
        // SAFETY: there is a plan, so that there are vectors.
        unsafe { vector::with(task) };
    });
    true
}

/// The plan for real lines of an even length, as complex ones of half of it, and how many they are.
fn in_halves<T: Real>(n: usize, numbers: usize) -> Option<(std::sync::Arc<Side<T>>, usize)> {
    let lines = numbers.checked_div(n)?;
    let many = n % 2 == 0 && lines > T::V::W / 2;
    let plan = T::side_by_side(n / 2).filter(|_| many)?;
    Some((plan, lines))
}

/// Neighbouring numbers as complex ones.
fn pairs<T: Real>(x: &[T]) -> &[Complex<T>] {
    // SAFETY: a complex number is two real ones.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), x.len() / 2) }
}

/// Some groups of real lines.
struct FromReal<'a, T: Real> {
    from: &'a [Complex<T>],
    half: usize,
    shared: Shared<Complex<T>>,
    m: usize,
    plan: &'a Side<T>,
    scale: T,
    range: Range<usize>,
}

impl<T: Real> Task for FromReal<'_, T> {
    #[inline(always)]
    fn run(self) {
        let (h, m) = (self.half, self.m);
        // SAFETY: there is a plan, so that there are vectors.
        let mut block = unsafe { Block::<T::V>::new(h + 1) };
        for task in self.range {
            let lines = self.from[task * T::V::W * h..]
                .chunks(T::V::W * h)
                .next()
                .unwrap_or_default();
            block.read_lines(lines, h);
            block.transform(self.plan, true);
            block.join_halves(self.plan);
            let count = lines.len() / h;
            // SAFETY: every task has its own lines.
            let to = unsafe { self.shared.part(task * T::V::W * m, count * m) };
            block.write_lines(to, m, self.plan.places(), self.scale);
            for line in to.chunks_exact_mut(m) {
                for k in h + 1..m {
                    line[k] = line[2 * h - k].conj();
                }
            }
        }
    }
}

/// Halves of transforms, dense, to real lines, side by side; false if that is not for them.
pub(super) fn to_real<T: Real>(from: &[Complex<T>], to: &mut [T], n: usize, scale: f64) -> bool {
    let Some((plan, lines)) = in_halves::<T>(n, to.len()) else {
        return false;
    };
    let wide = T::V::W;
    // SAFETY: a complex number is two real ones.
    let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len() / 2) };
    let shared = Shared::new(to);
    pool::parallel_for(lines.div_ceil(wide), grain(n / 2 * wide), |range| {
        let task = ToReal {
            from,
            half: n / 2,
            shared,
            plan: &plan,
            scale: T::of(scale),
            range,
        };
        // SAFETY: there is a plan, so that there are vectors.
        unsafe { vector::with(task) };
    });
    true
}

/// Some groups of lines that become real.
struct ToReal<'a, T: Real> {
    from: &'a [Complex<T>],
    half: usize,
    shared: Shared<Complex<T>>,
    plan: &'a Side<T>,
    scale: T,
    range: Range<usize>,
}

impl<T: Real> Task for ToReal<'_, T> {
    #[inline(always)]
    fn run(self) {
        let h = self.half;
        let m = h + 1;
        // SAFETY: there is a plan, so that there are vectors.
        let mut block = unsafe { Block::<T::V>::new(m) };
        for task in self.range {
            let lines = self.from[task * T::V::W * m..]
                .chunks(T::V::W * m)
                .next()
                .unwrap_or_default();
            block.read_lines(lines, m);
            // What is real of real signals' spectra; what is there beside is not looked at.
            block.make_real(0);
            block.make_real(h);
            block.split_halves(self.plan);
            block.transform(self.plan, false);
            let count = lines.len() / m;
            // SAFETY: every task has its own lines.
            let to = unsafe { self.shared.part(task * T::V::W * h, count * h) };
            block.write_lines(to, h, &self.plan.places()[..h], self.scale);
        }
    }
}

impl<V: Vector<T: Real>> Block<V> {
    /// Element `k` of `count` lines, side by side.
    ///
    /// # Safety
    /// They are there.
    #[inline(always)]
    unsafe fn read_row(&mut self, k: usize, row: *const Complex<V::T>, count: usize) {
        let (re, im) = self.numbers();
        if count == V::W {
            // SAFETY: the caller's promise.
            (re[k], im[k]) = unsafe { V::load(row) };
            return;
        }
        let (re, im) = (numbers(&mut re[k..=k]), numbers(&mut im[k..=k]));
        for l in 0..count {
            // SAFETY: as above.
            let x = unsafe { *row.add(l) };
            (re[l], im[l]) = (x.re, x.im);
        }
    }

    /// Writes element `k`, times a factor.
    ///
    /// # Safety
    /// There is room.
    #[inline(always)]
    unsafe fn write_row(&mut self, k: usize, row: *mut Complex<V::T>, count: usize, factor: V::T) {
        let (re, im) = self.numbers();
        if count == V::W {
            let all = re[k].splat(factor);
            // SAFETY: the caller's promise.
            unsafe { V::store(re[k].times(all), im[k].times(all), row) };
            return;
        }
        let (re, im) = (numbers(&mut re[k..=k]), numbers(&mut im[k..=k]));
        for l in 0..count {
            // SAFETY: as above.
            unsafe { *row.add(l) = Complex::new(re[l] * factor, im[l] * factor) };
        }
    }

    /// Lines of `n`, one after the other.
    #[inline(always)]
    fn read_lines(&mut self, lines: &[Complex<V::T>], n: usize) {
        let (re, im) = self.numbers();
        let (re, im) = (&mut re[..n], &mut im[..n]);
        let mut done = 0;
        while lines.len() == V::W * n && done + V::K <= n {
            // SAFETY: `K` elements from `done` on are in each of the `W` lines and in the block.
            unsafe {
                let (re, im) = (re.as_mut_ptr().add(done), im.as_mut_ptr().add(done));
                V::load_lines(lines.as_ptr().add(done), n, re, im);
            }
            done += V::K;
        }
        let (re, im) = (numbers(re), numbers(im));
        for l in 0..lines.len() / n {
            for k in done..n {
                let (x, at) = (lines[l * n + k], k * V::W + l);
                (re[at], im[at]) = (x.re, x.im);
            }
        }
    }

    /// The elements at some places, times a factor, to lines that are `apart`.
    #[inline(always)]
    fn write_lines(
        &mut self,
        lines: &mut [Complex<V::T>],
        apart: usize,
        places: &[usize],
        factor: V::T,
    ) {
        let (re, im) = self.numbers();
        let all = re[0].splat(factor);
        let (n, parts) = (places.len(), [re.as_ptr(), im.as_ptr()]);
        let mut done = 0;
        while lines.len() == V::W * apart && done + V::K <= n {
            // SAFETY: places are in the block, and `K` elements from `done` on in each of the `W` lines, which are longer than `n`.
            unsafe {
                let to = lines.as_mut_ptr().add(done);
                V::store_lines(parts, &places[done..done + V::K], all, to, apart);
            }
            done += V::K;
        }
        let (re, im) = (numbers(re), numbers(im));
        for l in 0..lines.len() / apart {
            for k in done..n {
                let at = places[k] * V::W + l;
                lines[l * apart + k] = Complex::new(re[at] * factor, im[at] * factor);
            }
        }
    }

    /// Element `k` of all lines without its imaginary part.
    #[inline(always)]
    fn make_real(&mut self, k: usize) {
        let (_, im) = self.numbers();
        im[k] = im[k].splat(V::T::of(0.0));
    }
}
