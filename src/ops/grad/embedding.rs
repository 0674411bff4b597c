//! Gradients of embeddings, by their weights and factors.

use crate::cpu::embedding_backward::{self as kernels, Bags, Chosen};
use crate::ops::batch;
use crate::ops::core::op::{Batch, Hidden, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::view::shape::type_name;
use crate::{DType, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.embedding_dense_backward",
        "(Tensor grad_output, Tensor indices, int num_weights, int padding_idx, bool scale_grad_by_freq)",
        0,
        dense,
        "The gradient of embedding.",
    ).samples("f32[2, 2, 3], i64([[1, 2], [4, 1]]), 5, -1, False; bf16[3, 4], i64([1, 1, 0]), 2, 0, True; c64[2, 3], i64([1, 1]), 2, -1, False"),
    compose(
        "_grad.embedding_backward",
        "(Tensor grad, Tensor indices, int num_weights, int padding_idx, bool scale_grad_by_freq, bool sparse)",
        0,
        |a| {
            if a.sparse {
                return f::_grad_embedding_sparse_backward(a.grad, a.indices, a.num_weights, a.padding_idx, a.scale_grad_by_freq);
            }
            f::_grad_embedding_dense_backward(a.grad, a.indices, a.num_weights, a.padding_idx, a.scale_grad_by_freq)
        },
        "The gradient of embedding.",
    ).samples("f32[2, 3], i64([1, 1]), 4, -1, False, False"),
    compose(
        "_grad.embedding_sparse_backward",
        "(Tensor grad, Tensor indices, int num_weights, int padding_idx, bool scale_grad_by_freq)",
        0,
        sparse,
        "The gradient of embedding, of the rows that were chosen alone.",
    ).samples("see tests/test_sparse_embedding.py"),
    kernel(
        "_grad.embedding",
        "(Tensor grad, Tensor indices, int rows, int padding, bool by_frequency)",
        0,
        body!(rule, anywhere: run, scratch: |a, _, outs, room| {
            kernels::rows_room(room, &outs[0], a.grad, a.indices)
        }),
        "The gradient of the rows of a matrix that were chosen by index.",
    ).samples("f32[2, 3], i64([1, 1]), 4, -1, False")
    .grad("grad: _grad.embedding_twice(grad, indices, padding)")
    .batch(Batch::As(typed!(batch::embedding_gradient, Hidden))),
    compose(
        "_grad.embedding_twice",
        "(Tensor grad, Tensor indices, int padding)",
        0,
        |a| {
            let chosen = f::index_select(a.grad, 0, a.indices)?;
            if a.padding < 0 {
                return Ok(chosen);
            }
            f::masked_fill(&chosen, &f::unsqueeze(&f::eq(a.indices, a.padding)?, -1)?, 0i64)
        },
        "The gradient of the gradient of embedding: the rows that were chosen; as in PyTorch whether or not it was scaled.",
    ).samples("f32[4, 3], i64([1, 2]), -1; f32[4, 3], i64([1, 2]), 2"),
    compose(
        "_grad._embedding_bag_backward",
        "(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, int num_weights, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, int padding_idx=-1)",
        0,
        |a| {
            if a.sparse {
                return sparse_bags(a);
            }
            f::_grad_embedding_bag(
                a.grad, a.indices, a.offset2bag, a.bag_size, a.maximum_indices, a.num_weights, a.scale_grad_by_freq, a.mode,
                a.per_sample_weights, a.offsets, a.padding_idx,
            )
        },
        "The gradient of embedding_bag.",
    ).samples(
        "f32[2, 3], i64([1, 2, 4, 0]), i64([0, 2]), i64[0], i64([2, 2]), i64([2, 2]), 5, False, 0, False, None; \
         f32[2, 2], i64([1, 2, 4]), i64([0, 2]), i64([0, 0, 1]), i64([2, 1]), i64([[1, 2], [4, 4]]), 5, False, 2, False, None, -1",
    )
    .grad("grad, per_sample_weights: refused"),
    compose(
        "_grad._embedding_bag_dense_backward",
        "(Tensor grad, Tensor indices, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, int num_weights, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights, int padding_idx=-1)",
        0,
        |a| {
            f::_grad_embedding_bag(
                a.grad, a.indices, a.offset2bag, a.bag_size, a.maximum_indices, a.num_weights, a.scale_grad_by_freq, a.mode,
                a.per_sample_weights, None, a.padding_idx,
            )
        },
        "The gradient of embedding_bag.",
    ).samples("f32[2, 3], i64([1, 2, 4, 0]), i64([0, 0, 1, 1]), i64([2, 2]), i64([2, 2]), 5, True, 1, None"),
    kernel(
        "_grad.embedding_bag",
        "(Tensor grad, Tensor indices, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, int rows, bool by_frequency, int mode, Tensor? factors, Tensor? offsets, int padding)",
        0,
        body!(rule_bags, run_bags, scratch: |a, _, outs, room| {
            kernels::bags_of_room(room, a.offset2bag, a.offsets, a.indices.numel())?;
            let saved = [a.bag_size, a.maximum_indices];
            kernels::bags_room(room, &outs[0], a.grad, a.indices, saved, a.mode, a.factors)
        }),
        "The gradient of rows that bags have joined.",
    ).samples("f32[2, 3], i64([1, 2, 4, 0]), i64[0], i64([2, 2]), i64([2, 2]), 5, False, 0, f32[4], i64([0, 2]), -1")
    .refused(),
    kernel(
        "_grad._embedding_bag_per_sample_weights_backward",
        "(Tensor grad, Tensor weight, Tensor indices, Tensor offsets, Tensor offset2bag, int mode, int padding_idx=-1)",
        0,
        body!(rule_factors, run_factors, scratch: |a, _, outs, room| {
            kernels::bags_of_room(room, a.offset2bag, Some(a.offsets), a.indices.numel())?;
            kernels::factors_room(room, &outs[0], [a.grad, a.weight], a.indices)
        }),
        "The gradient of embedding_bag by the factors of its indices.",
    ).samples("f32[2, 3], f32[5, 3], i64([1, 2, 4, 0]), i64([0, 2]), i64([0, 0, 1, 1]), 0; f64[2, 3], f64[5, 3], i64([1, 2, 4, 0]), i64([0, 2]), i64[0], 0, 2")
    .refused(),
];

