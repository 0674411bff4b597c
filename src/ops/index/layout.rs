//! How an indexing call lies in memory: which dimensions are indexed, what indices broadcast to, and how results lie.

use crate::cpu::index::{self as cpu_index, Axis, Lay};
use crate::cpu::room::Room;
use crate::ops::core::helpers;
use crate::ops::core::op::OutSpec;
use crate::ops::core::typed::OptTensors;
use crate::ops::index::along::long;
use crate::ops::index::room;
use crate::ops::index::truth::{coordinates, count, flat_places, is_mask};
use crate::{
    DType, Device, Dims, Error, Result, Scalar, Tensor, bail, cpu, dims, ensure, err, kernels,
};
use kernels::index::{Axis as PlacesAxis, Places};
use kernels::job::View;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// The layout of one dimension's positions.
struct Slot {
    shape: Dims,
    strides: Dims,
}

/// The indexed dimensions' positions: of one dimension in most calls.
type Slots = SmallVec<[Slot; 1]>;
/// Numbers of dimensions.
type Order = SmallVec<[usize; 8]>;

/// How an indexing call lies in memory.
pub(super) struct Layout {
    /// Dimensions of the tensor in an order that has the indexed ones next to each other, if they are not.
    order: Option<Box<Order>>,
    slots: Slots,
    /// Where the indexed dimensions start.
    at: usize,
    /// The shape that the indices broadcast to.
    lead: Dims,
    /// The shape of the result.
    pub(super) shape: Dims,
}

/// Sizes and strides of a tensor whose indexed dimensions are next to each other.
struct Base<'a> {
    shape: Cow<'a, Dims>,
    strides: Cow<'a, Dims>,
}

/// The positions that indices stand for, one tensor an indexed dimension.
fn positions(indices: &OptTensors) -> Result<SmallVec<[Tensor; 1]>> {
    let mut out = SmallVec::new();
    for index in indices.0.iter().flatten() {
        if is_mask(index) {
            out.extend(coordinates(index)?);
        } else {
            out.push(long(index)?);
        }
    }
    Ok(out)
}

