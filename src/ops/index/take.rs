//! Elements at positions of the flattened tensor (take, put), and rows of a table (embedding).

use crate::cpu::index::{self as cpu_index, Axis, Lay, Reduce};
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::copy::like;
use crate::ops::core::op::{Batch, F, FM, FMO, Hidden, I, J, OpDef, Plan, X, compose, kernel};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::ops::index::along::{apart, axis, is_index, long, out_of_range, start};
use crate::ops::index::room;
use crate::ops::index::scatter::{apart_index, reduce_rows};
use crate::ops::view::shape::{found, type_name};
use crate::{DType, Device, Dims, Element, Error, Result, Tensor, cpu, ensure, err, kernels, mode};
use num_complex::Complex64;
use std::ops::MulAssign;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "take",
        "(Tensor self, Tensor index)",
        FMO | X,
        body!(take_rule, take, cuda: |a, _, outs| kernels::index::flat(&outs[0], &kernels::converted(a.input, a.input.dtype())?, a.index), scratch: |a, _, _, room| room.dense(a.input, a.input.dtype()).map(drop)).index_args(2),
        "The elements at positions in row-major order.",
    ).apart(0b11)
    .samples("f32[3, 4], i64([6, 3, 3]); c64[3, 4], i64(0)")
    .grad("self: _grad.take_back(grad, self.sizes, index)")
    .batch(Batch::As(typed!(batch::take, Hidden))),
    kernel(
        "put",
        "(Tensor self, Tensor index, Tensor source, bool accumulate=False)",
        FM | I,
        body!(put_rule, put, cuda: put_beside, scratch: |a, _, outs, room| room::put(room, &outs[0], a.index, a.source, a.accumulate)).index_args(2).updates(),
        "`self` with elements written at positions in row-major order.",
    ).apart(0b110)
    .samples("f32[3, 3], i64([6, 4, 2]), f32[3], False; c64[3, 3], i64([6, 4, 2]), c64[3], True")
    .grad("self: grad if accumulate else grad.put(index, zeros_like(source), False); source: grad.take(index).reshape(source.sizes); jvp: linear"),
    kernel(
        "embedding",
        "(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False)",
        F,
        body!(embedding_rule, embedding, cuda: |a, _, outs| kernels::index::rows(&outs[0], a.weight, a.indices), scratch: |a, _, _, room| room::long(room, a.indices).map(drop)).index_args(2),
        "The rows of `weight` at `indices`.",
    ).samples("f32[5, 3], i64([1, 4]); f64[5, 2], i64([[0, 1], [2, 2]])")
    .grad("weight: embedding_backward(grad, indices, weight.sizes[0], padding_idx, scale_grad_by_freq, sparse); jvp: linear")
    .batch(Batch::As(typed!(batch::embedding, Hidden))),
    compose(
        "nn.functional.embedding",
        "(Tensor input, Tensor weight, int? padding_idx=None, float? max_norm=None, float norm_type=2.0, bool scale_grad_by_freq=False, bool sparse=False)",
        F,
        nn_embedding,
        "The rows of `weight` at `input`.",
    ).samples(
        "i64(5), f32[10, 5]; \
         i64[3, 3].below(5), f64[5, 5], padding_idx=0, max_norm=1.0, scale_grad_by_freq=True, sparse=True",
    ),
    kernel(
        "embedding_renorm",
        "(Tensor self, Tensor indices, float max_norm, float norm_type)",
        J,
        body!(renorm_rule, renorm, scratch: renorm_room).index_args(2).updates(),
        "`self` with the rows at `indices` scaled down to a norm.",
    ).overlaps().samples("f32[5, 3], i64([1, 4]), 1.0, 2.0")
    .grad("self: refused"),
];

fn take_rule(a: &calls::Take) -> Result<Plan> {
    let (t, index) = (a.input, a.index);
    ensure!(
        index.dtype() == DType::I64,
        Runtime,
        "take(): Expected a long tensor for index, but got {}",
        index.dtype().scalar_type()
    );
    ensure!(
        t.numel() > 0 || index.numel() == 0,
        Index,
        "take(): tried to take from an empty tensor"
    );
    Ok(Plan::contiguous(index.shape(), t.dtype()))
}

/// All elements of a dense tensor as one dimension.
fn flat(t: &Tensor) -> Axis {
    Axis {
        step: t.dtype().size() as isize,
        size: t.numel(),
        wrap: true,
    }
}

#[cold]
fn flat_error(i: i64, t: &Tensor) -> Error {
    err!(
        Index,
        "out of range: tried to access index {i} on a tensor of {} elements.",
        t.numel()
    )
}