/// An entry a use of a row in a bag, by the bag's share.
fn sparse_bags(a: &calls::_GradEmbeddingBagBackward) -> Result<Tensor> {
    ensure!(
        a.mode != 2,
        Runtime,
        "embedding_bag: max mode does not support sparse gradients"
    );
    let bags = bags_of(a)?;
    let mut grad = f::index_select(a.grad, 0, &bags)?;
    let each = |t: &Tensor| f::unsqueeze(t, 1);
    if a.mode == 1 {
        grad = f::div(&grad, &each(&f::index_select(a.bag_size, 0, &bags)?)?)?;
    }
    if let Some(weights) = a.per_sample_weights {
        grad = f::mul(&grad, &each(weights)?)?;
    }
    f::_grad_embedding_sparse_backward(
        &grad,
        a.indices,
        a.num_weights,
        a.padding_idx,
        a.scale_grad_by_freq,
    )
}

/// The bag of each index. Sums without padding do not note it: it is the last bag that begins at the index or before.
fn bags_of(a: &calls::_GradEmbeddingBagBackward) -> Result<Tensor> {
    let n = a.indices.numel();
    if a.offset2bag.numel() == n {
        return Ok(a.offset2bag.clone());
    }
    let places = f::Arange::new(n).device(a.indices.device()).call()?;
    let offsets = f::to_dtype(a.offsets, places.dtype())?;
    let after = f::Searchsorted::new(&offsets, &places).right(true).call()?;
    f::sub(&after, 1i64)
}

/// An entry a use of a row; padding has none.
fn sparse(a: &calls::_GradEmbeddingSparseBackward) -> Result<Tensor> {
    ensure!(
        !a.scale_grad_by_freq,
        Runtime,
        "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
    );
    let width = a.grad.shape().last().copied().unwrap_or(1);
    let mut rows = f::reshape(a.indices, &[-1])?;
    let mut values = f::reshape(a.grad, &[rows.numel() as i64, width])?;
    if a.padding_idx != -1 {
        let kept = f::squeeze_dim(&f::nonzero(&f::ne(&rows, a.padding_idx)?)?, -1)?;
        rows = f::index_select(&rows, 0, &kept)?;
        values = f::index_select(&values, 0, &kept)?;
    }
    let mut rows = f::to_dtype(&f::unsqueeze(&rows, 0)?, DType::I64)?;
    if rows.storage().same(a.indices.storage()) {
        // The user may write other indices there before the gradient is used.
        rows = f::clone(&rows)?;
    }
    f::_sparse_coo_tensor_unsafe(&rows, &values, &[a.num_weights, width])
}

fn check_indices(indices: &Tensor, at: usize, caller: &str) -> Result<()> {
    ensure!(
        matches!(indices.dtype(), DType::I64 | DType::I32),
        Runtime,
        "Expected tensor for argument #{at} 'indices' to have one of the following scalar types: Long, Int; but got {} instead \
         (while checking arguments for {caller})",
        type_name(indices)
    );
    Ok(())
}

fn dense(a: &calls::_GradEmbeddingDenseBackward) -> Result<Tensor> {
    let (g, indices) = (a.grad_output, a.indices);
    check_indices(indices, 2, "embedding_backward")?;
    let width = g.shape().last().copied().unwrap_or(1);
    let rows = indices.numel();
    ensure!(
        rows.checked_mul(width) == Some(g.numel()),
        Runtime,
        "shape '[{rows}, {width}]' is invalid for input of size {}",
        g.numel()
    );
    let add = |g: &Tensor| {
        let flat = f::reshape(indices, &[rows])?;
        f::_grad_embedding(g, &flat, a.num_weights, a.padding_idx, a.scale_grad_by_freq)
    };
    let g = f::reshape(g, &[rows, width])?;
    if !g.dtype().is_complex() {
        return add(&g);
    }
    // Real and imaginary parts are columns of their own.
    let parts = f::view_as_real(&f::resolve_conj(&g)?)?;
    let sums = add(&f::reshape(&parts, &[rows, 2 * width])?)?;
    f::view_as_complex(&f::view(&sums, &[a.num_weights, width, 2])?)
}

