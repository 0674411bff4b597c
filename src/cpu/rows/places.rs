//! Where the operands of a pointwise call and its result are in memory.

use crate::cpu::map::{Ctx, Loop};
use crate::cpu::{copy, transpose, write_scalar};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, dims};

/// An operand of a pointwise call.
#[derive(Clone, Copy)]
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
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub ptr: *mut u8,
    pub dtype: DType,
    /// The step in bytes where the elements, in row-major order, are in one run (0: one element for all).
    pub run: Option<isize>,
    /// None: one number.
    tensor: Option<&'a Tensor>,
}

impl<'a> Place<'a> {
    /// That of the result.
    pub fn result(t: &'a Tensor) -> Self {
        let item = t.dtype().size() as isize;
        Self {
            ptr: t.data_ptr(),
            dtype: t.dtype(),
            run: t.is_contiguous().then_some(item),
            tensor: Some(t),
        }
    }

    /// That of an operand, which broadcasts to the result's shape.
    pub fn tensor(t: &'a Tensor, shape: &Dims) -> Self {
        let place = Self::result(t);
        if t.shape() == shape {
            return place;
        }
        let run = (t.numel() == 1).then_some(0);
        Self { run, ..place }
    }

    /// That of a number, in the type that the loop reads it in.
    pub fn number(value: Scalar, room: &'a mut [u64; 2], kernel: &Loop) -> Self {
        let dtype = kernel.numbers();
        write_scalar(room, dtype, value);
        Self {
            ptr: room.as_mut_ptr().cast(),
            dtype,
            run: Some(0),
            tensor: None,
        }
    }

    /// Whether it is that of a number.
    pub fn is_number(&self) -> bool {
        self.tensor.is_none()
    }

    /// Strides in elements, as if it had been expanded to the shape.
    pub fn strides(&self, shape: &Dims) -> Dims {
        let none = || Dims::filled(shape.len(), 0);
        self.tensor.map_or_else(none, |t| t.strides_for(shape))
    }

    /// Whether it has one element for all of a row of another tensor, which has more.
    pub fn repeats_in(&self, other: &Self, shape: &Dims) -> bool {
        let within = |p: &Self| p.tensor.is_some().then(|| p.strides(shape).last().copied());
        within(self) == Some(Some(0)) && within(other).flatten().is_some_and(|step| step != 0)
    }

    /// Just past its last byte.
    fn end(&self, shape: &Dims) -> usize {
        let last = match self.run {
            Some(step) => step * (shape.iter().product::<i64>() - 1) as isize,
            None => {
                let strides = self.strides(shape);
                let steps = shape.iter().zip(strides.iter());
                let last: i64 = steps.map(|(size, stride)| (size - 1) * stride).sum();
                last as isize * self.dtype.size() as isize
            }
        };
        self.ptr.addr() + last as usize + self.dtype.size()
    }

    /// Whether two sides of a shape are element for element the same memory.
    fn is_over(&self, other: &Self, shape: &Dims) -> bool {
        let alike = || match (self.run, other.run) {
            (Some(a), Some(b)) => a == b,
            _ => self.strides(shape) == other.strides(shape),
        };
        self.ptr == other.ptr && self.dtype == other.dtype && alike()
    }
}

/// Where the result's memory is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Apart from every operand's.
    Apart,
    /// Element for element the first operand's, apart from the others'.
    Over,
    /// Anything else.
    Mixed,
}

/// How the result, the first of the places, lies to the operands.
pub(super) fn meeting(places: &[Place], shape: &Dims) -> Meeting {
    let (out, end) = (&places[0], places[0].end(shape));
    let apart = |p: &Place| end <= p.ptr.addr() || p.end(shape) <= out.ptr.addr();
    if !places[2..].iter().all(apart) {
        Meeting::Mixed
    } else if apart(&places[1]) {
        Meeting::Apart
    } else if out.is_over(&places[1], shape) {
        Meeting::Over
    } else {
        Meeting::Mixed
    }
}

/// The loop over 16-bit floats where all sides are of one such type, the operands behind the first perhaps numbers.
pub(super) fn in_halves(
    kernel: &Loop,
    ctx: &Ctx,
    compute: DType,
    operands: &[Operand],
    out: &Tensor,
) -> Option<&'static Loop> {
    let is_half = |o: &Operand| matches!(o, Operand::Tensor(t) if t.dtype() == compute);
    let (first, others) = operands.split_first()?;
    if !compute.is_reduced_float() || out.dtype() != compute || !is_half(first) {
        return None;
    }
    if others.iter().all(is_half) {
        return kernel.halves(compute);
    }
    let mut beside = others.iter().zip(1..);
    let numbers =
        beside.all(|(o, k)| matches!(o, Operand::Number(_)) || counts_as_number(ctx, k, o));
    kernel.beside(compute).filter(|_| numbers)
}

/// Whether an operand is a tensor that keeps its precision beside 16-bit ones, as a number does.
pub(super) fn counts_as_number(ctx: &Ctx, k: usize, operand: &Operand) -> bool {
    ctx.wide_numbers && k == 1 && matches!(operand, Operand::Tensor(t) if t.ndim() == 0)
}

/// As few elements are read where they lie.
const TURNED: i64 = 16 * 1024;

/// Whether an operand's neighbours lie far apart where the result's lie side by side: a copy, which goes tile by tile, takes
/// less time than reading it so.
pub(super) fn is_turned(t: &Tensor, out: &Tensor, compute: DType) -> bool {
    let as_is = !compute.is_reduced_float() || t.dtype() == compute;
    as_is && out.numel() >= TURNED && transpose::turned(out, t).is_some()
}

/// A copy that lies as the result.
pub(super) fn as_result(t: &Tensor, out: &Tensor) -> Result<Tensor> {
    let strides = dims::preserved_strides(out.shape(), out.strides());
    let made = Tensor::empty_strided(t.shape().clone(), strides, t.dtype(), Device::CPU)?;
    copy::copy(&made, t)?;
    Ok(made)
}
