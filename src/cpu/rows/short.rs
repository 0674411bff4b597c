//! Short pointwise calls: of tensors that lie alike in dense runs, and of numbers, there is nothing to choose and nothing to
//! walk; of very few elements it costs less to lay them out so than to follow where they are.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::{NONE, Operand, Room, bytes, repeat};
use crate::Tensor;
use crate::cpu::iter::GRAIN;
use crate::cpu::map::{Block, Ctx, Form, Loop, UNIT};
use crate::cpu::write_scalar;
use std::ptr::{copy_nonoverlapping, from_ref};

/// Results of at most this many elements are computed from operands that lie anyhow; a multiple of the loops' unit.
const FEW: usize = 4 * UNIT;

/// Runs a loop over the operands, if they are such; says whether they were.
pub(super) fn run(kernel: &Loop, ctx: &Ctx, operands: &[Operand], out: &Tensor) -> bool {
    let n = out.numel() as usize;
    let fits = (1..=GRAIN).contains(&n) && out.dtype() == kernel.writes();
    if !fits || !out.is_contiguous() {
        return false;
    }
    let mut numbers = [[0; 2]; 3];
    let Some(call) = Short::of(kernel, operands, out, n, &mut numbers) else {
        return false;
    };
    // Units are powers of two; a division would take longer than all that is looked at here.
    let rest = n & (kernel.unit() - 1);
    match kernel.block(call.form) {
        Some(block) if !call.anyhow && (rest == 0 || n > FEW) => {
            // SAFETY: the elements lie as the form says; those that are too few for the loop are the last ones.
            unsafe {
                call.direct(block, kernel, ctx, n - rest);
                if rest > 0 {
                    call.aside(kernel, ctx, operands, n - rest, rest);
                }
            }
        }
        // SAFETY: these are all.
        _ if n <= FEW => unsafe { call.aside(kernel, ctx, operands, 0, n) },
        _ => return false,
    }
    true
}

/// Where the elements are.
struct Short<'a> {
    out: &'a Tensor,
    /// The operands; beyond those of the operator, any elements.
    from: [*const u8; 3],
    form: Form,
    /// Some tensor lies otherwise than the result, or over it where no form says so.
    anyhow: bool,
}

impl<'a> Short<'a> {
    /// None: the operands lie otherwise. The numbers are written where the call finds them.
    #[inline]
    fn of(
        kernel: &Loop,
        operands: &[Operand],
        out: &'a Tensor,
        n: usize,
        numbers: &mut [[u64; 2]; 3],
    ) -> Option<Self> {
        let to = out.data_ptr();
        let (reads, writes) = (kernel.reads(), kernel.writes());
        let (read, written) = (n * reads.size(), n * writes.size());
        let mut from = [from_ref(NONE).cast::<u8>(); 3];
        let (mut tensors, mut over, mut anyhow) = (0, false, false);
        for (k, operand) in operands.iter().enumerate() {
            match operand {
                Operand::Tensor(t) if t.dtype() == reads => {
                    let p = t.data_ptr().cast_const();
                    if !lies_as(t, out) {
                        anyhow = true;
                    } else if p.addr() + read > to.addr() && to.addr() + written > p.addr() {
                        over = k == 0 && p == to && reads == writes;
                        anyhow |= !over;
                    }
                    // Numbers before a tensor are no form.
                    anyhow |= k != tensors;
                    from[k] = p;
                    tensors += 1;
                }
                Operand::Number(v) => {
                    write_scalar(&mut numbers[k], reads, *v);
                    from[k] = numbers[k].as_ptr().cast();
                }
                Operand::Tensor(_) => return None,
            }
        }
        let operands = operands.len();
        // In place an operator of one operand has no others to read.
        let form = Form::of(over, tensors < operands || over && operands == 1);
        anyhow |= tensors < operands && tensors != 1;
        if anyhow && n > FEW {
            return None;
        }
        if !form.has_numbers() {
            let last = from[operands - 1];
            from[operands..].fill(last);
        }
        Some(Self {
            out,
            from,
            form,
            anyhow,
        })
    }

