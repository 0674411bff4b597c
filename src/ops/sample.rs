//! Random numbers drawn by other tensors: means and deviations, probabilities, rates and weights.

use crate::cpu::gamma_grad::{dirichlet, standard_gamma};
use crate::cpu::map::Ctx;
use crate::cpu::random_room;
use crate::cpu::room::Room;
use crate::cpu::rows::Operand;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, FMO, I, M, O, OpDef, Plan, X, kernel};
use crate::ops::f;
use crate::ops::random::{NORMAL, drawn, given, itself};
use crate::random::{
    Distribution, Generator, SharedGenerator, advance_bernoulli_probs, advance_exponential_weights,
};
use crate::{DType, Device, Result, Tensor, cpu, dims, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "normal",
        "(Tensor mean, Tensor std, *, Generator? generator=None)",
        F | O,
        body!(
            |a| moments_rule(Moment::Tensor(a.mean), Moment::Tensor(a.std)),
            |a, _, outs| normal(Moment::Tensor(a.mean), Moment::Tensor(a.std), a.generator, &outs[0]),
            values: |a, _| check_deviations(Moment::Tensor(a.std)),
            scratch: |a, _, outs, room| normal_room(room, Moment::Tensor(a.std), &outs[0]),
        )
        .random(Some(typed!(
            |a, outs, g| advance_normal(Moment::Tensor(a.std), outs, g),
            &[Tensor],
            &mut Generator
        ))),
        "Normal random numbers with a mean and a standard deviation for each element.",
    ).alike(0b11)
    .batch(Batch::Broadcasting(&[]))
    .samples("f32[()], f32[()]")
    .grad("NormalBackward3 | mean: zeros_like(grad); std: zeros_like(grad)"),
    kernel(
        "normal#mean",
        "(Tensor mean, float std=1, *, Generator? generator=None)",
        F | O,
        body!(
            |a| moments_rule(Moment::Tensor(a.mean), Moment::Number(a.std)),
            |a, _, outs| normal(Moment::Tensor(a.mean), Moment::Number(a.std), a.generator, &outs[0]),
            values: |a, _| check_deviations(Moment::Number(a.std)),
            scratch: |a, _, outs, room| normal_room(room, Moment::Number(a.std), &outs[0]),
        )
        .random(Some(typed!(
            |a, outs, g| advance_normal(Moment::Number(a.std), outs, g),
            &[Tensor],
            &mut Generator
        ))),
        "Normal random numbers with a mean for each element.",
    ).alike(0b11)
    .batch(Batch::Broadcasting(&[]))
    .samples("f32[3, 4], 2.7")
    .grad("NormalBackward1 | mean: zeros_like(grad)"),
    kernel(
        "normal#std",
        "(float mean, Tensor std, *, Generator? generator=None)",
        F | O,
        body!(
            |a| moments_rule(Moment::Number(a.mean), Moment::Tensor(a.std)),
            |a, _, outs| normal(Moment::Number(a.mean), Moment::Tensor(a.std), a.generator, &outs[0]),
            values: |a, _| check_deviations(Moment::Tensor(a.std)),
            scratch: |a, _, outs, room| normal_room(room, Moment::Tensor(a.std), &outs[0]),
        )
        .random(Some(typed!(
            |a, outs, g| advance_normal(Moment::Tensor(a.std), outs, g),
            &[Tensor],
            &mut Generator
        ))),
        "Normal random numbers with a standard deviation for each element.",
    ).batch(Batch::Broadcasting(&[]))
    .samples("0.0, f32[3].pos")
    .grad("NormalBackward2 | std: zeros_like(grad)"),
    kernel(
        "bernoulli",
        "(Tensor self, *, Generator? generator=None)",
        FMO,
        body!(
            |a| {
                check_probs(a.input)?;
                Ok(Plan::contiguous(a.input.shape(), a.input.dtype()))
            },
            |a, _, outs| cpu::random::bernoulli_probs(&given(a.generator), &outs[0], a.input),
            cuda: |a, _, outs| bernoulli_beside(&outs[0], a.input, a.generator),
            scratch: |a, _, outs, room| random_room::bernoulli_probs(room, &outs[0], a.input)
        )
        .random(Some(typed!(
            |a, outs, g| advance_probs(a.input, outs, g),
            &[Tensor],
            &mut Generator
        ))),
        "0 or 1, each element of the input being the probability of 1.",
    ).alike(1)
    .batch(Batch::Broadcasting(&[]))
    .samples("f64[0, 3]")
    .grad("self: zeros_like(grad)"),
    kernel(
        "bernoulli#tensor_inplace",
        "(Tensor self, Tensor p, *, Generator? generator=None)",
        I,
        body!(
            probs_into_rule,
            |a, _, outs| cpu::random::bernoulli_probs(&given(a.generator), &outs[0], a.p),
            cuda: |a, _, outs| bernoulli_beside(&outs[0], a.p, a.generator),
            scratch: |a, _, outs, room| random_room::bernoulli_probs(room, &outs[0], a.p)
        )
        .pointwise()
        .random(Some(typed!(
            |a, outs, g| advance_probs(a.p, outs, g),
            &[Tensor],
            &mut Generator
        ))),
        "Filled with 0 or 1, with a probability of 1 for each element.",
    ).samples("f32[2, 3], f32[2, 3].unit")
    .grad("BernoulliBackward0 | self: zeros_like(grad)"),
    kernel(
        "poisson",
        "(Tensor self, Generator? generator=None)",
        F,
        body!(
            |a| {
                a.input.dtype().check_float_kernel("poisson_cpu")?;
                Ok(Plan::contiguous(a.input.shape(), a.input.dtype()))
            },
            |a, _, outs| cpu::random::poisson(&given(a.generator), &outs[0], a.input),
            scratch: |a, _, outs, room| room.operands([Some(a.input)], outs, outs[0].dtype()),
        )
        .random(None),
        "A Poisson count for each rate.",
    ).batch(Batch::Broadcasting(&[]))
    .samples("f32[2, 3].pos")
    .grad("self: zeros_like(grad)"),
    kernel(
        "_standard_gamma",
        "(Tensor self, Generator? generator=None)",
        F,
        body!(
            |a| {
                a.input.dtype().check_kernel(is_drawn(a.input.dtype()), "gamma_cpu")?;
                Ok(Plan::contiguous(a.input.shape(), a.input.dtype()))
            },
            |a, _, outs| cpu::random::standard_gamma(&given(a.generator), &outs[0], a.input),
            scratch: |a, _, outs, room| random_room::by_parameters(room, &outs[0], [a.input, a.input]),
        )
        .random(None),
        "A gamma number for each shape parameter, of scale 1.",
    ).batch(Batch::Broadcasting(&[]))
    .samples("f32[2, 3].pos; f64[3].pos")
    .grad("self: grad * _standard_gamma_grad(self, result)"),
    kernel(
        "_standard_gamma_grad",
        "(Tensor self, Tensor output)",
        F,
        body!(
            |a| {
                a.input.dtype().check_kernel(is_drawn(a.input.dtype()), "_standard_gamma_grad_cpu")?;
                like_samples([a.input, a.output])
            },
            |a, _, o| cpu::random::of_samples(&o[0], [a.input, a.output, a.output], |[a, x, _]| standard_gamma(a, x)),
            scratch: |a, _, outs, room| random_room::by_parameters(room, &outs[0], [a.input, a.output, a.output]),
        ),
        "How gamma numbers change with their shape parameters.",
    ).samples("f32[2, 3].pos, f32[2, 3].pos; f64[3].pos, f64[3].pos")
    .refused(),
    kernel(
        "_sample_dirichlet",
        "(Tensor self, Generator? generator=None)",
        F,
        body!(
            |a| {
                a.input.dtype().check_kernel(is_drawn(a.input.dtype()), "dirichlet")?;
                Ok(Plan::contiguous(a.input.shape(), a.input.dtype()))
            },
            |a, _, outs| cpu::random::dirichlet(&given(a.generator), &outs[0], a.input),
            scratch: |a, _, outs, room| random_room::dirichlet(room, &outs[0], a.input),
        )
        .random(None),
        "Shares that sum up to one along the last dimension, one of each parameter.",
    ).batch(Batch::Broadcasting(&[1]))
    .samples("f32[2, 3].pos; f64[3].pos")
    .refused(),
    kernel(
        "_dirichlet_grad",
        "(Tensor x, Tensor alpha, Tensor total)",
        F,
        body!(
            |a| {
                a.x.dtype().check_kernel(is_drawn(a.x.dtype()), "_dirichlet_grad_cpu")?;
                like_samples([a.x, a.alpha, a.total])
            },
            |a, _, o| cpu::random::of_samples(&o[0], [a.x, a.alpha, a.total], |[x, a, t]| dirichlet(x, a, t)),
            scratch: |a, _, outs, room| random_room::by_parameters(room, &outs[0], [a.x, a.alpha, a.total]),
        ),
        "How shares change with their parameters.",
    ).samples("f32[2, 3].unit, f32[2, 3].pos, f32([[9., 9., 9.], [9., 9., 9.]])")
    .refused(),
    kernel(
        "binomial",
        "(Tensor count, Tensor prob, Generator? generator=None)",
        F,
        body!(binomial_rule, |a, _, outs| {
            cpu::random::binomial(&given(a.generator), &outs[0], a.count, a.prob)
        }, scratch: |a, _, outs, room| random_room::by_parameters(room, &outs[0], [a.count, a.prob]))
        .random(None),
        "How many of so many trials succeed, each with a probability.",
    ).batch(Batch::Broadcasting(&[]))
    .samples("f32([[5., 10.], [100., 1.]]), f32[2, 2].unit")
    .refused(),
    kernel(
        "multinomial",
        "(Tensor self, int num_samples, bool replacement=False, *, Generator? generator=None)",
        F | M | O | X,
        body!(
            multinomial_rule,
            |a, _, outs| {
                let samples = a.num_samples as usize;
                cpu::random::multinomial(&given(a.generator), &outs[0], a.input, samples, a.replacement)
            },
            cuda: multinomial_beside,
            scratch: |a, _, outs, room| {
                random_room::multinomial(room, &outs[0], a.input, a.num_samples as usize, a.replacement)
            }
        )
        .random(Some(typed!(advance_multinomial, &[Tensor], &mut Generator))),
        "Positions drawn with the probabilities of each row.",
    ).batch(Batch::Fold(1))
    .samples("f32[3, 4].unit, 3; f32[3, 4].unit, 4, replacement=True")
    .no_grad(),
];

