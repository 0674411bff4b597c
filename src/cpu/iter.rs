//! The only strided loop: walks several operands of one shape, innermost dimension in rows.

#![allow(unsafe_code, reason = "moves raw pointers through checked layouts")]

use super::pool;
use smallvec::SmallVec;

/// Elements below which a loop stays on the calling thread.
pub const GRAIN: usize = 16 * 1024;

/// A loop nest over `N` operands; strides in bytes, dimensions innermost first, neighbours merged.
pub struct Walk<const N: usize> {
    sizes: SmallVec<[usize; 6]>,
    strides: SmallVec<[[isize; N]; 6]>,
    ptrs: [*mut u8; N],
    total: usize,
}

// SAFETY: the walk only hands its pointers to loops that the caller has declared safe to run in parallel.
unsafe impl<const N: usize> Sync for Walk<N> {}

impl<const N: usize> Walk<N> {
    /// Plans a walk of `shape`. `strides[k]` are operand k's strides in elements of `items[k]` bytes.
    #[must_use]
    pub fn new(shape: &[i64], ptrs: [*mut u8; N], strides: [&[i64]; N], items: [usize; N]) -> Self {
        let mut dims: SmallVec<[(usize, [isize; N]); 6]> = SmallVec::new();
        let mut total = 1usize;
        for d in (0..shape.len()).rev() {
            total *= shape[d] as usize;
            if shape[d] == 1 {
                continue;
            }
            dims.push((
                shape[d] as usize,
                std::array::from_fn(|k| strides[k][d] as isize * items[k] as isize),
            ));
        }
        // Innermost is the smallest step of the first operand that steps at all; ties keep row-major order.
        for i in 1..dims.len() {
            let mut j = i;
            while j > 0 && before(&dims[j].1, &dims[j - 1].1) {
                dims.swap(j, j - 1);
                j -= 1;
            }
        }
        let mut sizes: SmallVec<[usize; 6]> = SmallVec::new();
        let mut merged: SmallVec<[[isize; N]; 6]> = SmallVec::new();
        for (size, step) in dims {
            if let (Some(last), Some(prev)) = (sizes.last_mut(), merged.last())
                && (0..N).all(|k| step[k] == prev[k] * *last as isize)
            {
                *last *= size;
                continue;
            }
            sizes.push(size);
            merged.push(step);
        }
        if sizes.is_empty() {
            sizes.push(total.min(1));
            merged.push([0; N]);
        }
        Self {
            sizes,
            strides: merged,
            ptrs,
            total,
        }
    }

    /// Calls `f(pointers, strides, n)` for runs that together cover every element once, on all threads if there
    /// are more than `grain` elements.
    pub fn run(&self, grain: usize, f: impl Fn(&[*mut u8; N], &[isize; N], usize) + Sync) {
        if self.total == 0 {
            return;
        }
        if self.sizes.len() == 1 && self.total <= grain {
            f(&self.ptrs, &self.strides[0], self.total);
            return;
        }
        pool::parallel_for(self.total, grain, |range| {
            self.run_range(range.start, range.end, &f)
        });
    }

    /// The steps of its rows, in bytes.
    #[must_use]
    pub fn steps(&self) -> [isize; N] {
        self.strides.first().copied().unwrap_or([0; N])
    }

    /// Elements of a row; runs are as long or shorter.
    #[must_use]
    pub fn row(&self) -> usize {
        self.sizes[0]
    }

    /// Like [`Walk::run`], in order on the calling thread.
    pub fn run_serial(&self, mut f: impl FnMut(&[*mut u8; N], &[isize; N], usize)) {
        if self.total > 0 {
            self.run_range(0, self.total, &mut f);
        }
    }

