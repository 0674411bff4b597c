//! Rows of pointwise calls: whatever its operands are (strided, numbers, of another type, over the result's own memory),
//! a [`Loop`] gets dense blocks of the types it is made for. The only such driver, the same code for every operator.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::copy::{self, Row};
use super::iter::{GRAIN, Walk};
use super::map::{Ctx, Loop};
use super::{past, read_scalar, write_scalar};
use crate::{DType, Dims, Result, Scalar, Tensor};
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Elements of a block.
const BLOCK: usize = 512;
/// Operands of a loop, and its result.
const SIDES: usize = 4;

/// A block of any type at the start of a cache line: vectors that cross lines cost twice.
#[repr(align(64))]
struct Room(MaybeUninit<[[u64; 2]; BLOCK]>);

impl Room {
    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// The result or an operand: what brings its elements from memory to the loop's type, or back.
#[derive(Clone, Copy)]
struct Side {
    bring: Row,
    /// Copies elements of the loop's type.
    same: Row,
    /// Bytes of an element of the loop's type.
    item: usize,
    converts: bool,
}

impl Side {
    /// # Errors
    /// If there is no conversion between the types.
    fn new(from: DType, to: DType, of_loop: DType) -> Result<Self> {
        let item = of_loop.size();
        let same = copy::row_copy(item);
        let converts = from != to;
        let bring = if converts {
            copy::converter(from, to)?
        } else {
            same
        };
        Ok(Self {
            bring,
            same,
            item,
            converts,
        })
    }

    /// Repeats element `at - 1` of a block up to element `end`.
    ///
    /// # Safety
    /// The block has room for `end` elements and holds that one.
    unsafe fn repeat(&self, block: *mut u8, at: usize, end: usize) {
        if at < end {
            let to = block.wrapping_add(at * self.item);
            // SAFETY: as the caller promises.
            unsafe {
                (self.same)(
                    to,
                    self.item as isize,
                    to.wrapping_sub(self.item),
                    0,
                    end - at,
                );
            }
        }
    }
}

/// Where the sides of a row begin, and their steps in bytes; the result first.
#[derive(Clone, Copy)]
struct Span<'a> {
    ptrs: &'a [*mut u8],
    steps: &'a [isize],
    n: usize,
    /// The sides that the loop can work on as they lie (bits).
    direct: u8,
}

impl Span<'_> {
    fn is_direct(&self, side: usize) -> bool {
        self.direct & (1 << side) != 0
    }

    /// Element `at` of a side.
    fn element(&self, side: usize, at: usize) -> *mut u8 {
        self.ptrs[side].wrapping_offset(self.steps[side] * at as isize)
    }
}

/// A loop with everything that its rows have in common.
struct Rows<'a> {
    kernel: Loop,
    ctx: &'a Ctx,
    sides: SmallVec<[Side; SIDES]>,
    /// Results go past the caches, which are too small for them.
    stream: bool,
}

