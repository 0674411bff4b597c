//! Random numbers: factories, fills in place, and draws that read other tensors.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, FM, FMO, I, KernelBody, M, O, OpDef, Plan, kernel};
use crate::ops::core::schema::Kind;
use crate::ops::create::factory::{like, sized};
use crate::random::{
    Distribution, SharedGenerator, advance_bernoulli_probs, advance_exponential_weights,
    advance_randperm,
};
use crate::{DType, Device, Result, Tensor, bail, cpu, dims, ensure, factory_schema};
use torchlike_macros::operators;

/// The generator of a call: the one given, or the default.
#[must_use]
pub fn generator(a: &Args) -> SharedGenerator {
    match a
        .op
        .schema
        .params
        .iter()
        .position(|p| p.kind == Kind::Generator)
    {
        Some(i) => a.generator(i),
        None => crate::random::default_generator(),
    }
}

/// A row that fills its result from one distribution: name, schema, forms, rule, distribution, sentence.
macro_rules! draw {
    ($name:literal, $schema:expr, $forms:expr, $rule:expr, $dist:expr, $doc:literal) => {
        kernel(
            $name,
            $schema,
            $forms,
            KernelBody::new(
                |a| {
                    let rule: fn(&Args) -> Result<Plan> = $rule;
                    let dist: fn(&Args) -> Result<Distribution> = $dist;
                    let plan = rule(a)?;
                    checked(dist(a)?, plan)
                },
                |a, o| {
                    let dist: fn(&Args) -> Result<Distribution> = $dist;
                    cpu::random::fill(&dist(a)?, &generator(a), &o[0])
                },
            )
            .cuda(|a, o| {
                let dist: fn(&Args) -> Result<Distribution> = $dist;
                no_host_generator(a)?;
                crate::cuda::random::fill(&dist(a)?, &o[0])
            })
            .pointwise()
            .random(Some(|a, o, g| {
                let dist: fn(&Args) -> Result<Distribution> = $dist;
                if let Ok(d) = dist(a) {
                    cpu::random::advance(&d, g, &o[0]);
                }
            })),
            $doc,
        )
    };
}

/// GPUs draw from generators of their own.
fn no_host_generator(a: &Args) -> Result<()> {
    let given = a.values.iter().any(|v| matches!(v, Arg::Generator(_)));
    ensure!(
        !given,
        Runtime,
        "Expected a 'cuda' device type for generator but found 'cpu'"
    );
    Ok(())
}

fn checked(d: Distribution, plan: Plan) -> Result<Plan> {
    let out = &plan.outs[0];
    let empty =
        out.shape.contains(&0) && matches!(d, Distribution::Normal { std, .. } if std >= 0.0);
    if !empty {
        cpu::random::check(&d, out.dtype)?;
    }
    Ok(plan)
}

/// A result like argument 0.
fn itself(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    Ok(Plan::one(t.shape().clone(), t.strides().clone(), t.dtype()))
}

/// A fresh result in the layout of argument 0.
fn fresh(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    Ok(Plan::one(
        t.shape().clone(),
        dims::preserved_strides(t.shape(), t.strides()),
        t.dtype(),
    ))
}

const UNIFORM: fn(&Args) -> Result<Distribution> =
    |_| Ok(Distribution::Uniform { from: 0.0, to: 1.0 });
const NORMAL: fn(&Args) -> Result<Distribution> = |_| {
    Ok(Distribution::Normal {
        mean: 0.0,
        std: 1.0,
    })
};

/// The integer at `i`, given as a number or as a tensor of one element.
fn whole(a: &Args, i: usize) -> Result<i64> {
    match &a.values[i] {
        Arg::Tensor(t) => {
            ensure!(t.numel() == 1, Runtime, "high must be a scalar tensor");
            ensure!(
                t.device().is_cpu(),
                Runtime,
                "high must be a scalar tensor and on CPU"
            );
            Ok(t.item()?.to_i64())
        }
        _ => a.int(i),
    }
}

