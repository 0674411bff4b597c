//! Elements at positions on a device beside the host: gather, scatter and what comes down to them.
//!
//! A position out of bounds is left out, and the device says so when the host next waits for it, as in PyTorch.

use super::job::{BLOCK, Job, Kernel, View};
use crate::cpu::index::Reduce;
use crate::cpu::view::at_least_1d;
use crate::{DType, Dims, Result, Tensor};

const FILE: &str = include_str!("../cuda/kernels/index.cu");
const TAKE: Kernel = Kernel {
    file: FILE,
    name: "take",
};
/// Elements that a block takes; as in the kernel.
const TAKEN: i64 = 4 * BLOCK;
const PUT: Kernel = Kernel {
    file: FILE,
    name: "put",
};
const COPY: Kernel = Kernel {
    file: FILE,
    name: "copy",
};

/// The positions along one dimension, for each element of a loop.
#[derive(Debug)]
pub struct Axis {
    /// The positions.
    pub at: View,
    /// Elements from one position to the next.
    pub step: i64,
    /// How many positions there are.
    pub size: i64,
}

/// Positions along the dimensions that are indexed.
#[derive(Debug)]
pub struct Places {
    /// One for each dimension.
    pub axes: Vec<Axis>,
    /// The integers that they are.
    pub dtype: DType,
    /// Negative ones count from the end.
    pub wrap: bool,
}

impl Places {
    fn head(&self, job: Job) -> Job {
        job.ty("I", self.dtype)
            .define("AXES", self.axes.len())
            .define("WRAP", u8::from(self.wrap))
    }

    fn pass(&self, job: Job) -> Job {
        let numbers = self
            .axes
            .iter()
            .map(|a| a.step)
            .chain(self.axes.iter().map(|a| a.size));
        job.group(self.axes.iter().map(|a| a.at), numbers).flag()
    }
}

/// The dtype of elements that are moved and not looked at.
pub(super) fn bits(t: &Tensor) -> DType {
    match t.dtype().size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        8 => DType::U64,
        _ => DType::C128,
    }
}

/// Reads: element `i` of `out` is what `base` has at `i`, moved by the positions.
///
/// # Errors
/// If the kernel cannot be had.
pub fn take(out: &Tensor, base: &View, places: &Places) -> Result<()> {
    taken(out, bits(out), &View::of(out)?, base, places, out.numel())
}

/// As [`take`], of `n` elements of a dtype.
fn taken(there: &Tensor, d: DType, out: &View, base: &View, places: &Places, n: i64) -> Result<()> {
    let job = places
        .head(Job::new(TAKE).ty("T", d))
        .int(n)
        .view(out)
        .view(base);
    places.pass(job).blocks(there, (n + TAKEN - 1) / TAKEN)
}

/// With how an element that is there and a new one become the result.
fn merging(job: Job, d: DType, how: Option<Reduce>) -> Job {
    let text = match how {
        None => "b",
        Some(Reduce::Add) => "V(a + b)",
        Some(Reduce::Mul) => "V(a * b)",
        Some(Reduce::Max) => "max_(a, b)",
        Some(Reduce::Min) => "min_(a, b)",
    };
    job.ty("T", d)
        .define("HOW", text)
        .define("SET", u8::from(how.is_none()))
        .define("ADD", u8::from(how == Some(Reduce::Add)))
}

/// Writes `n` elements of `src` to `base`, moved by the positions; `None` replaces what is there.
///
/// # Errors
/// If the kernel cannot be had.
pub fn put(
    there: &Tensor,
    n: i64,
    base: &View,
    src: &View,
    places: &Places,
    how: Option<Reduce>,
) -> Result<()> {
    let dtype = if how.is_none() {
        bits(there)
    } else {
        there.dtype()
    };
    let job = places
        .head(merging(Job::new(PUT), dtype, how))
        .int(n)
        .view(base)
        .view(src);
    places.pass(job).each(there, n)
}

