//! Random numbers: factories, fills in place, and draws that read other tensors.

use crate::ops::core::fits::check_fits;
use crate::ops::core::op::{F, FM, I, O, OpDef, Plan, compose, kernel};
use crate::ops::core::{by_host, helpers};
use crate::ops::create::factory::{like, sized, via_host};
use crate::ops::f;
use crate::random::{
    Distribution, Generator, SharedGenerator, advance_randperm, default_generator,
};
use crate::{DType, Result, Scalar, Tensor, cpu, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "rand",
        "(int[*] size, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(
            |a| drawn(sized(a.size, a.dtype, a.device)?, UNIFORM),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|_a, outs, g| advance(UNIFORM, outs, g), &[Tensor], &mut Generator))),
        "Uniform random numbers from 0 (included) to 1 (excluded).",
    ).samples("[2, 3], device=dev; [4], dtype=f64, device=dev").no_grad(),
    kernel(
        "randn",
        "(int[*] size, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(
            |a| drawn(sized(a.size, a.dtype, a.device)?, NORMAL),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|_a, outs, g| advance(NORMAL, outs, g), &[Tensor], &mut Generator))),
        "Random numbers of the standard normal distribution.",
    ).samples("(10,), dtype=f32, device=dev").no_grad(),
    kernel(
        "randint",
        "(int high, int[] size, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(
            |a| drawn(sized(a.size, a.dtype.or(Some(DType::I64)), a.device)?, range(0, a.high)),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(range(0, a.high), outs, g), &[Tensor], &mut Generator))),
        "Random integers from 0 up to but not including `high`.",
    ).samples("10, (), device=dev; 10, (5,), dtype=i16, device=dev").no_grad(),
    kernel(
        "randint#low",
        "(int low, int high, int[] size, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(
            |a| drawn(sized(a.size, a.dtype.or(Some(DType::I64)), a.device)?, range(a.low, a.high)),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(range(a.low, a.high), outs, g), &[Tensor], &mut Generator))),
        "Random integers from `low` up to but not including `high`.",
    ).samples("2, 10, (5,), device=dev; 2, 10, (5,), dtype=u8, device=dev").no_grad(),
    kernel(
        "rand_like",
        "(Tensor self, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(
            |a| drawn(like(a.input, a.dtype, a.device, a.memory_format)?, UNIFORM),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|_a, outs, g| advance(UNIFORM, outs, g), &[Tensor], &mut Generator))),
        "Uniform random numbers in the shape of another tensor.",
    ).samples("f32[3, 4]; c64[3, 4], dtype=c64, device=dev; f32[3, 4], dtype=f64, device=dev")
    .no_grad(),
    kernel(
        "randn_like",
        "(Tensor self, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(
            |a| drawn(like(a.input, a.dtype, a.device, a.memory_format)?, NORMAL),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|_a, outs, g| advance(NORMAL, outs, g), &[Tensor], &mut Generator))),
        "Normal random numbers in the shape of another tensor.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], device=dev")
    .no_grad(),
    kernel(
        "randint_like",
        "(Tensor self, int high, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(
            |a| drawn(like(a.input, a.dtype, a.device, a.memory_format)?, range(0, a.high)),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(range(0, a.high), outs, g), &[Tensor], &mut Generator))),
        "Random integers below `high` in the shape of another tensor.",
    ).samples("f32[3, 4], 10, dtype=f64, device=dev")
    .no_grad(),
    kernel(
        "randint_like#low",
        "(Tensor self, int low, int high, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        body!(
            |a| drawn(like(a.input, a.dtype, a.device, a.memory_format)?, range(a.low, a.high)),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(range(a.low, a.high), outs, g), &[Tensor], &mut Generator))),
        "Random integers from `low` up to but not including `high` in the shape of another tensor.",
    ).samples("f32[3, 4], 2, 10; f32[3, 4], 2, 10, dtype=f64")
    .no_grad(),
    compose(
        "randint_like#tensor",
        "(Tensor self, Tensor high, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False, format? memory_format=None)",
        F,
        randint_like_tensor,
        "Random integers below `high` in the shape of another tensor.",
    ).samples("i64[3], i64(5); f32[2, 2], i64(9)"),
    kernel(
        "randperm",
        "(int n, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(
            randperm_rule,
            |a, _, outs| cpu::random::randperm(&given(a.generator), &outs[0]),
            cuda: |a, _, outs| via_host(&outs[0], |host| cpu::random::randperm(&by_host::generator(a.generator, outs[0].device())?, host)),
        )
        .random(Some(typed!(
            |a, _outs, g| {
                advance_randperm(g, a.n as usize);
                Ok(())
            },
            &[Tensor],
            &mut Generator
        ))),
        "A random permutation of 0 to n - 1.",
    ).samples("5, device=dev; 3, dtype=i32, device=dev").no_grad(),
    kernel(
        "normal#size",
        "(float mean, float std, int[] size, *, Generator? generator=None, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool? requires_grad=False)",
        F | O,
        body!(
            |a| drawn(sized(a.size, a.dtype, a.device)?, Distribution::Normal { mean: a.mean, std: a.std }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Normal { mean: a.mean, std: a.std }, outs, g), &[Tensor], &mut Generator))),
        "Normal random numbers.",
    ).samples("0.3, 1.6, [2, 2, 2], dtype=f16, layout=strided, device=dev").no_grad(),
    kernel(
        "normal#inplace",
        "(Tensor self, float mean=0, float std=1, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Normal { mean: a.mean, std: a.std }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Normal { mean: a.mean, std: a.std }, outs, g), &[Tensor], &mut Generator))),
        "Filled with normal random numbers.",
    ).samples("f64[()], f64[()]")
    .grad("NormalBackward0 | self: zeros_like(grad)"),
    kernel(
        "uniform",
        "(Tensor self, float from=0, float to=1, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Uniform { from: a.from, to: a.to }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Uniform { from: a.from, to: a.to }, outs, g), &[Tensor], &mut Generator))),
        "Filled with uniform random numbers.",
    ).samples("f32[2, 3]; f64[4], -1.0, 2.0")
    .grad("UniformBackward0 | self: zeros_like(grad)"),
    kernel(
        "random",
        "(Tensor self, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Random),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|_a, outs, g| advance(Distribution::Random, outs, g), &[Tensor], &mut Generator))),
        "Filled with random integers of the type's whole range.",
    ).samples("f32[2, 3]; i64[4]; b8[3]")
    .grad("RandomBackward0 | self: zeros_like(grad)"),
    kernel(
        "random#from",
        "(Tensor self, int from, int? to, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::RandomRange { from: a.from, to: a.to }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::RandomRange { from: a.from, to: a.to }, outs, g), &[Tensor], &mut Generator))),
        "Filled with random integers from `from` up to but not including `to`.",
    ).samples("f32[2, 3], 1, 5; i64[4], -3, None")
    .grad("RandomBackward0 | self: zeros_like(grad)"),
    kernel(
        "random#to",
        "(Tensor self, int to, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), range(0, a.to)),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(range(0, a.to), outs, g), &[Tensor], &mut Generator))),
        "Filled with random integers below `to`.",
    ).samples("f32[2, 3], 5; i64[4], 9")
    .grad("RandomBackward0 | self: zeros_like(grad)"),
    kernel(
        "exponential",
        "(Tensor self, float lambd=1, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Exponential { lambda: a.lambd }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Exponential { lambda: a.lambd }, outs, g), &[Tensor], &mut Generator))),
        "Filled with random numbers of the exponential distribution.",
    ).samples("f32[2, 3]; f64[4], 2.0")
    .grad("ExponentialBackward0 | self: zeros_like(grad)"),
    kernel(
        "cauchy",
        "(Tensor self, float median=0, float sigma=1, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Cauchy { median: a.median, sigma: a.sigma }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Cauchy { median: a.median, sigma: a.sigma }, outs, g), &[Tensor], &mut Generator))),
        "Filled with random numbers of the Cauchy distribution.",
    ).samples("f32[2, 3]")
    .grad("CauchyBackward0 | self: zeros_like(grad)"),
    kernel(
        "geometric",
        "(Tensor self, float p, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Geometric { p: a.p }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Geometric { p: a.p }, outs, g), &[Tensor], &mut Generator))),
        "Filled with the numbers of trials up to a first success.",
    ).samples("f32[2, 3], 0.5; i64[4], 0.25")
    .grad("GeometricBackward0 | self: zeros_like(grad)"),
    kernel(
        "log_normal",
        "(Tensor self, float mean=1, float std=2, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::LogNormal { mean: a.mean, std: a.std }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::LogNormal { mean: a.mean, std: a.std }, outs, g), &[Tensor], &mut Generator))),
        "Filled with exponentials of normal random numbers.",
    ).samples("f32[2, 3]")
    .grad("LogNormalBackward0 | self: zeros_like(grad)"),
    kernel(
        "bernoulli#p",
        "(Tensor self, float p, *, Generator? generator=None)",
        FM,
        body!(
            |a| drawn(crate::ops::copy::like(a.input), Distribution::Bernoulli { p: a.p }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Bernoulli { p: a.p }, outs, g), &[Tensor], &mut Generator))),
        "0 or 1 in the shape of the input, with one probability of 1.",
    ).samples("f32[2, 3], 0.5; b8[4], 0.25")
    .grad("self: zeros_like(grad)"),
    kernel(
        "bernoulli#inplace",
        "(Tensor self, float p=0.5, *, Generator? generator=None)",
        I,
        body!(
            |a| drawn(itself(a.input), Distribution::Bernoulli { p: a.p }),
            |a, d, outs| cpu::random::fill(d, &given(a.generator), &outs[0]),
            cuda: |a, d, outs| fill_gpu(d, a.generator, outs),
            scratch: |_, d, outs, room| cpu::random::fill_room(d, &outs[0], room)
        )
        .pointwise()
        .random(Some(typed!(|a, outs, g| advance(Distribution::Bernoulli { p: a.p }, outs, g), &[Tensor], &mut Generator))),
        "Filled with 0 or 1.",
    ).samples("f32[3, 4]")
    .grad("BernoulliBackward0 | self: zeros_like(grad)"),
];

