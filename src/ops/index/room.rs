//! What the host's kernels take that read and write at indices.

use crate::cpu::index::{Lay, Reduce, adds_by_rows};
use crate::cpu::products::is_one;
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

/// Places of a result along a dimension.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Places<'a> {
    pub out: &'a Tensor,
    pub dim: usize,
    /// What is looped over.
    pub shape: &'a Dims,
    /// Indices, in that shape.
    pub index: &'a Lay,
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
    let places = Places {
        out,
        dim,
        shape: index.shape(),
        index: &Lay::of(&index, index.shape()),
    };
    how.map_or(Ok(()), |how| reduced(room, places, &src, number, how))
}

/// What [`reduce_rows`](super::scatter::reduce_rows) takes.
pub(in crate::ops) fn reduced(
    room: &mut Room,
    at: Places,
    src: &Tensor,
    number: bool,
    how: Reduce,
) -> Result<()> {
    let (to, from) = (
        Lay::without(at.out, at.dim),
        source_lay(src, number, at.shape.len()),
    );
    let (d, wide) = (at.out.dtype(), wide_of(at.out));
    let by_rows = how == Reduce::Add && adds_by_rows(d, at.shape, [&to, &from, at.index]);
    if by_rows || !of_halves(d) {
        return Ok(());
    }
    room.within(|room| {
        room.converted(at.out, wide)?;
        room.converted(src, wide).map(drop)
    })
}

/// What [`reduce_into`](super::scatter::reduce_into) takes.
fn reduced_into(
    room: &mut Room,
    at: Places,
    src: &Tensor,
    (how, include_self): (How, bool),
) -> Result<()> {
    let d = at.out.dtype();
    let whole = how != How::Sum || !include_self;
    if whole && d.is_reduced_float() {
        let out = &room.converted(at.out, wide_of(at.out))?;
        let src = room.converted(src, out.dtype())?;
        return reduced_into(room, Places { out, ..at }, &src, (how, include_self));
    }
    if !include_self {
        room.within(|room| room.elements(1, d))?;
    }
    reduced(room, at, src, false, how.merge())?;
    if how != How::Mean {
        return Ok(());
    }
    let counted = counts_shape(at.out, at.dim, at.shape, at.index);
    let counts = room.keep(|room| {
        let counts = room.empty(&counted, DType::I64)?;
        room.elements(1, DType::I64)?;
        Ok(counts)
    })?;
    if d.is_integral(true) {
        return room.converted(at.out, DType::I64).map(drop);
    }
    room.converted(&counts, d)?;
    room.converted(at.out, d).map(drop)
}

/// What `scatter_reduce` takes.
pub(super) fn scatter_reduce(
    room: &mut Room,
    (out, dim): (&Tensor, usize),
    index: &Tensor,
    src: &Tensor,
    how: (How, bool),
) -> Result<()> {
    if index.numel() == 0 {
        return Ok(());
    }
    let index = at_least_1d(&apart_index(room, index, out)?);
    let src = apart(room, src, out)?;
    let places = Places {
        out,
        dim,
        shape: index.shape(),
        index: &Lay::of(&index, index.shape()),
    };
    reduced_into(room, places, &src, how)
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
    let places = Places {
        out,
        dim,
        shape: source.shape(),
        index: &along(&index, source.ndim(), dim),
    };
    match what {
        Slices::Written => Ok(()),
        Slices::Added(_) => reduced(room, places, &source, false, Reduce::Add),
        Slices::Reduced(how, include) => reduced_into(room, places, &source, (how, include)),
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
    let places = Places {
        out: &line,
        dim: 0,
        shape: &n,
        index: &Lay::of(&index, &n),
    };
    reduced(room, places, &source, false, Reduce::Add)
}