    /// Elements `start..end`. Rows that follow each other in the second dimension are stepped to without asking about others.
    fn run_range(
        &self,
        start: usize,
        end: usize,
        mut f: impl FnMut(&[*mut u8; N], &[isize; N], usize),
    ) {
        let (sizes, strides) = (&self.sizes[..], &self.strides[..]);
        let mut index: SmallVec<[usize; 6]> = SmallVec::new();
        let mut ptrs = self.ptrs;
        let mut rest = start;
        for (&size, steps) in sizes.iter().zip(strides) {
            index.push(rest % size);
            shift(&mut ptrs, steps, (rest % size) as isize);
            rest /= size;
        }
        let (width, row) = (sizes[0], &strides[0]);
        let (count, next) = match (sizes, strides) {
            ([_, count, ..], [_, next, ..]) => (*count, *next),
            _ => (1, [0; N]),
        };
        let mut first = index.get(1).copied().unwrap_or(0);
        let mut col = index[0];
        let mut at = start;
        loop {
            for _ in first..count {
                let n = (width - col).min(end - at);
                f(&ptrs, row, n);
                at += n;
                if at >= end {
                    return;
                }
                if col > 0 {
                    shift(&mut ptrs, row, -(col as isize));
                    col = 0;
                }
                shift(&mut ptrs, &next, 1);
            }
            shift(&mut ptrs, &next, -(count as isize));
            first = 0;
            for d in 2..sizes.len() {
                index[d] += 1;
                if index[d] < sizes[d] {
                    shift(&mut ptrs, &strides[d], 1);
                    break;
                }
                shift(&mut ptrs, &strides[d], 1 - sizes[d] as isize);
                index[d] = 0;
            }
        }
    }

    /// Calls `f(what new() gave the task, pointers, count)` for groups of at most `most` rows (`along` 1) or planes (2) that
    /// follow each other in their dimension, on all threads if there are many elements.
    pub fn run_groups<S>(
        &self,
        along: usize,
        most: usize,
        new: impl Fn() -> S + Sync,
        f: impl Fn(&mut S, &[*mut u8; N], usize) + Sync,
    ) {
        let (Some(&count), Some(next)) = (self.sizes.get(along), self.strides.get(along)) else {
            return;
        };
        if self.total == 0 {
            return;
        }
        let n: usize = self.sizes[..along].iter().product();
        let (sizes, strides) = (&self.sizes[along + 1..], &self.strides[along + 1..]);
        let most = most.max(1);
        let groups = count.div_ceil(most);
        let all = self.total / (n * count) * groups;
        let grain = (GRAIN / (n * most.min(count))).max(1);
        pool::parallel_for(all, grain, |range| {
            let mut state = new();
            for at in range {
                let (first, mut rest, mut ptrs) = (at % groups * most, at / groups, self.ptrs);
                shift(&mut ptrs, next, first as isize);
                for (size, steps) in sizes.iter().zip(strides) {
                    shift(&mut ptrs, steps, (rest % size) as isize);
                    rest /= size;
                }
                f(&mut state, &ptrs, most.min(count - first));
            }
        });
    }

    /// The steps from a plane of rows to the next, if there are planes.
    #[must_use]
    pub fn planes(&self) -> Option<[isize; N]> {
        self.strides.get(2).copied()
    }

    /// The steps within rows and from a row to the next in the second dimension, and their sizes, if there are two.
    #[must_use]
    pub fn inner(&self) -> Option<([[isize; N]; 2], [usize; 2])> {
        match (&self.sizes[..], &self.strides[..]) {
            (&[n, count, ..], &[row, next, ..]) => Some(([row, next], [n, count])),
            _ => None,
        }
    }

    /// Where its operands start.
    #[must_use]
    pub fn starts(&self) -> [*mut u8; N] {
        self.ptrs
    }

    /// The steps and the elements of the only row, if there is but one.
    #[must_use]
    pub fn only(&self) -> Option<([isize; N], usize)> {
        match (&self.sizes[..], &self.strides[..]) {
            (&[n], &[row]) if self.total > 0 => Some((row, n)),
            _ => None,
        }
    }