    /// Computes the first `n` elements where they lie.
    ///
    /// # Safety
    /// The block is that for the form, and the tensors lie as that says.
    #[inline]
    unsafe fn direct(&self, block: Block, kernel: &Loop, ctx: &Ctx, n: usize) {
        // SAFETY: as many elements of each operand as the form says, in the loop's types, apart from the result's but for a
        // first one in its place.
        unsafe {
            block(
                bytes(self.out.data_ptr(), n * kernel.writes().size()),
                self.from,
                ctx,
            );
        }
    }

    /// Computes `n` elements from `at` on, at most [`FEW`], in rooms aside: the operands laid out as the result is, and
    /// repeated until there are as many as the loop takes.
    ///
    /// # Safety
    /// The tensors have these elements; if they do not lie alike, `at` is 0 and these are all.
    #[inline(never)]
    unsafe fn aside(&self, kernel: &Loop, ctx: &Ctx, operands: &[Operand], at: usize, n: usize) {
        let Some(block) = kernel.block(Form::Dense) else {
            return;
        };
        let whole = n.next_multiple_of(kernel.unit());
        let (reads, writes) = (kernel.reads().size(), kernel.writes().size());
        let mut rooms = [const { Room::<FEW>::new() }; 4];
        let mut from = [std::ptr::null(); 3];
        for (k, operand) in operands.iter().enumerate() {
            let room = rooms[k].start();
            // SAFETY: the operand has the elements, the room space for `FEW`, and what is repeated lies before its copies.
            unsafe {
                let given = match operand {
                    Operand::Number(_) => {
                        copy_nonoverlapping(self.from[k], room, reads);
                        1
                    }
                    Operand::Tensor(t) if lies_as(t, self.out) => {
                        copy_nonoverlapping(self.from[k].wrapping_add(at * reads), room, n * reads);
                        n
                    }
                    Operand::Tensor(t) => {
                        lay_out(t, self.out, room);
                        n
                    }
                };
                repeat(room, given * reads, whole * reads);
            }
            from[k] = room.cast_const();
        }
        let first = from[0];
        from[operands.len()..].fill(first);
        let room = rooms[3].start();
        // SAFETY: as many elements as the loop takes, in rooms of their own; the first ones are the result's.
        unsafe {
            block(bytes(room, whole * writes), from, ctx);
            let to = self.out.data_ptr().wrapping_add(at * writes);
            copy_nonoverlapping(room, to, n * writes);
        }
    }
}

/// Whether a tensor lies in memory as the result does.
#[inline]
fn lies_as(t: &Tensor, out: &Tensor) -> bool {
    // Mostly the strides are alike, which is quicker to see.
    t.shape() == out.shape() && (t.strides() == out.strides() || t.is_contiguous())
}

/// Copies a tensor's elements, as it broadcasts to the shape of `out`, one after the other.
///
/// # Safety
/// There is memory for them.
unsafe fn lay_out(t: &Tensor, out: &Tensor, to: *mut u8) {
    let (from, shape, strides) = (
        t.data_ptr().cast_const(),
        out.shape(),
        t.strides_for(out.shape()),
    );
    // SAFETY: as the caller promises; only whole elements are moved, whatever they are.
    unsafe {
        match t.dtype().size() {
            1 => lay::<[u8; 1]>(from.cast(), shape, &strides, &mut to.cast()),
            2 => lay::<[u8; 2]>(from.cast(), shape, &strides, &mut to.cast()),
            4 => lay::<[u8; 4]>(from.cast(), shape, &strides, &mut to.cast()),
            8 => lay::<[u8; 8]>(from.cast(), shape, &strides, &mut to.cast()),
            _ => lay::<[u8; 16]>(from.cast(), shape, &strides, &mut to.cast()),
        }
    }
}

/// The same for elements of one size, with strides in elements; `to` moves on.
///
/// # Safety
/// As for [`lay_out`].
unsafe fn lay<T: Copy>(from: *const T, shape: &[i64], strides: &[i64], to: &mut *mut T) {
    let ([n, shape @ ..], [stride, strides @ ..]) = (shape, strides) else {
        // SAFETY: as the caller promises.
        unsafe { to.write(from.read()) };
        *to = to.wrapping_add(1);
        return;
    };
    for i in 0..*n {
        let from = from.wrapping_offset((i * stride) as isize);
        // SAFETY: as the caller promises.
        unsafe {
            if shape.is_empty() {
                to.write(from.read());
                *to = to.wrapping_add(1);
            } else {
                lay(from, shape, strides, to);
            }
        }
    }
}