impl Rows<'_> {
    /// Computes a row of `n` elements.
    ///
    /// # Safety
    /// Every side holds n elements of its type, `steps` bytes apart.
    unsafe fn run(&self, ptrs: &[*mut u8], steps: &[isize], n: usize) {
        let direct = self.direct(ptrs, steps, n);
        let span = Span {
            ptrs,
            steps,
            n,
            direct,
        };
        let mut done = 0;
        if usize::from(direct) == (1 << self.sides.len()) - 1 {
            done = n - n % self.kernel.unit();
            if done > 0 {
                let last = self.sides.len() - 1;
                let operands = [1, 2, 3].map(|k| ptrs[last.min(k)].cast_const());
                // SAFETY: dense sides of the loop's types, the result apart from the others.
                unsafe { self.kernel.run(ptrs[0], operands, done, self.ctx) };
            }
        }
        if done < n {
            // SAFETY: as the caller promises.
            unsafe { self.by_blocks(&span, done) };
        }
    }

    /// The sides that the loop can work on as they lie: dense, of its type, and for the result, apart from the operands.
    fn direct(&self, ptrs: &[*mut u8], steps: &[isize], n: usize) -> u8 {
        let mut direct = 0u8;
        let end = |k: usize| ptrs[k].addr() + n * self.sides[k].item;
        let mut apart = !self.stream;
        for (k, side) in self.sides.iter().enumerate().rev() {
            let dense = !side.converts && (steps[k] == side.item as isize || n == 1);
            if dense && k > 0 {
                apart &= end(0) <= ptrs[k].addr() || end(k) <= ptrs[0].addr();
            }
            direct |= u8::from(dense && (k > 0 || apart)) << k;
        }
        direct
    }

    /// Computes the elements from `start` on block by block, in rooms aside for the sides that are not direct.
    ///
    /// # Safety
    /// As for [`Rows::run`].
    #[inline(never)]
    unsafe fn by_blocks(&self, span: &Span, start: usize) {
        let mut rooms = [const { Room(MaybeUninit::uninit()) }; SIDES];
        let unit = self.kernel.unit();
        let longest = (span.n - start).min(BLOCK).next_multiple_of(unit);
        for (k, side) in self.sides.iter().enumerate().skip(1) {
            // A number is an operand whose block is always the same.
            if span.steps[k] == 0 && !span.is_direct(k) {
                let room = rooms[k].start();
                // SAFETY: the operand has an element, the room space for a block.
                unsafe {
                    (side.bring)(room, side.item as isize, span.ptrs[k], 0, 1);
                    side.repeat(room, 1, longest);
                }
            }
        }
        for at in (start..span.n).step_by(BLOCK) {
            let m = BLOCK.min(span.n - at);
            // SAFETY: elements `at..at + m` belong to the row.
            unsafe { self.block(span, at, m, m.next_multiple_of(unit), &mut rooms) };
        }
        if self.stream {
            past::finish();
        }
    }

    /// Computes elements `at..at + m` as a block of `whole` elements, the last of each operand repeated.
    ///
    /// # Safety
    /// As for [`Rows::run`]; `m <= whole <= BLOCK`.
    #[inline(always)]
    unsafe fn block(
        &self,
        span: &Span,
        at: usize,
        m: usize,
        whole: usize,
        rooms: &mut [Room; SIDES],
    ) {
        let mut from = [std::ptr::null::<u8>(); SIDES - 1];
        for (k, side) in self.sides.iter().enumerate().skip(1) {
            let room = rooms[k].start();
            from[k - 1] = if span.is_direct(k) && whole == m {
                span.element(k, at)
            } else {
                if span.is_direct(k) || span.steps[k] != 0 {
                    let step = span.steps[k];
                    // SAFETY: m elements of the operand; the room has space for a block.
                    unsafe {
                        (side.bring)(room, side.item as isize, span.element(k, at), step, m);
                        side.repeat(room, m, whole);
                    }
                }
                room
            };
        }
        for k in self.sides.len() - 1..SIDES - 1 {
            from[k] = from[0];
        }
        let (side, place) = (&self.sides[0], span.element(0, at));
        if span.is_direct(0) && whole == m {
            // SAFETY: dense blocks of the loop's types, the result's apart from the operands'.
            unsafe { self.kernel.run(place, from, m, self.ctx) };
            return;
        }
        let room = rooms[0].start();
        // SAFETY: as above; then m elements of the result are written.
        unsafe {
            self.kernel.run(room, from, whole, self.ctx);
            let dense = !side.converts && span.steps[0] == side.item as isize;
            if self.stream && dense && past::fits(place, m * side.item) {
                past::store(place, room, m * side.item);
            } else {
                (side.bring)(place, span.steps[0], room, side.item as isize, m);
            }
        }
    }
}

/// An operand of a pointwise call.
pub enum Operand<'a> {
    /// Elements, to be broadcast to the result's shape.
    Tensor(&'a Tensor),
    /// One number for all elements.
    Number(Scalar),
}

/// Where a side's elements are.
struct Place {
    ptr: *mut u8,
    strides: Dims,
    dtype: DType,
    /// The step in bytes where the elements, in row-major order, are in one run (0: one element for all).
    run: Option<isize>,
}

