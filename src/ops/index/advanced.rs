//! Advanced indexing: the `index` and `index_put` operators.

use crate::cpu::index::{self as cpu_index, Lay, Reduce};
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::copy::like;
use crate::ops::core::dispatch;
use crate::ops::core::fits::check_fits;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, F, Hidden, I, J, M, OpDef, Plan, kernel};
use crate::ops::core::plan::ViewPlan;
use crate::ops::core::typed::OptTensors;
use crate::ops::index::along::{apart, start};
use crate::ops::index::layout::Layout;
use crate::ops::index::room::{self, of_halves};
use crate::ops::index::scatter::widened;
use crate::ops::index::truth::{is_mask, truth};
use crate::{DType, Dims, Result, Tensor, cpu, dims, ensure, kernels};
use kernels::job::View;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "index",
        "(Tensor self, Tensor?[] indices)",
        0,
        body!(index_rule, index, cuda: index_beside, scratch: |a, layout, outs, room| match outs[0].numel() {
            0 => Ok(()),
            _ => layout.operand_room(room, &a.indices).map(drop),
        }).index_args(2).host_indices(),
        "The elements at indices, as square brackets take them.",
    )
    .samples(
        "f32[3, 4], [i64([2, 0])]; \
         i64[3, 4], [None, i64([1, 1])]; \
         f32[3], [b8([True, False, True])]",
    )
    .grad("self: _grad.index_backward(grad, self.sizes, indices); jvp: linear")
    .batch(Batch::As(typed!(batch::index, Hidden))),
    kernel(
        "index_put",
        "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False)",
        F | M | I | J,
        body!(put_rule, put, cuda: put_beside, scratch: put_room).index_args(2).host_indices().updates(),
        "`self` with values written at indices.",
    )
    .apart(0b110)
    .overlaps_still("tensor[indices] = tensor")
    .samples("f32[3, 4], [i64([2, 0])], f32[4]; i64[4], [i64([1, 1])], i64(5), True")
    .grad("self: grad if accumulate else grad.index_put(indices, zeros_like(values), False); values: grad.index(indices); jvp: linear")
    .batch(Batch::As(typed!(batch::index_put, Hidden)))
    .amp(Cast::Kept, Cast::Widest),
];

fn index_rule(a: &calls::Index) -> Result<(Plan, Layout)> {
    let Some(layout) = Layout::new(a.input, &a.indices)? else {
        return Err(dispatch::unknown_shape("index"));
    };
    let plan = Plan {
        outs: [layout.out(a.input)].into_iter().collect(),
        device: None,
    };
    Ok((plan, layout))
}

fn index(a: &calls::Index, layout: &Layout, outs: &[Tensor]) -> Result<()> {
    let (t, out) = (a.input, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let (index, strides, axis) = layout.operand(t, &a.indices)?;
    let index_lay = Lay {
        ptr: index.data_ptr(),
        strides,
    };
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(out, out.shape()),
        &layout.lay(t),
        &index_lay,
        out.dtype().size(),
        axis,
    );
    bad.map_or(Ok(()), |i| Err(layout.bad(t, i, 0)))
}

fn index_beside(a: &calls::Index, layout: &Layout, outs: &[Tensor]) -> Result<()> {
    let (t, out) = (a.input, &outs[0]);
    let (places, _kept) = layout.places(t, &a.indices)?;
    if places.axes.is_empty() {
        return kernels::copy(out, t);
    }
    let base = View::with(t, &layout.shape, &layout.base_strides(t))?;
    kernels::index::take(out, &base, &places)
}

fn put_beside(a: &calls::IndexPut, layout: &Option<Layout>, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    let Some(layout) = layout else {
        return Ok(());
    };
    let (places, _kept) = layout.places(out, &a.indices)?;
    let values = kernels::arrange::beside(&apart(a.values, out)?, out.device())?;
    if places.axes.is_empty() {
        return kernels::copy(out, &values);
    }
    let shape = &layout.shape;
    let base = View::with(out, shape, &layout.base_strides(out))?;
    let src = View::with(&values, shape, &values.strides_for(shape))?;
    let how = a.accumulate.then_some(Reduce::Add);
    kernels::index::put(out, shape.iter().product(), &base, &src, &places, how)
}

