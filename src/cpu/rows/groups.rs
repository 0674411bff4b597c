//! Short rows, as many at a time as a block holds: of operands that are the same for all of them, or for those after a
//! group too, the block is filled once.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::{BLOCK, Lay, Meeting, Room, Rows, Way, bytes, repeat};
use crate::cpu::iter::Walk;
use crate::cpu::lines::by_size;
use crate::cpu::map::Form;
use crate::cpu::simd::simd_fn;
use crate::cpu::{past, planes};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Rows of at most so many elements are computed in groups, if none has to be copied aside where the loop could read it.
const SHORT: usize = BLOCK / 4;
/// The same where results lie over operands.
const FEWER: usize = 63;
/// The same of rows that go by way of blocks anyhow, whose rooms are then filled for several.
const LONG: usize = BLOCK / 2;
/// As many elements of a row are worth copying aside where the loop could read and write them as they lie.
const FEW: usize = 12;

/// The steps of rows in bytes, from a row to the next and from a plane of so many rows to the next, and the elements of a row.
struct Group<'a, const N: usize> {
    rows: &'a Rows<'a, N>,
    row: [isize; N],
    next: [isize; N],
    plane: [isize; N],
    n: usize,
    form: Form,
}

/// Rooms of a task, what each operand's was filled from, and with how many elements.
struct Rooms<const N: usize> {
    rooms: [Room<BLOCK>; N],
    aside: Room<BLOCK>,
    held: [(*mut u8, usize); N],
}

impl<const N: usize> Rooms<N> {
    fn new() -> Self {
        Self {
            rooms: [const { Room::new() }; N],
            aside: Room::new(),
            held: [(null_mut(), 0); N],
        }
    }
}

/// Runs the rows of a walk in groups, if they are short; says whether they are.
pub(super) fn run<const N: usize>(rows: &Rows<N>, walk: &Walk<N>, lay: Lay) -> bool {
    let Some(([row, next], [n, count])) = walk.inner() else {
        return false;
    };
    let apart = planes::are_apart(row[0], next[0], n);
    if n > LONG || rows.meeting == Meeting::Mixed || !apart {
        return false;
    }
    // Planes that are much shorter than a block are computed several at a time: what is read soon after it was written in
    // pieces has to wait.
    let planes = walk.planes().filter(|_| 2 * n * count <= BLOCK);
    let plane = planes.unwrap_or([0; N]);
    let fixed = |k: usize| row[k] == 0 && next[k] == 0 && plane[k] == 0;
    let number = |k: usize| fixed(k) && rows.sides[k].convert.is_none();
    let numbers = N > 2 && (2..N).all(number) && rows.kernel.block(Form::Numbers).is_some();
    let form = Form::of(false, numbers);
    let group = Group {
        rows,
        row,
        next,
        plane,
        n,
        form,
    };
    let scattered = (0..N).any(|k| next[k] != 0 && !group.is_run(k, [2, 1]));
    let direct = !matches!(lay.way, Way::Blocks);
    let most = match rows.meeting {
        _ if scattered => FEW,
        Meeting::Apart => SHORT,
        // Results that may not be written before the operands are read are copied.
        _ => FEWER,
    };
    if direct && n > most || rows.kernel.block(form).is_none() {
        return false;
    }
    let (along, most) = match planes {
        Some(_) => (2, BLOCK / (n * count)),
        None => (1, BLOCK / n),
    };
    walk.run_groups(along, most, Rooms::new, |rooms, ptrs, found| {
        let size = if along == 2 {
            [count, found]
        } else {
            [found, 1]
        };
        // SAFETY: the walk visits each element of the sides' common shape once.
        unsafe { group.compute(rooms, ptrs, size) };
    });
    true
}