/// The layout of a matrix of `rows` like those of the gradient.
fn matrix(g: &Tensor, rows: i64, kernel: &str) -> Result<Plan> {
    ensure!(
        rows >= 0,
        Runtime,
        "zeros: Dimension size must be non-negative."
    );
    ensure!(
        g.ndim() == 2,
        Runtime,
        "expected a gradient of two dimensions, but got {}",
        g.shape()
    );
    g.dtype().check_float_kernel(kernel)?;
    Ok(Plan::contiguous(&[rows, g.shape()[1]], g.dtype()))
}

fn rule(a: &calls::_GradEmbedding) -> Result<Plan> {
    ensure!(
        a.indices.ndim() == 1 && a.grad.shape().first() == a.indices.shape().first(),
        Runtime,
        "expected a row of the gradient for each index, but got {} for {}",
        a.grad.shape(),
        a.indices.shape()
    );
    matrix(a.grad, a.rows, "embedding_backward")
}

fn run(a: &calls::_GradEmbedding, (): &(), outs: &[Tensor]) -> Result<()> {
    let chosen = Chosen {
        indices: a.indices,
        by_frequency: a.by_frequency,
        padding: a.padding,
    };
    crate::kernels::arrange::embedding_backward(&outs[0], a.grad, &chosen)
}

fn rule_bags(a: &calls::_GradEmbeddingBag) -> Result<Plan> {
    let (g, n) = (a.grad, a.indices.numel());
    check_indices(a.indices, 2, "embedding_bag")?;
    let plan = matrix(g, a.rows, "_embedding_bag_dense_backward")?;
    ensure!(
        (0..=2).contains(&a.mode),
        Runtime,
        "embedding_bag: mode has to be 0, 1 or 2, but got {}",
        a.mode
    );
    ensure!(
        a.factors.is_none_or(|f| a.mode == 0 && f.numel() == n),
        Runtime,
        "embedding_bag: per_sample_weights only supported with mode='sum'"
    );
    let known = a.offset2bag.numel();
    ensure!(
        known == n || a.offsets.is_some(),
        Runtime,
        "embedding_bag: expected the bags of {n} indices, but got {known}"
    );
    if a.mode == 2 && a.maximum_indices.shape() != g.shape() {
        bail!(
            Runtime,
            "embedding_bag: expected an index for each maximum of {}, but got {}",
            g.shape(),
            a.maximum_indices.shape()
        );
    }
    Ok(plan)
}

fn run_bags(a: &calls::_GradEmbeddingBag, (): &(), outs: &[Tensor]) -> Result<()> {
    let chosen = Chosen {
        indices: a.indices,
        by_frequency: a.by_frequency,
        padding: a.padding,
    };
    let bags = Bags {
        bag_of: kernels::bags_of(a.offset2bag, a.offsets, a.indices.numel() as usize)?,
        sizes: a.bag_size,
        maxima: a.maximum_indices,
        mode: a.mode,
        factors: a.factors,
    };
    kernels::bags(&outs[0], a.grad, &chosen, &bags)
}

fn rule_factors(a: &calls::_GradEmbeddingBagPerSampleWeightsBackward) -> Result<Plan> {
    let (g, w) = (a.grad, a.weight);
    ensure!(
        a.mode == 0,
        Runtime,
        "embedding_bag_backward: per_sample_weights only supported for mode='sum'"
    );
    check_indices(a.indices, 3, "_embedding_bag_per_sample_weights_backward")?;
    ensure!(
        g.ndim() == 2 && w.ndim() == 2 && g.shape()[1] == w.shape()[1] && g.dtype() == w.dtype(),
        Runtime,
        "expected a gradient of rows like those of the weight, but got {} for {}",
        g.shape(),
        w.shape()
    );
    g.dtype()
        .check_float_kernel("_embedding_bag_per_sample_weights_backward_cpu")?;
    Ok(Plan::contiguous(&[a.indices.numel()], g.dtype()))
}

fn run_factors(
    a: &calls::_GradEmbeddingBagPerSampleWeightsBackward,
    (): &(),
    outs: &[Tensor],
) -> Result<()> {
    let chosen = Chosen {
        indices: a.indices,
        by_frequency: false,
        padding: a.padding_idx,
    };
    let bags = kernels::bags_of(a.offset2bag, Some(a.offsets), a.indices.numel() as usize)?;
    kernels::factors(&outs[0], a.grad, a.weight, &chosen, &bags)
}