fn take(a: &calls::Take, (): &(), outs: &[Tensor]) -> Result<()> {
    let (out, index) = (&outs[0], a.index);
    let t = cpu::copy::dense(a.input, a.input.dtype())?;
    let base = Lay {
        ptr: t.data_ptr(),
        strides: Dims::filled(out.ndim(), 0),
    };
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(out, out.shape()),
        &base,
        &Lay::of(index, index.shape()),
        t.dtype().size(),
        flat(&t),
    );
    bad.map_or(Ok(()), |i| Err(flat_error(i, &t)))
}

fn put_rule(a: &calls::Put) -> Result<Plan> {
    let (t, index, source) = (a.input, a.index, a.source);
    ensure!(
        index.dtype() == DType::I64,
        Runtime,
        "put_(): Expected a long tensor for index, but got {}",
        index.dtype().scalar_type()
    );
    ensure!(
        t.dtype() == source.dtype(),
        Runtime,
        "put_(): self and source expected to have the same dtype, but got self.dtype = {} and source.dtype = {}",
        t.dtype().scalar_type(),
        source.dtype().scalar_type()
    );
    ensure!(
        source.numel() == index.numel(),
        Index,
        "put_(): Expected source and index to have the same number of elements, but got source.numel() = {}, index.numel() = {}",
        source.numel(),
        index.numel()
    );
    ensure!(
        index.numel() == 0 || t.numel() > 0,
        Index,
        "put_(): Tried to put elements into an empty tensor"
    );
    Ok(like(t))
}

fn put(a: &calls::Put, (): &(), outs: &[Tensor]) -> Result<()> {
    let (out, t) = (&outs[0], a.input);
    let index = cpu::copy::dense(&apart_index(a.index, out)?, DType::I64)?;
    let source = cpu::copy::dense(&apart(a.source, out)?, out.dtype())?;
    start(out, t)?;
    let work = if out.is_contiguous() {
        out.clone()
    } else {
        cpu::copy::dense(out, out.dtype())?
    };
    let n = Dims::new(&[index.numel()]);
    let lay = |t: &Tensor, step: i64| Lay {
        ptr: t.data_ptr(),
        strides: [step].into(),
    };
    let bad = if a.accumulate {
        let plan = ViewPlan::with(&work, [work.numel()].into(), [1].into(), work.offset());
        let line = cpu::view::of(&work, plan)?;
        let index = wrapped(&index, work.numel());
        let source = source.laid_out(n.clone(), [1].into());
        match index {
            Ok(index) => reduce_rows(&line, 0, &n, &lay(&index, 1), &source, false, Reduce::Add)?,
            Err(bad) => Some(bad),
        }
    } else {
        cpu_index::scatter(
            &n,
            &lay(&work, 0),
            &lay(&source, 1),
            &lay(&index, 1),
            work.dtype().size(),
            flat(&work),
        )
    };
    if let Some(i) = bad {
        return Err(flat_error(i, t));
    }
    if out.is_contiguous() {
        Ok(())
    } else {
        cpu::copy::copy(out, &work)
    }
}

fn put_beside(a: &calls::Put, (): &(), outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    let index = kernels::converted(&apart_index(a.index, out)?, DType::I64)?;
    let source = kernels::converted(&apart(a.source, out)?, out.dtype())?;
    let work = kernels::converted(out, out.dtype())?;
    kernels::index::put_flat(&work, &index, &source, a.accumulate.then_some(Reduce::Add))?;
    if work.shares_storage(out) {
        return Ok(());
    }
    kernels::copy(out, &work)
}

/// Indices with negative ones counted from the end; the first bad one as an error.
fn wrapped(index: &Tensor, n: i64) -> std::result::Result<Tensor, i64> {
    let list = cpu::slice::<i64>(index);
    if let Some(&bad) = list.iter().find(|&&i| i < -n || i >= n) {
        return Err(bad);
    }
    let made = Tensor::empty(&[list.len() as i64], DType::I64, Device::CPU);
    let made = made.map_err(|_| i64::MIN + 1)?;
    for (to, &i) in cpu::slice_mut::<i64>(&made).iter_mut().zip(list) {
        *to = if i < 0 { i + n } else { i };
    }
    Ok(made)
}

fn embedding_rule(a: &calls::Embedding) -> Result<Plan> {
    let (weight, indices) = (a.weight, a.indices);
    ensure!(weight.ndim() == 2, Runtime, "'weight' must be 2-D");
    ensure!(
        is_index(indices.dtype()),
        Runtime,
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got {}",
        found(indices, "embedding")
    );
    Ok(Plan::contiguous(
        &indices.shape().concat(&weight.shape()[1..]),
        weight.dtype(),
    ))
}

