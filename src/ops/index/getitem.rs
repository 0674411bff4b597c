//! Advanced indexing: the `index` and `index_put` operators, and what square brackets mean.

use crate::cpu::index::{self as cpu_index, Axis, Lay, Reduce};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::helpers;
use crate::ops::core::op::{F, I, KernelBody, M, OpDef, OutSpec, Plan, kernel};
use crate::ops::index::along::{apart, long, start};
use crate::ops::view::shape as view;
use crate::{DType, Dims, Error, Result, Scalar, Tensor, bail, cpu, dims, ensure, err};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "index",
        "(Tensor self, Tensor?[] indices)",
        0,
        KernelBody::new(infer_index, index_cpu).index_args(2),
        "The elements at indices, as square brackets take them.",
    ),
    kernel(
        "index_put",
        "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False)",
        F | M | I,
        KernelBody::new(infer_put, put_cpu).index_args(2).updates(),
        "`self` with values written at indices.",
    ),
];

/// One thing in square brackets.
#[derive(Clone, Debug)]
pub enum Index {
    /// A position, counted from the end if negative.
    Int(i64),
    /// A range.
    Slice {
        /// First position.
        start: Option<i64>,
        /// End, not included.
        stop: Option<i64>,
        /// Distance of positions.
        step: Option<i64>,
    },
    /// All dimensions that the others leave.
    Ellipsis,
    /// A new dimension of size 1.
    NewAxis,
    /// A new dimension with one element or none.
    Bool(bool),
    /// Positions or a mask.
    Tensor(Tensor),
}

/// What is written by `x[...] = value`.
#[derive(Clone, Debug)]
pub enum Put<'a> {
    /// A tensor, broadcast.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}

/// One dimension's indices: a tensor of positions, or the layout of one that is not known yet.
struct Slot {
    shape: Dims,
    strides: Dims,
    tensor: Option<Tensor>,
}

/// How an indexing call lies in memory.
struct Layout {
    /// The tensor, indexed dimensions next to each other.
    base: Tensor,
    slots: Vec<Slot>,
    /// Where the indexed dimensions start.
    at: usize,
    /// The shape that the indices broadcast to.
    lead: Dims,
}

fn is_mask(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::Bool | DType::U8)
}

/// The row-major truth values of a mask.
fn truth(mask: &Tensor) -> Result<Tensor> {
    cpu::copy::dense(mask, DType::Bool)
}

/// How many elements of a mask are true; recorded meta masks are replayed, plain ones have no answer.
///
/// # Errors
/// If the values cannot be had.
pub fn count(mask: &Tensor) -> Result<i64> {
    Ok(cpu_index::count_true(&truth(&helpers::readable(
        mask, "no data",
    )?)?))
}

/// Coordinates of a mask's true elements, one list a dimension.
fn coordinates(mask: &Tensor) -> Result<Vec<Tensor>> {
    let bits = truth(mask)?;
    let places = cpu_index::true_places(&bits, usize::MAX);
    split_places(&places, mask.shape())
}

/// Row-major positions as one list of coordinates a dimension.
///
/// # Errors
/// If memory cannot be had.
pub fn split_places(places: &[i64], shape: &[i64]) -> Result<Vec<Tensor>> {
    let n = [places.len() as i64];
    if shape.len() == 1 {
        return Ok(vec![Tensor::from_slice(places, &n)?]);
    }
    let steps = dims::contiguous_strides(shape);
    (0..shape.len())
        .map(|d| {
            let list: Vec<i64> = places.iter().map(|p| p / steps[d] % shape[d]).collect();
            Tensor::from_slice(&list, &n)
        })
        .collect()
}

