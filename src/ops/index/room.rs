//! What the host's kernels take that read and write at indices.

use crate::cpu::index::{Lay, Reduce, adds_by_rows};
use crate::cpu::room::Room;
use crate::cpu::view::at_least_1d;
use crate::ops::core::typed::Operand;
use crate::ops::index::along::along;
use crate::ops::index::counts::counts_shape;
use crate::ops::index::scatter::{How, source_lay};
use crate::{DType, Dims, Result, Scalar, Tensor};

/// Floats of 16 bits, and complex numbers of them.
pub(in crate::ops) fn of_halves(d: DType) -> bool {
    d.is_reduced_float() || d == DType::C32
}

/// The type that a result of halves is reduced in.
pub(super) fn wide_of(out: &Tensor) -> DType {
    if out.dtype().is_complex() {
        DType::C64
    } else {
        DType::F32
    }
}

/// What [`long`](super::along::long) makes.
pub(in crate::ops) fn long(room: &mut Room, index: &Tensor) -> Result<Tensor> {
    if index.dtype() == DType::I64 {
        Ok(index.clone())
    } else {
        room.converted(index, DType::I64)
    }
}

/// What [`apart_index`](super::scatter::apart_index) makes.
pub(in crate::ops) fn apart_index(room: &mut Room, index: &Tensor, out: &Tensor) -> Result<Tensor> {
    if index.shares_storage(out) {
        room.converted(index, DType::I64)
    } else {
        long(room, index)
    }
}

/// What [`apart`](super::along::apart) makes.
pub(in crate::ops) fn apart(room: &mut Room, src: &Tensor, out: &Tensor) -> Result<Tensor> {
    if src.dtype() == out.dtype() && !src.shares_storage(out) {
        Ok(src.clone())
    } else {
        room.converted(src, out.dtype())
    }
}

/// What [`value_of`](super::scatter::value_of) makes.
fn value_of(room: &mut Room, v: Operand, out: &Tensor) -> Result<Tensor> {
    match v {
        Operand::Tensor(t) => apart(room, t, out),
        Operand::Scalar(_) => room.empty(&[], out.dtype()),
    }
}

/// What scattering takes.
pub(super) fn scatter(
    room: &mut Room,
    out: &Tensor,
    dim: usize,
    index: &Tensor,
    src: Operand,
    how: Option<Reduce>,
) -> Result<()> {
    if index.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(room, index, out)?);
    let number = src.scalar().is_some();
    let src = value_of(room, src, out)?;
    let (shape, lay) = (index.shape(), Lay::of(&index, index.shape()));
    how.map_or(Ok(()), |how| {
        reduced(room, out, dim, shape, &lay, &src, number, how)
    })
}

/// What [`reduce_rows`](super::scatter::reduce_rows) takes.
#[allow(clippy::too_many_arguments, reason = "those of the kernel")]
pub(in crate::ops) fn reduced(
    room: &mut Room,
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    src: &Tensor,
    number: bool,
    how: Reduce,
) -> Result<()> {
    let from = source_lay(src, number, shape.len());
    let to = Lay::without(out, dim);
    let by_rows = how == Reduce::Add && adds_by_rows(out.dtype(), shape, [&to, &from, index]);
    if by_rows || !of_halves(out.dtype()) {
        return Ok(());
    }
    room.within(|room| {
        room.converted(out, wide_of(out))?;
        room.converted(src, wide_of(out)).map(drop)
    })
}