fn embedding(a: &calls::Embedding, (): &(), outs: &[Tensor]) -> Result<()> {
    let (weight, indices, out) = (a.weight, long(a.indices)?, &outs[0]);
    let n = indices.ndim();
    let src = Lay {
        ptr: weight.data_ptr(),
        strides: Dims::filled(n, 0).concat(&weight.strides()[1..]),
    };
    let index = Lay {
        ptr: indices.data_ptr(),
        strides: indices.strides().concat(&[0]),
    };
    let bad = cpu_index::gather(
        out.shape(),
        &Lay::of(out, out.shape()),
        &src,
        &index,
        out.dtype().size(),
        axis(weight, 0, false),
    );
    bad.map_or(Ok(()), |_| Err(out_of_range()))
}

fn nn_embedding(a: &calls::NnFunctionalEmbedding) -> Result<Tensor> {
    let mut padding = -1;
    if let Some(p) = a.padding_idx {
        let rows = a.weight.shape().first().copied().unwrap_or(0);
        ensure!(
            p < rows && p >= -rows,
            Assertion,
            "Padding_idx must be within num_embeddings"
        );
        padding = if p < 0 { p + rows } else { p };
    }
    if let Some(max_norm) = a.max_norm {
        let grad = mode::set_grad_enabled(false);
        // Tangents stay as they are, as gradients do.
        let done = f::detach(a.weight).and_then(|weight| {
            f::EmbeddingRenorm::new(&weight, a.input, max_norm, a.norm_type).call_()
        });
        mode::set_grad_enabled(grad);
        done?;
    }
    f::Embedding::new(a.weight, a.input)
        .padding_idx(padding)
        .scale_grad_by_freq(a.scale_grad_by_freq)
        .sparse(a.sparse)
        .call()
}

fn renorm_rule(a: &calls::EmbeddingRenorm) -> Result<Plan> {
    let (t, d) = (a.input, a.indices.dtype());
    ensure!(
        t.ndim() == 2,
        Runtime,
        "Expected 2-dimensional tensor, but got {}-dimensional tensor for argument #1 'self' (while checking arguments for \
         embedding_renorm_)",
        t.ndim()
    );
    ensure!(
        matches!(d, DType::I64 | DType::I32),
        Runtime,
        "Expected tensor for argument #2 'indices' to have one of the following scalar types: Long, Int; but got \
         {} instead (while checking arguments for embedding_renorm_)",
        type_name(a.indices)
    );
    Ok(like(t))
}

fn renorm(a: &calls::EmbeddingRenorm, (): &(), outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    start(out, a.input)?;
    let list = Tensor::empty(a.indices.shape(), DType::I64, Device::CPU)?;
    cpu::copy::copy(&list, a.indices)?;
    let rows = cpu::slice_mut::<i64>(&list);
    rows.sort_unstable();
    let count = out.shape()[0];
    for r in rows.chunk_by(|a, b| a == b).map(|same| same[0]) {
        ensure!(
            r >= -count && r < count,
            Index,
            "select(): index {r} out of range for tensor of size {} at dimension 0",
            out.shape()
        );
        let r = if r < 0 { r + count } else { r };
        let row = cpu::view::of(out, ViewPlan::of(out).selected(0, r))?;
        let wide = match out.dtype().is_complex() {
            true => shortened::<Complex64>(&row, a, |z| z.norm())?,
            false => shortened::<f64>(&row, a, |x| x.abs())?,
        };
        if let Some(wide) = wide {
            cpu::copy::copy(&row, &wide)?;
        }
    }
    Ok(())
}

fn renorm_room(
    a: &calls::EmbeddingRenorm,
    (): &(),
    outs: &[Tensor],
    room: &mut Room,
) -> Result<()> {
    let out = &outs[0];
    room.empty(a.indices.shape(), DType::I64)?;
    if a.indices.numel() == 0 || out.shape()[0] == 0 {
        return Ok(());
    }
    let wide = if out.dtype().is_complex() {
        DType::C128
    } else {
        DType::F64
    };
    let row = cpu::view::of(out, ViewPlan::of(out).selected(0, 0))?;
    room.dense(&row, wide).map(drop)
}

/// A row in double precision and of the largest norm, if it is longer.
fn shortened<T: Element + MulAssign<f64>>(
    row: &Tensor,
    a: &calls::EmbeddingRenorm,
    size: fn(&T) -> f64,
) -> Result<Option<Tensor>> {
    let wide = cpu::copy::dense(row, T::DTYPE)?;
    let v = cpu::slice_mut::<T>(&wide);
    let sizes = v.iter().map(size);
    let norm = match a.norm_type {
        p if p == f64::INFINITY => sizes.fold(0.0, f64::max),
        2.0 => sizes.map(|x| x * x).sum::<f64>().sqrt(),
        p => sizes.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
    };
    if !(norm > a.max_norm) {
        return Ok(None);
    }
    let scale = a.max_norm / (norm + 1e-7);
    v.iter_mut().for_each(|x| *x *= scale);
    Ok(Some(wide))
}
