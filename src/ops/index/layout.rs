//! How an indexing call lies in memory: which dimensions are indexed, what indices broadcast to, and how results lie.

use crate::cpu::index::{self as cpu_index, Axis, Lay};
use crate::ops::core::helpers;
use crate::ops::core::op::OutSpec;
use crate::ops::core::plan::ViewPlan;
use crate::ops::core::typed::OptTensors;
use crate::ops::index::along::long;
use crate::ops::index::truth::{coordinates, count, flat_places, is_mask};
use crate::{
    DType, Device, Dims, Error, Result, Scalar, Tensor, bail, cpu, dims, ensure, err, kernels,
};
use kernels::index::{Axis as PlacesAxis, Places};
use kernels::job::View;
use smallvec::{SmallVec, smallvec};

/// The layout of one dimension's positions.
struct Slot {
    shape: Dims,
    strides: Dims,
}

/// How an indexing call lies in memory.
pub(super) struct Layout {
    /// Dimensions of the tensor in an order that has the indexed ones next to each other, if they are not.
    order: Option<Vec<usize>>,
    slots: SmallVec<[Slot; 2]>,
    /// Where the indexed dimensions start.
    at: usize,
    /// The shape that the indices broadcast to.
    lead: Dims,
    /// The shape of the result.
    pub(super) shape: Dims,
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
        if slots.len() + index.ndim() <= t.ndim() {
            check_mask(t, index, slots.len())?;
        }
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
    pub(super) fn new(t: &Tensor, indices: &OptTensors) -> Result<Option<Self>> {
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
    pub(super) fn base(&self, t: &Tensor) -> ViewPlan {
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
    pub(super) fn base_strides(&self, base: &ViewPlan) -> Dims {
        self.around(&base.strides, &Dims::filled(self.lead.len(), 0))
    }

    fn index_strides(&self, base: &ViewPlan, shape: &[i64], strides: &[i64]) -> Dims {
        self.around(
            &Dims::filled(base.shape.len(), 0),
            &dims::broadcast_strides(shape, strides, &self.lead),
        )
    }

    /// The layout of a fresh result, as a pointwise loop over the tensor and the indices would make it.
    pub(super) fn out(&self, t: &Tensor) -> OutSpec {
        let base = self.base(t);
        let mut operands: SmallVec<[Dims; 3]> = smallvec![self.base_strides(&base)];
        operands.extend(
            self.slots
                .iter()
                .map(|s| self.reshaped_strides(&s.shape, &s.strides)),
        );
        let refs: SmallVec<[&[i64]; 3]> = operands.iter().map(|d| &**d).collect();
        OutSpec {
            shape: self.shape.clone(),
            strides: dims::iterated_strides(&self.shape, &refs),
            dtype: t.dtype(),
        }
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
    pub(super) fn lay(&self, t: &Tensor) -> Lay {
        Lay {
            ptr: t.data_ptr(),
            strides: self.base_strides(&self.base(t)),
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
    pub(super) fn bad(&self, t: &Tensor, index: i64, k: usize) -> Error {
        err!(
            Index,
            "index {index} is out of bounds for dimension {k} with size {}",
            self.base(t).shape[self.at + k]
        )
    }
}
