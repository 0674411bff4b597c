//! Picking by a table a dimension: whole rows of the result, in pieces that keep their order.

#![allow(unsafe_code, reason = "rows of dense tensors are written by pointer")]

use crate::Tensor;
use crate::cpu::iter::GRAIN;
use crate::cpu::lines::by_size;
use crate::cpu::pad::Table;
use crate::cpu::pool;
use smallvec::SmallVec;

/// `dst[i, j, ...] = src[ti[i], tj[j], ...]` for dense tensors; dimensions without a table keep their place. Tables
/// must hold places inside `src`.
pub fn pick_grid(dst: &Tensor, src: &Tensor, tables: &[Option<&Table>]) {
    by_size!(dst.dtype().size(), E => grid::<E>(dst, src, tables));
}

fn grid<T: Copy + Send + Sync>(dst: &Tensor, src: &Tensor, tables: &[Option<&Table>]) {
    struct Share<T>(*mut T, *const T);
    // SAFETY: every row of the result is written by one thread.
    unsafe impl<T> Sync for Share<T> {}
    let n = dst.ndim();
    let Some(last) = n.checked_sub(1) else { return };
    let width = dst.shape()[last] as usize;
    if dst.numel() == 0 || src.numel() == 0 {
        return;
    }
    let rows = dst.numel() as usize / width;
    let share = Share(
        dst.data_ptr().cast::<T>(),
        src.data_ptr().cast::<T>().cast_const(),
    );
    let sizes: SmallVec<[usize; 6]> = dst.shape().iter().map(|&n| n as usize).collect();
    let mut steps: SmallVec<[usize; 6]> = SmallVec::from_elem(1, n);
    for d in (0..last).rev() {
        steps[d] = steps[d + 1] * src.shape()[d + 1] as usize;
    }
    // The part of a row that keeps its order is copied in one go; of the rest, which element comes from which.
    let table = tables[last];
    let (first, start, run) = table.map_or((0, 0, width), |t| (t.before.len(), t.first, t.run));
    let singles: Vec<(usize, usize)> = table.map_or_else(Vec::new, |t| {
        let after = (first + run..).zip(&t.after);
        let apart = (0..).zip(&t.before).chain(after);
        apart.map(|(j, &at)| (j, at)).collect()
    });
    let along = |d: usize, i: usize| steps[d] * tables[d].map_or(i, |t| t.at(i));
    let (outer, inner) = match last.checked_sub(1) {
        Some(d) => (d, sizes[d]),
        None => (0, 1),
    };
    pool::parallel_for(rows, (GRAIN / width).max(1), |range| {
        let share = &share;
        let mut r = range.start;
        while r < range.end {
            // Divisions for each row would take longer than the row: rows of a plane share theirs.
            let (mut rest, first_row) = (r / inner, r % inner);
            let mut base = 0;
            for d in (0..outer).rev() {
                base += along(d, rest % sizes[d]);
                rest /= sizes[d];
            }
            let stop = range.end.min(r - first_row + inner);
            for (i, r) in (first_row..).zip(r..stop) {
                let place = base + if last > 0 { along(outer, i) } else { 0 };
                // SAFETY: tables hold places inside `src`; the row lies inside `dst`.
                unsafe {
                    let (to, from) = (share.0.add(r * width), share.1.add(place));
                    std::ptr::copy_nonoverlapping(from.add(start), to.add(first), run);
                    for &(j, at) in &singles {
                        *to.add(j) = *from.add(at);
                    }
                }
            }
            r = stop;
        }
    });
}
