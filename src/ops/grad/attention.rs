//! Attention that keeps what its backward needs, and that backward.

use crate::cpu::attention::{Inputs, Shapes};
use crate::cpu::attention_backward::Known;
use crate::cpu::attention_room as room;
use crate::ops::core::op::{F, OpDef, OutSpec, Plan, kernel};
use crate::{DType, Dims, Result, Tensor, dims, ensure, kernels};
use smallvec::smallvec;
use torchlike_macros::operators;

macro_rules! call {
    ($a:ident) => {
        Call {
            query: $a.query,
            key: $a.key,
            value: $a.value,
            mask: $a.attn_mask,
            dropout: $a.dropout_p,
            causal: $a.is_causal,
            scale: $a.scale,
        }
    };
}

macro_rules! known {
    ($a:ident) => {
        Known {
            grad: $a.grad_out,
            out: $a.out,
            sums: $a.logsumexp,
        }
    };
}
/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_scaled_dot_product_flash_attention_for_cpu",
        "(Tensor query, Tensor key, Tensor value, float dropout_p=0.0, bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)",
        F,
        body!(|a| rule(&call!(a)), anywhere: |a, (), outs| run(&call!(a), outs), scratch: |a, (), outs, room| {
            let call = call!(a);
            let (inputs, shapes) = call.parts();
            room::forward(room, outs, &inputs, shapes)
        }),
        "softmax(scale query key' + mask) value, and the logarithms of the sums of exponentials.",
    )
    .samples(
        "f32[1, 2, 3, 4], f32[1, 2, 5, 4], f32[1, 2, 5, 4]; \
         f32[1, 4, 3, 4], f32[1, 2, 5, 4], f32[1, 2, 5, 4], attn_mask=f32[3, 5], scale=0.3; \
         f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 3, 4], 0.0, True",
    )
    .grad("query, key, value: _grad._scaled_dot_product_flash_attention_for_cpu_backward(grad, query, key, value, output, logsumexp, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)"),
    kernel(
        "_grad._scaled_dot_product_flash_attention_for_cpu_backward",
        "(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
        0,
        body!(
            |a| backward_rule(&call!(a), &known!(a)),
            anywhere: |a, (), outs| run_backward(&call!(a), &known!(a), outs),
            scratch: |a, (), outs, room| {
                let call = call!(a);
                let (inputs, shapes) = call.parts();
                room::backward(room, outs, &known!(a), &inputs, &shapes)
            }
        ),
        "The gradients of query, key and value of an attention.",
    )
    .samples(
        "f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 5, 4], f32[1, 2, 5, 4], f32[1, 2, 3, 4], f32[1, 2, 3], 0.0, False; \
         f32[1, 4, 3, 4], f32[1, 4, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 4, 3, 4], f32[1, 4, 3], 0.0, True; \
         f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 5, 4], f32[1, 2, 5, 4], f32[1, 2, 3, 4], f32[1, 2, 3], 0.0, False, attn_mask=f32[3, 5]",
    )
    .refused(),
];

/// An attention of four dimensions: batch, heads, rows, columns. Heads of keys may serve several heads of queries each.
struct Call<'a> {
    query: &'a Tensor,
    key: &'a Tensor,
    value: &'a Tensor,
    mask: Option<&'a Tensor>,
    dropout: f64,
    causal: bool,
    scale: Option<f64>,
}

