//! One row of the outputs of a pooling.

use super::alike::Alike;
use super::{Pooled, Sum, Window};
use crate::cpu::simd::{Veil, simd_fn};

/// One row of outputs.
pub(super) struct Row<'a, T> {
    pub(super) x: &'a [T],
    pub(super) size: [usize; 3],
    pub(super) inner: usize,
    pub(super) d: Window,
    pub(super) h: Window,
    pub(super) w: &'a [Window],
}

/// What lines come to before windows are laid over them, for rows of planes.
pub(super) struct Lines<T> {
    best: Vec<T>,
    place: Vec<i32>,
    starts: Vec<usize>,
}

impl<T: Pooled> Lines<T> {
    /// For lines of so many elements.
    pub(super) fn new(width: usize) -> Self {
        Self {
            best: vec![T::LEAST; width],
            place: Vec::new(),
            starts: Vec::new(),
        }
    }
}

simd_fn! { wide
    /// The larger of two elements each, NaN if either is.
    fn larger<T: Pooled>(a: &mut [T], b: &[T]) {
        let veil = Veil::new();
        for (a, &b) in a.iter_mut().zip(b) {
            let kept = veil.over(*a);
            *a = if b > kept || b.nan() { b } else { kept };
        }
    }
}

simd_fn! { wide
    /// The largest of `n` neighbours each in windows of lines, which begin at `starts`.
    fn max_windows<T: Pooled>(out: &mut [T], x: &[T], n: usize, starts: &[usize], w: &[Window]) {
        let veil = Veil::new();
        for (out, w) in out.chunks_exact_mut(n).zip(w) {
            out.fill(T::LEAST);
            for line in starts {
                for i in (line + w.start..line + w.end).step_by(w.step) {
                    for (a, &b) in out.iter_mut().zip(&x[i * n..(i + 1) * n]) {
                        let kept = veil.over(*a);
                        *a = if b > kept || b.nan() { b } else { kept };
                    }
                }
            }
        }
    }
}

simd_fn! { wide
    /// The sums of `n` neighbours each over windows of lines, which begin at `starts`.
    fn sum_windows<T: Pooled>(out: &mut [T], x: &[T], n: usize, starts: &[usize], w: &[Window]) {
        for (out, w) in out.chunks_exact_mut(n).zip(w) {
            out.fill(T::default());
            for line in starts {
                for i in line + w.start..line + w.end {
                    for (a, &b) in out.iter_mut().zip(&x[i * n..(i + 1) * n]) {
                        *a = *a + b;
                    }
                }
            }
        }
    }
}

simd_fn! { wide
    /// The same, with the places of the elements, the first of which is `first`.
    fn larger_at<T: Pooled>(a: &mut [T], place: &mut [i32], b: &[T], first: i32) {
        let veil = Veil::new();
        for (((a, at), &b), i) in a.iter_mut().zip(place).zip(b).zip(first..) {
            let (kept, there) = (veil.over(*a), veil.over(*at));
            let more = (b > kept) | b.nan();
            *a = if more { b } else { kept };
            *at = if more { i } else { there };
        }
    }
}

simd_fn! { wide
    /// The same of elements that are all in one place.
    fn larger_from<T: Pooled>(a: &mut [T], place: &mut [i64], b: &[T], from: i64) {
        let veil = Veil::new();
        for ((a, at), &b) in a.iter_mut().zip(place).zip(b) {
            let (kept, there) = (veil.over(*a), veil.over(*at));
            let more = (b > kept) | b.nan();
            *a = if more { b } else { kept };
            *at = if more { from } else { there };
        }
    }
}

simd_fn! { wide
    /// `a[i] += b[i]`.
    pub fn plus<T: Sum>(a: &mut [T], b: &[T]) {
        for (a, &b) in a.iter_mut().zip(b) {
            *a = *a + b;
        }
    }
}