/// Reads the indices; `values` says whether positions are needed or layouts will do. `None`: a mask whose count is unknown.
fn layout(t: &Tensor, indices: &[Option<&Tensor>], values: bool) -> Result<Option<Layout>> {
    let mut slots: Vec<Option<Slot>> = Vec::new();
    let mut unknown = false;
    for index in indices {
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
            let tensor = if values { Some(long(index)?) } else { None };
            let strides = tensor
                .as_ref()
                .map_or(index.strides(), |t| t.strides())
                .clone();
            slots.push(Some(Slot {
                shape: index.shape().clone(),
                strides,
                tensor,
            }));
            continue;
        }
        for (j, &size) in index.shape().iter().enumerate() {
            let d = slots.len() + j;
            let have = t.shape().get(d).copied().unwrap_or(-1);
            ensure!(
                size == have,
                Index,
                "The shape of the mask {} at index {j} does not match the shape of the indexed tensor {} at index {d}",
                index.shape(),
                t.shape()
            );
        }
        if values {
            for c in coordinates(index)? {
                slots.push(Some(Slot {
                    shape: c.shape().clone(),
                    strides: c.strides().clone(),
                    tensor: Some(c),
                }));
            }
            continue;
        }
        let n = count(index).ok();
        unknown |= n.is_none();
        for _ in 0..index.ndim() {
            slots.push(Some(Slot {
                shape: Dims::new(&[n.unwrap_or(0)]),
                strides: Dims::new(&[1]),
                tensor: None,
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
    if unknown {
        return Ok(None);
    }
    slots.resize_with(t.ndim(), || None);
    let used: Vec<usize> = (0..slots.len()).filter(|&d| slots[d].is_some()).collect();
    let adjacent = used.windows(2).all(|w| w[1] == w[0] + 1);
    let (base, at) = if adjacent {
        (t.clone(), used.first().copied().unwrap_or(0))
    } else {
        let order: Vec<usize> = used
            .iter()
            .copied()
            .chain((0..t.ndim()).filter(|d| !used.contains(d)))
            .collect();
        (t.permuted(&order), 0)
    };
    let slots: Vec<Slot> = slots.into_iter().flatten().collect();
    let mut lead = Dims::EMPTY;
    for slot in &slots {
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
    let sizes = &base.shape()[at..at + slots.len()];
    ensure!(
        !sizes.contains(&0) || lead.contains(&0),
        Index,
        "index is out of bounds for dimension with size 0"
    );
    Ok(Some(Layout {
        base,
        slots,
        at,
        lead,
    }))
}

impl Layout {
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

    fn shape(&self) -> Dims {
        self.around(self.base.shape(), &self.lead)
    }

    /// The tensor's strides in the result's dimensions, 0 where indices lead.
    fn base_strides(&self) -> Dims {
        self.around(self.base.strides(), &Dims::filled(self.lead.len(), 0))
    }

    fn index_strides(&self, shape: &[i64], strides: &[i64]) -> Dims {
        self.around(
            &Dims::filled(self.base.ndim(), 0),
            &dims::broadcast_strides(shape, strides, &self.lead),
        )
    }

    /// The layout of a fresh result, as a pointwise loop over the tensor and the indices would make it.
    fn out(&self, dtype: DType) -> OutSpec {
        let shape = self.shape();
        let mut operands = vec![self.base_strides()];
        operands.extend(
            self.slots
                .iter()
                .map(|s| self.index_strides(&s.shape, &s.strides)),
        );
        let refs: Vec<&[i64]> = operands.iter().map(|d| &**d).collect();
        let strides = dims::strides_in_order(&shape, &dims::layout_order(&shape, &refs));
        OutSpec {
            shape,
            strides,
            dtype,
        }
    }

    /// The indices as one operand of the loop.
    fn indices(&self) -> Result<(Tensor, Dims, Axis)> {
        let item = self.base.dtype().size() as isize;
        let axis = |k: usize| Axis {
            step: self.base.strides()[self.at + k] as isize * item,
            size: self.base.shape()[self.at + k],
            wrap: true,
        };
        if let [
            Slot {
                shape,
                strides,
                tensor: Some(t),
            },
        ] = &self.slots[..]
        {
            return Ok((t.clone(), self.index_strides(shape, strides), axis(0)));
        }
        let sum = Tensor::empty(&self.lead, DType::I64, crate::Device::CPU)?;
        cpu::fill(&sum, Scalar::Int(0))?;
        for (k, slot) in self.slots.iter().enumerate() {
            let Some(t) = &slot.tensor else { continue };
            if let Some(bad) = cpu_index::add_offsets(&self.lead, &sum, t, axis(k)) {
                return Err(self.bad(bad, k));
            }
        }
        let strides = self.index_strides(&self.lead, sum.strides());
        Ok((sum, strides, Axis::OFFSETS))
    }

    #[cold]
    fn bad(&self, index: i64, k: usize) -> Error {
        err!(
            Index,
            "index {index} is out of bounds for dimension {k} with size {}",
            self.base.shape()[self.at + k]
        )
    }
}

fn infer_index(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    match layout(t, &a.opt_tensors(1)?, false)? {
        Some(l) => Ok(Plan {
            outs: [l.out(t.dtype())].into_iter().collect(),
            device: None,
        }),
        None => Err(dispatch::data_dependent(a)),
    }
}

fn index_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, out) = (a.tensor(0)?, &outs[0]);
    let Some(l) = layout(t, &a.opt_tensors(1)?, true)? else {
        return Ok(());
    };
    if out.numel() == 0 {
        return Ok(());
    }
    let (index, strides, axis) = l.indices()?;
    let src = Lay {
        ptr: l.base.data_ptr(),
        strides: l.base_strides(),
    };
    let index = Lay {
        ptr: index.data_ptr(),
        strides,
    };
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(out, out.shape()),
        &src,
        &index,
        out.dtype().size(),
        axis,
    );
    bad.map_or(Ok(()), |i| Err(l.bad(i, 0)))
}

fn infer_put(a: &Args) -> Result<Plan> {
    let (t, values) = (a.tensor(0)?, a.tensor(2)?);
    ensure!(
        t.dtype() == values.dtype(),
        Runtime,
        "Index put requires the source and destination dtypes match, got {} for the destination and {} for the source.",
        t.dtype().scalar_type(),
        values.dtype().scalar_type()
    );
    if let Some(l) = layout(t, &a.opt_tensors(1)?, false)? {
        let shape = l.shape();
        ensure!(
            dims::broadcast(&shape, values.shape()).is_ok_and(|s| s == shape),
            Runtime,
            "shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {shape}",
            values.shape()
        );
    }
    crate::ops::copy::infer_like(a)
}

fn put_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, out) = (a.tensor(0)?, &outs[0]);
    start(out, t)?;
    let values = apart(a.tensor(2)?, out)?;
    let accumulate = a.bool(3);
    let given = a.opt_tensors(1)?;
    if let (false, 1, [Some(mask)]) = (accumulate, values.numel(), &given[..])
        && is_mask(mask)
        && out.shape().starts_with(mask.shape())
    {
        let bits = truth(mask)?;
        let tail = out.ndim() - mask.ndim();
        let shape = bits.shape().concat(&Dims::filled(tail, 1));
        let strides = bits.strides().concat(&Dims::filled(tail, 0));
        cpu_index::fill_where(
            out,
            &bits.view_with(shape, strides, bits.offset()),
            &element(&values),
        );
        return Ok(());
    }
    if accumulate && out.dtype().is_reduced_float() {
        let wide = cpu::copy::converted(out, DType::F32)?;
        write(
            &wide,
            &given,
            &cpu::copy::converted(&values, DType::F32)?,
            true,
        )?;
        return cpu::copy::copy(out, &wide);
    }
    write(out, &given, &values, accumulate)
}

