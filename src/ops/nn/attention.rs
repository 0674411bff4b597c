//! Attention.

use crate::cpu::attention as cpu;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, F, OpDef, Plan, compose, kernel};
use crate::ops::{Ret, f};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "nn.functional.scaled_dot_product_attention",
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False)",
        F,
        attention,
        "softmax(query key' scale + mask) value.",
    ).samples(
        "f32[4, 3, 8], f32[4, 6, 8], f32[4, 6, 8]; \
         f32[4, 3, 8], f32[4, 6, 8], f32[4, 6, 8], is_causal=True",
    )
    .amp(Cast::Low, Cast::Low),
    kernel(
        "_attention",
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale, bool enable_gqa=False)",
        0,
        body!(rule, anywhere: run, scratch: |a, shapes, outs, room| {
            crate::cpu::attention_room::alone(room, &outs[0], &inputs(a), shapes)
        }),
        "",
    ).samples(
        "f32[1, 2, 3, 4], f32[1, 2, 5, 4], f32[1, 2, 5, 4], None, False, 0.5; \
         f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 3, 4], None, True, 0.5; \
         f32[1, 4, 3, 4], f32[1, 2, 5, 4], f32[1, 2, 5, 4], None, False, 0.5, True",
    )
    .through(typed!(recorded))
    .batch(Batch::Each),
];

fn attention(a: &calls::NnFunctionalScaledDotProductAttention) -> Result<Tensor> {
    check(a)?;
    let (q, mask, causal, dropout) = (a.query, a.attn_mask, a.is_causal, a.dropout_p);
    let width = q.shape()[q.ndim() - 1];
    let scale = a.scale.unwrap_or(1.0 / (width as f64).sqrt());
    let computed = matches!(
        q.dtype(),
        DType::F32 | DType::F64 | DType::F16 | DType::BF16
    );
    // On meta it is products, as in PyTorch; what will become real there is computed as on the host.
    let here = dropout == 0.0 && computed && !helpers::is_nowhere(q);
    if here && a.enable_gqa && cpu::share_heads(q, a.key, a.value) {
        let call = f::_Attention::new(q, a.key, a.value, mask, causal, scale);
        return call.enable_gqa(true).call();
    }
    let (k, v) = if a.enable_gqa {
        (grouped(q, a.key)?, grouped(q, a.value)?)
    } else {
        (a.key.clone(), a.value.clone())
    };
    if here {
        return f::_Attention::new(q, &k, &v, mask, causal, scale).call();
    }
    composed([q, &k, &v], mask, causal, dropout, scale)
}

/// Attention by products and a softmax, in single precision where elements have 16 bits.
fn composed(
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    causal: bool,
    dropout: f64,
    scale: f64,
) -> Result<Tensor> {
    if !matches!(q.dtype(), DType::F16 | DType::BF16) {
        return in_full([q, k, v], mask, causal, dropout, scale);
    }
    let wide = |t: &Tensor| f::to_dtype(t, DType::F32);
    let raised = [&wide(q)?, &wide(k)?, &wide(v)?];
    f::to_dtype(&in_full(raised, mask, causal, dropout, scale)?, q.dtype())
}

/// As `composed`, in the type of the operands.
fn in_full(
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    causal: bool,
    dropout: f64,
    scale: f64,
) -> Result<Tensor> {
    let mut scores = scores(q, k, scale)?;
    let lower;
    let mask = if causal {
        lower = causal_mask(&scores)?;
        Some(&lower)
    } else {
        mask
    };
    if let Some(m) = mask {
        check_mask(m, scores.shape())?;
        scores = if m.dtype() == DType::Bool {
            f::masked_fill(&scores, &f::logical_not(m)?, f64::NEG_INFINITY)?
        } else {
            f::add(&scores, m)?
        };
    }
    let mut weights = f::_safe_softmax(&scores, -1)?;
    drop(scores);
    if dropout > 0.0 {
        weights = f::dropout(&weights, dropout, true)?;
    }
    f::matmul(&weights, v)
}