impl Call<'_> {
    fn check(&self) -> Result<()> {
        const WHO: &str = "scaled_dot_product_attention_flash_attention:";
        let (q, k, v) = (self.query, self.key, self.value);
        let d = q.dtype();
        ensure!(
            matches!(d, DType::F32 | DType::F64 | DType::F16 | DType::BF16),
            Runtime,
            "{WHO} Expected data type in FP32, FP64, BF16, FP16, but got {} instead.",
            d.scalar_type()
        );
        ensure!(
            q.ndim() == 4 && k.ndim() == 4 && v.ndim() == 4,
            Runtime,
            "{WHO} Accept only 4 dims inputs shape of {{B, H, T, K}}"
        );
        ensure!(
            self.dropout <= 0.0,
            Runtime,
            "{WHO} Currently do not support dropout > 0"
        );
        ensure!(
            q.shape()[3] == v.shape()[3] && k.shape()[3] == v.shape()[3],
            Runtime,
            "{WHO} Q/K/V should have the same head size"
        );
        if let Some(m) = self.mask {
            ensure!(
                m.dtype() == d,
                Runtime,
                "{WHO} Attention mask is the same data type as query"
            );
            ensure!(
                m.ndim() == 2 || m.ndim() == 4,
                Runtime,
                "{WHO} Attention mask dim in {{2, 4}}"
            );
            let scores = self.query.shape().with(3, self.key.shape()[2]);
            ensure!(
                dims::broadcast(m.shape(), &scores)? == scores,
                Runtime,
                "{WHO} a mask of shape {} does not fit scores of shape {scores}",
                m.shape()
            );
        }
        for t in [k, v] {
            d.check_same(t.dtype())?;
        }
        ensure!(
            k.shape() == v.shape() && k.shape()[0] == q.shape()[0],
            Runtime,
            "{WHO} expected keys and values of the same batches and rows, but got query {}, key {} and value {}",
            q.shape(),
            k.shape(),
            v.shape()
        );
        let (heads, groups) = (q.shape()[1], k.shape()[1]);
        ensure!(
            heads == groups || (groups > 0 && heads % groups == 0),
            Runtime,
            "{WHO} {heads} heads of queries cannot share {groups} heads of keys"
        );
        Ok(())
    }

    /// The shape of the sums of exponentials.
    fn sums(&self) -> Dims {
        Dims::new(&self.query.shape()[..3])
    }

    /// What the kernels read, and the sizes.
    fn parts(&self) -> (Inputs<'_>, Shapes) {
        let (q, k) = (self.query.shape(), self.key.shape());
        let inputs = Inputs {
            query: self.query,
            key: self.key,
            value: self.value,
            mask: self.mask,
            causal: self.causal,
            scale: self.scale.unwrap_or_else(|| 1.0 / (q[3] as f64).sqrt()),
        };
        let shapes = Shapes {
            batch: Dims::from([q[0], q[1]]),
            queries: q[2],
            keys: k[2],
            width: q[3],
            values: q[3],
        };
        (inputs, shapes)
    }
}

fn rule(c: &Call) -> Result<Plan> {
    c.check()?;
    let (q, sums) = (c.query, c.sums());
    let [_, heads, rows] = [sums[0], sums[1], sums[2]];
    let strides = Dims::from([heads * rows, 1, heads]);
    let wide = if q.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let out = OutSpec {
        shape: q.shape().clone(),
        strides: dims::preserved_strides(q.shape(), q.strides()),
        dtype: q.dtype(),
    };
    let sums = OutSpec {
        shape: sums,
        strides,
        dtype: wide,
    };
    Ok(Plan {
        outs: smallvec![out, sums],
        device: None,
    })
}

fn run(c: &Call, outs: &[Tensor]) -> Result<()> {
    let (inputs, shapes) = c.parts();
    kernels::attention::forward(outs, &inputs, shapes)
}

fn backward_rule(c: &Call, known: &Known) -> Result<Plan> {
    c.check()?;
    let (q, sums) = (c.query, c.sums());
    for (t, shape, what) in [
        (known.grad, q.shape(), "grad_out"),
        (known.out, q.shape(), "out"),
        (known.sums, &sums, "logsumexp"),
    ] {
        ensure!(
            t.shape() == shape && t.dtype().is_float(),
            Runtime,
            "expected {what} to be of shape {shape}, but got {}",
            t.shape()
        );
    }
    let like = |t: &Tensor| {
        let s = t.shape();
        OutSpec {
            shape: s.clone(),
            strides: Dims::from([s[1] * s[2] * s[3], s[3], s[1] * s[3], 1]),
            dtype: t.dtype(),
        }
    };
    Ok(Plan {
        outs: smallvec![like(q), like(c.key), like(c.value)],
        device: None,
    })
}

fn run_backward(c: &Call, known: &Known, outs: &[Tensor]) -> Result<()> {
    let (inputs, shapes) = c.parts();
    kernels::attention::backward(outs, known, &inputs, &shapes)
}