impl<const N: usize> Group<'_, N> {
    /// Whether so many planes of rows of a side are one run of elements.
    fn is_run(&self, side: usize, [count, planes]: [usize; 2]) -> bool {
        let item = self.item(side) as isize;
        let row = item * self.n as isize;
        let rows = self.row[side] == item && (count == 1 || self.next[side] == row);
        rows && (planes == 1 || self.plane[side] == row * count as isize)
    }

    /// Bytes of a side's element in memory.
    fn item(&self, side: usize) -> usize {
        self.rows.items[side]
    }

    /// Computes some planes of some rows.
    ///
    /// # Safety
    /// Every side has so many from its pointer on.
    unsafe fn compute(&self, rooms: &mut Rooms<N>, ptrs: &[*mut u8; N], size: [usize; 2]) {
        let m = self.n * size[0] * size[1];
        let whole = m.next_multiple_of(self.rows.kernel.unit());
        let mut from = [std::ptr::null::<u8>(); 3];
        for k in 1..N {
            let plain = self.rows.sides[k].convert.is_none();
            from[k - 1] = if plain && self.is_run(k, size) && whole == m {
                ptrs[k]
            } else {
                let (held, elements) = rooms.held[k];
                if held != ptrs[k] || elements < m {
                    // SAFETY: as the caller promises; a room holds a block.
                    unsafe {
                        let given = self.bring(rooms, k, ptrs[k], size);
                        let (room, item) = (rooms.rooms[k].start(), self.rows.sides[k].item);
                        repeat(room, given * item, whole * item);
                    }
                    rooms.held[k] = (ptrs[k], m);
                }
                rooms.rooms[k].start()
            };
        }
        for k in N - 1..3 {
            from[k] = from[0];
        }
        let Some(block) = self.rows.kernel.block(self.form) else {
            return;
        };
        let straight = self.is_run(0, size)
            && whole == m
            && self.rows.sides[0].convert.is_none()
            && self.rows.meeting == Meeting::Apart
            && !self.rows.stream;
        let room = rooms.rooms[0].start();
        let to = if straight { ptrs[0] } else { room };
        // SAFETY: the operands are dense blocks or numbers of the loop's types, apart from where it writes.
        unsafe {
            block(
                bytes(to, whole * self.rows.sides[0].item),
                from,
                self.rows.ctx,
            );
            if !straight {
                self.put(ptrs[0], room, size);
            }
        }
    }

    /// Fills an operand's room with planes of rows; how many elements there are then, of which the others are copies.
    ///
    /// # Safety
    /// The operand has the rows, and a block holds the elements.
    unsafe fn bring(
        &self,
        rooms: &mut Rooms<N>,
        k: usize,
        ptr: *mut u8,
        [count, planes]: [usize; 2],
    ) -> usize {
        let (side, n, plane) = (self.rows.sides[k], self.n, self.plane[k]);
        let (room, aside) = (rooms.rooms[k].start(), rooms.aside.start());
        // SAFETY: as the caller promises.
        unsafe {
            if self.is_run(k, [count, planes]) {
                side.bring()(
                    room,
                    side.item as isize,
                    ptr,
                    self.row[k],
                    n * count * planes,
                );
                return n * count * planes;
            }
            if self.next[k] == 0 && plane == 0 {
                side.bring()(room, side.item as isize, ptr, self.row[k], n);
                return n;
            }
            if plane == self.next[k] * count as isize {
                self.bring_rows(k, (room, aside), ptr, count * planes);
                return n * count * planes;
            }
            for p in 0..planes {
                let to = room.add(p * n * count * side.item);
                self.bring_rows(k, (to, aside), ptr.offset(p as isize * plane), count);
            }
        }
        n * count * planes
    }

    /// Fills a room with so many rows of an operand.
    ///
    /// # Safety
    /// The operand has the rows, and the room space for them and as much again.
    unsafe fn bring_rows(
        &self,
        k: usize,
        (room, aside): (*mut u8, *mut u8),
        ptr: *mut u8,
        count: usize,
    ) {
        let (side, n, row, next) = (self.rows.sides[k], self.n, self.row[k], self.next[k]);
        let item = side.item;
        let (step, line) = (item as isize, (n * item) as isize);
        let plain = side.convert.is_none();
        // SAFETY: as the caller promises.
        unsafe {
            if next == 0 {
                side.bring()(room, step, ptr, row, n);
                if item <= WORD {
                    by_size!(item, E => again::<E>(room, n, n * count));
                } else {
                    repeat(room, n * item, n * count * item);
                }
            } else if self.is_run(k, [2, 1]) {
                side.bring()(room, step, ptr, row, n * count);
            } else if plain && row == 0 && item <= WORD {
                by_size!(item, E => spread::<E>(room, ptr, next, [n, count]));
            } else if plain {
                planes::copier(item)(room, [step, line], ptr, [row, next], [n, count]);
            } else if row == 0 {
                side.bring()(aside, step, ptr, next, count);
                planes::copier(item)(room, [step, line], aside, [0, step], [n, count]);
            } else {
                for r in 0..count as isize {
                    let to = room.offset(r * line);
                    side.bring()(to, step, ptr.offset(r * next), row, n);
                }
            }
        }
    }

    /// Brings planes of rows of results to their place.
    ///
    /// # Safety
    /// The result has the rows, and the room their elements.
    unsafe fn put(&self, ptr: *mut u8, room: *mut u8, [count, planes]: [usize; 2]) {
        let (side, n, row, next) = (self.rows.sides[0], self.n, self.row[0], self.next[0]);
        let (item, m) = (side.item, n * count);
        let (step, line) = (item as isize, (n * item) as isize);
        // SAFETY: as the caller promises.
        unsafe {
            if self.is_run(0, [count, planes]) {
                let m = m * planes;
                if self.rows.stream && past::fits(ptr, m * item) {
                    past::store(ptr, room, m * item);
                    past::finish();
                } else {
                    side.bring()(ptr, row, room, step, m);
                }
                return;
            }
            for p in 0..planes {
                let (ptr, room) = (
                    ptr.offset(p as isize * self.plane[0]),
                    room.add(p * m * item),
                );
                if side.convert.is_none() {
                    planes::copier(item)(ptr, [row, next], room, [step, line], [n, count]);
                    continue;
                }
                for r in 0..count as isize {
                    side.bring()(ptr.offset(r * next), row, room.offset(r * line), step, n);
                }
            }
        }
    }
}