fn put_rule(a: &calls::IndexPut) -> Result<(Plan, Option<Layout>)> {
    let (t, values) = (a.input, a.values);
    let layout = Layout::new(t, &a.indices)?;
    // One value by one mask is a number that is filled in, of whatever type.
    let mut given = a.indices.0.iter().flatten().map(|i| i.dtype());
    let at_hand = values.numel() == 1 && helpers::at_hand(values) && helpers::at_hand(t);
    let filled = match (given.next(), given.next()) {
        (Some(d @ (DType::U8 | DType::Bool)), None) if !a.accumulate && at_hand => {
            ensure!(
                d == DType::Bool,
                Runtime,
                "masked_fill_ only supports boolean masks, but got mask with dtype unsigned char"
            );
            true
        }
        _ => false,
    };
    if let Some(Layout { shape, .. }) = &layout {
        ensure!(
            dims::broadcast(shape, values.shape()).is_ok_and(|s| s == *shape),
            Runtime,
            "shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {shape}",
            values.shape()
        );
    }
    if filled && t.dtype() != values.dtype() {
        check_fits(helpers::item(values)?, t.dtype())?;
        return Ok((like(t), layout));
    }
    ensure!(
        t.dtype() == values.dtype(),
        Runtime,
        "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.",
        t.dtype().scalar_type(),
        values.dtype().scalar_type()
    );
    Ok((like(t), layout))
}

fn put(a: &calls::IndexPut, layout: &Option<Layout>, outs: &[Tensor]) -> Result<()> {
    let (out, accumulate) = (&outs[0], a.accumulate);
    start(out, a.input)?;
    let values = apart(a.values, out)?;
    if let (false, 1, [Some(mask)]) = (accumulate, values.numel(), &a.indices.0[..])
        && is_mask(mask)
        && out.shape().starts_with(mask.shape())
    {
        let bits = truth(mask)?;
        let tail = out.ndim() - mask.ndim();
        let shape = bits.shape().concat(&Dims::filled(tail, 1));
        let strides = bits.strides().concat(&Dims::filled(tail, 0));
        let bits = cpu::view::of(&bits, ViewPlan::with(&bits, shape, strides, bits.offset()))?;
        cpu_index::fill_where(out, &bits, &element(&values));
        return Ok(());
    }
    let Some(layout) = layout else {
        return Ok(());
    };
    write(out, layout, &a.indices, &values, accumulate)
}

fn put_room(
    a: &calls::IndexPut,
    layout: &Option<Layout>,
    outs: &[Tensor],
    room: &mut Room,
) -> Result<()> {
    let out = &outs[0];
    let values = room::apart(room, a.values, out)?;
    if let (false, 1, [Some(mask)]) = (a.accumulate, values.numel(), &a.indices.0[..])
        && is_mask(mask)
        && out.shape().starts_with(mask.shape())
    {
        return room.dense(mask, DType::Bool).map(drop);
    }
    let Some(layout) = layout.as_ref().filter(|l| !l.shape.contains(&0)) else {
        return Ok(());
    };
    let (places, strides) = layout.operand_room(room, &a.indices)?;
    let index = Lay {
        ptr: places.data_ptr(),
        strides,
    };
    let (dst, src) = (layout.lay(out), Lay::of(&values, &layout.shape));
    let by_rows = cpu_index::adds_by_rows(out.dtype(), &layout.shape, [&dst, &src, &index]);
    if !a.accumulate || by_rows || !of_halves(out.dtype()) {
        return Ok(());
    }
    room.converted(out, room::wide_of(out))?;
    room.converted(&values, room::wide_of(out))?;
    layout.operand_room(room, &a.indices).map(drop)
}

/// The bits of a tensor's only element.
fn element(t: &Tensor) -> [u64; 2] {
    let mut bits = [0u64; 2];
    if let Ok(s) = cpu::read_scalar(t, 0) {
        cpu::write_scalar(&mut bits, t.dtype(), s);
    }
    bits
}

fn write(
    out: &Tensor,
    layout: &Layout,
    indices: &OptTensors,
    values: &Tensor,
    accumulate: bool,
) -> Result<()> {
    let shape = &layout.shape;
    if shape.contains(&0) {
        return Ok(());
    }
    let (index, strides, axis) = layout.operand(out, indices)?;
    let (dst, src) = (layout.lay(out), Lay::of(values, shape));
    let index_lay = Lay {
        ptr: index.data_ptr(),
        strides,
    };
    let bad = if accumulate {
        let (dtype, add) = (out.dtype(), Reduce::Add);
        match cpu_index::add_halves(dtype, shape, [&dst, &src, &index_lay], axis) {
            Some(bad) => bad,
            None if of_halves(dtype) => {
                return widened(out, values, |out, values| {
                    write(out, layout, indices, values, true)
                });
            }
            None => cpu_index::scatter_reduce(add, dtype, shape, &dst, &src, &index_lay, axis)?,
        }
    } else {
        cpu_index::scatter(shape, &dst, &src, &index_lay, out.dtype().size(), axis)
    };
    bad.map_or(Ok(()), |i| Err(layout.bad(out, i, 0)))
}
