//! Rows of pointwise calls: whatever its operands are (strided, numbers, of another type, over the result's own memory),
//! a [`Loop`] gets dense blocks of the types it is made for. The only such driver, the same code for every operator.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::copy::{self, Row};
use super::halves::rounded;
use super::iter::{GRAIN, Walk};
use super::map::{Block, Ctx, Form, Loop};
use super::{past, read_scalar, steps};
use crate::{DType, Dims, Result, Tensor};
use places::{Meeting, Place, as_result, counts_as_number, in_halves, is_turned, meeting};
use std::mem::MaybeUninit;

mod groups;
mod places;
mod short;
pub use places::Operand;

/// Elements that are written one by one before they are copied.
const FEW: usize = 32;
/// Elements of a block.
const BLOCK: usize = 1024;

/// `N` elements of any type from the start of a cache line on: vectors that cross lines cost twice.
#[repr(align(64))]
struct Room<const N: usize>(MaybeUninit<[[u64; 2]; N]>);

impl<const N: usize> Room<N> {
    const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// The result or an operand: what brings its elements from memory to the loop's type, or back.
#[derive(Clone, Copy)]
struct Side {
    /// None: they are of that type.
    convert: Option<Row>,
    /// Bytes of an element of the loop's type.
    item: usize,
}

impl Side {
    /// # Errors
    /// If there is no conversion between the types.
    fn new(from: DType, to: DType, of_loop: DType) -> Result<Self> {
        let convert = if from == to {
            None
        } else {
            Some(copy::converter(from, to)?)
        };
        let item = of_loop.size();
        Ok(Self { convert, item })
    }

    fn bring(&self) -> Row {
        self.convert.unwrap_or_else(|| steps::row_copy(self.item))
    }
}

/// Fills memory up to `size` bytes with copies of the `given` first ones, one after the other.
///
/// # Safety
/// Those are there, at least one, and the memory is that large.
#[inline]
unsafe fn repeat(start: *mut u8, given: usize, size: usize) {
    let mut held = given;
    while held < size {
        let more = held.min(size - held);
        // SAFETY: as the caller promises; the copy lies behind what it is of.
        unsafe { std::ptr::copy_nonoverlapping(start, start.wrapping_add(held), more) };
        held += more;
    }
}

/// Where the sides of a row begin, and their steps in bytes; the result first.
#[derive(Clone, Copy)]
struct Span<'a, const N: usize> {
    ptrs: &'a [*mut u8; N],
    steps: &'a [isize; N],
    n: usize,
}

impl<const N: usize> Span<'_, N> {
    /// Element `at` of a side.
    fn element(&self, side: usize, at: usize) -> *mut u8 {
        self.ptrs[side].wrapping_offset(self.steps[side] * at as isize)
    }
}

/// A loop with everything that its rows have in common.
struct Rows<'a, const N: usize> {
    kernel: &'a Loop,
    ctx: &'a Ctx,
    sides: [Side; N],
    /// Bytes of their elements in memory.
    items: [usize; N],
    /// Results go past the caches, which are too small for them.
    stream: bool,
    meeting: Meeting,
}

/// How the rows of a walk are computed, chosen once for all as their steps are the same.
#[derive(Clone, Copy)]
struct Lay {
    /// All operands but the first are one element each, as the loop can read it.
    numbers: bool,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    /// As they lie.
    Whole(Form, Block),
    /// As they lie, where a look at the row says that its result is apart from the operands or over the first.
    Looking,
    /// By way of blocks.
    Blocks,
}

/// What operands that an operator ignores point to, where it is given one element of each.
const NONE: &u128 = &0;