/// The indexed dimensions and their numbers, in order; `None` if the count of a mask is unknown.
fn slots(t: &Tensor, indices: &OptTensors) -> Result<Option<(Slots, Order)>> {
    let (mut slots, mut used) = (Slots::new(), Order::new());
    let (mut dim, mut unknown) = (0, false);
    for index in &indices.0 {
        let Some(index) = index else {
            dim += 1;
            continue;
        };
        ensure!(
            is_mask(index) || matches!(index.dtype(), DType::I64 | DType::I32),
            Index,
            "tensors used as indices must be long, int, byte or bool tensors"
        );
        if !is_mask(index) {
            slots.push(Slot {
                shape: index.shape().clone(),
                strides: index.strides().clone(),
            });
            used.push(dim);
            dim += 1;
            continue;
        }
        if index.dtype() == DType::U8 {
            crate::warning::say(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.",
            );
        }
        if dim + index.ndim() <= t.ndim() {
            check_mask(t, index, dim)?;
        }
        let n = count(index).ok();
        unknown |= n.is_none();
        for _ in 0..index.ndim() {
            slots.push(Slot {
                shape: Dims::new(&[n.unwrap_or(0)]),
                strides: Dims::new(&[1]),
            });
            used.push(dim);
            dim += 1;
        }
    }
    ensure!(
        dim <= t.ndim(),
        Index,
        "too many indices for tensor of dimension {} (got {dim})",
        t.ndim()
    );
    Ok(if unknown { None } else { Some((slots, used)) })
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
    let [first, others @ ..] = slots else {
        return Ok(Dims::EMPTY);
    };
    let mut lead = first.shape.clone();
    for slot in others {
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
    pub(super) fn new(t: &Tensor, indices: &OptTensors) -> Result<Option<Self>> {
        let Some((slots, used)) = slots(t, indices)? else {
            return Ok(None);
        };
        let adjacent = used.windows(2).all(|w| w[1] == w[0] + 1);
        let (order, at) = if adjacent {
            (None, used.first().copied().unwrap_or(0))
        } else {
            let others = (0..t.ndim()).filter(|d| !used.contains(d));
            (
                Some(Box::new(used.iter().copied().chain(others).collect())),
                0,
            )
        };
        let lead = lead_of(&slots)?;
        let mut layout = Self {
            order,
            slots,
            at,
            lead,
            shape: Dims::EMPTY,
        };
        let base = layout.base(t);
        let sizes: &[i64] = &base.shape;
        ensure!(
            !sizes[at..at + layout.slots.len()].contains(&0) || layout.lead.contains(&0),
            Index,
            "index is out of bounds for dimension with size 0"
        );
        layout.shape = layout.around(sizes, &layout.lead);
        Ok(Some(layout))
    }

    /// How a tensor of the indexed one's shape lies, indexed dimensions next to each other.
    fn base<'a>(&self, t: &'a Tensor) -> Base<'a> {
        let ordered = |list: &'a Dims| match &self.order {
            Some(order) => Cow::Owned(list.permuted(order)),
            None => Cow::Borrowed(list),
        };
        Base {
            shape: ordered(t.shape()),
            strides: ordered(t.strides()),
        }
    }

    /// A list for the result's dimensions: the untouched ones around `lead`.
    fn around(&self, list: &[i64], lead: &[i64]) -> Dims {
        let after = self.at + self.slots.len();
        let mut all = Dims::filled(list.len() - self.slots.len() + lead.len(), 0);
        let (before, rest) = all.split_at_mut(self.at);
        let (middle, rest) = rest.split_at_mut(lead.len());
        before.copy_from_slice(&list[..self.at]);
        middle.copy_from_slice(lead);
        rest.copy_from_slice(&list[after..]);
        all
    }

    /// The strides of a tensor of the indexed one's shape in the result's dimensions, 0 where indices lead.
    pub(super) fn base_strides(&self, t: &Tensor) -> Dims {
        self.around(&self.base(t).strides, &Dims::filled(self.lead.len(), 0))
    }

    /// The strides of an index in the result's dimensions.
    fn index_strides(&self, shape: &[i64], strides: &[i64]) -> Dims {
        let own = dims::broadcast_strides(shape, strides, &self.lead);
        let mut all = Dims::filled(self.shape.len(), 0);
        all[self.at..self.at + own.len()].copy_from_slice(&own);
        all
    }

    /// The layout of a fresh result, as a pointwise loop over the tensor and the indices would make it.
    pub(super) fn out(&self, t: &Tensor) -> OutSpec {
        // Row-major operands ask for no other order of dimensions.
        let plain = |shape: &[i64], strides: &[i64]| {
            dims::is_row_major(shape, strides) && !shape.contains(&0)
        };
        let strides = if self.order.is_none()
            && plain(t.shape(), t.strides())
            && self.slots.iter().all(|s| plain(&s.shape, &s.strides))
        {
            dims::contiguous_strides(&self.shape)
        } else {
            self.iterated(t)
        };
        OutSpec {
            shape: self.shape.clone(),
            strides,
            dtype: t.dtype(),
        }
    }

    fn iterated(&self, t: &Tensor) -> Dims {
        let mut operands: SmallVec<[Dims; 3]> = smallvec![self.base_strides(t)];
        operands.extend(
            self.slots
                .iter()
                .map(|s| self.reshaped_strides(&s.shape, &s.strides)),
        );
        let refs: SmallVec<[&[i64]; 3]> = operands.iter().map(|d| &**d).collect();
        dims::iterated_strides(&self.shape, &refs)
    }

    /// The strides of an index in the result's dimensions once it is expanded, and reshaped to have them all: where the
    /// result has one element, so has the index, and its step counts.
    fn reshaped_strides(&self, shape: &[i64], strides: &[i64]) -> Dims {
        let after = self.shape.len() - self.at - self.lead.len();
        let one = |n: usize| Dims::filled(n, 1);
        let ones = one(self.at).concat(&self.lead).concat(&one(after));
        let own = dims::broadcast_strides(shape, strides, &self.lead);
        let reshaped = dims::view_strides(&self.lead, &own, &ones);
        let mut strides = reshaped.unwrap_or_else(|| dims::contiguous_strides(&ones));
        for (d, &n) in ones.iter().enumerate() {
            if n == 1 && self.shape[d] != 1 {
                strides[d] = 0;
            }
        }
        strides
    }

    /// The positions as one operand of the loop over the result: a tensor, its strides there, and what an index means.
    pub(super) fn operand(&self, t: &Tensor, indices: &OptTensors) -> Result<(Tensor, Dims, Axis)> {
        let base = self.base(t);
        let item = t.dtype().size() as isize;
        let axis = |k: usize| Axis {
            step: base.strides[self.at + k] as isize * item,
            size: base.shape[self.at + k],
            wrap: true,
        };
        if let Some(mask) = self.only_mask(&base, indices) {
            let places = flat_places(mask)?;
            let strides = self.index_strides(places.shape(), places.strides());
            let step = axis(self.slots.len() - 1).step;
            let size = mask.numel();
            let wrap = false;
            return Ok((places, strides, Axis { step, size, wrap }));
        }
        let mut positions = positions(indices)?;
        if positions.len() == 1
            && let Some(only) = positions.pop()
        {
            let strides = self.index_strides(only.shape(), only.strides());
            return Ok((only, strides, axis(0)));
        }
        let sum = Tensor::empty(&self.lead, DType::I64, Device::CPU)?;
        cpu::fill(&sum, Scalar::Int(0))?;
        for (k, index) in positions.iter().enumerate() {
            if let Some(bad) = cpu_index::add_offsets(&self.lead, &sum, index, axis(k)) {
                return Err(self.bad(t, bad, k));
            }
        }
        let strides = self.index_strides(&self.lead, sum.strides());
        Ok((sum, strides, Axis::OFFSETS))
    }

    /// What [`Layout::operand`] makes of indices that are no masks: its places, and their strides.
    pub(super) fn operand_room(
        &self,
        room: &mut Room,
        indices: &OptTensors,
    ) -> Result<(Tensor, Dims)> {
        let places = room.keep(|room| {
            let mut made = indices.0.iter().flatten().map(|i| room::long(room, i));
            match (made.next().transpose()?, made.next().transpose()?) {
                (Some(only), None) => Ok(only),
                _ => {
                    made.try_for_each(|i| i.map(drop))?;
                    room.empty(&self.lead, DType::I64)
                }
            }
        })?;
        let strides = self.index_strides(places.shape(), places.strides());
        Ok((places, strides))
    }

    /// The mask that is the only index, if the dimensions that it covers are as good as one: its positions need not be taken
    /// apart.
    fn only_mask<'a>(&self, base: &Base<'_>, indices: &OptTensors<'a>) -> Option<&'a Tensor> {
        let mut given = indices.0.iter().flatten();
        let mask = *given.next().filter(|mask| mask.dtype() == DType::Bool)?;
        let covered = self.at..self.at + self.slots.len();
        let (sizes, strides) = (&base.shape[covered.clone()], &base.strides[covered]);
        let mut pairs = (1..sizes.len()).map(|d| strides[d - 1] == strides[d] * sizes[d]);
        let alone = given.next().is_none() && mask.ndim() > 0 && !helpers::lies_beside(mask);
        (alone && pairs.all(|one| one)).then_some(mask)
    }

    /// The indexed tensor as an operand of the loop.
    pub(super) fn lay(&self, t: &Tensor) -> Lay {
        Lay {
            ptr: t.data_ptr(),
            strides: self.base_strides(t),
        }
    }

    /// The positions as another device's kernels take them, and the tensors that hold them.
    pub(super) fn places(&self, t: &Tensor, indices: &OptTensors) -> Result<(Places, Vec<Tensor>)> {
        let base = self.base(t);
        let positions = positions(indices)?;
        let mut kept = Vec::with_capacity(positions.len());
        for index in &positions {
            kept.push(kernels::arrange::beside(index, t.device())?);
        }
        let axis = |(k, index): (usize, &Tensor)| {
            let strides = self.index_strides(index.shape(), index.strides());
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
    pub(super) fn bad(&self, t: &Tensor, index: i64, k: usize) -> Error {
        err!(
            Index,
            "index {index} is out of bounds for dimension {k} with size {}",
            self.base(t).shape[self.at + k]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_major_operands_keep_the_order_of_dimensions() {
        let shapes: [&[i64]; 6] = [&[3], &[2, 3], &[2, 1, 4], &[1, 1], &[3, 1], &[2, 3, 1, 4]];
        let places: [&[i64]; 6] = [&[], &[1], &[4], &[2, 1], &[1, 4], &[0]];
        let made = |s: &[i64], d| Tensor::empty(s, d, Device::META).unwrap();
        let mut seen = 0;
        for t in shapes.map(|s| made(s, DType::F32)) {
            for (a, b) in places
                .iter()
                .flat_map(|a| places.iter().map(move |b| (a, b)))
            {
                let (a, b) = (made(a, DType::I64), made(b, DType::I64));
                for indices in [
                    vec![Some(&a)],
                    vec![None, Some(&a)],
                    vec![Some(&a), Some(&b)],
                ] {
                    if let Ok(Some(layout)) = Layout::new(&t, &OptTensors(indices.into())) {
                        let strides = layout.out(&t).strides;
                        assert_eq!(strides, layout.iterated(&t), "{t:?} {a:?} {b:?}");
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 300);
    }
}