fn check(a: &calls::NnFunctionalScaledDotProductAttention) -> Result<()> {
    let (q, k, v) = (a.query, a.key, a.value);
    ensure!(
        q.dtype() == k.dtype() && q.dtype() == v.dtype(),
        Runtime,
        "Expected query, key, and value to have the same dtype, but got query.dtype: {} key.dtype: {} and value.dtype: {} instead.",
        q.dtype().cpp_name(),
        k.dtype().cpp_name(),
        v.dtype().cpp_name()
    );
    ensure!(
        q.device() == k.device() && q.device() == v.device(),
        Runtime,
        "Expected query, key, and value to have the same device type, but got query.device: {} key.device: {} and value.device: {} \
         instead.",
        q.device(),
        k.device(),
        v.device()
    );
    ensure!(
        q.ndim() >= 2 && k.ndim() >= 2 && v.ndim() >= 2,
        Runtime,
        "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {} key.dim: {} and value.dim: {} \
         instead.",
        q.ndim(),
        k.ndim(),
        v.ndim()
    );
    if let Some(m) = a.attn_mask {
        ensure!(
            m.dtype() == DType::Bool || m.dtype() == q.dtype() || m.dtype() == DType::F32,
            Runtime,
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {} and  query.dtype: {} \
             instead.",
            m.dtype().cpp_name(),
            q.dtype().cpp_name()
        );
    }
    if let Some(m) = a.attn_mask.filter(|m| q.ndim() == 4 && !m.requires_grad())
        && !helpers::is_nowhere(q)
    {
        m.size(-2)?;
    }
    ensure!(
        a.attn_mask.is_none() || !a.is_causal,
        Runtime,
        "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
    );
    ensure!(
        (0.0..=1.0).contains(&a.dropout_p),
        Runtime,
        "dropout probability has to be between 0 and 1, but got {}",
        a.dropout_p
    );
    Ok(())
}

/// Query times key, each with half of the scale, so that products stay small.
fn scores(q: &Tensor, k: &Tensor, scale: f64) -> Result<Tensor> {
    let half = scale.abs().sqrt();
    let (q, k) = (f::mul(q, half)?, f::mul(k, half)?);
    let scores = f::matmul(&q, &f::transpose(&k, -2, -1)?)?;
    if scale < 0.0 {
        f::mul(&scores, -1.0)
    } else {
        Ok(scores)
    }
}

/// True where a query may look at a key: at those before it.
fn causal_mask(scores: &Tensor) -> Result<Tensor> {
    let n = scores.ndim();
    let count = |dim: usize| {
        f::Arange::new(scores.shape()[dim])
            .dtype(DType::I64)
            .device(helpers::beside(scores))
            .call()
    };
    f::ge(&f::unsqueeze(&count(n - 2)?, 1)?, &count(n - 1)?)
}

/// Keys or values with as many heads as the queries, each repeated in a row.
fn grouped(q: &Tensor, t: &Tensor) -> Result<Tensor> {
    let heads = |t: &Tensor| {
        if t.ndim() >= 3 {
            t.shape()[t.ndim() - 3]
        } else {
            1
        }
    };
    let (want, have) = (heads(q), heads(t));
    ensure!(
        have > 0 && want % have == 0,
        Runtime,
        "Number of heads in key and value must divide the number of heads in "
    );
    if have == want {
        return Ok(t.clone());
    }
    let n = t.ndim();
    ensure!(
        n >= 3,
        Runtime,
        "grouped queries need heads in the third dimension from the end"
    );
    let wide = f::unsqueeze(t, (n - 2) as i64)?;
    let wide = f::expand(&wide, &wide.shape().with(n - 2, want / have))?;
    f::reshape(&wide, &t.shape().with(n - 3, want))
}

fn shapes(a: &calls::_Attention) -> Result<cpu::Shapes> {
    let (q, k, v, mask) = (a.query, a.key, a.value, a.attn_mask);
    ensure!(
        [q, k, v].iter().all(|t| t.ndim() >= 2),
        Runtime,
        "query, key and value of attention have at least 2 dimensions"
    );
    let split = |t: &Tensor| {
        (
            Dims::new(&t.shape()[..t.ndim() - 2]),
            t.shape()[t.ndim() - 2],
            t.shape()[t.ndim() - 1],
        )
    };
    let ((bq, queries, width), (bk, keys, wk), (bv, rows, values)) = (split(q), split(k), split(v));
    let batch = if a.enable_gqa && cpu::share_heads(q, k, v) {
        bq
    } else {
        dims::broadcast(&dims::broadcast(&bq, &bk)?, &bv)?
    };
    let count = dims::numel(&batch)?;
    if width != wk {
        if batch.is_empty() {
            bail!(
                Runtime,
                "mat1 and mat2 shapes cannot be multiplied ({queries}x{width} and {wk}x{keys})"
            );
        }
        bail!(
            Runtime,
            "Expected size for first two dimensions of batch2 tensor to be: [{count}, {width}] but got: [{count}, {wk}]."
        );
    }
    if keys != rows {
        if batch.is_empty() {
            bail!(
                Runtime,
                "mat1 and mat2 shapes cannot be multiplied ({queries}x{keys} and {rows}x{values})"
            );
        }
        bail!(
            Runtime,
            "Expected size for first two dimensions of batch2 tensor to be: [{count}, {keys}] but got: [{count}, {rows}]."
        );
    }
    if let Some(m) = mask {
        check_mask(m, &batch.concat(&[queries, keys]))?;
    }
    Ok(cpu::Shapes {
        batch,
        queries,
        keys,
        width,
        values,
    })
}