fn range(from: i64, to: i64) -> Result<Distribution> {
    Ok(Distribution::RandomRange { from, to: Some(to) })
}

/// Factories whose dtype is int64 unless told otherwise.
fn sized_long(a: &Args, size: usize, first: usize) -> Result<Plan> {
    let mut plan = sized(a, a.ints(size)?, first)?;
    plan.outs[0].dtype = a.dtype(first).unwrap_or(DType::I64);
    Ok(plan)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    draw!(
        "rand",
        factory_schema!("(int[*] size, *, Generator? generator=None"),
        F | O,
        |a| sized(a, a.ints(0)?, 2),
        UNIFORM,
        "Uniform random numbers from 0 (included) to 1 (excluded)."
    ),
    draw!(
        "randn",
        factory_schema!("(int[*] size, *, Generator? generator=None"),
        F | O,
        |a| sized(a, a.ints(0)?, 2),
        NORMAL,
        "Random numbers of the standard normal distribution."
    ),
    draw!(
        "randint",
        factory_schema!("(int high, int[] size, *, Generator? generator=None"),
        F | O,
        |a| sized_long(a, 1, 3),
        |a| range(0, a.int(0)?),
        "Random integers from 0 up to but not including `high`."
    ),
    draw!(
        "randint#low",
        factory_schema!("(int low, int high, int[] size, *, Generator? generator=None"),
        F | O,
        |a| sized_long(a, 2, 4),
        |a| range(a.int(0)?, a.int(1)?),
        "Random integers from `low` up to but not including `high`."
    ),
    draw!(
        "rand_like",
        "(Tensor self, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        |a| like(a, 2),
        UNIFORM,
        "Uniform random numbers in the shape of another tensor."
    ),
    draw!(
        "randn_like",
        "(Tensor self, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        |a| like(a, 2),
        NORMAL,
        "Normal random numbers in the shape of another tensor."
    ),
    draw!(
        "randint_like",
        "(Tensor self, int high, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        |a| like(a, 3),
        |a| range(0, a.int(1)?),
        "Random integers below `high` in the shape of another tensor."
    ),
    draw!(
        "randint_like#low",
        "(Tensor self, int low, int high, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        |a| like(a, 4),
        |a| range(a.int(1)?, a.int(2)?),
        "Random integers from `low` up to but not including `high` in the shape of another tensor."
    ),
    draw!(
        "randint_like#tensor",
        "(Tensor self, Tensor high, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        |a| like(a, 3),
        |a| range(0, whole(a, 1)?),
        "Random integers below `high` in the shape of another tensor."
    ),
    kernel(
        "randperm",
        factory_schema!("(int n, *, Generator? generator=None"),
        F | O,
        KernelBody::new(infer_randperm, |a, o| {
            cpu::random::randperm(&generator(a), &o[0])
        })
        .cuda(crate::ops::create::factory::via_host)
        .random(Some(|_, o, g| advance_randperm(g, o[0].numel() as usize))),
        "A random permutation of 0 to n - 1.",
    ),
    kernel(
        "normal",
        "(Tensor mean, Tensor std, *, Generator? generator=None)",
        F | O,
        KernelBody::new(infer_normal, normal_values).random(Some(advance_normal)),
        "Normal random numbers with a mean and a standard deviation for each element.",
    ),
    kernel(
        "normal#mean",
        "(Tensor mean, float std=1, *, Generator? generator=None)",
        F | O,
        KernelBody::new(infer_normal, normal_values).random(Some(advance_normal)),
        "Normal random numbers with a mean for each element.",
    ),
    kernel(
        "normal#std",
        "(float mean, Tensor std, *, Generator? generator=None)",
        F | O,
        KernelBody::new(infer_normal, normal_values).random(Some(advance_normal)),
        "Normal random numbers with a standard deviation for each element.",
    ),
    draw!(
        "normal#size",
        factory_schema!("(float mean, float std, int[] size, *, Generator? generator=None"),
        F | O,
        |a| sized(a, a.ints(2)?, 4),
        |a| Ok(Distribution::Normal {
            mean: a.float(0)?,
            std: a.float(1)?
        }),
        "Normal random numbers."
    ),
    draw!(
        "normal#inplace",
        "(Tensor self, float mean=0, float std=1, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::Normal {
            mean: a.float(1)?,
            std: a.float(2)?
        }),
        "Filled with normal random numbers."
    ),
    draw!(
        "uniform",
        "(Tensor self, float from=0, float to=1, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::Uniform {
            from: a.float(1)?,
            to: a.float(2)?
        }),
        "Filled with uniform random numbers."
    ),
    draw!(
        "random",
        "(Tensor self, *, Generator? generator=None)",
        I,
        itself,
        |_| Ok(Distribution::Random),
        "Filled with random integers of the type's whole range."
    ),
    draw!(
        "random#to",
        "(Tensor self, int to, *, Generator? generator=None)",
        I,
        itself,
        |a| range(0, a.int(1)?),
        "Filled with random integers below `to`."
    ),
    draw!(
        "random#from",
        "(Tensor self, int from, int? to, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::RandomRange {
            from: a.int(1)?,
            to: a.opt_int(2)
        }),
        "Filled with random integers from `from` up to but not including `to`."
    ),
    draw!(
        "exponential",
        "(Tensor self, float lambd=1, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::Exponential {
            lambda: a.float(1)?
        }),
        "Filled with random numbers of the exponential distribution."
    ),
    draw!(
        "cauchy",
        "(Tensor self, float median=0, float sigma=1, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::Cauchy {
            median: a.float(1)?,
            sigma: a.float(2)?
        }),
        "Filled with random numbers of the Cauchy distribution."
    ),
    draw!(
        "geometric",
        "(Tensor self, float p, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::Geometric { p: a.float(1)? }),
        "Filled with the numbers of trials up to a first success."
    ),
    draw!(
        "log_normal",
        "(Tensor self, float mean=1, float std=2, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::LogNormal {
            mean: a.float(1)?,
            std: a.float(2)?
        }),
        "Filled with exponentials of normal random numbers."
    ),
    kernel(
        "bernoulli",
        "(Tensor self, *, Generator? generator=None)",
        FMO,
        KernelBody::new(
            |a| infer_probs(a, a.tensor(0)?),
            |a, o| cpu::random::bernoulli_probs(&generator(a), &o[0], a.tensor(0)?),
        )
        .random(Some(|a, o, g| advance_probs(a, 0, o, g))),
        "0 or 1, each element of the input being the probability of 1.",
    ),
    draw!(
        "bernoulli#p",
        "(Tensor self, float p, *, Generator? generator=None)",
        FM,
        fresh,
        |a| Ok(Distribution::Bernoulli { p: a.float(1)? }),
        "0 or 1 in the shape of the input, with one probability of 1."
    ),
    kernel(
        "bernoulli#tensor_inplace",
        "(Tensor self, Tensor p, *, Generator? generator=None)",
        I,
        KernelBody::new(infer_bernoulli_inplace, |a, o| {
            cpu::random::bernoulli_probs(&generator(a), &o[0], a.tensor(1)?)
        })
        .pointwise()
        .random(Some(|a, o, g| advance_probs(a, 1, o, g))),
        "Filled with 0 or 1, with a probability of 1 for each element.",
    ),
    draw!(
        "bernoulli#inplace",
        "(Tensor self, float p=0.5, *, Generator? generator=None)",
        I,
        itself,
        |a| Ok(Distribution::Bernoulli { p: a.float(1)? }),
        "Filled with 0 or 1."
    ),
    kernel(
        "poisson",
        "(Tensor self, Generator? generator=None)",
        F,
        KernelBody::new(infer_poisson, |a, o| {
            cpu::random::poisson(&generator(a), &o[0], a.tensor(0)?)
        })
        .random(None),
        "A Poisson count for each rate.",
    ),
    kernel(
        "multinomial",
        "(Tensor self, int num_samples, bool replacement=False, *, Generator? generator=None)",
        F | M | O,
        KernelBody::new(infer_multinomial, |a, o| {
            cpu::random::multinomial(
                &generator(a),
                &o[0],
                a.tensor(0)?,
                a.int(1)? as usize,
                a.bool(2),
            )
        })
        .random(Some(advance_multinomial)),
        "Positions drawn with the probabilities of each row.",
    ),
];

