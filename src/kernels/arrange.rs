//! Elements in other places, and values that depend on the place, by where the data is.

use super::index::{self, Axis, Places};
use super::job::{Job, Kernel, View};
use super::{copy, fill, on_host, placed, tables};
use crate::cpu::index::Reduce;
use crate::cpu::pad::Table;
use crate::plan::ViewPlan;
use crate::{DType, Device, Dims, Result, Scalar, Tensor, cpu};

const FILL: &str = include_str!("../cuda/kernels/fill.cu");
const TRIANGLE: Kernel = Kernel {
    file: FILL,
    name: "triangle",
};
const RANGE: Kernel = Kernel {
    file: FILL,
    name: "range",
};

/// See [`cpu::triangle::keep`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn triangle(out: &Tensor, t: &Tensor, diagonal: i64, lower: bool) -> Result<()> {
    if on_host(out) {
        return cpu::triangle::keep(out, t, diagonal, lower);
    }
    if !out.lies_as(t) {
        copy(out, t)?;
    }
    let n = out.ndim();
    Job::new(TRIANGLE)
        .ty("T", out.dtype())
        .define("WHOLE", 1)
        .int(out.numel())
        .tensor(out)?
        .int(out.shape()[n - 2])
        .int(out.shape()[n - 1])
        .int(diagonal)
        .int(i64::from(lower))
        .each(out, out.numel())
}

/// Writes tensors one after another along a dimension of `out`.
///
/// # Errors
/// If there is no conversion between the dtypes, or a kernel cannot be had.
pub fn cat<'t, L: Iterator<Item = &'t Tensor> + Clone>(
    out: &Tensor,
    list: L,
    dim: usize,
) -> Result<()> {
    joined(out, list, dim, |list| cpu::join::places(out, list, dim))
}

/// Writes tensors side by side along a dimension of `out`, an index each.
///
/// # Errors
/// As [`cat`].
pub fn stack<'t, L: Iterator<Item = &'t Tensor> + Clone>(
    out: &Tensor,
    list: L,
    dim: usize,
) -> Result<()> {
    joined(out, list, dim, |list| cpu::join::layers(out, list, dim))
}

/// Joins tensors in one pass if that can be, else one by one in their places.
fn joined<'t, L: Iterator<Item = &'t Tensor> + Clone>(
    out: &Tensor,
    list: L,
    dim: usize,
    places: impl FnOnce(L) -> Vec<(Tensor, &'t Tensor)>,
) -> Result<()> {
    if on_host(out) && cpu::join::rows(out, list.clone(), dim) {
        return Ok(());
    }
    let parts = places(list);
    parts.iter().try_for_each(|(place, t)| copy(place, t))
}

/// Fills a tensor beside the host with `start`, `start + step` and so on.
///
/// # Errors
/// If a kernel cannot be had.
pub fn range(out: &Tensor, start: Scalar, step: Scalar) -> Result<()> {
    let whole = out.dtype().is_integral(true);
    Job::new(RANGE)
        .ty("T", out.dtype())
        .define("WHOLE", u8::from(whole))
        .int(out.numel())
        .tensor(out)?
        .int(start.to_i64())
        .int(step.to_i64())
        .real(start.to_f64())
        .real(step.to_f64())
        .each(out, out.numel())
}

/// See [`cpu::triangle::embed`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn embed(out: &Tensor, t: &Tensor, diagonal: i64, (x, y): (usize, usize)) -> Result<()> {
    if on_host(out) {
        return cpu::triangle::embed(out, t, diagonal, (x, y));
    }
    fill(out, Scalar::Int(0))?;
    let (down, right) = (out.strides()[x], out.strides()[y]);
    let start = if diagonal >= 0 {
        diagonal * right
    } else {
        -diagonal * down
    };
    let rest = (0..out.ndim()).filter(|&d| d != x && d != y);
    let strides: Dims = rest
        .map(|d| out.strides()[d])
        .chain([down + right])
        .collect();
    index::copied(
        t,
        t.numel(),
        &View::after(out, start, t.shape(), &strides)?,
        &View::of(t)?,
    )
}