/// The bits of a tensor's only element.
fn element(t: &Tensor) -> [u64; 2] {
    let mut bits = [0u64; 2];
    if let Ok(s) = cpu::read_scalar(t, 0) {
        cpu::write_scalar(&mut bits, t.dtype(), s);
    }
    bits
}

fn write(out: &Tensor, given: &[Option<&Tensor>], values: &Tensor, accumulate: bool) -> Result<()> {
    let Some(l) = layout(out, given, true)? else {
        return Ok(());
    };
    let shape = l.shape();
    if shape.contains(&0) {
        return Ok(());
    }
    let (index, strides, axis) = l.indices()?;
    let dst = Lay {
        ptr: l.base.data_ptr(),
        strides: l.base_strides(),
    };
    let (src, index) = (
        Lay::of(values, &shape),
        Lay {
            ptr: index.data_ptr(),
            strides,
        },
    );
    let bad = if accumulate {
        cpu_index::scatter_reduce(Reduce::Add, out.dtype(), &shape, &dst, &src, &index, axis)?
    } else {
        cpu_index::scatter(&shape, &dst, &src, &index, out.dtype().size(), axis)
    };
    bad.map_or(Ok(()), |i| Err(l.bad(i, 0)))
}

/// What the simple parts of an index leave: a view, and tensors for the `index` operator.
struct Sliced {
    view: Tensor,
    indices: Vec<Option<Tensor>>,
}