/// Types that gamma and binomial numbers are drawn in.
fn is_drawn(d: DType) -> bool {
    matches!(d, DType::F32 | DType::F64)
}

/// A result for samples and parameters of one type, laid out as they are.
fn like_samples<const N: usize>(from: [&Tensor; N]) -> Result<Plan> {
    let mut shape = from[0].shape().clone();
    for t in &from[1..] {
        shape = dims::broadcast(&shape, t.shape())?;
        same_type(from[0], t)?;
    }
    let strides = if shape == *from[0].shape() {
        dims::preserved_strides(from[0].shape(), from[0].strides())
    } else {
        dims::contiguous_strides(&shape)
    };
    Ok(Plan::one(shape, strides, from[0].dtype()))
}

fn same_type(first: &Tensor, other: &Tensor) -> Result<()> {
    ensure!(
        first.dtype() == other.dtype(),
        Runtime,
        "Found dtype {} but expected {}",
        other.dtype().scalar_type(),
        first.dtype().scalar_type()
    );
    Ok(())
}

fn binomial_rule(a: &calls::Binomial) -> Result<Plan> {
    for (t, name) in [(a.count, "count"), (a.prob, "prob")] {
        ensure!(
            t.dtype().is_float(),
            Value,
            "binomial only supports floating-point dtypes for {name}, got: {}",
            t.dtype().scalar_type()
        );
    }
    a.count
        .dtype()
        .check_kernel(is_drawn(a.count.dtype()), "binomial_cpu")?;
    same_type(a.count, a.prob)?;
    let shape = dims::broadcast(a.count.shape(), a.prob.shape())?;
    Ok(Plan::contiguous(&shape, a.count.dtype()))
}