/// Copies `n` elements between two layouts, on the device where `there` lies.
///
/// # Errors
/// If the kernel cannot be had.
pub fn copied(there: &Tensor, n: i64, out: &View, from: &View) -> Result<()> {
    // Positions have no part in it, but the file wants their types.
    Job::new(COPY)
        .ty("T", bits(there))
        .ty("I", DType::I64)
        .define("AXES", 1)
        .define("WRAP", 0)
        .int(n)
        .view(out)
        .view(from)
        .each(there, n)
}

/// The strides of a tensor with a dimension standing still.
fn without(t: &Tensor, dim: usize) -> Dims {
    if t.ndim() == 0 {
        Dims::filled(1, 0)
    } else {
        t.strides().with(dim, 0)
    }
}

/// Positions `index`, of a loop over `shape`, along a dimension.
fn along(
    t: &Tensor,
    dim: usize,
    index: &Tensor,
    shape: &[i64],
    strides: &[i64],
    wrap: bool,
) -> Result<Places> {
    let (size, step) = if t.ndim() == 0 {
        (1, 0)
    } else {
        (t.shape()[dim], t.strides()[dim])
    };
    let at = View::with(index, shape, strides)?;
    Ok(Places {
        axes: vec![Axis { at, step, size }],
        dtype: index.dtype(),
        wrap,
    })
}

/// Strides that read a list of positions along one dimension of a shape.
fn listed(index: &Tensor, ndim: usize, dim: usize) -> Dims {
    let step = if index.ndim() == 0 {
        0
    } else {
        index.strides()[0]
    };
    Dims::filled(ndim.max(1), 0).with(dim, step)
}

/// `out[.., i, ..] = t[.., index[.., i, ..], ..]`.
///
/// # Errors
/// If the kernel cannot be had.
pub fn gather(out: &Tensor, t: &Tensor, dim: usize, index: &Tensor, wrap: bool) -> Result<()> {
    let (out, index) = (at_least_1d(out), at_least_1d(index));
    let base = View::with(t, out.shape(), &without(t, dim))?;
    take(
        &out,
        &base,
        &along(t, dim, &index, out.shape(), index.strides(), wrap)?,
    )
}

/// `out[.., i, ..] = t[.., index[i], ..]`.
///
/// # Errors
/// If the kernel cannot be had.
pub fn select(out: &Tensor, t: &Tensor, dim: usize, index: &Tensor) -> Result<()> {
    let out = at_least_1d(out);
    let base = View::with(t, out.shape(), &without(t, dim))?;
    take(
        &out,
        &base,
        &along(
            t,
            dim,
            index,
            out.shape(),
            &listed(index, out.ndim(), dim),
            false,
        )?,
    )
}

/// The rows of a matrix at positions of any shape.
///
/// # Errors
/// If the kernel cannot be had.
pub fn rows(out: &Tensor, weight: &Tensor, index: &Tensor) -> Result<()> {
    // Rows that begin at multiples of 16 bytes are moved in such pieces.
    let size = weight.dtype().size() as i64;
    let (width, step) = (weight.shape()[1], weight.strides()[0]);
    let whole = |n: i64| n * size % 16 == 0;
    let starts = |t: &Tensor| t.data_ptr() as usize % 16 == 0;
    let fits = whole(width) && whole(step) && starts(weight) && starts(out);
    let dense = out.is_contiguous() && (weight.strides()[1] == 1 || width == 1);
    if size < 16 && fits && dense && index.is_contiguous() {
        let (pieces, n) = (width * size / 16, index.numel());
        let shape = [n, pieces];
        let at = View::with(index, &shape, &[1, 0])?;
        let axis = Axis {
            at,
            step: step * size / 16,
            size: weight.shape()[0],
        };
        let places = Places {
            axes: vec![axis],
            dtype: index.dtype(),
            wrap: false,
        };
        let base = View::with(weight, &shape, &[0, 1])?;
        return taken(
            out,
            DType::C128,
            &View::with(out, &shape, &[pieces, 1])?,
            &base,
            &places,
            n * pieces,
        );
    }
    let base = View::with(
        weight,
        out.shape(),
        &Dims::filled(index.ndim(), 0).concat(&weight.strides()[1..]),
    )?;
    let strides = index.strides().concat(&[0]);
    take(
        out,
        &base,
        &along(weight, 0, index, out.shape(), &strides, false)?,
    )
}

