//! Places of values in sorted edges.

#![allow(unsafe_code, reason = "tasks write disjoint places")]

use super::lines;
use std::hint::select_unpredictable;

/// Edges from which on asking where the value before was costs less than it saves.
const MANY: usize = 64;

/// Places of values in sorted lines of `n` edges, each of which has `per_line` of them; `sorter` gives the order of unsorted lines.
pub fn search_all<T: PartialOrd + Copy + Sync>(
    (edges, n): (&[T], usize),
    sorter: Option<&[i64]>,
    (values, per_line): (&[T], usize),
    right: bool,
    to: &mut [i64],
) {
    let to = lines::Shared::new(to);
    super::pool::parallel_for(values.len(), super::iter::GRAIN / 2, |range| {
        let mut i = range.start;
        while i < range.end {
            let line = i / per_line;
            let end = range.end.min(per_line.saturating_mul(line + 1));
            let edges = &edges[line * n..][..n];
            let sorter = sorter.map(|s| &s[line * n..][..n]);
            // SAFETY: every value has its own place.
            let to = unsafe { to.part(i, end - i) };
            let mut last = 0;
            for (&x, to) in values[i..end].iter().zip(to) {
                let is_before = |k: usize| before(edges, sorter, k, x, right);
                // Values are often in order, or near each other.
                let same = n >= MANY
                    && (last == 0 || is_before(last - 1))
                    && (last == n || !is_before(last));
                if !same {
                    last = search(edges, sorter, x, right) as usize;
                }
                *to = last as i64;
            }
            i = end;
        }
    });
}

/// Whether an edge comes before the place of a value. NaN is beyond everything.
#[inline(always)]
fn before<T: PartialOrd + Copy>(
    edges: &[T],
    sorter: Option<&[i64]>,
    k: usize,
    x: T,
    right: bool,
) -> bool {
    let e = match sorter {
        Some(s) => edges[s[k] as usize],
        None => edges[k],
    };
    if right { !(e > x) } else { !(e >= x) }
}

/// The place of a value in a sorted line of edges; `sorter` gives the order of an unsorted one.
pub fn search<T: PartialOrd + Copy>(edges: &[T], sorter: Option<&[i64]>, x: T, right: bool) -> i64 {
    let (mut lo, mut hi) = (0, edges.len());
    while lo < hi {
        let mid = lo + (hi - lo) / 2;
        // A branch would be guessed wrong every other time.
        let before = before(edges, sorter, mid, x, right);
        lo = select_unpredictable(before, mid + 1, lo);
        hi = select_unpredictable(before, hi, mid);
    }
    lo as i64
}
