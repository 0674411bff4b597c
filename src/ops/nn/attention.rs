//! Attention.

use crate::cpu::{attention as cpu, copy};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, KernelBody, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::ops::linalg::matrix::cpp_name;
use crate::{DType, Device, Dims, MemoryFormat, Result, Scalar, Tensor, bail, dims, ensure, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "nn.functional.scaled_dot_product_attention",
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False)",
        F,
        attention,
        "softmax(query key' scale + mask) value.",
    ),
    kernel(
        "_attention",
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float scale)",
        0,
        KernelBody::new(infer, run),
        "",
    ),
];

fn attention(a: &Args) -> Result<Ret> {
    let (q, mut k, mut v, mask) = (
        a.tensor(0)?,
        a.tensor(1)?.clone(),
        a.tensor(2)?.clone(),
        a.opt_tensor(3),
    );
    let (dropout, causal, gqa) = (a.float(4)?, a.bool(5), a.bool(7));
    ensure!(
        q.dtype() == k.dtype() && q.dtype() == v.dtype(),
        Runtime,
        "Expected query, key, and value to have the same dtype, but got query.dtype: {} key.dtype: {} and value.dtype: {} instead.",
        cpp_name(q.dtype()),
        cpp_name(k.dtype()),
        cpp_name(v.dtype())
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
    if let Some(m) = mask {
        ensure!(
            m.dtype() == DType::Bool || m.dtype() == q.dtype() || m.dtype() == DType::F32,
            Runtime,
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {} and  query.dtype: {} \
             instead.",
            cpp_name(m.dtype()),
            cpp_name(q.dtype())
        );
    }
    ensure!(
        mask.is_none() || !causal,
        Runtime,
        "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
    );
    ensure!(
        (0.0..=1.0).contains(&dropout),
        Runtime,
        "dropout probability has to be between 0 and 1, but got {dropout}"
    );
    if gqa {
        let heads = |t: &Tensor| {
            if t.ndim() >= 3 {
                t.shape()[t.ndim() - 3]
            } else {
                1
            }
        };
        let want = heads(q);
        for t in [&mut k, &mut v] {
            let have = heads(t);
            ensure!(
                have > 0 && want % have == 0,
                Runtime,
                "Number of heads in key and value must divide the number of heads in "
            );
            if have != want {
                *t = repeat_heads(t, want / have)?;
            }
        }
    }
    let width = q.shape()[q.ndim() - 1];
    let scale = a.opt_float(6).unwrap_or(1.0 / (width as f64).sqrt());
    let d = q.dtype();
    let computed = matches!(d, DType::F32 | DType::F64 | DType::F16 | DType::BF16);
    if dropout == 0.0 && computed {
        return Ok(run1!("_attention", q, &k, &v, mask, causal, scale)?.into());
    }
    // Step by step where weights are dropped at random.
    let half = Scalar::Float(scale.abs().sqrt());
    let sign = Scalar::Float(if scale < 0.0 { -1.0 } else { 1.0 });
    let (q2, k2) = (run1!("mul", q, half)?, run1!("mul", &k, half)?);
    let mut scores =
        crate::ops::linalg::contract::matmul(&q2, &run1!("transpose", &k2, -2i64, -1i64)?)?;
    if scale < 0.0 {
        scores = run1!("mul", &scores, sign)?;
    }
    let n = scores.ndim();
    let (rows, columns) = (scores.shape()[n - 2], scores.shape()[n - 1]);
    let causal_mask = if causal {
        let count = |n: i64| run1!("arange", Scalar::Int(n), DType::I64, Arg::None, q.device());
        Some(run1!(
            "ge",
            &run1!("unsqueeze", &count(rows)?, 1i64)?,
            &count(columns)?
        )?)
    } else {
        None
    };
    if let Some(m) = causal_mask.as_ref().or(mask) {
        scores = if m.dtype() == DType::Bool {
            run1!(
                "masked_fill",
                &scores,
                &run1!("logical_not", m)?,
                Scalar::Float(f64::NEG_INFINITY)
            )?
        } else {
            run1!("add", &scores, m)?
        };
    }
    let weights = run1!("softmax", &scores, -1i64)?;
    let weights = if dropout > 0.0 {
        run1!("dropout", &weights, dropout, true)?
    } else {
        weights
    };
    Ok(crate::ops::linalg::contract::matmul(&weights, &v)?.into())
}

/// Each head `times` times in a row.
fn repeat_heads(t: &Tensor, times: i64) -> Result<Tensor> {
    let n = t.ndim();
    ensure!(
        n >= 3,
        Runtime,
        "grouped queries need heads in the third dimension from the end"
    );
    let wide = run1!("unsqueeze", t, (n - 2) as i64)?;
    let wide = run1!("expand", &wide, wide.shape().with(n - 2, times))?;
    run1!(
        "reshape",
        &wide,
        t.shape().with(n - 3, t.shape()[n - 3] * times)
    )
}

struct Shapes {
    batch: Dims,
    queries: i64,
    keys: i64,
    width: i64,
    values: i64,
}

fn shapes(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Shapes> {
    let split = |t: &Tensor| {
        (
            Dims::new(&t.shape()[..t.ndim() - 2]),
            t.shape()[t.ndim() - 2],
            t.shape()[t.ndim() - 1],
        )
    };
    let ((bq, queries, width), (bk, keys, wk), (bv, rows, values)) = (split(q), split(k), split(v));
    let batch = dims::broadcast(&dims::broadcast(&bq, &bk)?, &bv)?;
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
    let mut batch = batch;
    if let Some(m) = mask {
        let full = dims::broadcast(&batch.concat(&[queries, keys]), m.shape())?;
        batch = Dims::new(&full[..full.len() - 2]);
        ensure!(
            full[full.len() - 2] == queries && full[full.len() - 1] == keys,
            Runtime,
            "attn_mask of shape {} does not fit {queries} queries and {keys} keys",
            m.shape()
        );
    }
    Ok(Shapes {
        batch,
        queries,
        keys,
        width,
        values,
    })
}

fn infer(a: &Args) -> Result<Plan> {
    let (q, k, v, mask) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.opt_tensor(3));
    let s = shapes(q, k, v, mask)?;
    let shape = s.batch.concat(&[s.queries, s.values]);
    // Four-dimensional inputs keep the order of the query's dimensions.
    let strides =
        if q.ndim() == 4 && shape == *q.shape() && k.shape()[..2] == q.shape()[..2] && s.keys > 0 {
            dims::preserved_strides(q.shape(), q.strides())
        } else {
            dims::contiguous_strides(&shape)
        };
    Ok(Plan {
        outs: smallvec![OutSpec {
            shape,
            strides,
            dtype: q.dtype()
        }],
        device: None,
    })
}

fn run(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (q, k, v, mask, out) = (
        a.tensor(0)?,
        a.tensor(1)?,
        a.tensor(2)?,
        a.opt_tensor(3),
        &outs[0],
    );
    if out.numel() == 0 {
        return Ok(());
    }
    let s = shapes(q, k, v, mask)?;
    if s.keys == 0 {
        return crate::cpu::fill(out, Scalar::Int(0));
    }
    let wide = if q.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let count = dims::numel(&s.batch)?;
    // As `[batch, rows, columns]`: a view where the strides allow it.
    let flat = |t: &Tensor, rows: i64, columns: i64, d: DType| -> Result<Tensor> {
        let t = if t.dtype() == d {
            t.clone()
        } else {
            copy::converted(t, d)?
        };
        let t = t.expand_to(&s.batch.concat(&[rows, columns]));
        let to = [count, rows, columns];
        match dims::view_strides(t.shape(), t.strides(), &to) {
            Some(strides) => Ok(t.view_with(to.into(), strides, t.offset())),
            None => Ok(copy::dense(&t, d)?.view_with(to.into(), dims::contiguous_strides(&to), 0)),
        }
    };
    let (q3, k3, v3) = (
        flat(q, s.queries, s.width, wide)?,
        flat(k, s.keys, s.width, wide)?,
        flat(v, s.keys, s.values, wide)?,
    );
    let m3 = mask
        .map(|m| {
            flat(
                m,
                s.queries,
                s.keys,
                if m.dtype() == DType::Bool {
                    DType::Bool
                } else {
                    wide
                },
            )
        })
        .transpose()?;
    let to = [count, s.queries, s.values];
    let direct = if out.dtype() == wide {
        dims::view_strides(out.shape(), out.strides(), &to)
    } else {
        None
    };
    let (causal, scale) = (a.bool(4), a.float(5)?);
    match direct {
        Some(strides) => cpu::attention(
            &out.view_with(to.into(), strides, out.offset()),
            &q3,
            &k3,
            &v3,
            m3.as_ref(),
            causal,
            scale,
        ),
        None => {
            let sum = Tensor::empty(&to, wide, Device::CPU)?;
            cpu::attention(&sum, &q3, &k3, &v3, m3.as_ref(), causal, scale)?;
            copy::copy(
                out,
                &sum.view_with(
                    out.shape().clone(),
                    dims::format_strides(out.shape(), MemoryFormat::Contiguous)?,
                    0,
                ),
            )
        }
    }
}
