//! Masks and conditions: where, masked_*; writes into a view's place (`*_scatter`).

use crate::cpu::index::{self as cpu_index, Lay};
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::core::dispatch;
use crate::ops::core::fits::{c_name, check_filling, check_fits};
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, FM, FMO, Hidden, I, M, O, OpDef, Plan, X, kernel};
use crate::ops::core::plan::ViewPlan;
use crate::ops::core::typed::Operand;
use crate::ops::index::along::{apart, out_of_range, start};
use crate::ops::index::room;
use crate::ops::index::truth::count;
use crate::ops::pointwise::rule::{result_layout, result_type};
use crate::ops::view::part::{self, Part};
use crate::{DType, Dims, Result, Scalar, Tensor, cpu, dims, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "masked_fill#tensor",
        "(Tensor self, Tensor mask, Tensor value)",
        FM | I,
        body!(
            |a| masked_fill_rule(a.input, a.mask, a.value.into()),
            |a, _, outs| masked_fill(a.input, a.mask, helpers::item(a.value)?, &outs[0]),
            cuda: |a, _, outs| masked_beside(a.input, a.mask, a.value.into(), &outs[0])
        )
        .updates(),
        "`self` with a 0-dimensional tensor's value where `mask` is true.",
    )
    .alike(0b10)
    .overlaps_still("tensor[mask] = scalar")
    .samples("f32[3, 4], b8[3, 4], f32(2.5)")
    .grad("MaskedFillBackward1 | self: grad.masked_fill(mask, 0); value: where(mask, grad, 0).sum()")
    .batch(Batch::As(typed!(batch::masked_fill, Hidden))),
    kernel(
        "masked_fill",
        "(Tensor self, Tensor mask, Scalar value)",
        FM | I,
        body!(
            |a| masked_fill_rule(a.input, a.mask, a.value.into()),
            |a, _, outs| masked_fill(a.input, a.mask, a.value, &outs[0]),
            cuda: |a, _, outs| masked_beside(a.input, a.mask, a.value.into(), &outs[0])
        )
        .updates(),
        "`self` with a number where `mask` is true.",
    )
    .alike(0b10)
    .overlaps_still("tensor[mask] = scalar")
    .samples("f32[5], b8[5, 5], 10")
    .grad("self: grad.masked_fill(mask, 0)")
    .batch(Batch::Pointwise),
    kernel(
        "masked_select",
        "(Tensor self, Tensor mask)",
        FMO | X,
        body!(
            masked_select_rule,
            masked_select,
            cuda: |a, shape, outs| kernels::compact::chosen(&outs[0], a.input, a.mask, shape)
        ),
        "The elements where `mask` is true, in one dimension.",
    )
    .apart(0b11)
    .samples("f32[10], b8[10, 10]; b8[10, 10], b8[10, 10]")
    .grad("self: _grad.masked_select_back(grad, self.sizes, mask)")
    .batch(Batch::As(typed!(batch::masked_select, Hidden))),
    kernel(
        "masked_scatter",
        "(Tensor self, Tensor mask, Tensor source)",
        FM | I,
        body!(masked_scatter_rule, masked_scatter, scratch: masked_scatter_room).updates(),
        "`self` with the elements of `source` in order where `mask` is true.",
    )
    .alike(0b10)
    .samples("f32[5], b8[5, 5], f32[5, 5]; c64[5], b8[5, 5], c64[5, 5]")
    .grad("self: grad.masked_fill(mask, 0); source: _grad.masked_scatter_backward(grad, mask, source.sizes)"),
    kernel(
        "where",
        "(Tensor condition, Operand self, Operand other)",
        F | O | X,
        body!(
            |a| where_rule(a.condition, a.input, a.other),
            |a, _, outs| choose(a.condition, a.input, a.other, &outs[0]),
            cuda: |a, _, outs| kernels::accelerator()?.choose(&outs[0], [a.condition.into(), a.input.into(), a.other.into()]),
            scratch: |a, _, outs, room| operands_scratch(room, [a.input, a.other], &outs[0]),
        )
        .pointwise(),
        "`self` where the condition holds, else `other`.",
    )
    .samples("b8[3, 4], -0.061, 5.1576")
    .grad("self: where(condition, grad, 0); other: where(condition, 0, grad)"),
    kernel(
        "where#method",
        "(Tensor self, Tensor condition, Operand other)",
        M,
        body!(
            |a| where_rule(a.condition, a.input.into(), a.other),
            |a, _, outs| choose(a.condition, a.input.into(), a.other, &outs[0]),
            cuda: |a, _, outs| kernels::accelerator()?.choose(&outs[0], [a.condition.into(), a.input.into(), a.other.into()]),
            scratch: |a, _, outs, room| operands_scratch(room, [a.input.into(), a.other], &outs[0]),
        )
        .pointwise(),
        "`self` where the condition holds, else `other`.",
    )
    .samples("f32[2, 3], b8[2, 3], f32[3]; i64[3], b8[3], 1.5")
    .grad("WhereBackward0 | self: where(condition, grad, 0); other: where(condition, 0, grad)"),
    kernel(
        "select_scatter",
        "(Tensor self, Tensor src, int dim, int index)",
        FM,
        body!(
            |a| place_rule(a.input, a.src, part::index(a.input, a.dim, a.index)?),
            anywhere: |a, part, outs| place(a.input, a.src, part, &outs[0])
        ),
        "`self` with `src` written at one index of a dimension.",
    )
    .samples("f32[5, 5, 5], f32[5, 5], 1, -1; b8[5, 5, 5], b8[5, 5], 1, 2")
    .grad("self: grad.select_scatter(zeros_like(src), dim, index); src: grad.select(dim, index)"),
    kernel(
        "slice_scatter",
        "(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1)",
        FMO | X,
        body!(
            |a| place_rule(
                a.input,
                a.src,
                part::range(a.input, a.dim, a.start, a.end, a.step)?
            ),
            anywhere: |a, part, outs| place(a.input, a.src, part, &outs[0])
        ),
        "`self` with `src` written to a range of a dimension.",
    )
    .samples("f32[20, 20, 20], f32[20, 20, 20], 0, 0, 20, 1")
    .grad("self: grad.slice_scatter(zeros_like(src), dim, start, end, step); src: grad.slice(dim, start, end, step)"),
    kernel(
        "diagonal_scatter",
        "(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1)",
        FM,
        body!(
            |a| place_rule(
                a.input,
                a.src,
                part::diagonal(a.input, a.offset, a.dim1, a.dim2)?
            ),
            anywhere: |a, part, outs| place(a.input, a.src, part, &outs[0])
        ),
        "`self` with `src` written on a diagonal.",
    )
    .samples("f32[5, 3], f32[1], 2; c64[3, 5], c64[3], 1; f32[10, 10, 10], f32[10, 8], -2, 0, 1")
    .grad("self: grad.diagonal_scatter(zeros_like(src), offset, dim1, dim2); src: grad.diagonal(offset, dim1, dim2)"),
    kernel(
        "as_strided_scatter",
        "(Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None)",
        FM,
        body!(
            |a| place_rule(
                a.input,
                a.src,
                part::strided(a.input, a.size, a.stride, a.storage_offset)?
            ),
            |a, part, outs| place_strided(a.input, a.src, part, &outs[0]),
            scratch: |a, part, _, room| match (a.input.has_internal_overlap(), part) {
                (true, Part::Strided { .. }) => Ok(()),
                _ => room.converted(&cpu::view::whole(a.input), a.input.dtype()).map(drop),
            }
        ),
        "`self` with `src` written to a strided layout of its memory.",
    )
    .samples(
        "f32[3, 3], f32[2, 2], (2, 2), (1, 2), storage_offset=0; \
         c64[3, 3], c64[2, 2], (2, 2), (1, 2), storage_offset=1",
    )
    .grad("self: _grad.as_strided_scatter_self(grad, size, stride, storage_offset); src: grad.contiguous().as_strided(size, stride, storage_offset); jvp: linear")
    .batch(Batch::As(typed!(batch::as_strided_scatter, Hidden))),
];