fn rule(a: &calls::_Attention) -> Result<(Plan, cpu::Shapes)> {
    let (q, k) = (a.query, a.key);
    let s = shapes(a)?;
    let shape = s.batch.concat(&[s.queries, s.values]);
    // Four-dimensional inputs keep the order of the query's dimensions.
    let alike = a.enable_gqa || q.ndim() == 4 && k.shape()[..2] == q.shape()[..2];
    let strides = if alike && shape == *q.shape() && s.keys > 0 {
        dims::preserved_strides(q.shape(), q.strides())
    } else {
        dims::contiguous_strides(&shape)
    };
    Ok((Plan::one(shape, strides, q.dtype()), s))
}

/// What the kernels read.
fn inputs<'a>(a: &calls::_Attention<'a>) -> cpu::Inputs<'a> {
    cpu::Inputs {
        query: a.query,
        key: a.key,
        value: a.value,
        mask: a.attn_mask,
        causal: a.is_causal,
        scale: a.scale,
    }
}

fn run(a: &calls::_Attention, shapes: &cpu::Shapes, outs: &[Tensor]) -> Result<()> {
    kernels::attention::attention(&outs[0], &inputs(a), shapes)
}

/// Whether PyTorch computes attention with a mask block by block: one of two dimensions or four, in the way of no gradient.
fn blocks(q: &Tensor, k: &Tensor, mask: &Tensor) -> bool {
    let scores = [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]];
    let pairs = mask.shape().iter().rev().zip(scores.iter().rev());
    matches!(mask.ndim(), 2 | 4)
        && !mask.requires_grad()
        && pairs.into_iter().all(|(m, n)| *m == 1 || m == n)
}

/// Checks that a mask does not make scores larger than they are.
fn check_mask(mask: &Tensor, scores: &Dims) -> Result<()> {
    let full = dims::broadcast(scores, mask.shape())?;
    ensure!(
        full == *scores,
        Runtime,
        "output with shape {scores} doesn't match the broadcast shape {full}"
    );
    Ok(())
}

/// Attention as the calls that its gradient is made of.
fn recorded(a: &calls::_Attention) -> Result<Ret> {
    let (q, k, v) = if a.enable_gqa {
        let (q, k, v) = (a.query, a.key, a.value);
        (q, &grouped(q, k)?, &grouped(q, v)?)
    } else {
        (a.query, a.key, a.value)
    };
    let (mask, causal, scale) = (a.attn_mask, a.is_causal, a.scale);
    let width = |t: &Tensor| t.shape().last().copied();
    let blocked = q.ndim() == 4
        && k.ndim() == 4
        && v.ndim() == 4
        && width(q) == width(v)
        && q.shape()[..2] == k.shape()[..2]
        && mask.is_none_or(|m| blocks(q, k, m));
    if blocked {
        // Truth values as what is added to scores.
        let added = match mask.filter(|m| m.dtype() == DType::Bool) {
            Some(m) => {
                let zeros = f::Zeros::new(m.shape()).dtype(q.dtype()).device(q.device());
                let hidden = f::logical_not(m)?;
                Some(f::masked_fill(&zeros.call()?, &hidden, f64::NEG_INFINITY)?)
            }
            None => None,
        };
        let mask = added.as_ref().or(mask);
        let [made, _] = f::_ScaledDotProductFlashAttentionForCpu::new(q, k, v)
            .is_causal(causal)
            .attn_mask(mask)
            .scale(scale)
            .call()?;
        return Ok(Ret::One(made));
    }
    composed([q, k, v], mask, causal, 0.0, scale).map(Ret::One)
}