fn infer_randperm(a: &Args) -> Result<Plan> {
    let n = a.int(0)?;
    let mut plan = sized(a, &[n], 2)?;
    let dtype = a.dtype(2).unwrap_or(DType::I64);
    let limit = match dtype {
        DType::F16 => (1 << 11) + 1,
        DType::BF16 => (1 << 8) + 1,
        DType::F32 => (1 << 24) + 1,
        DType::F64 => (1i64 << 53) + 1,
        DType::U8 => 255,
        DType::I8 => 127,
        DType::I16 => 32767,
        DType::I32 => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    let float = dtype.is_float();
    ensure!(
        !float || n <= limit,
        Runtime,
        "n cannot be greater than {limit} for {} type.",
        dtype.scalar_type()
    );
    ensure!(
        float || n <= limit,
        Runtime,
        "n is too large for result tensor type: 'torch.{}Tensor'",
        dtype.scalar_type()
    );
    dtype.check_kernel(
        dtype.is_integral(false)
            || matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64),
        "randperm",
    )?;
    plan.outs[0].dtype = dtype;
    Ok(plan)
}

fn infer_normal(a: &Args) -> Result<Plan> {
    let (mean, std) = (a.opt_tensor(0), a.opt_tensor(1));
    if let Some(std) = std {
        ensure!(
            !std.dtype().is_complex(),
            Runtime,
            "normal expects standard deviation to be non-complex"
        );
        if std.device().is_cpu() && std.numel() > 0 {
            let lowest = cpu::copy::dense(std, DType::F64)?;
            let ok = cpu::slice::<f64>(&lowest).iter().all(|&s| s >= 0.0);
            ensure!(ok, Runtime, "normal expects all elements of std >= 0.0");
        }
    } else {
        let std = a.float(1)?;
        ensure!(
            std >= 0.0,
            Runtime,
            "normal expects std >= 0.0, but found std {std}"
        );
    }
    let (shape, dtype) = match (mean, std) {
        (Some(m), Some(s)) => (dims::broadcast(m.shape(), s.shape())?, m.dtype()),
        (Some(t), None) | (None, Some(t)) => (t.shape().clone(), t.dtype()),
        _ => bail!(Runtime, "normal() needs a tensor"),
    };
    checked(
        Distribution::Normal {
            mean: 0.0,
            std: 1.0,
        },
        Plan::contiguous(&shape, dtype),
    )
}