/// A mean or a standard deviation: one for each element, or one for all.
#[derive(Clone, Copy)]
enum Moment<'a> {
    Tensor(&'a Tensor),
    Number(f64),
}

impl<'a> Moment<'a> {
    fn tensor(self) -> Option<&'a Tensor> {
        match self {
            Self::Tensor(t) => Some(t),
            Self::Number(_) => None,
        }
    }

    /// The deviation that numbers are drawn with; one for each element is multiplied in later.
    fn drawn(self) -> Distribution {
        let std = match self {
            Self::Tensor(_) => 1.0,
            Self::Number(std) => std,
        };
        Distribution::Normal { mean: 0.0, std }
    }
}

fn moments_rule(mean: Moment, std: Moment) -> Result<Plan> {
    match std {
        Moment::Tensor(std) => ensure!(
            !std.dtype().is_complex(),
            Runtime,
            "normal expects standard deviation to be non-complex"
        ),
        Moment::Number(std) => ensure!(
            std >= 0.0,
            Runtime,
            "normal expects std >= 0.0, but found std {std}"
        ),
    }
    let plan = match (mean.tensor(), std.tensor()) {
        (Some(m), Some(s)) => Plan::contiguous(&dims::broadcast(m.shape(), s.shape())?, m.dtype()),
        (Some(t), None) | (None, Some(t)) => Plan::contiguous(t.shape(), t.dtype()),
        (None, None) => Plan::contiguous(&[], DType::F32),
    };
    drawn(plan, NORMAL).map(|(plan, _)| plan)
}