/// Elements at positions of the flattened tensor, which is row-major.
///
/// # Errors
/// If the kernel cannot be had.
pub fn flat(out: &Tensor, t: &Tensor, index: &Tensor) -> Result<()> {
    let base = View::with(t, out.shape(), &Dims::filled(out.ndim(), 0))?;
    take(out, &base, &whole(t, index)?)
}

/// Elements written to positions of the flattened tensor, which is row-major.
///
/// # Errors
/// If the kernel cannot be had.
pub fn put_flat(out: &Tensor, index: &Tensor, src: &Tensor, how: Option<Reduce>) -> Result<()> {
    let base = View::with(out, index.shape(), &Dims::filled(index.ndim(), 0))?;
    put(
        out,
        index.numel(),
        &base,
        &View::of(src)?,
        &whole(out, index)?,
        how,
    )
}

fn whole(t: &Tensor, index: &Tensor) -> Result<Places> {
    let axis = Axis {
        at: View::of(index)?,
        step: 1,
        size: t.numel(),
    };
    Ok(Places {
        axes: vec![axis],
        dtype: index.dtype(),
        wrap: true,
    })
}

/// The strides of a source in a loop: one element for all if it has only one.
fn source(src: &Tensor, ndim: usize) -> Dims {
    if src.ndim() == 0 {
        Dims::filled(ndim, 0)
    } else {
        src.strides().clone()
    }
}

/// Writes `src` to `out` at positions of the same shape along a dimension.
///
/// # Errors
/// If the kernel cannot be had.
pub fn scatter(
    out: &Tensor,
    dim: usize,
    index: &Tensor,
    src: &Tensor,
    how: Option<Reduce>,
) -> Result<()> {
    let index = at_least_1d(index);
    let shape = index.shape();
    let places = along(out, dim, &index, shape, index.strides(), false)?;
    written(out, dim, shape, &places, src, how)
}

/// Writes slices of `src`, whose loop has this shape, to a list of positions along a dimension.
///
/// # Errors
/// If the kernel cannot be had.
pub fn put_slices(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    index: &Tensor,
    src: &Tensor,
    how: Option<Reduce>,
    wrap: bool,
) -> Result<()> {
    let places = along(
        out,
        dim,
        index,
        shape,
        &listed(index, shape.len(), dim),
        wrap,
    )?;
    written(out, dim, shape, &places, src, how)
}

fn written(
    out: &Tensor,
    dim: usize,
    shape: &Dims,
    places: &Places,
    src: &Tensor,
    how: Option<Reduce>,
) -> Result<()> {
    let n = shape.iter().product();
    let base = View::with(out, shape, &without(out, dim))?;
    put(
        out,
        n,
        &base,
        &View::with(src, shape, &source(src, shape.len()))?,
        places,
        how,
    )
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    let places = Places {
        axes: Vec::new(),
        dtype: DType::I64,
        wrap: true,
    };
    let merges = [Reduce::Add, Reduce::Mul, Reduce::Max, Reduce::Min];
    let merges = merges
        .into_iter()
        .filter(|how| !d.is_complex() || *how == Reduce::Add);
    let head = |job: Job| {
        job.define("AXES", 2)
            .ty("I", places.dtype)
            .define("WRAP", 1)
    };
    let jobs = merges
        .map(Some)
        .chain([None])
        .map(|how| head(merging(Job::new(PUT), d, how)));
    jobs.chain([head(Job::new(TAKE).ty("T", d))]).collect()
}