/// Unit normals, then times the deviation and plus the mean as operations of their own.
fn normal_values(a: &Args, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let drawn = Tensor::empty(out.shape(), out.dtype(), Device::CPU)?;
    let std = if a.opt_tensor(1).is_some() {
        1.0
    } else {
        a.float(1)?
    };
    cpu::random::fill(
        &Distribution::Normal { mean: 0.0, std },
        &generator(a),
        &drawn,
    )?;
    let apply = |op: &'static crate::ops::Op, other: Arg| -> Result<()> {
        crate::ops::core::dispatch::call_inplace(&Args::new(op, [Arg::Tensor(&drawn), other])?)
    };
    if let Some(std) = a.opt_tensor(1) {
        apply(crate::op!("mul")?, Arg::Tensor(std))?;
    }
    match a.opt_tensor(0) {
        Some(mean) => apply(crate::op!("add")?, Arg::Tensor(mean))?,
        None => apply(crate::op!("add")?, Arg::Float(a.float(0)?))?,
    }
    cpu::copy::copy(out, &drawn)
}

fn advance_normal(a: &Args, outs: &[Tensor], g: &mut crate::random::Generator) {
    let std = a.opt_float(1).unwrap_or(1.0);
    let d = Distribution::Normal { mean: 0.0, std };
    // The draw goes into a contiguous tensor whatever the result's layout.
    let shape = outs[0].shape();
    if let Ok(t) = Tensor::empty(shape, outs[0].dtype(), Device::META) {
        cpu::random::advance(&d, g, &t);
    }
}

