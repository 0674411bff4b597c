//! embedding_bag and bilinear forms.

use crate::cpu::bag::{Bag, bags};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, KernelBody, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::{DType, Result, Tensor, bail, cpu, ensure, op, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "embedding_bag",
        "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> (Tensor, Tensor, Tensor, Tensor)",
        F,
        KernelBody::new(infer_bag, run_bag),
        "Sums, means or maxima of rows chosen by bags of indices.",
    ),
    old_compose(
        "nn.functional.embedding_bag",
        "(Tensor input, Tensor weight, Tensor? offsets=None, float? max_norm=None, float norm_type=2, bool scale_grad_by_freq=False, str mode='mean', bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None)",
        F,
        embedding_bag,
        "Sums, means or maxima of rows chosen by bags of indices.",
    ),
    kernel(
        "bilinear",
        "(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)",
        F,
        KernelBody::new(infer_bilinear, |a, o| {
            cpu::bag::bilinear(
                &o[0],
                a.tensor(0)?,
                a.tensor(1)?,
                a.tensor(2)?,
                a.opt_tensor(3),
            )
        }),
        "x A y + b for each of several matrices A.",
    ),
    kernel(
        "nn.functional.bilinear",
        "(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)",
        F,
        KernelBody::new(infer_bilinear, |a, o| {
            cpu::bag::bilinear(
                &o[0],
                a.tensor(0)?,
                a.tensor(1)?,
                a.tensor(2)?,
                a.opt_tensor(3),
            )
        }),
        "x A y + b for each of several matrices A.",
    ),
];

fn tensor_type(t: &Tensor) -> String {
    format!("torch.{}Tensor", t.dtype().scalar_type())
}

fn infer_bag(a: &Args) -> Result<Plan> {
    let (w, indices, offsets) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let mode = a.int(4)?;
    for (name, t) in [("indices", indices), ("offsets", offsets)] {
        ensure!(
            matches!(t.dtype(), DType::I64 | DType::I32),
            Runtime,
            "Expected tensor for argument #1 '{name}' to have one of the following scalar types: Long, Int; but got {} instead \
             (while checking arguments for embedding_bag)",
            tensor_type(t)
        );
        ensure!(
            t.ndim() == 1 || t.ndim() == 2,
            Runtime,
            "input has to be a 1D or 2D Tensor, but got Tensor of dimension {}",
            t.ndim()
        );
    }
    ensure!(
        matches!(
            w.dtype(),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64
        ),
        Runtime,
        "Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, Float, Double; but \
         got {} instead (while checking arguments for embedding_bag)",
        tensor_type(w)
    );
    ensure!(
        w.ndim() == 2,
        Runtime,
        "weight has to be a 2D Tensor, but got Tensor of dimension {}",
        w.ndim()
    );
    if let Some(p) = a.opt_tensor(6) {
        ensure!(
            p.dtype() == w.dtype(),
            Runtime,
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; but \
             type {} does not equal {} (while checking arguments for embedding_bag)",
            tensor_type(w),
            tensor_type(p)
        );
        ensure!(
            mode == 0,
            Runtime,
            "embedding_bag: per_sample_weights only supported with mode='sum'"
        );
        ensure!(
            p.numel() == indices.numel(),
            Runtime,
            "expected per_sample_weights to have as many elements as indices"
        );
    }
    let rows = w.shape()[0];
    if let Some(p) = a.opt_int(8) {
        ensure!(
            (-rows..rows).contains(&p),
            Runtime,
            "padding_idx must be within the number of embeddings, -{rows} through {}, but got {p}",
            rows - 1
        );
    }
    let mut n = offsets.shape()[0];
    if a.bool(7) {
        ensure!(
            n >= 1,
            Runtime,
            "include_last_offset: number of offset should be at least 1"
        );
        n -= 1;
    }
    let d = w.shape()[1];
    let fast =
        mode == 0 && a.opt_tensor(6).is_none() && a.opt_int(8).is_none() && w.dtype() != DType::F64;
    let chosen: &[i64] = if mode == 2 { &[n, d] } else { &[n] };
    let long = |shape: &[i64]| OutSpec::contiguous(shape, DType::I64);
    Ok(Plan {
        outs: smallvec![
            OutSpec::contiguous(&[n, d], w.dtype()),
            long(&[if fast { 0 } else { indices.numel() }]),
            long(&[n]),
            long(chosen)
        ],
        device: None,
    })
}

fn run_bag(a: &Args, outs: &[Tensor]) -> Result<()> {
    let w = a.tensor(0)?;
    let padding = a
        .opt_int(8)
        .map(|p| if p < 0 { p + w.shape()[0] } else { p });
    let bag = Bag {
        weight: w,
        indices: a.tensor(1)?,
        offsets: a.tensor(2)?,
        mode: a.int(4)?,
        factors: a.opt_tensor(6),
        padding,
    };
    bags(outs, &bag)
}