const UNIFORM: Distribution = Distribution::Uniform { from: 0.0, to: 1.0 };
pub(super) const NORMAL: Distribution = Distribution::Normal {
    mean: 0.0,
    std: 1.0,
};

const fn range(from: i64, to: i64) -> Distribution {
    Distribution::RandomRange { from, to: Some(to) }
}

/// The generator given, or the default.
#[must_use]
pub fn given(generator: Option<&SharedGenerator>) -> SharedGenerator {
    generator.cloned().unwrap_or_else(default_generator)
}

/// Fills on a GPU, by its own generator or one of GPUs.
fn fill_gpu(d: &Distribution, asked: Option<&SharedGenerator>, outs: &[Tensor]) -> Result<()> {
    kernels::accelerator()?.draw(d, asked, &outs[0])
}

/// The plan of a fill, with a distribution that suits its dtype.
pub(super) fn drawn(plan: Plan, d: Distribution) -> Result<(Plan, Distribution)> {
    let out = &plan.outs[0];
    let empty =
        out.shape.contains(&0) && matches!(d, Distribution::Normal { std, .. } if std >= 0.0);
    if !empty {
        cpu::random::check(&d, out.dtype)?;
        d.warn(out.dtype);
    }
    Ok((plan, d))
}

/// Moves a generator as a fill would.
fn advance(d: Distribution, outs: &[Tensor], g: &mut Generator) -> Result<()> {
    cpu::random::advance(&d, g, &outs[0]);
    Ok(())
}

