//! Advanced indexing: the `index` and `index_put` operators.

use crate::cpu::index::{self as cpu_index, Axis, Lay, Reduce};
use crate::ops::batch;
use crate::ops::copy::like;
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, F, Hidden, I, J, M, OpDef, OutSpec, Plan, kernel};
use crate::ops::core::plan::ViewPlan;
use crate::ops::core::typed::OptTensors;
use crate::ops::index::along::{apart, long, start};
use crate::ops::index::scatter::{of_halves, widened};
use crate::ops::index::truth::{coordinates, count, flat_places, is_mask, truth};
use crate::{
    DType, Device, Dims, Error, Result, Scalar, Tensor, bail, cpu, dims, ensure, err, kernels,
};
use kernels::index::{Axis as PlacesAxis, Places};
use kernels::job::View;
use smallvec::{SmallVec, smallvec};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "index",
        "(Tensor self, Tensor?[] indices)",
        0,
        body!(index_rule, index, cuda: index_beside).index_args(2).host_indices(),
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
        body!(put_rule, put, cuda: put_beside).index_args(2).host_indices().updates(),
        "`self` with values written at indices.",
    )
    .apart(0b110)
    .overlaps_still("tensor[indices] = tensor")
    .samples("f32[3, 4], [i64([2, 0])], f32[4]; i64[4], [i64([1, 1])], i64(5), True")
    .grad("self: grad if accumulate else grad.index_put(indices, zeros_like(values), False); values: grad.index(indices); jvp: linear")
    .batch(Batch::As(typed!(batch::index_put, Hidden)))
    .amp(Cast::Kept, Cast::Widest),
];

/// The layout of one dimension's positions.
struct Slot {
    shape: Dims,
    strides: Dims,
}

/// How an indexing call lies in memory.
struct Layout {
    /// Dimensions of the tensor in an order that has the indexed ones next to each other, if they are not.
    order: Option<Vec<usize>>,
    slots: SmallVec<[Slot; 2]>,
    /// Where the indexed dimensions start.
    at: usize,
    /// The shape that the indices broadcast to.
    lead: Dims,
    /// The shape of the result.
    shape: Dims,
}

/// The positions that indices stand for, one tensor an indexed dimension.
fn positions(indices: &OptTensors) -> Result<Vec<Tensor>> {
    let mut out = Vec::new();
    for index in indices.0.iter().flatten() {
        if is_mask(index) {
            out.extend(coordinates(index)?);
        } else {
            out.push(long(index)?);
        }
    }
    Ok(out)
}

/// The indexed dimensions in order, with a gap for each that is not; `None` if the count of a mask is unknown.
fn slots(t: &Tensor, indices: &OptTensors) -> Result<Option<Vec<Option<Slot>>>> {
    let mut slots: Vec<Option<Slot>> = Vec::with_capacity(t.ndim());
    let mut unknown = false;
    for index in &indices.0 {
        let Some(index) = index else {
            slots.push(None);
            continue;
        };
        ensure!(
            is_mask(index) || matches!(index.dtype(), DType::I64 | DType::I32),
            Index,
            "tensors used as indices must be long, int, byte or bool tensors"
        );
        if !is_mask(index) {
            slots.push(Some(Slot {
                shape: index.shape().clone(),
                strides: index.strides().clone(),
            }));
            continue;
        }
        if index.dtype() == DType::U8 {
            crate::warning::say(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
            );
        }
        check_mask(t, index, slots.len())?;
        let n = count(index).ok();
        unknown |= n.is_none();
        for _ in 0..index.ndim() {
            slots.push(Some(Slot {
                shape: Dims::new(&[n.unwrap_or(0)]),
                strides: Dims::new(&[1]),
            }));
        }
    }
    ensure!(
        slots.len() <= t.ndim(),
        Index,
        "too many indices for tensor of dimension {} (got {})",
        t.ndim(),
        slots.len()
    );
    Ok(if unknown { None } else { Some(slots) })
}

/// Checks that a mask has the sizes of the dimensions that it covers, from `first`.
fn check_mask(t: &Tensor, mask: &Tensor, first: usize) -> Result<()> {
    for (j, &size) in mask.shape().iter().enumerate() {
        let d = first + j;
        ensure!(
            size == t.shape().get(d).copied().unwrap_or(-1),
            Index,
            "The shape of the mask {} at index {j} does not match the shape of the indexed tensor {} at index {d}",
            mask.shape(),
            t.shape()
        );
    }
    Ok(())
}

