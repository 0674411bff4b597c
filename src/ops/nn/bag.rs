//! embedding_bag and bilinear forms.

use crate::cpu::bag::{Bag, bags};
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, F, Hidden, OpDef, OutSpec, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::pointwise::rule::result_type;
use crate::ops::view::shape::type_name;
use crate::{DType, Result, Tensor, bail, cpu, ensure, warning};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "embedding_bag",
        "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> (Tensor, Tensor, Tensor, Tensor)",
        F,
        body!(bag_rule, bag, scratch: |a, padding, outs, room| cpu::bag::room(room, outs, &bag_of(a, *padding))),
        "Sums, means or maxima of rows chosen by bags of indices.",
    ).samples(
        "f32[5, 3], i64([1, 2, 4, 0]), i64([0, 2]); \
         f32[5, 3], i64([1, 2, 4, 0]), i64([0, 2]), mode=1",
    )
    .grad("weight: _embedding_bag_backward(grad, indices, offsets, result1, result2, result3, weight.sizes[0], scale_grad_by_freq, mode, sparse, per_sample_weights, (padding_idx + weight.sizes[0] if padding_idx < 0 else padding_idx) if padding_idx.given else -1); per_sample_weights: _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, result1, mode, (padding_idx + weight.sizes[0] if padding_idx < 0 else padding_idx) if padding_idx.given else -1)"),
    compose(
        "nn.functional.embedding_bag",
        "(Tensor input, Tensor weight, Tensor? offsets=None, float? max_norm=None, float norm_type=2, bool scale_grad_by_freq=False, str mode='mean', bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None)",
        F,
        embedding_bag,
        "Sums, means or maxima of rows chosen by bags of indices.",
    ).samples(
        "i64([[1, 2], [4, 0]]), f32[5, 3]; \
         i64([1, 2, 4, 0]), f32[5, 3], i64([0, 3]), mode='max'",
    ),
    kernel(
        "bilinear",
        "(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)",
        F,
        body!(bilinear_rule, bilinear, scratch: |a, (), outs, room| {
            let (o, i) = (a.weight.shape()[0], a.weight.shape()[1]);
            let rows = outs[0].numel().checked_div(o).unwrap_or(0);
            let operands = [Some(a.input1), Some(a.input2), Some(a.weight), a.bias];
            cpu::bilinear::room(room, &outs[0], operands, rows, o * i)
        }),
        "x A y + b for each of several matrices A.",
    ).samples("f32[3], f32[4], f32[5, 3, 4]")
    .through(typed!(recorded_bilinear))
    .amp(Cast::Kept, Cast::Widest),
    compose(
        "_nn.trilinear",
        "(Tensor input1, Tensor weight, Tensor input2)",
        0,
        |a| f::bilinear(a.input1, a.input2, a.weight),
        "x A y for each of several matrices A, of rows x and y.",
    ).samples("f32[2, 3], f32[5, 3, 4], f32[2, 4]")
    .grad("TrilinearBackward0 | input1: _nn.trilinear(grad, transpose(weight, 0, 1), input2); input2: _nn.trilinear(grad, transpose(transpose(weight, 1, 2), 0, 1), input1); weight: _grad.bilinear_weight(grad, input1, input2); jvp: _nn.trilinear(input1_t, weight, input2) + _nn.trilinear(input1, weight_t, input2) + _nn.trilinear(input1, weight, input2_t); complex: never('_trilinear')")
    .batch(Batch::As(typed!(batch::bilinear, Hidden))),
];