fn masked_fill_rule(t: &Tensor, mask: &Tensor, value: Operand) -> Result<Plan> {
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    let shown = mask.dtype().cpp_name();
    ensure!(
        mask.dtype() == DType::Bool,
        Runtime,
        "masked_fill_ only supports boolean masks, but got mask with dtype {shown}"
    );
    match value {
        Operand::Tensor(v) => {
            ensure!(
                v.ndim() == 0,
                Runtime,
                "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {} dimension(s).",
                v.ndim()
            );
            ensure!(
                !v.dtype().is_complex() || t.dtype().is_complex(),
                Runtime,
                "value cannot be converted to type {} without overflow",
                c_name(t.dtype())
            );
        }
        Operand::Scalar(s) => check_fits(s, t.dtype())?,
    }
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn masked_beside(t: &Tensor, mask: &Tensor, value: Operand, out: &Tensor) -> Result<()> {
    let value = match value {
        Operand::Tensor(v) => Operand::Scalar(helpers::item(v)?),
        number => number,
    };
    kernels::accelerator()?.choose(out, [mask.into(), value.into(), t.into()])
}

fn masked_fill(t: &Tensor, mask: &Tensor, value: Scalar, out: &Tensor) -> Result<()> {
    start(out, t)?;
    let mut bits = [0u64; 2];
    cpu::write_scalar(&mut bits, out.dtype(), value);
    if out.dtype() == DType::C32 {
        let one = cpu::copy::converted(&Tensor::scalar(value, DType::C64)?, DType::C32)?;
        cpu_index::choose(
            out,
            &Lay::of(mask, out.shape()),
            &Lay::of(&one, out.shape()),
            &Lay::of(out, out.shape()),
        );
        return Ok(());
    }
    cpu_index::fill_where(out, mask, &bits);
    Ok(())
}

/// A tensor read with another shape, row-major.
fn spread(t: &Tensor, shape: &[i64], dtype: DType) -> Result<Tensor> {
    let wide = cpu::view::of(t, ViewPlan::expanded(t, shape))?;
    cpu::copy::dense(&wide, dtype)
}

fn masked_select_rule(a: &calls::MaskedSelect) -> Result<(Plan, Dims)> {
    let (t, mask) = (a.input, a.mask);
    ensure!(
        matches!(mask.dtype(), DType::Bool),
        Runtime,
        "masked_select: expected BoolTensor for mask"
    );
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    let Ok(n) = count(mask) else {
        return Err(dispatch::unknown_shape("masked_select"));
    };
    let repeats = if mask.numel() == 0 {
        0
    } else {
        dims::numel(&shape)? / mask.numel()
    };
    Ok((Plan::contiguous(&[n * repeats], t.dtype()), shape))
}

fn masked_select(a: &calls::MaskedSelect, shape: &Dims, outs: &[Tensor]) -> Result<()> {
    let bits = spread(a.mask, shape, DType::Bool)?;
    let places = cpu_index::true_places(&bits);
    let src = spread(a.input, shape, a.input.dtype())?;
    let index = Tensor::from_slice(&places, &[places.len() as i64])?;
    pick_flat(&outs[0], &src, &index)
}

/// `out[i] = src[index[i]]` over all elements of a dense tensor.
fn pick_flat(out: &Tensor, src: &Tensor, index: &Tensor) -> Result<()> {
    let item = src.dtype().size();
    let axis = cpu_index::Axis {
        step: item as isize,
        size: src.numel(),
        wrap: false,
    };
    let base = Lay {
        ptr: src.data_ptr(),
        strides: Dims::filled(1, 0),
    };
    let bad = cpu_index::gather(
        index.shape(),
        &Lay::of(out, index.shape()),
        &base,
        &Lay::of(index, index.shape()),
        item,
        axis,
    );
    bad.map_or(Ok(()), |_| Err(out_of_range()))
}

fn masked_scatter_rule(a: &calls::MaskedScatter) -> Result<Plan> {
    let (t, mask, source) = (a.input, a.mask, a.source);
    let shape = dims::broadcast(mask.shape(), t.shape())?;
    if mask.dtype() == DType::U8 {
        crate::warning::say(
            "masked_scatter_ received a mask with dtype torch.uint8, this behavior is now deprecated,please use a mask with dtype torch.bool instead.",
        );
    }
    ensure!(
        mask.dtype() == DType::Bool,
        Runtime,
        "masked_scatter_ only supports boolean masks, but got mask with dtype {}",
        mask.dtype().scalar_type()
    );
    ensure!(
        t.dtype() == source.dtype(),
        Runtime,
        "masked_scatter: expected self and source to have same dtypes but got{} and {}",
        t.dtype().scalar_type(),
        source.dtype().scalar_type()
    );
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn masked_scatter(a: &calls::MaskedScatter, (): &(), outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let source = apart(a.source, out)?;
    let source = cpu::copy::dense(&source, source.dtype())?;
    let mask = spread(a.mask, out.shape(), DType::Bool)?;
    ensure!(
        cpu_index::count_true(&mask) <= source.numel(),
        Runtime,
        "Number of elements of source < number of ones in mask"
    );
    start(out, a.input)?;
    let work = cpu::copy::dense(out, out.dtype())?;
    cpu_index::put_where(&work, &mask, &source);
    if out.is_contiguous() {
        Ok(())
    } else {
        cpu::copy::copy(out, &work)
    }
}

fn masked_scatter_room(
    a: &calls::MaskedScatter,
    (): &(),
    outs: &[Tensor],
    room: &mut Room,
) -> Result<()> {
    let out = &outs[0];
    room.keep(|room| {
        let source = room::apart(room, a.source, out)?;
        room.dense(&source, source.dtype())
    })?;
    room.dense(
        &cpu::view::of(a.mask, ViewPlan::expanded(a.mask, out.shape()))?,
        DType::Bool,
    )?;
    room.dense(out, out.dtype()).map(drop)
}

fn where_rule(condition: &Tensor, x: Operand, y: Operand) -> Result<Plan> {
    ensure!(
        matches!(condition.dtype(), DType::Bool | DType::U8),
        Runtime,
        "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
        condition.dtype().scalar_type()
    );
    if condition.dtype() == DType::U8 {
        crate::warn_once!(
            "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. Use a boolean condition instead."
        );
    }
    let operands = [condition.into(), x.into(), y.into()];
    let dtype = result_type(&operands[1..])?;
    for number in [x, y] {
        if let Operand::Scalar(s) = number {
            check_filling(s, dtype, 1)?;
        }
    }
    let (shape, strides) = result_layout(&operands)?;
    Ok(Plan::one(shape, strides, dtype))
}

/// An operand as a tensor of a dtype.
fn operand(v: Operand, dtype: DType) -> Result<Tensor> {
    match v {
        Operand::Tensor(t) if t.dtype() == dtype => Ok(t.clone()),
        Operand::Tensor(t) => cpu::copy::converted(t, dtype),
        Operand::Scalar(s) if dtype == DType::C32 => {
            cpu::copy::converted(&Tensor::scalar(s, DType::C64)?, dtype)
        }
        Operand::Scalar(s) => Tensor::scalar(s, dtype),
    }
}

/// What [`operand`] makes of two operands.
fn operands_scratch(room: &mut Room, operands: [Operand; 2], out: &Tensor) -> Result<()> {
    for v in operands {
        match v {
            Operand::Tensor(t) if t.dtype() == out.dtype() => {}
            Operand::Tensor(t) => room.converted(t, out.dtype()).map(drop)?,
            Operand::Scalar(_) if out.dtype() == DType::C32 => {
                room.keep(|room| {
                    room.elements(1, DType::C64)?;
                    room.empty(&[], DType::C32)
                })?;
            }
            Operand::Scalar(_) => room.elements(1, out.dtype())?,
        }
    }
    Ok(())
}

fn choose(condition: &Tensor, x: Operand, y: Operand, out: &Tensor) -> Result<()> {
    let (x, y) = (operand(x, out.dtype())?, operand(y, out.dtype())?);
    let shape = out.shape();
    cpu_index::choose(
        out,
        &Lay::of(condition, shape),
        &Lay::of(&x, shape),
        &Lay::of(&y, shape),
    );
    Ok(())
}

/// For rows that write `src` into a part of a copy of `t`.
fn place_rule(t: &Tensor, src: &Tensor, part: Part) -> Result<(Plan, Part)> {
    let shape = part.plan(t).shape;
    ensure!(
        shape == *src.shape(),
        Runtime,
        "expected src to have a size equal to the slice of self. src size = {}, slice size = {shape}",
        src.shape()
    );
    let strides = if t.has_internal_overlap() {
        dims::preserved_strides(t.shape(), t.strides())
    } else {
        t.strides().clone()
    };
    Ok((Plan::one(t.shape().clone(), strides, t.dtype()), part))
}

fn place(t: &Tensor, src: &Tensor, part: &Part, out: &Tensor) -> Result<()> {
    kernels::copy(out, t)?;
    kernels::copy(&cpu::view::of(out, part.plan(out))?, src)
}

/// The layout may reach memory that `t` does not show: works on a copy of the whole storage.
fn place_strided(t: &Tensor, src: &Tensor, part: &Part, out: &Tensor) -> Result<()> {
    // What overlaps is copied without that, and the layout is one of the copy.
    if t.has_internal_overlap()
        && let Part::Strided {
            shape,
            strides,
            offset,
        } = part
    {
        let part = part::strided(out, shape, strides, Some(*offset))?;
        return place(t, src, &part, out);
    }
    let copy = cpu::copy::converted(&cpu::view::whole(t), t.dtype())?;
    cpu::copy::copy(&cpu::view::of(&copy, part.plan(t))?, src)?;
    cpu::copy::copy(out, &cpu::view::of(&copy, ViewPlan::of(t))?)
}