/// The shape that all indices broadcast to.
fn lead_of(slots: &[Slot]) -> Result<Dims> {
    let mut lead = Dims::EMPTY;
    for slot in slots {
        lead = match dims::broadcast(&lead, &slot.shape) {
            Ok(s) => s,
            Err(_) => {
                let shapes: Vec<String> = slots.iter().map(|s| s.shape.to_string()).collect();
                bail!(
                    Index,
                    "shape mismatch: indexing tensors could not be broadcast together with shapes {}",
                    shapes.join(", ")
                );
            }
        };
    }
    Ok(lead)
}

impl Layout {
    /// Reads the indices. `None`: one is a mask whose count is unknown.
    fn new(t: &Tensor, indices: &OptTensors) -> Result<Option<Self>> {
        let Some(mut slots) = slots(t, indices)? else {
            return Ok(None);
        };
        slots.resize_with(t.ndim(), || None);
        let used = (0..slots.len()).filter(|&d| slots[d].is_some());
        let used: SmallVec<[usize; 8]> = used.collect();
        let adjacent = used.windows(2).all(|w| w[1] == w[0] + 1);
        let (order, at) = if adjacent {
            (None, used.first().copied().unwrap_or(0))
        } else {
            let others = (0..t.ndim()).filter(|d| !used.contains(d));
            (Some(used.iter().copied().chain(others).collect()), 0)
        };
        let slots: SmallVec<[Slot; 2]> = slots.into_iter().flatten().collect();
        let lead = lead_of(&slots)?;
        let mut layout = Self {
            order,
            slots,
            at,
            lead,
            shape: Dims::EMPTY,
        };
        let sizes = layout.base(t).shape;
        ensure!(
            !sizes[at..at + layout.slots.len()].contains(&0) || layout.lead.contains(&0),
            Index,
            "index is out of bounds for dimension with size 0"
        );
        layout.shape = layout.around(&sizes, &layout.lead);
        Ok(Some(layout))
    }

    /// A tensor of the indexed one's shape, indexed dimensions next to each other.
    fn base(&self, t: &Tensor) -> ViewPlan {
        match &self.order {
            Some(order) => ViewPlan::of(t).permuted(order),
            None => ViewPlan::of(t),
        }
    }

    /// A list for the result's dimensions: the untouched ones around `lead`.
    fn around(&self, list: &[i64], lead: &[i64]) -> Dims {
        let after = self.at + self.slots.len();
        list[..self.at]
            .iter()
            .chain(lead)
            .chain(&list[after..])
            .copied()
            .collect()
    }

    /// The strides of `base` in the result's dimensions, 0 where indices lead.
    fn base_strides(&self, base: &ViewPlan) -> Dims {
        self.around(&base.strides, &Dims::filled(self.lead.len(), 0))
    }

    fn index_strides(&self, base: &ViewPlan, shape: &[i64], strides: &[i64]) -> Dims {
        self.around(
            &Dims::filled(base.shape.len(), 0),
            &dims::broadcast_strides(shape, strides, &self.lead),
        )
    }

    /// The layout of a fresh result, as a pointwise loop over the tensor and the indices would make it.
    fn out(&self, t: &Tensor) -> OutSpec {
        let base = self.base(t);
        let mut operands: SmallVec<[Dims; 3]> = smallvec![self.base_strides(&base)];
        operands.extend(
            self.slots
                .iter()
                .map(|s| self.index_strides(&base, &s.shape, &s.strides)),
        );
        let refs: SmallVec<[&[i64]; 3]> = operands.iter().map(|d| &**d).collect();
        let order = dims::layout_order(&self.shape, &refs);
        OutSpec {
            shape: self.shape.clone(),
            strides: dims::strides_in_order(&self.shape, &order),
            dtype: t.dtype(),
        }
    }