/// A result in the very layout of `t`.
pub(super) fn itself(t: &Tensor) -> Plan {
    Plan::one(t.shape().clone(), t.strides().clone(), t.dtype())
}

fn randint_like_tensor(a: &calls::RandintLikeTensor) -> Result<Tensor> {
    ensure!(a.high.numel() == 1, Runtime, "high must be a scalar tensor");
    ensure!(
        helpers::is_host(a.high),
        Runtime,
        "high must be a scalar tensor and on CPU"
    );
    f::RandintLike::new(a.input, helpers::item(a.high)?.to_i64())
        .generator(a.generator)
        .dtype(a.dtype)
        .layout(a.layout)
        .device(a.device)
        .memory_format(a.memory_format)
        .call()
}

fn randperm_rule(a: &calls::Randperm) -> Result<Plan> {
    let n = a.n;
    let dtype = a.dtype.unwrap_or(DType::I64);
    let plan = sized(&[n], Some(dtype), a.device)?;
    let limit = match dtype {
        DType::F16 => (1 << 11) + 1,
        DType::F32 => (1 << 24) + 1,
        DType::F64 => (1i64 << 53) + 1,
        _ => i64::MAX,
    };
    let float = dtype.is_float();
    ensure!(
        !float || n <= limit,
        Runtime,
        "n cannot be greater than {limit} for {} type.",
        dtype.scalar_type()
    );
    check_fits(Scalar::Int((n - 1).max(0)), dtype)?;
    use DType::*;
    let has = matches!(dtype, U8 | I8 | I16 | I32 | I64 | F16 | BF16 | F32 | F64);
    dtype.check_kernel(has, "randperm")?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use crate::ops::f;
    use crate::random::{Generator, SharedGenerator};
    use crate::{Device, Tensor};

    #[test]
    fn draws_pytorchs_numbers_in_order() {
        let g = SharedGenerator::new(Generator::new(0));
        let x = f::Rand::new(&[3]).generator(&g).call().unwrap();
        let bits: Vec<u32> = x
            .to_vec::<f32>()
            .unwrap()
            .iter()
            .map(|v| v.to_bits())
            .collect();
        assert_eq!(bits, [0x3efe_1558, 0x3f44_aa2f, 0x3db5_33a8]);
        let p = f::Randperm::new(6).generator(&g).call().unwrap();
        assert_eq!(p.to_vec::<i64>().unwrap(), [0, 4, 5, 1, 2, 3]);
    }

    #[test]
    fn nothing_is_drawn_on_meta() {
        let g = SharedGenerator::new(Generator::new(7));
        let before = g.get_state();
        let t = Tensor::empty(&[4, 4], crate::DType::F32, Device::META).unwrap();
        f::Uniform::new(&t).generator(&g).call_().unwrap();
        assert!(before == g.get_state());
    }
}
