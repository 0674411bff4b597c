//! Elements in other places: repeat, flip, roll.

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::batch;
use crate::ops::core::op::{Batch, F, FM, Hidden, M, OpDef, Plan, compose, kernel};
use crate::ops::core::rules::dim_list;
use crate::ops::core::{dispatch, helpers};
use crate::ops::f;
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, err, kernels};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "repeat",
        "(Tensor self, int[*] repeats)",
        M,
        body!(repeat, anywhere: |a, _, outs| kernels::arrange::repeat(
            &outs[0], a.input, a.repeats
        )),
        "The tensor again and again along its dimensions.",
    )
    .samples("f32[4], (0,); b8[3, 4], (2, 3)")
    .grad("self: _grad.repeat_back(grad, repeats, self.sizes)")
    .batch(Batch::As(typed!(
        |a, h| batch::repeat(a.input, a.repeats, h),
        Hidden
    ))),
    compose(
        "tile",
        "(Tensor self, int[*] dims)",
        FM,
        tile,
        "The tensor again and again along its last dimensions.",
    )
    .samples("f32[3, 4], (); c64[3, 4], (1, 1)"),
    kernel(
        "repeat_interleave#repeats",
        "(Tensor repeats, *, int? output_size=None)",
        F,
        body!(interleave, write_interleave),
        "Each position as often as its number says.",
    )
    .samples("i64([1, 0, 3])")
    .batch(Batch::Each)
    .no_grad(),
    compose(
        "repeat_interleave",
        "(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None)",
        FM,
        interleave_tensor,
        "Each element as often as a tensor says.",
    )
    .samples("f32[2, 3, 4], repeats=i64([0, 1, 2]), dim=1"),
    compose(
        "repeat_interleave#int",
        "(Tensor self, int repeats, int? dim=None, *, int? output_size=None)",
        FM,
        interleave_int,
        "Each element several times in a row.",
    )
    .samples("f32[3, 4], repeats=2, dim=1; c64[3, 4], repeats=2, dim=1"),
    kernel(
        "flip",
        "(Tensor self, int[*] dims)",
        FM,
        body!(flip, anywhere: |a, dims, outs| kernels::arrange::flip(
            &outs[0], a.input, dims
        )),
        "Dimensions in reverse order.",
    )
    .samples("f32[3, 4], dims=(0,); b8[3, 4], dims=(); f32[2, 3, 4], dims=(0, 1, 2)")
    .grad("self: grad.flip(dims); jvp: linear"),
    compose(
        "fliplr",
        "(Tensor self)",
        FM,
        |a| flip_one(a.input, 2, 1),
        "Columns in reverse order.",
    )
    .samples("f32[3, 4]; c64[3, 4]"),
    compose(
        "flipud",
        "(Tensor self)",
        FM,
        |a| flip_one(a.input, 1, 0),
        "Rows in reverse order.",
    )
    .samples("f64[3, 4]; c64[3, 4]"),
    compose(
        "roll",
        "(Tensor self, int[1] shifts, int[1] dims=[])",
        FM,
        roll,
        "Elements moved along dimensions, those beyond the end back to the start.",
    )
    .samples("f32[3, 4], 10; c64[3, 4], 0, 0; f32[3, 4], 0, 0")
    .grad("self: _grad.roll_back(grad, shifts, dims)"),
    compose(
        "rot90",
        "(Tensor self, int k=1, int[] dims=[0,1])",
        FM,
        rot90,
        "A plane turned by quarter circles.",
    )
    .samples("f32[3, 4]; c64[3, 4]; f32[3, 4], -4, (0, 1)")
    .grad("self: grad.rot90(-k, dims); jvp: linear"),
];