    /// The steps within rows and from a row to the next, how many rows there are and the elements of one, if there are
    /// any and each follows the one before by the same steps.
    #[must_use]
    pub fn rows(&self) -> Option<([[isize; N]; 2], [usize; 2])> {
        let ([row, next], [n, count]) = self.inner()?;
        (self.sizes.len() == 2 && self.total > 0).then_some(([row, next], [count, n]))
    }
}

/// Moves pointers by `n` steps.
#[inline(always)]
fn shift<const N: usize>(ptrs: &mut [*mut u8; N], steps: &[isize; N], n: isize) {
    for (p, step) in ptrs.iter_mut().zip(steps) {
        *p = p.wrapping_offset(step * n);
    }
}

/// Whether steps `a` belong inside steps `b`.
fn before<const N: usize>(a: &[isize; N], b: &[isize; N]) -> bool {
    for k in 0..N {
        if a[k] != b[k] && a[k] != 0 && b[k] != 0 {
            return a[k].abs() < b[k].abs();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_every_element_of_a_transposed_pair() {
        let a: Vec<i32> = (0..24).collect();
        let mut b = vec![0i32; 24];
        let walk = Walk::<2>::new(
            &[4, 6],
            [b.as_mut_ptr().cast(), a.as_ptr() as *mut u8],
            [&[6, 1], &[1, 4]],
            [4, 4],
        );
        walk.run(1, |p, s, n| {
            for i in 0..n as isize {
                // SAFETY: both vectors hold 24 elements and the walk stays in the shape.
                unsafe {
                    *p[0].offset(s[0] * i).cast::<i32>() = *p[1].offset(s[1] * i).cast::<i32>()
                };
            }
        });
        for r in 0..4 {
            for c in 0..6 {
                assert_eq!(b[r * 6 + c], (c * 4 + r) as i32);
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { cases: if cfg!(miri) { 16 } else { 256 }, failure_persistence: None, ..Default::default() })]

        /// Any shape, strides of both operands in any order of dimensions, some of them 0 for the second.
        #[test]
        fn every_element_is_visited_once(
            shape in proptest::collection::vec(0i64..5, 0..5),
            order in proptest::sample::select(vec![[0usize, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]]),
            expanded in 0u8..16,
            grain in 1usize..40,
        ) {
            let order: Vec<usize> = order.into_iter().filter(|&d| d < shape.len()).collect();
            let to = crate::dims::strides_in_order(&shape, &order);
            let mut from = crate::dims::contiguous_strides(&shape).to_vec();
            for (d, step) in from.iter_mut().enumerate() {
                if expanded & (1 << d) != 0 {
                    *step = 0;
                }
            }
            let n = shape.iter().product::<i64>() as usize;
            let a: Vec<i32> = (0..n as i32).collect();
            let b: Vec<std::sync::atomic::AtomicI32> = (0..n).map(|_| 0.into()).collect();
            let ptrs = [b.as_ptr() as *mut u8, a.as_ptr() as *mut u8];
            Walk::<2>::new(&shape, ptrs, [&to, &from], [4, 4]).run(grain, |p, s, n| {
                for i in 0..n as isize {
                    // SAFETY: both vectors hold an element for each index of the shape.
                    unsafe {
                        let x = *p[1].offset(s[1] * i).cast::<i32>();
                        (*p[0].offset(s[0] * i).cast::<std::sync::atomic::AtomicI32>())
                            .fetch_add(x + 1, std::sync::atomic::Ordering::Relaxed);
                    };
                }
            });
            for k in 0..n {
                let (mut rest, mut at, mut source) = (k as i64, 0, 0);
                for d in (0..shape.len()).rev() {
                    at += rest % shape[d] * to[d];
                    source += rest % shape[d] * from[d];
                    rest /= shape[d];
                }
                proptest::prop_assert_eq!(b[at as usize].load(std::sync::atomic::Ordering::Relaxed), a[source as usize] + 1);
            }
        }
    }
}