fn slice(
    t: &Tensor,
    dim: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: Option<i64>,
) -> Result<Tensor> {
    let step = step.unwrap_or(1);
    ensure!(step != 0, Value, "slice step cannot be zero");
    ensure!(step > 0, Value, "step must be greater than zero");
    crate::ops::view::part::slice(t, dim as i64, start, stop, step)?.one()
}

/// A truth value as the positions it takes from a dimension of size 1.
fn positions(on: bool) -> Result<Tensor> {
    if on {
        Tensor::from_slice(&[0i64], &[1])
    } else {
        Tensor::from_slice::<i64>(&[], &[0])
    }
}

fn apply(t: &Tensor, list: &[Index]) -> Result<Sliced> {
    let mut given = 0;
    for i in list {
        given += match i {
            Index::Int(_) | Index::Slice { .. } => 1,
            Index::Tensor(t) if is_mask(t) => t.ndim(),
            Index::Tensor(_) => 1,
            _ => 0,
        };
    }
    if t.ndim() == 0
        && let [only] = list
    {
        match only {
            Index::Int(_) => bail!(
                Index,
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor \
                 to a number"
            ),
            Index::Slice { .. } => bail!(Index, "slice() cannot be applied to a 0-dim tensor."),
            _ => {}
        }
    }
    ensure!(
        given <= t.ndim(),
        Index,
        "too many indices for tensor of dimension {}",
        t.ndim()
    );
    // `dim` is the place in the view; `place` that in the list of index tensors, where a mask of several dimensions takes one.
    let (mut view, mut dim, mut indices, mut real) =
        (t.detach(), 0usize, Vec::<Option<Tensor>>::new(), 0usize);
    let mut place = 0usize;
    let mut record = |at: usize, index: Tensor| {
        indices.resize_with(at, || None);
        indices.push(Some(index));
    };
    for i in list {
        match i {
            Index::Int(n) => {
                view = pick(&view, dim, *n, real)?;
                real += 1;
            }
            Index::Slice { start, stop, step } => {
                view = slice(&view, dim, *start, *stop, *step)?;
                (dim, place, real) = (dim + 1, place + 1, real + 1);
            }
            Index::Ellipsis => {
                let rest = t.ndim().saturating_sub(given);
                (dim, place, real) = (dim + rest, place + rest, real + rest);
            }
            Index::NewAxis => {
                view = unsqueeze(&view, dim);
                (dim, place) = (dim + 1, place + 1);
            }
            Index::Bool(on) => {
                view = unsqueeze(&view, dim);
                record(place, positions(*on)?);
                (dim, place) = (dim + 1, place + 1);
            }
            Index::Tensor(index) if index.ndim() == 0 && index.dtype().is_integral(true) => {
                let value = helpers::item(index)?;
                if is_mask(index) {
                    view = unsqueeze(&view, dim);
                    record(place, positions(value.to_bool())?);
                    (dim, place) = (dim + 1, place + 1);
                } else {
                    view = pick(&view, dim, value.to_i64(), real)?;
                    real += 1;
                }
            }
            Index::Tensor(index) => {
                record(place, index.clone());
                let covered = if is_mask(index) { index.ndim() } else { 1 };
                (dim, place, real) = (dim + covered, place + 1, real + covered);
            }
        }
    }
    Ok(Sliced { view, indices })
}

fn unsqueeze(t: &Tensor, dim: usize) -> Tensor {
    let stride = if dim < t.ndim() {
        t.shape()[dim] * t.strides()[dim]
    } else {
        1
    };
    t.view_with(
        t.shape().inserted(dim, 1),
        t.strides().inserted(dim, stride),
        t.offset(),
    )
}