fn check_probs(p: &Tensor) -> Result<()> {
    p.dtype().check_float_kernel("bernoulli_tensor_cpu_p_")?;
    Ok(())
}

fn infer_probs(a: &Args, p: &Tensor) -> Result<Plan> {
    check_probs(p)?;
    let t = a.tensor(0)?;
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn infer_bernoulli_inplace(a: &Args) -> Result<Plan> {
    let (t, p) = (a.tensor(0)?, a.tensor(1)?);
    check_probs(p)?;
    t.dtype()
        .check_kernel(!t.dtype().is_complex(), "bernoulli_tensor_cpu_self_")?;
    let shape = dims::broadcast(t.shape(), p.shape())?;
    Ok(Plan::one(shape, t.strides().clone(), t.dtype()))
}

fn advance_probs(a: &Args, p: usize, outs: &[Tensor], g: &mut crate::random::Generator) {
    let double = a.opt_tensor(p).is_some_and(|t| t.dtype() == DType::F64);
    advance_bernoulli_probs(g, outs[0].numel() as usize, double);
}

fn infer_poisson(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    t.dtype().check_float_kernel("poisson_cpu")?;
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn infer_multinomial(a: &Args) -> Result<Plan> {
    let (t, n) = (a.tensor(0)?, a.int(1)?);
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
        a.bool(2) || n <= categories,
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

fn advance_multinomial(a: &Args, outs: &[Tensor], g: &mut crate::random::Generator) {
    let samples = a.opt_int(1).unwrap_or(1);
    match a.opt_tensor(0) {
        _ if outs[0].numel() == 0 => {}
        Some(_) if a.bool(2) && samples > 1 => g.skip(2 * outs[0].numel() as u64),
        Some(t) => advance_exponential_weights(g, t.numel() as usize),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::random::{Generator, SharedGenerator};
    use crate::{Device, Dims, Tensor, run1};

    #[test]
    fn draws_pytorchs_numbers_in_order() {
        let g = SharedGenerator::new(Generator::new(0));
        let x = run1!("rand", Dims::from([3]), g.clone()).unwrap();
        let bits: Vec<u32> = x
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .map(|v| v.to_bits())
            .collect();
        assert_eq!(bits, [0x3efe_1558, 0x3f44_aa2f, 0x3db5_33a8]);
        let p = run1!("randperm", 6i64, g).unwrap();
        assert_eq!(p.to_vec::<i64>().unwrap(), [0, 4, 5, 1, 2, 3]);
    }

    #[test]
    fn nothing_is_drawn_on_meta() {
        let g = SharedGenerator::new(Generator::new(7));
        let before = g.lock().get_state();
        let t = Tensor::empty(&[4, 4], crate::DType::F32, Device::META).unwrap();
        let args = crate::ops::Args::new(
            crate::op!("uniform").unwrap(),
            [(&t).into(), 0.0.into(), 1.0.into(), g.clone().into()],
        )
        .unwrap();
        crate::ops::dispatch::call_inplace(&args).unwrap();
        assert!(before == g.lock().get_state());
    }
}