impl<const N: usize> Rows<'_, N> {
    /// The lay of rows with these steps, which are no longer than `n`.
    fn lay(&self, steps: &[isize; N], n: usize) -> Lay {
        let sides = self.sides.iter().zip(steps);
        let number = |(side, step): (&Side, &isize)| *step == 0 && side.convert.is_none();
        let numbers =
            self.kernel.block(Form::Numbers).is_some() && sides.clone().skip(2).all(number);
        let fits = |(side, step): (&Side, &isize)| {
            side.convert.is_none() && (*step == side.item as isize || n == 1)
        };
        let whole = !self.stream && sides.take(if numbers { 2 } else { N }).all(fits);
        let way = match self.meeting {
            _ if !whole => Way::Blocks,
            Meeting::Mixed => Way::Looking,
            meeting => self.whole(meeting == Meeting::Over, numbers),
        };
        Lay { numbers, way }
    }

    /// The way of rows whose sides the loop could read as they lie.
    fn whole(&self, over: bool, numbers: bool) -> Way {
        // In place an operator of one operand has no others to read.
        let form = Form::of(over, numbers || over && N == 2);
        let block = self.kernel.block(form);
        block.map_or(Way::Blocks, |block| Way::Whole(form, block))
    }

    /// Computes a row of `n` elements.
    ///
    /// # Safety
    /// Every side holds n elements of its type, `steps` bytes apart, and the steps are those of the lay.
    #[inline]
    unsafe fn run(&self, lay: Lay, ptrs: &[*mut u8; N], steps: &[isize; N], n: usize) {
        let mut done = 0;
        let way = match lay.way {
            Way::Looking => self.look(lay.numbers, ptrs, n),
            way => way,
        };
        if let Way::Whole(form, block) = way {
            done = n - n % self.kernel.unit();
            if done > 0 {
                let from = operands(form, ptrs);
                // SAFETY: sides of the loop's types, laid out as the form says; none overlaps what is written, so that
                // elements may be computed twice.
                unsafe {
                    block(bytes(ptrs[0], done * self.sides[0].item), from, self.ctx);
                    if done < n && self.meeting == Meeting::Apart {
                        let at = n - self.kernel.unit();
                        let (to, from) = self.shifted(at, form, ptrs, from);
                        block(bytes(to, (n - at) * self.sides[0].item), from, self.ctx);
                        done = n;
                    }
                }
            }
        }
        if done < n {
            let span = Span { ptrs, steps, n };
            // SAFETY: as the caller promises.
            unsafe { self.by_blocks(&span, done, lay.numbers) };
        }
    }

    /// Where element `at` of a row is, and those of its operands, laid out as a form says.
    fn shifted(
        &self,
        at: usize,
        form: Form,
        ptrs: &[*mut u8; N],
        mut from: [*const u8; 3],
    ) -> (*mut u8, [*const u8; 3]) {
        for (k, side) in self.sides.iter().enumerate().skip(1) {
            if k == 1 || !form.has_numbers() {
                from[k - 1] = from[k - 1].wrapping_add(at * side.item);
            }
        }
        if !form.has_numbers() {
            let last = from[N - 2];
            from[N - 1..].fill(last);
        }
        (ptrs[0].wrapping_add(at * self.sides[0].item), from)
    }

    fn is_dense(&self, span: &Span<N>, side: usize) -> bool {
        let Side { item, convert } = self.sides[side];
        convert.is_none() && (span.steps[side] == item as isize || span.n == 1)
    }

    /// How a row of sides that the loop could read is computed: as it lies, if its result shares no memory with the operands,
    /// but for a first one in its place.
    #[cold]
    fn look(&self, numbers: bool, ptrs: &[*mut u8; N], n: usize) -> Way {
        let over = ptrs[0] == ptrs[1];
        let end = |k: usize, n: usize| ptrs[k].addr() + n * self.sides[k].item;
        let apart = |k: usize| {
            let n_k = if numbers && k > 1 { 1 } else { n };
            end(0, n) <= ptrs[k].addr() || end(k, n_k) <= ptrs[0].addr()
        };
        if (2..N).all(apart) && (over || apart(1)) {
            self.whole(over, numbers)
        } else {
            Way::Blocks
        }
    }

    /// Computes the elements from `start` on block by block, in rooms aside for the sides that the loop cannot work on
    /// as they lie.
    ///
    /// # Safety
    /// As for [`Rows::run`].
    #[inline(never)]
    unsafe fn by_blocks(&self, span: &Span<N>, start: usize, numbers: bool) {
        let mut rooms = [const { Room::<BLOCK>::new() }; N];
        let longest = (span.n - start)
            .min(BLOCK)
            .next_multiple_of(self.kernel.unit());
        for (k, side) in self.sides.iter().enumerate().skip(1) {
            if self.is_fixed(span, k) {
                let room = rooms[k].start();
                let end = if numbers && k > 1 { 1 } else { longest };
                let step = side.item as isize;
                // SAFETY: the operand has an element, the room space for a block.
                unsafe {
                    side.bring()(room, step, span.ptrs[k], 0, 1);
                    steps::row_copy(side.item)(room, step, room, 0, end.min(FEW));
                    repeat(room, end.min(FEW) * side.item, end * side.item);
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
    fn is_fixed(&self, span: &Span<N>, side: usize) -> bool {
        span.steps[side] == 0 && span.n > 1
    }

    /// Computes elements `at..at + m` as a block, with those of each operand repeated up to the loop's unit.
    ///
    /// # Safety
    /// As for [`Rows::run`]; the rooms of fixed operands are filled.
    #[inline(always)]
    unsafe fn block(
        &self,
        span: &Span<N>,
        at: usize,
        m: usize,
        numbers: bool,
        rooms: &mut [Room<BLOCK>; N],
    ) {
        let whole = m.next_multiple_of(self.kernel.unit());
        let mut from = [std::ptr::null::<u8>(); 3];
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
                    side.bring()(room, side.item as isize, place, step, m);
                    repeat(room, m * side.item, whole * side.item);
                }
                room
            };
        }
        for k in N - 1..3 {
            from[k] = from[0];
        }
        let Some(block) = self.kernel.block(Form::of(false, numbers)) else {
            return;
        };
        let (side, place, room) = (&self.sides[0], span.element(0, at), rooms[0].start());
        let dense = self.is_dense(span, 0);
        let straight = dense && whole == m && self.meeting == Meeting::Apart && !self.stream;
        let to = if straight { place } else { room };
        // SAFETY: the operands are dense blocks or numbers of the loop's types, apart from where it writes; then m elements
        // of the result are written.
        unsafe {
            block(bytes(to, whole * side.item), from, self.ctx);
            if self.stream && dense && past::fits(place, m * side.item) {
                past::store(place, room, m * side.item);
            } else if !straight {
                side.bring()(place, span.steps[0], room, side.item as isize, m);
            }
        }
    }
}

