//! Maxima of windows that all look alike, some of a row at a time.

use super::{Pooled, Window};
use crate::cpu::simd::simd_fn;
use std::ops::Range;

/// Windows that are worked on together.
const TOGETHER: usize = 8;
/// Elements from one window to the next.
const STRIDE: usize = 2;

/// The windows of a row that have as many neighbours for elements and are two elements behind each other.
#[derive(Clone, Debug)]
pub(super) struct Alike {
    /// Which windows.
    pub(super) all: Range<usize>,
    /// The first element of the first.
    start: usize,
    /// Elements of each.
    taps: usize,
}

impl Alike {
    /// Those around the middle of a row, if they are worth it.
    pub(super) fn of(row: &[Window]) -> Option<Self> {
        let middle = row.len() / 2;
        let model = row.get(middle)?;
        let taps = model.end.saturating_sub(model.start);
        let fits = |i: usize| {
            let place = (model.start + STRIDE * i).checked_sub(STRIDE * middle);
            let (start, end) = (row[i].start, row[i].end);
            place == Some(start) && end == start + taps && row[i].step == 1
        };
        let before = (0..middle).rev().take_while(|&i| fits(i)).count();
        let after = (middle..row.len()).take_while(|&i| fits(i)).count();
        let all = middle - before..middle + after;
        (all.len() >= TOGETHER && taps >= 2).then(|| Self {
            start: row[all.start].start,
            all,
            taps,
        })
    }

    /// The maxima of these windows and their places, over the lines of a plane that begin at `lines`; false if there is none, or
    /// more elements than can be counted.
    pub(super) fn max<T: Pooled>(
        &self,
        x: &[T],
        lines: &[usize],
        out: &mut [T],
        at: Option<&mut [i64]>,
    ) -> bool {
        let fit = i32::try_from(x.len()).is_ok() && !lines.is_empty();
        if fit {
            maxima(x, lines, self.start, self.taps, out, at);
        }
        fit
    }
}

simd_fn! { wide
    /// Of equal elements the first counts, of NaNs the last. The last windows end the row: some may be done twice, as may a
    /// window's last element but one, where they are odd.
    fn maxima<T: Pooled>(x: &[T], lines: &[usize], start: usize, taps: usize, out: &mut [T], at: Option<&mut [i64]>) {
        let n = out.len();
        let mut at = at;
        let mut done = 0;
        while done < n {
            let from = done.min(n - TOGETHER);
            done = from + TOGETHER;
            let start = start + STRIDE * from;
            let (mut best, mut place) = ([T::LEAST; TOGETHER], [(lines[0] + start) as i32; TOGETHER]);
            for l in 0..TOGETHER {
                place[l] += (STRIDE * l) as i32;
            }
            for &line in lines {
                for tap in (0..taps).step_by(2) {
                    let i = line + start + tap.min(taps - 2);
                    let Some(v) = x[i..].first_chunk::<{ STRIDE * TOGETHER }>() else { return };
                    // Both of a pair: vectors of which half is not used would be read by masks, slowly.
                    for l in 0..TOGETHER {
                        let v = v[STRIDE * l];
                        let more = (v > best[l]) | v.nan();
                        best[l] = if more { v } else { best[l] };
                        place[l] = if more { (i + STRIDE * l) as i32 } else { place[l] };
                    }
                    for l in 0..TOGETHER {
                        let v = v[STRIDE * l + 1];
                        let more = (v > best[l]) | v.nan();
                        best[l] = if more { v } else { best[l] };
                        place[l] = if more { (i + STRIDE * l + 1) as i32 } else { place[l] };
                    }
                }
            }
            if let Some(to) = out[from..].first_chunk_mut::<TOGETHER>() {
                *to = best;
            }
            if let Some(to) = at.as_deref_mut().and_then(|at| at[from..].first_chunk_mut::<TOGETHER>()) {
                for l in 0..TOGETHER {
                    to[l] = i64::from(place[l]);
                }
            }
        }
    }
}