/// See [`cpu::repeat::repeat`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn repeat(out: &Tensor, t: &Tensor, repeats: &[i64]) -> Result<()> {
    if on_host(out) {
        return cpu::repeat::repeat(out, t, repeats);
    }
    // Each dimension of the result is one of repetitions and one of the tensor's own.
    let lead = repeats.len() - t.ndim();
    let (mut shape, mut to, mut from) = (Vec::new(), Vec::new(), Vec::new());
    for (i, &times) in repeats.iter().enumerate() {
        let (size, stride) = if i < lead {
            (1, 0)
        } else {
            (t.shape()[i - lead], t.strides()[i - lead])
        };
        shape.extend([times, size]);
        to.extend([out.strides()[i] * size, out.strides()[i]]);
        from.extend([0, stride]);
    }
    index::copied(
        out,
        out.numel(),
        &View::with(out, &shape, &to)?,
        &View::with(t, &shape, &from)?,
    )
}

/// See [`cpu::repeat::flip`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn flip(out: &Tensor, t: &Tensor, dims: &[usize]) -> Result<()> {
    if on_host(out) {
        return cpu::repeat::flip(out, t, dims);
    }
    let (mut strides, mut first) = (t.strides().clone(), 0);
    if t.numel() > 0 && t.ndim() > 0 {
        for &d in dims {
            first += (t.shape()[d] - 1) * strides[d];
            strides[d] = -strides[d];
        }
    }
    let from = View::after(t, first, t.shape(), &strides)?;
    index::copied(out, out.numel(), &View::of(out)?, &from)
}

/// Complex numbers of a tensor beside the host from their real and imaginary parts.
///
/// # Errors
/// If a kernel cannot be had.
pub fn parts(out: &Tensor, parts: [&Tensor; 2]) -> Result<()> {
    let strides: Dims = out.strides().iter().map(|s| s * 2).collect();
    for (first, part) in (out.offset() * 2..).zip(parts) {
        let (d, shape) = (out.dtype().to_real(), out.shape().clone());
        let half = out.raw_view(&ViewPlan::reinterpret(d, shape, strides.clone(), first));
        copy(&half, part)?;
    }
    Ok(())
}

/// See [`cpu::pad::constant`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn pad(out: &Tensor, t: &Tensor, pad: &[i64], value: Scalar) -> Result<()> {
    if on_host(out) {
        return cpu::pad::constant(out, t, pad, value);
    }
    if pad.iter().any(|&p| p > 0) {
        fill(out, value)?;
    }
    let (mut shape, mut to, mut from) = (t.shape().clone(), 0, 0);
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        to += pair[0].max(0) * out.strides()[d];
        from -= pair[0].min(0) * t.strides()[d];
        shape[d] += pair[0].min(0) + pair[1].min(0);
    }
    let n = shape.iter().product();
    let (to, from) = (
        View::after(out, to, &shape, out.strides())?,
        View::after(t, from, &shape, t.strides())?,
    );
    index::copied(out, n, &to, &from)
}

/// Positions along each dimension that has a table, on the device of `like`; the loop has the tables' lengths.
fn tabled(
    t: &Tensor,
    tables: &[Option<Table>],
    shape: &[i64],
) -> Result<(Places, Dims, Vec<Tensor>)> {
    let (mut axes, mut kept) = (Vec::new(), Vec::new());
    let mut still = t.strides().clone();
    for (d, table) in tables.iter().enumerate() {
        let Some(table) = table else { continue };
        let list: Vec<i64> = table.iter().map(|i| i as i64).collect();
        let there = tables::there(list, t.device())?;
        let at = View::with(&there, shape, &Dims::filled(shape.len(), 0).with(d, 1))?;
        axes.push(Axis {
            at,
            step: t.strides()[d],
            size: t.shape()[d],
        });
        still[d] = 0;
        kept.push(there);
    }
    Ok((
        Places {
            axes,
            dtype: DType::I64,
            wrap: false,
        },
        still,
        kept,
    ))
}

