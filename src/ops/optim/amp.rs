//! What scales gradients of low precision: taking the scale out of them, and choosing the next one.

use super::number;
use crate::ops::core::op::{F, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::{DType, Result, Scalar, Tensor, dims, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_amp_foreach_non_finite_check_and_unscale_",
        "(Tensor[] self, Tensor found_inf, Tensor inv_scale) -> None",
        F,
        body!(rule_unscale, anywhere: run_unscale, scratch: |a, _, _, room| {
            let mut apart = a.input.iter().filter(|g| !dims::is_dense(g.shape(), g.strides()));
            apart.try_for_each(|g| room.within(|room| room.dense(g, g.dtype()).map(drop)))
        }).mutates(0b11),
        "Multiplies gradients by the inverse of a scale, and says whether one of them is not finite.",
    )
    .no_grad()
    .samples("[f32[3, 4], f64[5], bf16[2], f16[3]], f32(0.0), f32(0.5); [], f32[1], f32([0.5])"),
    kernel(
        "_amp.update_scale",
        "(Tensor self, Tensor growth_tracker, Tensor found_inf, float scale_growth_factor, float scale_backoff_factor, int growth_interval) -> None",
        0,
        body!(rule_scale, anywhere: run_scale).mutates(0b11),
        "The next scale, and for how many steps it has been right.",
    )
    .no_grad()
    .samples("f32(8.0), i32(1), f32(0.0), 2.0, 0.5, 2; f32([8.0]), i32([1]), f32([1.0]), 2.0, 0.5, 2"),
    compose(
        "_amp_update_scale_",
        "(Tensor self, Tensor growth_tracker, Tensor found_inf, float scale_growth_factor, float scale_backoff_factor, int growth_interval)",
        F,
        update_scale,
        "The next scale: smaller after gradients that were not finite, larger after so many steps without any.",
    )
    .samples("f32(8.0), i32(1), f32(0.0), 2.0, 0.5, 2; f32([8.0]), i32([1]), f32([1.0]), 2.0, 0.5, 2"),
];

fn check(t: &Tensor, name: &str, dtype: DType) -> Result<()> {
    ensure!(
        t.numel() == 1,
        Runtime,
        "{name} must be a 1-element tensor."
    );
    let kind = if dtype == DType::I32 {
        "an int"
    } else {
        "a float"
    };
    ensure!(t.dtype() == dtype, Runtime, "{name} must be {kind} tensor.");
    Ok(())
}

fn rule_unscale(a: &calls::_AmpForeachNonFiniteCheckAndUnscale_) -> Result<Plan> {
    check(a.inv_scale, "inv_scale", DType::F32)?;
    check(a.found_inf, "found_inf", DType::F32)?;
    for g in a.input.refs() {
        g.dtype().check_kernel(
            g.dtype().is_float(),
            "_amp_foreach_non_finite_check_and_unscale_cpu",
        )?;
    }
    Ok(Plan::default())
}

fn run_unscale(
    a: &calls::_AmpForeachNonFiniteCheckAndUnscale_,
    (): &(),
    _: &[Tensor],
) -> Result<()> {
    let grads = a.input.refs();
    if kernels::update::unscale_checked(&grads, number(a.inv_scale)?)? {
        kernels::fill(a.found_inf, Scalar::Float(1.0))?;
    }
    Ok(())
}

fn rule_scale(a: &calls::_AmpUpdateScale) -> Result<Plan> {
    check(a.growth_tracker, "growth_tracker", DType::I32)?;
    check(a.input, "current_scale", DType::F32)?;
    check(a.found_inf, "found_inf", DType::F32)?;
    Ok(Plan::default())
}

fn run_scale(a: &calls::_AmpUpdateScale, (): &(), _: &[Tensor]) -> Result<()> {
    let scale = number(a.input)?;
    let set = |scale: f64, tracker: i64| {
        let scale = f64::from(scale as f32);
        if scale.is_finite() {
            kernels::fill(a.input, Scalar::Float(scale))?;
        }
        kernels::fill(a.growth_tracker, Scalar::Int(tracker))
    };
    if number(a.found_inf)? != 0.0 {
        return set(scale * a.scale_backoff_factor, 0);
    }
    let right = kernels::read(a.growth_tracker)?.to_i64() + 1;
    if right == a.growth_interval {
        return set(scale * a.scale_growth_factor, 0);
    }
    kernels::fill(a.growth_tracker, Scalar::Int(right))
}

fn update_scale(a: &calls::_AmpUpdateScale_) -> Result<Ret> {
    f::_amp_update_scale(
        a.input,
        a.growth_tracker,
        a.found_inf,
        a.scale_growth_factor,
        a.scale_backoff_factor,
        a.growth_interval,
    )?;
    Ok(Ret::Same(0))
}