    /// The positions as one operand of the loop over the result: a tensor, its strides there, and what an index means.
    fn operand(&self, t: &Tensor, indices: &OptTensors) -> Result<(Tensor, Dims, Axis)> {
        let base = self.base(t);
        let item = base.dtype.size() as isize;
        let axis = |k: usize| Axis {
            step: base.strides[self.at + k] as isize * item,
            size: base.shape[self.at + k],
            wrap: true,
        };
        if let Some(mask) = self.only_mask(&base, indices) {
            let places = flat_places(mask)?;
            let strides = self.index_strides(&base, places.shape(), places.strides());
            let step = axis(self.slots.len() - 1).step;
            let size = mask.numel();
            let wrap = false;
            return Ok((places, strides, Axis { step, size, wrap }));
        }
        let mut positions = positions(indices)?;
        if positions.len() == 1
            && let Some(only) = positions.pop()
        {
            let strides = self.index_strides(&base, only.shape(), only.strides());
            return Ok((only, strides, axis(0)));
        }
        let sum = Tensor::empty(&self.lead, DType::I64, Device::CPU)?;
        cpu::fill(&sum, Scalar::Int(0))?;
        for (k, index) in positions.iter().enumerate() {
            if let Some(bad) = cpu_index::add_offsets(&self.lead, &sum, index, axis(k)) {
                return Err(self.bad(t, bad, k));
            }
        }
        let strides = self.index_strides(&base, &self.lead, sum.strides());
        Ok((sum, strides, Axis::OFFSETS))
    }

    /// The mask that is the only index, if the dimensions that it covers are as good as one: its positions need not be taken
    /// apart.
    fn only_mask<'a>(&self, base: &ViewPlan, indices: &OptTensors<'a>) -> Option<&'a Tensor> {
        let mut given = indices.0.iter().flatten();
        let mask = *given.next().filter(|mask| mask.dtype() == DType::Bool)?;
        let covered = self.at..self.at + self.slots.len();
        let (sizes, strides) = (&base.shape[covered.clone()], &base.strides[covered]);
        let mut pairs = (1..sizes.len()).map(|d| strides[d - 1] == strides[d] * sizes[d]);
        let alone = given.next().is_none() && mask.ndim() > 0 && !helpers::lies_beside(mask);
        (alone && pairs.all(|one| one)).then_some(mask)
    }

    /// The indexed tensor as an operand of the loop.
    fn lay(&self, t: &Tensor) -> Lay {
        Lay {
            ptr: t.data_ptr(),
            strides: self.base_strides(&self.base(t)),
        }
    }

    /// The positions as another device's kernels take them, and the tensors that hold them.
    fn places(&self, t: &Tensor, indices: &OptTensors) -> Result<(Places, Vec<Tensor>)> {
        let base = self.base(t);
        let positions = positions(indices)?;
        let mut kept = Vec::with_capacity(positions.len());
        for index in &positions {
            kept.push(kernels::arrange::beside(index, t.device())?);
        }
        let axis = |(k, index): (usize, &Tensor)| {
            let strides = self.index_strides(&base, index.shape(), index.strides());
            Ok(PlacesAxis {
                at: View::with(index, &self.shape, &strides)?,
                step: base.strides[self.at + k],
                size: base.shape[self.at + k],
            })
        };
        let axes = kept.iter().enumerate().map(axis).collect::<Result<_>>()?;
        let places = Places {
            axes,
            dtype: DType::I64,
            wrap: true,
        };
        Ok((places, kept))
    }

    #[cold]
    fn bad(&self, t: &Tensor, index: i64, k: usize) -> Error {
        err!(
            Index,
            "index {index} is out of bounds for dimension {k} with size {}",
            self.base(t).shape[self.at + k]
        )
    }
}

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
    let base = View::with(t, &layout.shape, &layout.base_strides(&layout.base(t)))?;
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
    let base = View::with(out, shape, &layout.base_strides(&layout.base(out)))?;
    let src = View::with(&values, shape, &values.strides_for(shape))?;
    let how = a.accumulate.then_some(Reduce::Add);
    kernels::index::put(out, shape.iter().product(), &base, &src, &places, how)
}

fn put_rule(a: &calls::IndexPut) -> Result<(Plan, Option<Layout>)> {
    let (t, values) = (a.input, a.values);
    if !a.accumulate && values.numel() == 1 && helpers::at_hand(values) && helpers::at_hand(t) {
        let given: SmallVec<[DType; 2]> = a.indices.0.iter().flatten().map(|i| i.dtype()).collect();
        ensure!(
            given[..] != [DType::U8],
            Runtime,
            "masked_fill_ only supports boolean masks, but got mask with dtype unsigned char"
        );
    }
    let layout = Layout::new(t, &a.indices)?;
    if let Some(Layout { shape, .. }) = &layout {
        ensure!(
            dims::broadcast(shape, values.shape()).is_ok_and(|s| s == *shape),
            Runtime,
            "shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {shape}",
            values.shape()
        );
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