fn repeat(a: &calls::Repeat) -> Result<Plan> {
    let (t, repeats) = (a.input, a.repeats);
    ensure!(
        repeats.len() >= t.ndim(),
        Runtime,
        "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
    );
    let lead = repeats.len() - t.ndim();
    let mut shape = Dims::new(repeats);
    for (i, &d) in t.shape().iter().enumerate() {
        shape[lead + i] = shape[lead + i]
            .checked_mul(d)
            .ok_or_else(|| err!(Runtime, "repeat(): the size of the result overflows"))?;
    }
    crate::ops::create::factory::check_size(&shape)?;
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn tile(a: &calls::Tile) -> Result<Tensor> {
    let missing = a.input.ndim().saturating_sub(a.dims.len());
    f::repeat(a.input, &Dims::filled(missing, 1).concat(a.dims))
}

fn interleave(a: &calls::RepeatInterleaveRepeats) -> Result<Plan> {
    let t = a.repeats;
    t.dtype().check_kernel(
        matches!(t.dtype(), DType::I64 | DType::I32),
        "repeat_interleave_cpu",
    )?;
    ensure!(
        t.ndim() == 1,
        Runtime,
        "repeat_interleave only accept 1D vector as repeat"
    );
    let n = match a.output_size {
        Some(n) => n,
        None => total(t)?,
    };
    Ok(Plan::contiguous(&[n], t.dtype()))
}

/// The sum of how often each position is repeated: the size of the result.
fn total(repeats: &Tensor) -> Result<i64> {
    if repeats.storage().is_fake() && repeats.storage().constant().is_none() {
        return Err(dispatch::unknown_shape("repeat_interleave"));
    }
    let host = helpers::readable(
        repeats,
        "cannot repeat_interleave a meta tensor without output_size",
    )?;
    let host = cpu::copy::dense(&host, DType::I64)?;
    let list = cpu::slice::<i64>(&host);
    ensure!(
        list.iter().all(|&n| n >= 0),
        Runtime,
        "repeats can not be negative"
    );
    list.iter()
        .try_fold(0i64, |s, &n| s.checked_add(n))
        .ok_or_else(|| {
            err!(
                Runtime,
                "repeat_interleave(): the size of the result overflows"
            )
        })
}

fn write_interleave(a: &calls::RepeatInterleaveRepeats, (): &(), outs: &[Tensor]) -> Result<()> {
    let real = cpu::copy::dense(a.repeats, DType::I64)?;
    let list = cpu::slice::<i64>(&real);
    ensure!(
        list.iter().all(|&n| n >= 0),
        Runtime,
        "repeats can not be negative"
    );
    let total = list.iter().try_fold(0i64, |s, &n| s.checked_add(n));
    ensure!(
        total == Some(outs[0].numel()),
        Runtime,
        "allocated size does not match required size"
    );
    let mut places = Vec::with_capacity(outs[0].numel() as usize);
    for (i, &n) in list.iter().enumerate() {
        places.resize(places.len() + n as usize, i as i64);
    }
    cpu::copy::copy(
        &outs[0],
        &Tensor::from_slice(&places, &[places.len() as i64])?,
    )
}

fn flattened(t: &Tensor, dim: Option<i64>) -> Result<(Tensor, i64)> {
    Ok(match dim {
        None => (f::reshape(t, &[-1])?, 0),
        Some(d) if t.ndim() == 0 => (f::reshape(t, &[1])?, d),
        Some(d) => (t.clone(), d),
    })
}

fn interleave_int(a: &calls::RepeatInterleaveInt) -> Result<Tensor> {
    let n = a.repeats;
    let (t, dim) = flattened(a.input, a.dim)?;
    ensure!(n >= 0, Runtime, "Repeats must be non-negative");
    let d = wrap_dim(dim, t.ndim())?;
    if let Some(size) = a.output_size {
        let expected = n.saturating_mul(t.shape()[d]);
        ensure!(
            size == expected,
            Runtime,
            "repeat_interleave: Invalid output_size, expected {expected} but got {size}"
        );
    }
    let next = d as i64 + 1;
    let wide = f::expand(&f::unsqueeze(&t, next)?, &t.shape().inserted(d + 1, n))?;
    let copy = f::Clone::new(&wide)
        .memory_format(MemoryFormat::Contiguous)
        .call()?;
    f::Flatten::new(&copy)
        .start_dim(d as i64)
        .end_dim(next)
        .call()
}

fn interleave_tensor(a: &calls::RepeatInterleave) -> Result<Tensor> {
    let repeats = a.repeats;
    let (t, dim) = flattened(a.input, a.dim)?;
    let d = wrap_dim(dim, t.ndim())?;
    let n = t.shape()[d];
    let repeats = match repeats.ndim() {
        0 => f::expand(repeats, &[n])?,
        1 if repeats.shape()[0] == 1 => f::expand(repeats, &[n])?,
        1 => {
            ensure!(
                repeats.shape()[0] == n,
                Runtime,
                "repeats must have the same size as input along dim, but got repeats.size(0) = {} and input.size({d}) = {n}",
                repeats.shape()[0]
            );
            repeats.clone()
        }
        _ => bail!(Runtime, "repeats must be 0-dim or 1-dim tensor"),
    };
    let index = f::RepeatInterleaveRepeats::new(&repeats)
        .output_size(a.output_size)
        .call()?;
    f::index_select(&t, d as i64, &index)
}

/// Rule of `flip`; finds the dimensions.
fn flip(a: &calls::Flip) -> Result<(Plan, SmallVec<[usize; 6]>)> {
    let t = a.input;
    let dims = if a.dims.is_empty() {
        SmallVec::new()
    } else {
        dim_list(Some(a.dims), t.ndim())?
    };
    let strides = dims::preserved_strides(t.shape(), t.strides());
    Ok((Plan::one(t.shape().clone(), strides, t.dtype()), dims))
}

fn flip_one(t: &Tensor, least: usize, dim: i64) -> Result<Tensor> {
    ensure!(t.ndim() >= least, Runtime, "Input must be >= {least}-d.");
    f::flip(t, &[dim])
}

fn roll(a: &calls::Roll) -> Result<Tensor> {
    let (t, shifts, dims) = (a.input, a.shifts, a.dims);
    ensure!(!shifts.is_empty(), Runtime, "`shifts` required");
    if dims.is_empty() && shifts.len() == 1 {
        let line = f::reshape(&f::contiguous(t)?, &[-1])?;
        return f::view(&roll_one(&line, shifts[0], 0)?, t.shape());
    }
    ensure!(
        shifts.len() == dims.len(),
        Runtime,
        "shifts and dimensions must align. shifts: {}, dims:{}",
        shifts.len(),
        dims.len()
    );
    let mut out = t.clone();
    for (&s, &d) in shifts.iter().zip(dims.iter()) {
        out = roll_one(&out, s, d)?;
    }
    Ok(out)
}

fn roll_one(t: &Tensor, shift: i64, dim: i64) -> Result<Tensor> {
    ensure!(
        t.ndim() > 0,
        Index,
        "Dimension specified as {dim} but tensor has no dimensions"
    );
    let d = wrap_dim(dim, t.ndim())?;
    if t.numel() == 0 {
        return f::clone(t);
    }
    let (size, dim) = (t.shape()[d], d as i64);
    let start = (size - shift.rem_euclid(size)) % size;
    let parts = [
        f::narrow(t, dim, start, size - start)?,
        f::narrow(t, dim, 0, start)?,
    ];
    f::Cat::new(&parts).dim(dim).call()
}

fn rot90(a: &calls::Rot90) -> Result<Tensor> {
    let (t, dims) = (a.input, a.dims);
    ensure!(
        dims.len() == 2,
        Runtime,
        "expected total rotation dims == 2, but got dims = {}",
        dims.len()
    );
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "expected total dims >= 2, but got total dims = {}",
        t.ndim()
    );
    let (x, y) = (wrap_dim(dims[0], t.ndim())?, wrap_dim(dims[1], t.ndim())?);
    ensure!(
        dims[0] != dims[1] && (dims[0] - dims[1]).abs() != t.ndim() as i64,
        Runtime,
        "expected rotation dims to be different, but got dim0 = {} and dim1 = {}",
        dims[0],
        dims[1]
    );
    let (x, y) = (x as i64, y as i64);
    match a.k.rem_euclid(4) {
        1 => f::transpose(&f::flip(t, &[y])?, x, y),
        2 => f::flip(t, &[x, y]),
        3 => f::transpose(&f::flip(t, &[x])?, x, y),
        _ => f::Clone::new(t)
            .memory_format(MemoryFormat::Contiguous)
            .call(),
    }
}