fn check_deviations(std: Moment) -> Result<()> {
    let Moment::Tensor(std) = std else {
        return Ok(());
    };
    let wide = cpu::copy::dense(std, DType::F64)?;
    let ok = cpu::slice::<f64>(&wide).iter().all(|&s| s >= 0.0);
    ensure!(ok, Runtime, "normal expects all elements of std >= 0.0");
    Ok(())
}

/// Unit normals, then times the deviation and plus the mean as operations of their own.
fn normal(
    mean: Moment,
    std: Moment,
    generator: Option<&SharedGenerator>,
    out: &Tensor,
) -> Result<()> {
    let values = Tensor::empty(out.shape(), out.dtype(), Device::CPU)?;
    cpu::random::fill(&std.drawn(), &given(generator), &values)?;
    helpers::inside(|| {
        if let Moment::Tensor(std) = std {
            f::Mul::new(&values, std).call_()?;
        }
        match mean {
            Moment::Tensor(mean) => f::Add::new(&values, mean).call_(),
            Moment::Number(mean) => f::Add::new(&values, mean).call_(),
        }
    })?;
    cpu::copy::copy(out, &values)
}

fn normal_room(room: &mut Room, std: Moment, out: &Tensor) -> Result<()> {
    if let Moment::Tensor(std) = std {
        room.within(|room| room.dense(std, DType::F64).map(drop))?;
    }
    room.empty(out.shape(), out.dtype()).map(drop)
}

fn advance_normal(std: Moment, outs: &[Tensor], g: &mut Generator) -> Result<()> {
    // The draw goes into a contiguous tensor whatever the result's layout.
    let values = Tensor::empty(outs[0].shape(), outs[0].dtype(), Device::META)?;
    cpu::random::advance(&std.drawn(), g, &values);
    Ok(())
}

/// Numbers of a distribution beside the host, of a type that has them.
fn drawn_beside(
    shape: &[i64],
    like: &Tensor,
    kind: &Distribution,
    by: Option<&SharedGenerator>,
) -> Result<Tensor> {
    let d = like.dtype();
    let d = if d == DType::F64 { d } else { DType::F32 };
    let drawn = Tensor::empty(shape, d, like.device())?;
    kernels::accelerator()?.draw(kind, by, &drawn)?;
    Ok(drawn)
}

const UNIT: Distribution = Distribution::Uniform { from: 0.0, to: 1.0 };

fn bernoulli_beside(out: &Tensor, p: &Tensor, by: Option<&SharedGenerator>) -> Result<()> {
    let drawn = drawn_beside(out.shape(), p, &UNIT, by)?;
    let operands = [Operand::Tensor(&drawn), Operand::Tensor(p)];
    let ctx = Ctx::default();
    kernels::accelerator()?.map("a < b", &operands, drawn.dtype(), &ctx, out)
}