/// The operands of a row that is computed as it lies; in the place of those that there are not: any other.
#[inline(always)]
fn operands<const N: usize>(form: Form, ptrs: &[*mut u8; N]) -> [*const u8; 3] {
    let spare = if form.has_numbers() {
        std::ptr::from_ref(NONE).cast()
    } else {
        ptrs[N - 1].cast_const()
    };
    [1, 2, 3].map(|k| ptrs.get(k).map_or(spare, |p| p.cast_const()))
}

/// Memory for a block's result.
///
/// # Safety
/// Nobody else uses it meanwhile.
#[inline(always)]
unsafe fn bytes<'a>(start: *mut u8, n: usize) -> &'a mut [MaybeUninit<u8>] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), n) }
}

/// Runs a loop over host operands (one to three) that broadcast to the shape of `out`. Operands are rounded to `compute`
/// first, results to the type of `out` at last.
///
/// # Errors
/// If there is no conversion between the types, or no memory for converted operands.
pub fn run(
    kernel: &Loop,
    ctx: &Ctx,
    compute: DType,
    operands: &[Operand],
    out: &Tensor,
) -> Result<()> {
    let kernel = in_halves(kernel, ctx, compute, operands, out).unwrap_or(kernel);
    let alike = compute == kernel.reads() && compute == kernel.numbers();
    if alike && short::run(kernel, ctx, operands, out) {
        return Ok(());
    }
    match operands.len() {
        1 => run_sides::<2>(kernel, ctx, compute, operands, out),
        2 => run_sides::<3>(kernel, ctx, compute, operands, out),
        _ => run_sides::<4>(kernel, ctx, compute, operands, out),
    }
}