impl Place {
    fn tensor(t: &Tensor, shape: &Dims) -> Self {
        let same = t.shape() == shape;
        let size = t.dtype().size() as isize;
        Self {
            ptr: t.data_ptr(),
            strides: if same {
                t.strides().clone()
            } else {
                t.strides_for(shape)
            },
            dtype: t.dtype(),
            run: if same && t.is_contiguous() {
                Some(size)
            } else {
                (t.numel() == 1).then_some(0)
            },
        }
    }

    fn number(value: Scalar, room: &mut [u64; 2], dtype: DType, ndim: usize) -> Self {
        write_scalar(room, dtype, value);
        Self {
            ptr: room.as_mut_ptr().cast(),
            strides: Dims::filled(ndim, 0),
            dtype,
            run: Some(0),
        }
    }
}

/// Runs a loop over host operands (one to three) that broadcast to the shape of `out`. Operands are rounded to `compute`
/// first, results to the type of `out` at last.
///
/// # Errors
/// If there is no conversion between the types, or no memory for converted operands.
pub fn run(
    kernel: Loop,
    ctx: &Ctx,
    compute: DType,
    operands: &[Operand],
    out: &Tensor,
) -> Result<()> {
    let n = out.numel() as usize;
    if n == 0 {
        return Ok(());
    }
    let halves = compute.is_reduced_float();
    let single = ctx.wide_numbers && halves;
    let number_type = if halves && !single {
        compute
    } else {
        kernel.reads()
    };
    let mut numbers = [[0u64; 2]; SIDES - 1];
    let mut rounded: SmallVec<[Tensor; SIDES - 1]> = SmallVec::new();
    let mut places: SmallVec<[Place; SIDES]> = SmallVec::new();
    places.push(Place::tensor(out, out.shape()));
    for (operand, room) in operands.iter().zip(&mut numbers) {
        let second = places.len() == 2;
        places.push(match operand {
            Operand::Number(v) => Place::number(*v, room, number_type, out.ndim()),
            Operand::Tensor(t) if !halves || t.dtype() == compute => Place::tensor(t, out.shape()),
            // A tensor that counts as a number.
            Operand::Tensor(t) if single && second && t.ndim() == 0 => {
                Place::number(read_scalar(t, 0)?, room, number_type, out.ndim())
            }
            Operand::Tensor(t) => {
                rounded.push(copy::converted(t, compute)?);
                Place::tensor(&rounded[rounded.len() - 1], out.shape())
            }
        });
    }
    let mut sides = SmallVec::new();
    sides.push(Side::new(kernel.writes(), out.dtype(), kernel.writes())?);
    for place in &places[1..] {
        sides.push(Side::new(place.dtype, kernel.reads(), kernel.reads())?);
    }
    let rows = Rows {
        kernel,
        ctx,
        sides,
        stream: n * out.dtype().size() >= past::FROM && out.dtype() == kernel.writes(),
    };
    walk(&rows, &places, out.shape(), n);
    Ok(())
}

/// Runs the rows: one where every side is in one run and short, else on all threads.
fn walk(rows: &Rows, places: &[Place], shape: &Dims, n: usize) {
    if n <= GRAIN && places.iter().all(|p| p.run.is_some()) {
        let ptrs: SmallVec<[*mut u8; SIDES]> = places.iter().map(|p| p.ptr).collect();
        let steps: SmallVec<[isize; SIDES]> = places.iter().filter_map(|p| p.run).collect();
        // SAFETY: every side holds n elements in one run.
        return unsafe { rows.run(&ptrs, &steps, n) };
    }
    match places.len() {
        2 => walk_sides::<2>(rows, places, shape),
        3 => walk_sides::<3>(rows, places, shape),
        _ => walk_sides::<4>(rows, places, shape),
    }
}

fn walk_sides<const N: usize>(rows: &Rows, places: &[Place], shape: &Dims) {
    let walk = Walk::<N>::new(
        shape,
        std::array::from_fn(|k| places[k].ptr),
        std::array::from_fn(|k| &*places[k].strides),
        std::array::from_fn(|k| places[k].dtype.size()),
    );
    // SAFETY: the walk visits each element of the sides' common shape once.
    walk.run(GRAIN, |p, s, n| unsafe { rows.run(p, s, n) });
}