/// Elements that are written at a time: the last ones of a row reach into the next, which is written after it. A room is
/// twice as long as a block of words.
const PIECE: usize = 8;
/// Bytes of the largest elements for which that is so.
const WORD: usize = size_of::<u64>();

simd_fn! { stream
    /// Fills rows of `n` elements with one each, which lie `next` bytes apart: there are so many, and room for rows of words
    /// up to a block.
    fn spread<T: Copy>(to: *mut u8, from: *const u8, next: isize, size: [usize; 2]) {
        let [n, rows] = size;
        for r in 0..rows {
            // SAFETY: the caller's.
            unsafe {
                let x = from.offset(r as isize * next).cast::<T>().read_unaligned();
                let to = to.cast::<T>().add(r * n);
                for at in (0..n).step_by(PIECE) {
                    to.add(at).cast::<[T; PIECE]>().write_unaligned([x; PIECE]);
                }
            }
        }
    }
}

simd_fn! { stream
    /// Repeats the first `n` elements up to `whole` ones: they are there, and room for rows of words up to a block.
    fn again<T: Copy>(room: *mut u8, n: usize, whole: usize) {
        let room = room.cast::<MaybeUninit<T>>();
        for start in (n..whole).step_by(n) {
            for at in (0..n).step_by(PIECE) {
                // SAFETY: the caller's.
                unsafe {
                    let piece = room.add(at).cast::<[MaybeUninit<T>; PIECE]>();
                    let to = room.add(start + at).cast::<[MaybeUninit<T>; PIECE]>();
                    to.write_unaligned(piece.read_unaligned());
                }
            }
        }
    }
}
