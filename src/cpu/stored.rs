//! Lines of any floating type in the type that kernels compute in: 16-bit ones are converted as a kernel comes to them.

#![allow(unsafe_code, reason = "hands lines of known length to conversions")]

use super::halves::{narrowed, widened};
use super::lanes::Real;
use super::lines::Shared;
use super::pool;
use crate::Element;
use half::{bf16, f16};

/// Elements as they are stored.
pub trait Stored: Element {
    /// What kernels compute in.
    type Wide: Real;

    /// Converts a line into one as long.
    fn widen(line: &[Self], to: &mut [Self::Wide]);

    /// Converts a line back into one as long.
    fn store(line: &[Self::Wide], to: &mut [Self]);

    /// The same memory, if elements are stored as they are computed in.
    fn shared(memory: Shared<Self>) -> Option<Shared<Self::Wide>>;

    /// The elements of a line, in `room` if they have to be converted.
    fn wide<'a>(line: &'a [Self], room: &'a mut Vec<Self::Wide>) -> &'a [Self::Wide];

    /// Has a line filled, by way of `room` if the elements have to be converted. What fills it is alike for all types that
    /// compute in one, and stands on its own.
    fn fill(line: &mut [Self], room: &mut Vec<Self::Wide>, f: &mut dyn FnMut(&mut [Self::Wide]));
}

macro_rules! as_they_are {
    ($($t:ty)+) => { $(impl Stored for $t {
        type Wide = $t;
        fn widen(line: &[$t], to: &mut [$t]) {
            to.copy_from_slice(line);
        }
        fn store(line: &[$t], to: &mut [$t]) {
            to.copy_from_slice(line);
        }
        fn shared(memory: Shared<$t>) -> Option<Shared<$t>> {
            Some(memory)
        }
        fn wide<'a>(line: &'a [$t], _: &'a mut Vec<$t>) -> &'a [$t] {
            line
        }
        fn fill(line: &mut [$t], _: &mut Vec<$t>, f: &mut dyn FnMut(&mut [$t])) {
            f(line);
        }
    })+ };
}
as_they_are!(f32 f64);

macro_rules! halves {
    ($($t:ty)+) => { $(impl Stored for $t {
        type Wide = f32;
        fn widen(line: &[$t], to: &mut [f32]) {
            widened(line, to);
        }
        fn store(line: &[f32], to: &mut [$t]) {
            narrowed(line, to);
        }
        fn shared(_: Shared<$t>) -> Option<Shared<f32>> {
            None
        }
        fn wide<'a>(line: &'a [$t], room: &'a mut Vec<f32>) -> &'a [f32] {
            room.resize(line.len(), 0.0);
            widened(line, room);
            room
        }
        fn fill(line: &mut [$t], room: &mut Vec<f32>, f: &mut dyn FnMut(&mut [f32])) {
            room.resize(line.len(), 0.0);
            f(room);
            narrowed(room, line);
        }
    })+ };
}
halves!(f16 bf16);

/// Elements that are worth a task of their own.
const GRAIN: usize = 16384;

/// Calls `f(line, its elements, its part of `out`)` for all lines of `n` elements, on all threads if there is much to do.
pub fn each_line<E: Stored>(
    x: &[E],
    out: &mut [E],
    [lines, n]: [usize; 2],
    f: impl Fn(usize, &[E::Wide], &mut [E::Wide]) + Sync,
) {
    if n == 0 {
        return (0..lines).for_each(|line| f(line, &[], &mut []));
    }
    each_piece([x], out, n, |[x], first, out| {
        for (i, (x, out)) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)).enumerate() {
            f(first + i, x, out);
        }
    });
}

/// Elements of lines that are converted at a time, where these are short.
const PIECE: usize = 4096;

/// Whether elements are stored as they are computed in.
fn are_wide<E: Stored>() -> bool {
    size_of::<E>() == size_of::<E::Wide>()
}

/// Calls `f(elements, the first line, its part of `out`)` for lines of `n` elements of each operand, several at a time, on all
/// threads if there is much to do.
pub fn each_piece<E: Stored, const N: usize>(
    operands: [&[E]; N],
    out: &mut [E],
    n: usize,
    f: impl Fn([&[E::Wide]; N], usize, &mut [E::Wide]) + Sync,
) {
    pieces(operands, out, n, &f);
}

/// What is done to the elements of pieces, the first line of each and its part of the result.
type Piece<'a, W, const N: usize> = &'a (dyn Fn([&[W]; N], usize, &mut [W]) + Sync);

/// The same for all functions: a piece is long.
fn pieces<E: Stored, const N: usize>(
    operands: [&[E]; N],
    out: &mut [E],
    n: usize,
    f: Piece<'_, E::Wide, N>,
) {
    let n = n.max(1);
    let (lines, shared) = (out.len() / n, Shared::new(out));
    pool::parallel_for(lines, (GRAIN / n).max(1), |range| {
        let mut rooms: [Vec<E::Wide>; N] = std::array::from_fn(|_| Vec::new());
        let mut to = Vec::new();
        let each = if are_wide::<E>() {
            range.len().max(1)
        } else {
            (PIECE / n).max(1)
        };
        for first in range.clone().step_by(each) {
            let at = first * n..range.end.min(first + each) * n;
            let mut given = operands.iter();
            let wide = rooms.each_mut().map(|room| {
                let line = given.next().map_or(&[][..], |o| &o[at.clone()]);
                E::wide(line, room)
            });
            // SAFETY: every line has its own part.
            let part = unsafe { shared.part(at.start, at.len()) };
            E::fill(part, &mut to, &mut |to| f(wide, first, to));
        }
    });
}

/// Calls `f(elements, sizes, channel)` for the planes of channel `c` of operands of some `sizes`, which are rows, channels and
/// positions: all as they lie, or, where they are converted, those of some rows at a time as one.
pub fn each_plane<E: Stored, const N: usize>(
    operands: [&[E]; N],
    sizes: [usize; 3],
    c: usize,
    rooms: &mut [Vec<E::Wide>; N],
    mut f: impl FnMut([&[E::Wide]; N], [usize; 3], usize),
) {
    let [rows, channels, size] = sizes;
    let mut given = operands.iter();
    if are_wide::<E>() {
        let mut all = || given.next().map_or(&[][..], |o| o);
        return f(rooms.each_mut().map(|room| E::wide(all(), room)), sizes, c);
    }
    let each = (PIECE / size.max(1)).max(1);
    for first in (0..rows).step_by(each) {
        let count = each.min(rows - first);
        for (all, room) in operands.iter().zip(rooms.iter_mut()) {
            room.resize(count * size, E::Wide::default());
            for (r, to) in (first..).zip(room.chunks_exact_mut(size.max(1))) {
                E::widen(&all[(r * channels + c) * size..][..size], to);
            }
        }
        f(rooms.each_ref().map(Vec::as_slice), [1, 1, count * size], 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_by_way_of_rooms() {
        let line: Vec<bf16> = (0..100).map(|i| bf16::from_f32(i as f32)).collect();
        let (mut room, mut out) = (Vec::new(), vec![bf16::ZERO; 100]);
        let wide = bf16::wide(&line, &mut room).to_vec();
        assert_eq!(wide[99], 99.0);
        bf16::fill(&mut out, &mut Vec::new(), &mut |o| o.copy_from_slice(&wide));
        assert_eq!(out, line);
        assert_eq!(f64::wide(&[0.5], &mut Vec::new()), [0.5]);
    }
}
