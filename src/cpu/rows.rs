//! Rows of pointwise calls: whatever its operands are (strided, numbers, of another type, over the result's own memory),
//! a [`Loop`] gets dense blocks of the types it is made for. The only such driver, the same code for every operator.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::copy::{self, Row};
use super::halves::rounded;
use super::iter::{GRAIN, Walk};
use super::map::{Ctx, Form, Loop};
use super::{past, read_scalar, write_scalar};
use crate::{DType, Dims, Result, Scalar, Tensor};
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Elements of a block.
const BLOCK: usize = 1024;
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
}

impl Span<'_> {
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
    /// The result shares no memory with any operand.
    apart: bool,
}

/// What the rows of a walk have in common, as their steps are the same.
#[derive(Clone, Copy)]
struct Lay {
    /// All operands but the first are one element each, as the loop can read it.
    numbers: bool,
    /// The other sides are of the loop's types.
    same: bool,
    /// Their elements are neighbours.
    dense: bool,
}

impl Rows<'_> {
    fn lay(&self, steps: &[isize]) -> Lay {
        let sides = self.sides.iter().zip(steps);
        let number = |(side, step): (&Side, &isize)| *step == 0 && !side.converts;
        let numbers = self.kernel.has(Form::Numbers) && sides.clone().skip(2).all(number);
        let mut others = sides.take(if numbers { 2 } else { SIDES });
        Lay {
            numbers,
            same: others.clone().all(|(side, _)| !side.converts),
            dense: others.all(|(side, step)| *step == side.item as isize),
        }
    }

    /// Computes a row of `n` elements.
    ///
    /// # Safety
    /// Every side holds n elements of its type, `steps` bytes apart, and the steps are those of the lay.
    #[inline]
    unsafe fn run(&self, lay: Lay, ptrs: &[*mut u8], steps: &[isize], n: usize) {
        let span = Span { ptrs, steps, n };
        let mut done = 0;
        if let Some(form) = self.form(&span, lay) {
            done = n - n % self.kernel.unit();
            if done > 0 {
                // What the operator ignores may not be the result's own memory.
                let none = [0u128];
                let spare = match form {
                    Form::OverNumbers if ptrs.len() == 2 => none.as_ptr().cast(),
                    _ => ptrs[ptrs.len() - 1].cast_const(),
                };
                let from = [1, 2, 3].map(|k| ptrs.get(k).map_or(spare, |p| p.cast_const()));
                // SAFETY: sides of the loop's types, laid out as the form says.
                unsafe { self.kernel.run(form, ptrs[0], from, done, self.ctx) };
            }
        }
        if done < n {
            // SAFETY: as the caller promises.
            unsafe { self.by_blocks(&span, done, lay.numbers) };
        }
    }

    fn is_dense(&self, span: &Span, side: usize) -> bool {
        let Side { item, converts, .. } = self.sides[side];
        !converts && (span.steps[side] == item as isize || span.n == 1)
    }

    /// The form in which the loop can do a whole row as it lies, if it can: every side dense (or numbers), and the result
    /// apart from the operands or over the first.
    #[inline]
    fn form(&self, span: &Span, lay: Lay) -> Option<Form> {
        if self.stream || !lay.same || !(lay.dense || span.n == 1) {
            return None;
        }
        let over = span.ptrs[0] == span.ptrs[1];
        if !self.apart && !self.row_is_apart(span, lay.numbers, over) {
            return None;
        }
        // In place an operator of one operand has no others to read.
        let form = Form::of(over, lay.numbers || over && self.sides.len() == 2);
        self.kernel.has(form).then_some(form)
    }

    /// Whether a dense row of the result shares no memory with the operands, but for a first one in its place.
    fn row_is_apart(&self, span: &Span, numbers: bool, over: bool) -> bool {
        let end = |k: usize, n: usize| span.ptrs[k].addr() + n * self.sides[k].item;
        let apart = |k: usize| {
            let n = if numbers && k > 1 { 1 } else { span.n };
            end(0, span.n) <= span.ptrs[k].addr() || end(k, n) <= span.ptrs[0].addr()
        };
        (2..self.sides.len()).all(apart) && (over || apart(1))
    }

    /// Computes the elements from `start` on block by block, in rooms aside for the sides that the loop cannot work on
    /// as they lie.
    ///
    /// # Safety
    /// As for [`Rows::run`].
    #[inline(never)]
    unsafe fn by_blocks(&self, span: &Span, start: usize, numbers: bool) {
        let mut rooms = [const { Room(MaybeUninit::uninit()) }; SIDES];
        let longest = (span.n - start)
            .min(BLOCK)
            .next_multiple_of(self.kernel.unit());
        for (k, side) in self.sides.iter().enumerate().skip(1) {
            if self.is_fixed(span, k) {
                let room = rooms[k].start();
                let end = if numbers && k > 1 { 1 } else { longest };
                // SAFETY: the operand has an element, the room space for a block.
                unsafe {
                    (side.bring)(room, side.item as isize, span.ptrs[k], 0, 1);
                    side.repeat(room, 1, end);
                }
            }
        }
        for at in (start..span.n).step_by(BLOCK) {
            let m = BLOCK.min(span.n - at);
            // SAFETY: elements `at..at + m` belong to the row.
            unsafe { self.block(span, at, m, numbers, &mut rooms) };
        }
        if self.stream {
            past::finish();
        }
    }

    /// An operand of one element, whose block is always the same.
    fn is_fixed(&self, span: &Span, side: usize) -> bool {
        span.steps[side] == 0 && span.n > 1
    }

    /// Computes elements `at..at + m` as a block, with the last of each operand repeated up to the loop's unit.
    ///
    /// # Safety
    /// As for [`Rows::run`]; the rooms of fixed operands are filled.
    #[inline(always)]
    unsafe fn block(
        &self,
        span: &Span,
        at: usize,
        m: usize,
        numbers: bool,
        rooms: &mut [Room; SIDES],
    ) {
        let whole = m.next_multiple_of(self.kernel.unit());
        let mut from = [std::ptr::null::<u8>(); SIDES - 1];
        for (k, side) in self.sides.iter().enumerate().skip(1) {
            let room = rooms[k].start();
            from[k - 1] = if self.is_fixed(span, k) {
                room
            } else if self.is_dense(span, k) && whole == m {
                span.element(k, at)
            } else {
                let (place, step) = (span.element(k, at), span.steps[k]);
                // SAFETY: m elements of the operand; the room has space for a block.
                unsafe {
                    (side.bring)(room, side.item as isize, place, step, m);
                    side.repeat(room, m, whole);
                }
                room
            };
        }
        for k in self.sides.len() - 1..SIDES - 1 {
            from[k] = from[0];
        }
        let form = Form::of(false, numbers);
        let (side, place, room) = (&self.sides[0], span.element(0, at), rooms[0].start());
        // SAFETY: the operands are dense blocks or numbers of the loop's types, apart from the room; then m elements of
        // the result are written.
        unsafe {
            self.kernel.run(form, room, from, whole, self.ctx);
            if self.stream && self.is_dense(span, 0) && past::fits(place, m * side.item) {
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

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(t: &'a Tensor) -> Self {
        Self::Tensor(t)
    }
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

    fn number(value: Scalar, room: &mut [u64; 2], kernel: Loop, ndim: usize) -> Self {
        let dtype = kernel.reads();
        write_scalar(room, dtype, value);
        Self {
            ptr: room.as_mut_ptr().cast(),
            strides: Dims::filled(ndim, 0),
            dtype,
            run: Some(0),
        }
    }
}

/// Whether two sides of a shape share no memory.
fn disjoint(a: &Place, b: &Place, shape: &Dims) -> bool {
    let end = |p: &Place| {
        let steps = shape.iter().zip(p.strides.iter());
        let last: i64 = steps.map(|(size, stride)| (size - 1) * stride).sum();
        p.ptr.addr() + (last as usize + 1) * p.dtype.size()
    };
    end(a) <= b.ptr.addr() || end(b) <= a.ptr.addr()
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
    let mut numbers = [[0u64; 2]; SIDES - 1];
    let mut kept: SmallVec<[Tensor; SIDES - 1]> = SmallVec::new();
    let mut places: SmallVec<[Place; SIDES]> = SmallVec::new();
    places.push(Place::tensor(out, out.shape()));
    for (operand, room) in operands.iter().zip(&mut numbers) {
        let second = places.len() == 2;
        places.push(match operand {
            Operand::Number(v) if single => Place::number(*v, room, kernel, out.ndim()),
            Operand::Number(v) => Place::number(rounded(*v, compute), room, kernel, out.ndim()),
            Operand::Tensor(t) if !halves || t.dtype() == compute => Place::tensor(t, out.shape()),
            // A tensor that counts as a number.
            Operand::Tensor(t) if single && second && t.ndim() == 0 => {
                Place::number(read_scalar(t, 0)?, room, kernel, out.ndim())
            }
            Operand::Tensor(t) => {
                kept.push(copy::converted(t, compute)?);
                Place::tensor(&kept[kept.len() - 1], out.shape())
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
        apart: (places[1..].iter()).all(|p| disjoint(&places[0], p, out.shape())),
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
        return unsafe { rows.run(rows.lay(&steps), &ptrs, &steps, n) };
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
    let lay = rows.lay(&walk.steps());
    // SAFETY: the walk visits each element of the sides' common shape once.
    walk.run(GRAIN, |p, s, n| unsafe { rows.run(lay, p, s, n) });
}

#[cfg(test)]
mod tests;