fn check_tables(w: &Tensor, indices: &Tensor, offsets: &Tensor) -> Result<()> {
    for (name, t) in [("indices", indices), ("offsets", offsets)] {
        ensure!(
            matches!(t.dtype(), DType::I64 | DType::I32),
            Runtime,
            "Expected tensor for argument #1 '{name}' to have one of the following scalar types: Long, Int; but got {} instead \
             (while checking arguments for embedding_bag)",
            type_name(t)
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
        type_name(w)
    );
    ensure!(
        w.ndim() == 2,
        Runtime,
        "weight has to be a 2D Tensor, but got Tensor of dimension {}",
        w.ndim()
    );
    Ok(())
}

fn check_factors(factors: &Tensor, a: &calls::EmbeddingBag) -> Result<()> {
    ensure!(
        factors.dtype() == a.weight.dtype(),
        Runtime,
        "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; but \
         type {} does not equal {} (while checking arguments for embedding_bag)",
        type_name(a.weight),
        type_name(factors)
    );
    ensure!(
        a.mode == 0,
        Runtime,
        "embedding_bag: per_sample_weights only supported with mode='sum'"
    );
    ensure!(
        factors.numel() == a.indices.numel(),
        Runtime,
        "expected per_sample_weights to have as many elements as indices"
    );
    Ok(())
}

/// The plan, and the row that does not count.
fn bag_rule(a: &calls::EmbeddingBag) -> Result<(Plan, Option<i64>)> {
    let w = a.weight;
    check_tables(w, a.indices, a.offsets)?;
    if let Some(factors) = a.per_sample_weights {
        check_factors(factors, a)?;
    }
    let (rows, d) = (w.shape()[0], w.shape()[1]);
    if let Some(p) = a.padding_idx {
        ensure!(
            (-rows..rows).contains(&p),
            Runtime,
            "padding_idx must be within the number of embeddings, -{rows} through {}, but got {p}",
            rows - 1
        );
    }
    let padding = a.padding_idx.map(|p| if p < 0 { p + rows } else { p });
    let mut n = a.offsets.shape()[0];
    if a.include_last_offset {
        ensure!(
            n >= 1,
            Runtime,
            "include_last_offset: number of offset should be at least 1"
        );
        n -= 1;
    }
    // PyTorch's fast way for sums does not say which bag an index belongs to.
    let fast = a.mode == 0
        && a.per_sample_weights.is_none()
        && padding.is_none()
        && w.dtype() != DType::F64;
    let chosen: &[i64] = if a.mode == 2 { &[n, d] } else { &[n] };
    let long = |shape: &[i64]| OutSpec::contiguous(shape, DType::I64);
    let plan = Plan {
        outs: smallvec![
            OutSpec::contiguous(&[n, d], w.dtype()),
            long(&[if fast { 0 } else { a.indices.numel() }]),
            long(&[n]),
            long(chosen)
        ],
        device: None,
    };
    Ok((plan, padding))
}

fn bag(a: &calls::EmbeddingBag, padding: &Option<i64>, outs: &[Tensor]) -> Result<()> {
    bags(outs, &bag_of(a, *padding))
}

fn bag_of<'a>(a: &calls::EmbeddingBag<'a>, padding: Option<i64>) -> Bag<'a> {
    Bag {
        weight: a.weight,
        indices: a.indices,
        offsets: a.offsets,
        mode: a.mode,
        factors: a.per_sample_weights,
        padding,
    }
}

fn embedding_bag(a: &calls::NnFunctionalEmbeddingBag) -> Result<Tensor> {
    if a.weight.dtype() == DType::I64 && a.input.dtype().is_float() {
        warning::say(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is deprecated, and \
             should now be `embedding_bag(input, weight, ...)`.",
        );
        return embedding_bag(&calls::NnFunctionalEmbeddingBag {
            input: a.weight,
            weight: a.input,
            ..*a
        });
    }
    if let Some(factors) = a.per_sample_weights {
        ensure!(
            factors.shape() == a.input.shape(),
            Value,
            "embedding_bag: If per_sample_weights (torch.Size({})) is not None, then it must have the same shape as the input (torch.Size({}))",
            factors.shape(),
            a.input.shape()
        );
    }
    ensure!(
        a.weight.ndim() == 2,
        Value,
        "weight has to be a 2D Tensor, but got Tensor of dimension {}",
        a.weight.ndim()
    );
    let lists = lists(a)?;
    let mode = mode(a)?;
    if let Some(max) = a.max_norm {
        // Renormalises the rows of the weight that are used, in place.
        f::NnFunctionalEmbedding::new(&lists.indices, a.weight)
            .max_norm(max)
            .norm_type(a.norm_type)
            .call()?;
    }
    let [joined, ..] = f::EmbeddingBag::new(a.weight, &lists.indices, &lists.offsets)
        .scale_grad_by_freq(a.scale_grad_by_freq)
        .mode(mode)
        .sparse(a.sparse)
        .per_sample_weights(lists.factors.as_ref())
        // Bags that are rows of a matrix have no offsets of the caller's.
        .include_last_offset(a.include_last_offset && a.offsets.is_some())
        .padding_idx(a.padding_idx)
        .call()?;
    Ok(joined)
}