/// What [`reduce_into`](super::scatter::reduce_into) takes.
#[allow(clippy::too_many_arguments, reason = "those of the kernel")]
fn reduced_into(
    room: &mut Room,
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Lay,
    src: &Tensor,
    how: How,
    include_self: bool,
) -> Result<()> {
    let whole = how != How::Sum || !include_self;
    if whole && out.dtype().is_reduced_float() {
        let wide = room.converted(out, wide_of(out))?;
        let src = room.converted(src, wide_of(out))?;
        return reduced_into(room, &wide, dim, shape, index, &src, how, include_self);
    }
    if !include_self {
        room.within(|room| room.elements(1, out.dtype()))?;
    }
    reduced(room, out, dim, shape, index, src, false, how.merge())?;
    if how != How::Mean {
        return Ok(());
    }
    let counted = counts_shape(out, dim, shape, index);
    let counts = room.keep(|room| {
        let counts = room.empty(&counted, DType::I64)?;
        room.elements(1, DType::I64)?;
        Ok(counts)
    })?;
    if out.dtype().is_integral(true) {
        return room.converted(out, DType::I64).map(drop);
    }
    room.converted(&counts, out.dtype())?;
    room.converted(out, out.dtype()).map(drop)
}

/// What `scatter_reduce` takes.
#[allow(clippy::too_many_arguments, reason = "those of the kernel")]
pub(super) fn scatter_reduce(
    room: &mut Room,
    out: &Tensor,
    dim: usize,
    index: &Tensor,
    src: &Tensor,
    how: How,
    include_self: bool,
) -> Result<()> {
    if index.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(room, index, out)?);
    let src = apart(room, src, out)?;
    let lay = Lay::of(&index, index.shape());
    reduced_into(room, out, dim, index.shape(), &lay, &src, how, include_self)
}

/// What rows take that bring slices of a source to indices.
pub(super) fn slices(
    room: &mut Room,
    out: &Tensor,
    dim: usize,
    index: &Tensor,
    source: &Tensor,
    what: Slices,
) -> Result<()> {
    let source = at_least_1d(&room.keep(|room| {
        let source = apart(room, source, out)?;
        match what {
            Slices::Added(alpha) if source.numel() > 0 && !is_one(alpha) => {
                room.converted(&source, source.dtype())
            }
            _ => Ok(source),
        }
    })?);
    if source.numel() == 0 {
        return Ok(());
    }
    let index = apart_index(room, index, out)?;
    let shape = source.shape().clone();
    let lay = along(&index, shape.len(), dim);
    match what {
        Slices::Written => Ok(()),
        Slices::Added(_) => reduced(room, out, dim, &shape, &lay, &source, false, Reduce::Add),
        Slices::Reduced(how, include) => {
            reduced_into(room, out, dim, &shape, &lay, &source, how, include)
        }
    }
}

/// What becomes of slices.
#[derive(Clone, Copy)]
pub(super) enum Slices {
    /// They are written.
    Written,
    /// They are added, times a factor.
    Added(Scalar),
    /// They are reduced, with what was there or without.
    Reduced(How, bool),
}

/// Whether a factor changes nothing.
pub(super) fn is_one(alpha: Scalar) -> bool {
    matches!(
        alpha,
        Scalar::Int(1) | Scalar::Float(1.0) | Scalar::Bool(true)
    )
}

/// What filling slices takes.
pub(super) fn filled(room: &mut Room, out: &Tensor, index: &Tensor, value: Operand) -> Result<()> {
    apart_index(room, index, out)?;
    if out.numel() == 0 || index.numel() == 0 {
        return Ok(());
    }
    value_of(room, value, out).map(drop)
}

/// What a write at positions of the flattened tensor takes.
pub(super) fn put(
    room: &mut Room,
    out: &Tensor,
    index: &Tensor,
    source: &Tensor,
    adds: bool,
) -> Result<()> {
    let index = room.keep(|room| {
        let index = apart_index(room, index, out)?;
        room.dense(&index, DType::I64)
    })?;
    let source = room.keep(|room| {
        let source = apart(room, source, out)?;
        room.dense(&source, out.dtype())
    })?;
    let work = room.dense(out, out.dtype())?;
    if !adds {
        return Ok(());
    }
    let n = Dims::new(&[index.numel()]);
    let index = room.empty(&n, DType::I64)?;
    let line = work.laid_out([work.numel()].into(), [1].into());
    let source = source.laid_out(n.clone(), [1].into());
    let lay = Lay::of(&index, &n);
    reduced(room, &line, 0, &n, &lay, &source, false, Reduce::Add)
}