impl<T: Pooled> Row<'_, T> {
    /// Calls `f` with the offset of each input line of the row's windows.
    fn lines(&self, mut f: impl FnMut(usize)) {
        for d in (self.d.start..self.d.end).step_by(self.d.step) {
            for h in (self.h.start..self.h.end).step_by(self.h.step) {
                f((d * self.size[1] + h) * self.size[2]);
            }
        }
    }

    /// Maxima with their positions, of all inner elements of a window at once.
    pub(super) fn max_at(&self, out: &mut [T], at: &mut [i64]) {
        let n = self.inner;
        let results = out.chunks_exact_mut(n).zip(at.chunks_exact_mut(n));
        for ((out, at), w) in results.zip(self.w) {
            let first = (self.d.start * self.size[1] + self.h.start) * self.size[2] + w.start;
            out.fill(T::LEAST);
            at.fill(first as i64);
            self.lines(|line| {
                for i in (line + w.start..line + w.end).step_by(w.step) {
                    larger_from(out, at, &self.x[i * n..][..n], i as i64);
                }
            });
        }
    }

    /// Maxima of planes one by one, with positions where there is room for them.
    fn max_each(&self, out: &mut [T], mut at: Option<&mut [i64]>) {
        for (o, w) in self.w.iter().enumerate() {
            let first = (self.d.start * self.size[1] + self.h.start) * self.size[2] + w.start;
            let (mut best, mut place) = (T::LEAST, first);
            self.lines(|line| {
                for i in (line + w.start..line + w.end).step_by(w.step) {
                    let v = self.x[i];
                    if v > best || v.nan() {
                        (best, place) = (v, i);
                    }
                }
            });
            out[o] = best;
            if let Some(at) = &mut at {
                at[o] = place as i64;
            }
        }
    }

    /// Maxima of planes, with positions where there is room for them; `alike` windows together.
    pub(super) fn max(
        &self,
        out: &mut [T],
        mut at: Option<&mut [i64]>,
        lines: &mut Lines<T>,
        alike: Option<&Alike>,
    ) {
        let mut starts = std::mem::take(&mut lines.starts);
        starts.clear();
        self.lines(|line| starts.push(line));
        let together = |a: &&Alike| {
            let at = at.as_deref_mut().map(|at| &mut at[a.all.clone()]);
            a.max(self.x, &starts, &mut out[a.all.clone()], at)
        };
        let done = alike.filter(together).map_or(0..0, |a| a.all.clone());
        lines.starts = starts;
        for part in [0..done.start, done.end..self.w.len()] {
            if part.is_empty() {
                continue;
            }
            let w = &self.w[part.clone()];
            let (row, out) = (Row { w, ..*self }, &mut out[part.clone()]);
            match (at.as_deref_mut(), done.is_empty()) {
                (at, false) => row.max_each(out, at.map(|at| &mut at[part])),
                (Some(at), true) => row.max_lines_at(out, at, lines),
                (None, true) => row.max_lines(out, lines),
            }
        }
    }

    /// Maxima of planes with positions: first over lines, a vector at a time, then along the line. Of equal elements the
    /// first counts, of NaNs the last, in the order of the plane.
    fn max_lines_at(&self, out: &mut [T], at: &mut [i64], lines: &mut Lines<T>) {
        let width = self.size[2];
        let first = (self.d.start * self.size[1] + self.h.start) * width;
        let Ok(end) = i32::try_from(self.x.len()) else {
            return self.max_each(out, Some(at));
        };
        lines.best.fill(T::LEAST);
        lines.place.clear();
        lines.place.resize(width, end);
        let (best, place) = (&mut lines.best, &mut lines.place);
        self.lines(|line| larger_at(best, place, &self.x[line..line + width], line as i32));
        for ((o, at), w) in out.iter_mut().zip(at).zip(self.w) {
            let (mut most, mut from) = (T::LEAST, (first + w.start) as i32);
            for i in (w.start..w.end).step_by(w.step) {
                let (v, p) = (lines.best[i], lines.place[i]);
                let more = if v.nan() {
                    !most.nan() || p > from
                } else {
                    v > most || v == most && p < from
                };
                if more {
                    (most, from) = (v, p);
                }
            }
            (*o, *at) = (most, i64::from(from));
        }
    }

    /// Maxima of planes: first over lines, a vector at a time, then along the line.
    fn max_lines(&self, out: &mut [T], lines: &mut Lines<T>) {
        let line = &mut lines.best;
        line.fill(T::LEAST);
        let n = self.size[2];
        self.lines(|start| larger(line, &self.x[start..start + n]));
        for (o, w) in out.iter_mut().zip(self.w) {
            let mut best = T::LEAST;
            let mut i = w.start;
            while i < w.end {
                let v = line[i];
                best = if v > best || v.nan() { v } else { best };
                i += w.step;
            }
            *o = best;
        }
    }

    /// Maxima with channels innermost.
    pub(super) fn max_inner(&self, out: &mut [T], lines: &mut Lines<T>) {
        lines.starts.clear();
        self.lines(|line| lines.starts.push(line));
        if !T::WHOLE {
            return max_windows(out, self.x, self.inner, &lines.starts, self.w);
        }
        let n = self.size[2] * self.inner;
        lines.best.clear();
        lines.best.resize(n, T::LEAST);
        for line in &lines.starts {
            larger(&mut lines.best, &self.x[line * self.inner..][..n]);
        }
        max_windows(out, &lines.best, self.inner, &[0], self.w);
    }

    pub(super) fn mean(
        &self,
        out: &mut [T],
        lines: &mut Lines<T>,
        divisor: Option<i64>,
        padding: bool,
    ) {
        let (n, zero) = (self.inner, T::default());
        let count = |w: &Window| {
            let all = [&self.d, &self.h, w];
            divisor.unwrap_or_else(|| all.iter().map(|w| w.counted(padding)).product())
        };
        let empty = self.d.end <= self.d.start || self.h.end <= self.h.start;
        if n == 1 {
            let line = &mut lines.best;
            line.fill(zero);
            let width = self.size[2];
            self.lines(|start| plus(line, &self.x[start..start + width]));
            for (o, w) in out.iter_mut().zip(self.w) {
                *o = if empty || w.end <= w.start {
                    zero
                } else {
                    line[w.start..w.end]
                        .iter()
                        .fold(zero, |a, &b| a + b)
                        .over(count(w))
                };
            }
            return;
        }
        lines.starts.clear();
        self.lines(|line| lines.starts.push(line));
        sum_windows(out, self.x, n, &lines.starts, self.w);
        for (o, w) in out.chunks_exact_mut(n).zip(self.w) {
            if !empty && w.end > w.start {
                let by = count(w);
                o.iter_mut().for_each(|v| *v = v.over(by));
            }
        }
    }
}