fn pick(t: &Tensor, dim: usize, index: i64, real: usize) -> Result<Tensor> {
    let size = t.shape()[dim];
    ensure!(
        index >= -size && index < size,
        Index,
        "index {index} is out of bounds for dimension {real} with size {size}"
    );
    Ok(t.selected(dim, if index < 0 { index + size } else { index }))
}

fn as_arg(indices: &[Option<Tensor>]) -> Arg<'_> {
    Arg::OptTensors(indices.iter().map(Option::as_ref).collect())
}

/// `t[list]`: a view where only numbers, ranges and new dimensions are given, otherwise a copy.
///
/// # Errors
/// PyTorch's texts for indices that do not fit.
pub fn get_item(t: &Tensor, list: &[Index]) -> Result<Tensor> {
    crate::layers::parts::check_view(t, "index")?;
    let sliced = apply(t, list)?;
    if sliced.indices.is_empty() {
        return Ok(sliced.view);
    }
    dispatch::run(
        crate::op!("index")?,
        &[Arg::Tensor(&sliced.view), as_arg(&sliced.indices)],
    )?
    .one()
}

/// `t[list] = value`.
///
/// # Errors
/// PyTorch's texts for indices or values that do not fit.
pub fn set_item(t: &Tensor, list: &[Index], value: Put) -> Result<()> {
    crate::layers::parts::check_plain(t, "index_put_")?;
    if let [Index::Bool(false)] = list {
        return Ok(());
    }
    let sliced = apply(t, list)?;
    let number;
    let value = match value {
        Put::Tensor(v) => v,
        Put::Scalar(s) => {
            crate::ops::index::mask::check_fits(s, t.dtype())?;
            if sliced.indices.is_empty() {
                return dispatch::call_inplace(&Args::new(
                    crate::op!("fill")?,
                    [Arg::Tensor(&sliced.view), s.into()],
                )?);
            }
            number = Tensor::scalar(s, t.dtype())?;
            &number
        }
    };
    // Leading dimensions of size 1 do not count.
    let lead = value.shape().iter().take_while(|&&d| d == 1).count();
    let value = value.view_with(
        Dims::new(&value.shape()[lead..]),
        Dims::new(&value.strides()[lead..]),
        value.offset(),
    );
    if sliced.indices.is_empty() {
        let value = if value.shape() == sliced.view.shape() {
            value
        } else {
            view::expand(&value, sliced.view.shape())?.one()?
        };
        return helpers::copy_(&sliced.view, &value);
    }
    let args = Args::new(
        crate::op!("index_put")?,
        [
            Arg::Tensor(&sliced.view),
            as_arg(&sliced.indices),
            Arg::Tensor(&value),
        ],
    )?;
    dispatch::call_inplace(&args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Tensor {
        Tensor::from_slice(&(0..12).map(|v| v as f32).collect::<Vec<_>>(), &[3, 4]).unwrap()
    }

    #[test]
    fn tensors_numbers_and_masks() {
        let x = grid();
        let i = Tensor::from_slice(&[2i64, -3], &[2]).unwrap();
        let all = Index::Slice {
            start: None,
            stop: None,
            step: None,
        };
        assert_eq!(
            get_item(&x, &[Index::Tensor(i.clone())])
                .unwrap()
                .to_vec::<f32>()
                .unwrap()[..5],
            [8., 9., 10., 11., 0.]
        );
        let r = get_item(&x, &[all.clone(), Index::Tensor(i.clone())]).unwrap();
        assert_eq!(r.to_vec::<f32>().unwrap(), [2., 1., 6., 5., 10., 9.]);
        let m = Tensor::from_slice(&[true, false, true], &[3]).unwrap();
        let r = get_item(&x, &[Index::Tensor(m.clone()), Index::Int(1)]).unwrap();
        assert_eq!(r.to_vec::<f32>().unwrap(), [1., 9.]);
        let e = get_item(&x, &[Index::Int(0), Index::Int(4)]).unwrap_err();
        assert_eq!(
            e.message(),
            "index 4 is out of bounds for dimension 1 with size 4"
        );
        set_item(
            &x,
            &[Index::Tensor(m), Index::Int(-1)],
            Put::Scalar(Scalar::Int(7)),
        )
        .unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap()[3], 7.);
        assert_eq!(x.to_vec::<f32>().unwrap()[7], 7.0);
    }
}