/// As PyTorch on GPUs: the largest of probabilities over exponential numbers, or a search among their sums.
fn multinomial_beside(a: &calls::Multinomial, (): &(), outs: &[Tensor]) -> Result<()> {
    let (p, n) = (a.input, a.num_samples);
    let chosen = helpers::inside(|| {
        let (again, least, most) = (a.replacement && n > 1, f::amin(p)?, f::amax(p)?);
        let fine = helpers::item(&least)?.to_f64() >= 0.0
            && helpers::item(&most)?.to_f64() < f64::INFINITY;
        ensure!(
            fine,
            Runtime,
            "{}",
            if again {
                "invalid multinomial distribution (encountering probability entry < 0)"
            } else {
                "probability tensor contains either `inf`, `nan` or element < 0"
            }
        );
        let least = helpers::item(&f::amin(&f::SumDim::new(p, Some(&[-1][..])).call()?)?)?;
        ensure!(
            least.to_f64() > 0.0,
            Runtime,
            "invalid multinomial distribution (sum of probabilities <= 0)"
        );
        if !again {
            let one = Distribution::Exponential { lambda: 1.0 };
            let keys = f::div(p, &drawn_beside(p.shape(), p, &one, a.generator)?)?;
            let [_, chosen] = f::Topk::new(&keys, n).call()?;
            return Ok(chosen);
        }
        let sums = f::Cumsum::new(p, -1).call()?;
        let total = f::narrow(&sums, -1, sums.shape()[sums.ndim() - 1] - 1, 1)?;
        let at = f::mul(
            &drawn_beside(outs[0].shape(), p, &UNIT, a.generator)?,
            &total,
        )?;
        f::Searchsorted::new(&sums, &at).right(true).call()
    })?;
    kernels::copy(&outs[0], &chosen)
}

fn check_probs(p: &Tensor) -> Result<()> {
    p.dtype().check_float_kernel("bernoulli_tensor_cpu_p_")
}

fn probs_into_rule(a: &calls::BernoulliTensorInplace) -> Result<Plan> {
    let (t, p) = (a.input, a.p);
    check_probs(p)?;
    t.dtype()
        .check_kernel(!t.dtype().is_complex(), "bernoulli_tensor_cpu_self_")?;
    if dims::broadcast(t.shape(), p.shape()).ok().as_ref() != Some(t.shape()) {
        f::expand(p, &t.shape()[..])?; // which says why it cannot
    }
    Ok(itself(t))
}

fn advance_probs(p: &Tensor, outs: &[Tensor], g: &mut Generator) -> Result<()> {
    advance_bernoulli_probs(g, outs[0].numel() as usize, p.dtype() == DType::F64);
    Ok(())
}

fn multinomial_rule(a: &calls::Multinomial) -> Result<Plan> {
    let (t, n) = (a.input, a.num_samples);
    ensure!(
        t.ndim() == 1 || t.ndim() == 2,
        Runtime,
        "prob_dist must be 1 or 2 dim"
    );
    ensure!(
        t.dtype().is_float(),
        Runtime,
        "multinomial only supports floating-point dtypes for input, got: {}",
        t.dtype().scalar_type()
    );
    ensure!(n > 0, Runtime, "cannot sample n_sample <= 0 samples");
    let categories = t.shape()[t.ndim() - 1];
    ensure!(
        a.replacement || n <= categories,
        Runtime,
        "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
    );
    ensure!(
        categories <= 1 << 24,
        Runtime,
        "number of categories cannot exceed 2^24"
    );
    Ok(if t.ndim() == 1 {
        Plan::contiguous(&[n], DType::I64)
    } else {
        Plan::contiguous(&[t.shape()[0], n], DType::I64)
    })
}

fn advance_multinomial(a: &calls::Multinomial, outs: &[Tensor], g: &mut Generator) -> Result<()> {
    let drawn = outs[0].numel();
    if drawn > 0 && a.replacement && a.num_samples > 1 {
        g.skip(2 * drawn as u64);
    } else if drawn > 0 {
        advance_exponential_weights(g, a.input.numel() as usize);
    }
    Ok(())
}