fn embedding_bag(a: &Args) -> Result<Ret> {
    let (input, weight, offsets, factors) =
        (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2), a.opt_tensor(8));
    if let Some(f) = factors {
        ensure!(
            f.shape() == input.shape(),
            Value,
            "embedding_bag: If per_sample_weights (torch.Size({})) is not None, then it must have the same shape as the input (torch.Size({}))",
            f.shape(),
            input.shape()
        );
    }
    ensure!(
        weight.ndim() == 2,
        Value,
        "weight has to be a 2D Tensor, but got Tensor of dimension {}",
        weight.ndim()
    );
    let flat = |t: &Tensor| run1!("reshape", t, crate::Dims::from([-1]));
    let (indices, offsets, factors) = match input.ndim() {
        2 => {
            ensure!(
                offsets.is_none(),
                Value,
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, found offsets of type <class 'torch.Tensor'>"
            );
            let (n, len) = (input.shape()[0], input.shape()[1]);
            let steps = run1!(
                "arange",
                crate::Scalar::Int(n),
                input.dtype(),
                Arg::None,
                input.device()
            )?;
            let starts = run1!("mul", &steps, len)?;
            (flat(input)?, starts, factors.map(flat).transpose()?)
        }
        1 => {
            let Some(offsets) = offsets else {
                bail!(Value, "offsets has to be a 1D Tensor but got None")
            };
            ensure!(offsets.ndim() == 1, Value, "offsets has to be a 1D Tensor");
            (input.clone(), offsets.clone(), factors.cloned())
        }
        n => bail!(
            Value,
            "input has to be 1D or 2D Tensor, but got Tensor of dimension {n}"
        ),
    };
    let name = a.str(6).unwrap_or("mean");
    let mode = match name {
        "sum" => 0i64,
        "mean" => 1,
        "max" => 2,
        _ => bail!(Value, "mode has to be one of sum, mean or max"),
    };
    ensure!(
        mode != 2 || !a.bool(5),
        Value,
        "max mode does not support scaling the gradient by the frequency"
    );
    ensure!(
        mode != 2 || !a.bool(7),
        Value,
        "max mode does not support sparse weights"
    );
    ensure!(
        factors.is_none() || mode == 0,
        NotImplemented,
        "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{name}'). \
         Please open a feature request on GitHub."
    );
    if let Some(max) = a.opt_float(3) {
        // Renormalises the rows of the weight that are used, in place.
        run1!(
            "nn.functional.embedding",
            &indices,
            weight,
            Arg::None,
            max,
            a.float(4)?
        )?;
    }
    let values = [
        Arg::Tensor(weight),
        Arg::Tensor(&indices),
        Arg::Tensor(&offsets),
        Arg::Bool(a.bool(5)),
        Arg::Int(mode),
        Arg::Bool(a.bool(7)),
        factors.as_ref().map_or(Arg::None, Arg::Tensor),
        Arg::Bool(a.bool(9)),
        a.values[10].clone(),
    ];
    Ok(dispatch::run(op!("embedding_bag")?, &values)?
        .tensors()
        .swap_remove(0)
        .into())
}

fn infer_bilinear(a: &Args) -> Result<Plan> {
    let (x, y, w, b) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.opt_tensor(3));
    ensure!(
        x.ndim() == y.ndim(),
        Runtime,
        "bilinear(): input dimensions do not match: got {} and {}",
        x.ndim(),
        y.ndim()
    );
    ensure!(
        x.ndim() > 0 && w.ndim() == 3,
        Runtime,
        "bilinear(): weight must have 3 dimensions, got {}",
        w.ndim()
    );
    let last = x.ndim() - 1;
    for d in 0..last {
        let (p, q) = (x.shape()[d], y.shape()[d]);
        ensure!(
            p == q,
            Runtime,
            "bilinear(): input batch dimensions do not match at dim {d}: got {p} and {q}"
        );
    }
    let (i, j) = (x.shape()[last], y.shape()[last]);
    ensure!(
        i == w.shape()[1],
        Runtime,
        "bilinear(): input1 size does not match weight size: got {i} but expected {}",
        w.shape()[1]
    );
    ensure!(
        j == w.shape()[2],
        Runtime,
        "bilinear(): input2 size does not match weight size: got {j} but expected {}",
        w.shape()[2]
    );
    if let Some(b) = b {
        ensure!(
            b.numel() == w.shape()[0],
            Runtime,
            "bilinear(): bias size does not match weight size: got {} but expected {}",
            b.numel(),
            w.shape()[0]
        );
    }
    let dtype = crate::ops::pointwise::rule::result_type(&a.values[..3])?;
    dtype.check_kernel(!dtype.is_complex(), "bilinear")?;
    Ok(Plan::contiguous(&x.shape().with(last, w.shape()[0]), dtype))
}