/// [`run`] for the number of operands and the result, apart from where short calls pass.
#[inline(never)]
fn run_sides<const N: usize>(
    kernel: &Loop,
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
    let (mut rooms, mut kept) = ([[0u64; 2]; N], [const { None }; N]);
    let mut places = [Place::result(out); N];
    let aside = rooms.iter_mut().zip(&mut kept);
    for (k, (operand, (room, kept))) in operands.iter().zip(aside).enumerate() {
        places[k + 1] = match operand {
            Operand::Number(v) if single => Place::number(*v, room, kernel),
            Operand::Number(v) => Place::number(rounded(*v, compute), room, kernel),
            Operand::Tensor(t) if is_turned(t, out, compute) => {
                Place::tensor(kept.insert(as_result(t, out)?), out.shape())
            }
            Operand::Tensor(t) if !halves || t.dtype() == compute => Place::tensor(t, out.shape()),
            Operand::Tensor(t) if single && counts_as_number(ctx, k, operand) => {
                Place::number(read_scalar(t, 0)?, room, kernel)
            }
            Operand::Tensor(t) => {
                Place::tensor(kept.insert(copy::converted(t, compute)?), out.shape())
            }
        };
    }
    if N == 3 && kernel.swaps(ctx) && places[1].repeats_in(&places[2], out.shape()) {
        places.swap(1, 2);
    }
    let mut sides = [Side::new(kernel.writes(), out.dtype(), kernel.writes())?; N];
    for (side, place) in sides.iter_mut().zip(&places).skip(1) {
        let read = if place.is_number() {
            kernel.numbers()
        } else {
            kernel.reads()
        };
        *side = Side::new(place.dtype, read, read)?;
    }
    let meeting = meeting(&places, out.shape());
    let large = past::suits(n * out.dtype().size()) && out.dtype() == kernel.writes();
    let rows = Rows {
        kernel,
        ctx,
        sides,
        items: places.map(|p| p.dtype.size()),
        // What is read before it is written is in the caches anyhow.
        stream: large && kernel.is_brief() && meeting == Meeting::Apart,
        meeting,
    };
    walk(&rows, &places, out.shape(), n);
    Ok(())
}

/// Follows what [`run`] takes: operands that are rounded or turned first.
///
/// # Errors
/// If a size overflows.
pub fn scratch(
    ctx: &Ctx,
    compute: DType,
    operands: &[Operand],
    out: &Tensor,
    room: &mut super::room::Room,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    for (k, operand) in operands.iter().enumerate() {
        match operand {
            _ if counts_as_number(ctx, k, operand) => {}
            Operand::Tensor(t) if is_turned(t, out, compute) => {
                room.empty(t.shape(), t.dtype()).map(drop)?
            }
            Operand::Tensor(t) if compute.is_reduced_float() && t.dtype() != compute => {
                room.converted(t, compute).map(drop)?
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs the rows: one where every side is in one run and short, else on all threads.
fn walk<const N: usize>(rows: &Rows<N>, places: &[Place; N], shape: &Dims, n: usize) {
    let ptrs = places.map(|p| p.ptr);
    if n <= GRAIN && places.iter().all(|p| p.run.is_some()) {
        let steps = places.map(|p| p.run.unwrap_or(0));
        // SAFETY: every side holds n elements in one run.
        return unsafe { rows.run(rows.lay(&steps, n), &ptrs, &steps, n) };
    }
    let strides = places.map(|p| p.strides(shape));
    let walk = Walk::<N>::new(
        shape,
        ptrs,
        std::array::from_fn(|k| &*strides[k]),
        rows.items,
    );
    let lay = rows.lay(&walk.steps(), walk.row());
    if groups::run(rows, &walk, lay) {
        return;
    }
    match lay.way {
        // Nothing is left over, nor to be asked for each row.
        Way::Whole(form, block) if rows.kernel.unit() == 1 => {
            let item = rows.sides[0].item;
            walk.run(GRAIN, |p, _, n| {
                // SAFETY: the walk visits each element of the sides' common shape once; rows lie as the form says.
                unsafe { block(bytes(p[0], n * item), operands(form, p), rows.ctx) }
            });
        }
        // SAFETY: as above.
        _ => walk.run(GRAIN, |p, s, n| unsafe { rows.run(lay, p, s, n) }),
    }
}

#[cfg(test)]
mod tests;
