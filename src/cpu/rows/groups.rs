//! Short rows, as many at a time as a block holds: of operands that are the same for all of them, or for those after a
//! group too, the block is filled once.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::{BLOCK, Lay, Meeting, Room, Rows, Way, bytes, repeat};
use crate::cpu::iter::Walk;
use crate::cpu::lines::by_size;
use crate::cpu::map::Form;
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
const FEW: usize = 32;

/// The steps of rows in bytes, from a row to the next, and the elements of one.
struct Group<'a, const N: usize> {
    rows: &'a Rows<'a, N>,
    row: [isize; N],
    next: [isize; N],
    n: usize,
    form: Form,
}

/// Rooms of a task, what each operand's was filled from, and with how many rows.
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
    let Some(([row, next], [n, _])) = walk.inner() else {
        return false;
    };
    let apart = planes::are_apart(row[0], next[0], n);
    if n > LONG || rows.meeting == Meeting::Mixed || !apart {
        return false;
    }
    let number = |k: usize| row[k] == 0 && next[k] == 0 && rows.sides[k].convert.is_none();
    let numbers = N > 2 && (2..N).all(number) && rows.kernel.block(Form::Numbers).is_some();
    let form = Form::of(false, numbers);
    let group = Group {
        rows,
        row,
        next,
        n,
        form,
    };
    let scattered = (0..N).any(|k| next[k] != 0 && !group.is_run(k));
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
    walk.run_groups(BLOCK / n, Rooms::new, |rooms, ptrs, count| {
        // SAFETY: the walk visits each element of the sides' common shape once.
        unsafe { group.compute(rooms, ptrs, count) };
    });
    true
}

impl<const N: usize> Group<'_, N> {
    /// Whether the rows of a side are one run of elements.
    fn is_run(&self, side: usize) -> bool {
        let item = self.item(side) as isize;
        self.row[side] == item && self.next[side] == item * self.n as isize
    }

    /// Bytes of a side's element in memory.
    fn item(&self, side: usize) -> usize {
        self.rows.items[side]
    }

    /// Computes some rows.
    ///
    /// # Safety
    /// Every side has so many rows from its pointer on.
    unsafe fn compute(&self, rooms: &mut Rooms<N>, ptrs: &[*mut u8; N], count: usize) {
        let m = self.n * count;
        let whole = m.next_multiple_of(self.rows.kernel.unit());
        let mut from = [std::ptr::null::<u8>(); 3];
        for k in 1..N {
            let plain = self.rows.sides[k].convert.is_none();
            from[k - 1] = if plain && self.is_run(k) && whole == m {
                ptrs[k]
            } else {
                let (held, rows) = rooms.held[k];
                if held != ptrs[k] || rows < count {
                    // SAFETY: as the caller promises; a room holds a block.
                    unsafe { self.bring(rooms, k, ptrs[k], count, whole) };
                    rooms.held[k] = (ptrs[k], count);
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
        let run = self.is_run(0);
        let straight = run
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
                self.put(ptrs[0], room, count);
            }
        }
    }

    /// Fills an operand's room with so many rows, repeated up to `whole` elements.
    ///
    /// # Safety
    /// The operand has the rows, and a block holds the elements.
    unsafe fn bring(
        &self,
        rooms: &mut Rooms<N>,
        k: usize,
        ptr: *mut u8,
        count: usize,
        whole: usize,
    ) {
        let (side, n, row, next) = (self.rows.sides[k], self.n, self.row[k], self.next[k]);
        let (room, aside, item) = (rooms.rooms[k].start(), rooms.aside.start(), side.item);
        let (step, line) = (item as isize, (n * item) as isize);
        // SAFETY: as the caller promises.
        unsafe {
            let given = if next == 0 {
                side.bring()(room, step, ptr, row, n);
                if (PIECE / 2..SHORT).contains(&n) && item <= WORD {
                    return by_size!(item, E => again::<E>(room, n, whole));
                }
                n
            } else if self.is_run(k) {
                side.bring()(room, step, ptr, row, n * count);
                n * count
            } else {
                if side.convert.is_none() && row == 0 && item <= WORD {
                    by_size!(item, E => spread::<E>(room, ptr, next, [n, count]));
                } else if side.convert.is_none() {
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
                n * count
            };
            repeat(room, given * item, whole * item);
        }
    }

    /// Brings rows of results to their place.
    ///
    /// # Safety
    /// The result has the rows, and the room their elements.
    unsafe fn put(&self, ptr: *mut u8, room: *mut u8, count: usize) {
        let (side, n, row, next) = (self.rows.sides[0], self.n, self.row[0], self.next[0]);
        let (item, m) = (side.item, n * count);
        let (step, line) = (item as isize, (n * item) as isize);
        // SAFETY: as the caller promises.
        unsafe {
            if self.is_run(0) {
                if self.rows.stream && past::fits(ptr, m * item) {
                    past::store(ptr, room, m * item);
                    past::finish();
                } else {
                    side.bring()(ptr, row, room, step, m);
                }
            } else if side.convert.is_none() {
                planes::copier(item)(ptr, [row, next], room, [step, line], [n, count]);
            } else {
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

/// Fills rows of `n` elements with one each, which lie `next` bytes apart.
///
/// # Safety
/// There are so many elements, and room for rows of words up to a block.
unsafe fn spread<T: Copy>(to: *mut u8, from: *const u8, next: isize, [n, rows]: [usize; 2]) {
    for r in 0..rows {
        // SAFETY: as the caller promises.
        unsafe {
            let x = from.offset(r as isize * next).cast::<T>().read_unaligned();
            let to = to.cast::<T>().add(r * n);
            for at in (0..n).step_by(PIECE) {
                to.add(at).cast::<[T; PIECE]>().write_unaligned([x; PIECE]);
            }
        }
    }
}

/// Repeats the first `n` elements up to `whole` ones.
///
/// # Safety
/// They are there, and room for rows of words up to a block.
unsafe fn again<T: Copy>(room: *mut u8, n: usize, whole: usize) {
    let room = room.cast::<MaybeUninit<T>>();
    for start in (n..whole).step_by(n) {
        for at in (0..n).step_by(PIECE) {
            // SAFETY: as the caller promises.
            unsafe {
                let piece = room.add(at).cast::<[MaybeUninit<T>; PIECE]>();
                room.add(start + at)
                    .cast::<[MaybeUninit<T>; PIECE]>()
                    .write_unaligned(piece.read_unaligned());
            }
        }
    }
}