/// See [`cpu::pad::from_tables`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn from_tables(out: &Tensor, t: &Tensor, tables: &[Option<Table>]) -> Result<()> {
    if on_host(out) {
        return cpu::pad::from_tables(out, t, tables);
    }
    let (places, still, _kept) = tabled(t, tables, out.shape())?;
    if places.axes.is_empty() {
        return copy(out, t);
    }
    index::take(out, &View::with(t, out.shape(), &still)?, &places)
}

/// See [`cpu::pad::back_from_tables`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn back_from_tables(out: &Tensor, grad: &Tensor, tables: &[Option<Table>]) -> Result<()> {
    if on_host(out) {
        return cpu::pad::back_from_tables(out, grad, tables);
    }
    added(out, |sums| {
        let grad = super::converted(grad, sums.dtype())?;
        let (places, still, _kept) = tabled(sums, tables, grad.shape())?;
        if places.axes.is_empty() {
            return copy(sums, &grad);
        }
        let base = View::with(sums, grad.shape(), &still)?;
        index::put(
            sums,
            grad.numel(),
            &base,
            &View::of(&grad)?,
            &places,
            Some(Reduce::Add),
        )
    })
}

/// Has a result added up from zeros, in single precision for 16-bit types.
pub(super) fn added(out: &Tensor, add: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    let wide = super::job::computed(out.dtype());
    if wide == out.dtype() {
        return placed(out, |out| {
            fill(out, Scalar::Int(0))?;
            add(out)
        });
    }
    let sums = Tensor::empty(out.shape(), wide, out.device())?;
    fill(&sums, Scalar::Int(0))?;
    add(&sums)?;
    copy(out, &sums)
}

/// See [`cpu::embedding_backward::rows`].
///
/// # Errors
/// If a kernel cannot be had.
pub fn embedding_backward(
    out: &Tensor,
    g: &Tensor,
    chosen: &cpu::embedding_backward::Chosen,
) -> Result<()> {
    if on_host(out) {
        return cpu::embedding_backward::rows(out, g, chosen);
    }
    added(out, |sums| {
        let g = super::converted(g, sums.dtype())?;
        let add = Some(Reduce::Add);
        index::put_slices(sums, 0, g.shape(), chosen.indices, &g, add, false)?;
        if chosen.by_frequency {
            let counts = Tensor::empty(&[out.shape()[0], 1], sums.dtype(), out.device())?;
            fill(&counts, Scalar::Int(0))?;
            let one = super::number(Scalar::Int(1), &counts)?;
            let shape = Dims::new(&[chosen.indices.numel(), 1]);
            index::put_slices(&counts, 0, &shape, chosen.indices, &one, add, false)?;
            let operands = [
                cpu::rows::Operand::Tensor(sums),
                cpu::rows::Operand::Tensor(&counts),
            ];
            let text = "b > T(1) ? a / b : a";
            super::accelerator()?.map(text, &operands, sums.dtype(), &Default::default(), sums)?;
        }
        if (0..out.shape()[0]).contains(&chosen.padding) {
            let row = ViewPlan::of(sums).selected(0, chosen.padding);
            fill(&sums.raw_view(&row), Scalar::Int(0))?;
        }
        Ok(())
    })
}

/// A host tensor's elements where `like` lies.
///
/// # Errors
/// If memory cannot be had.
pub fn beside(t: &Tensor, like: Device) -> Result<Tensor> {
    if t.device() == like {
        return Ok(t.clone());
    }
    let there = Tensor::empty(t.shape(), t.dtype(), like)?;
    copy(&there, t)?;
    Ok(there)
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    vec![
        Job::new(TRIANGLE)
            .ty("T", d)
            .define("WHOLE", u8::from(d.is_integral(true))),
    ]
}