/// All bags after each other: indices, where each bag starts, factors.
struct Lists {
    indices: Tensor,
    offsets: Tensor,
    factors: Option<Tensor>,
}

fn lists(a: &calls::NnFunctionalEmbeddingBag) -> Result<Lists> {
    let (input, factors) = (a.input, a.per_sample_weights);
    match input.ndim() {
        2 => {
            ensure!(
                a.offsets.is_none(),
                Value,
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, found offsets of type <class 'torch.Tensor'>"
            );
            let steps = f::Arange::new(input.shape()[0])
                .dtype(input.dtype())
                .device(helpers::beside(input))
                .call()?;
            let steps = helpers::made_for(steps, input)?;
            let flat = |t: &Tensor| f::reshape(t, &[-1]);
            Ok(Lists {
                indices: flat(input)?,
                offsets: f::mul(&steps, input.shape()[1])?,
                factors: factors.map(flat).transpose()?,
            })
        }
        1 => {
            let Some(offsets) = a.offsets else {
                bail!(Value, "offsets has to be a 1D Tensor but got None")
            };
            ensure!(offsets.ndim() == 1, Value, "offsets has to be a 1D Tensor");
            Ok(Lists {
                indices: input.clone(),
                offsets: offsets.clone(),
                factors: factors.cloned(),
            })
        }
        n => bail!(
            Value,
            "input has to be 1D or 2D Tensor, but got Tensor of dimension {n}"
        ),
    }
}

/// PyTorch's number of the mode, checked against the other options.
fn mode(a: &calls::NnFunctionalEmbeddingBag) -> Result<i64> {
    let mode = match a.mode {
        "sum" => 0,
        "mean" => 1,
        "max" => 2,
        _ => bail!(Value, "mode has to be one of sum, mean or max"),
    };
    ensure!(
        mode != 2 || !a.scale_grad_by_freq,
        Value,
        "max mode does not support scaling the gradient by the frequency"
    );
    ensure!(
        mode != 2 || !a.sparse,
        Value,
        "max mode does not support sparse weights"
    );
    ensure!(
        a.per_sample_weights.is_none() || mode == 0,
        NotImplemented,
        "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got mode='{}'). \
         Please open a feature request on GitHub.",
        a.mode
    );
    Ok(mode)
}

fn bilinear_rule(a: &calls::Bilinear) -> Result<Plan> {
    let (x, y, w) = (a.input1, a.input2, a.weight);
    let bias = a.bias.filter(|b| b.dtype() != x.dtype());
    if y.dtype() != x.dtype() || w.dtype() != x.dtype() || bias.is_some() {
        let name = |t: &Tensor| t.dtype().cpp_name();
        let bias = a.bias.map(|b| format!(", bias: {}", name(b)));
        bail!(
            Runtime,
            "All tensors must have the same dtype, got input1: {}, input2: {}, weight: {}{}",
            name(x),
            name(y),
            name(w),
            bias.unwrap_or_default()
        );
    }
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
    if let Some(b) = a.bias {
        ensure!(
            b.numel() == w.shape()[0],
            Runtime,
            "bilinear(): bias size does not match weight size: got {} but expected {}",
            b.numel(),
            w.shape()[0]
        );
    }
    let dtype = result_type(&[x.into(), y.into(), w.into()])?;
    Ok(Plan::contiguous(&x.shape().with(last, w.shape()[0]), dtype))
}

/// `bilinear` as the operators that its gradient is made of.
fn recorded_bilinear(a: &calls::Bilinear) -> Result<Ret> {
    use crate::ops::core::op::Ruled as _;
    let (plan, ()) = bilinear_rule(a)?.split();
    let rows = |t: &Tensor| f::reshape(t, &[-1, t.size(-1)?]);
    let made = f::_nn_trilinear(&rows(a.input1)?, a.weight, &rows(a.input2)?)?;
    let made = f::reshape(&made, &plan.outs[0].shape)?;
    match a.bias {
        Some(b) => f::add(&made, b).map(Ret::One),
        None => Ok(Ret::One(made)),
    }
}

fn bilinear(a: &calls::Bilinear, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::bilinear::bilinear(&outs[0], a.input1, a.input2, a.weight, a.bias)
}
