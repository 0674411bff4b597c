//! The steps that PyTorch makes operation by operation: each is one operator here, which rounds where PyTorch does.

use super::{by_count, check, check_numbers, coupled, entry, number, numbers, step, takes};
use crate::cpu::update::rules::{Adadelta, Adafactor, Adamax, Asgd, Nadam, Radam, Rmsprop, Rprop};
use crate::cpu::update::{Rounds, Update};
use crate::ops::core::op::{F, OpDef, Plan, kernel};
use crate::ops::core::typed::Tensors;
use crate::{DType, Result, Scalar, Tensor, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_optim.count_up",
        "(Tensor[] state_steps) -> None",
        F,
        body!(rule_count_up, anywhere: run_count_up).mutates(1),
        "Adds one to every count.",
    ).no_grad().samples("[f32(3.0), f64(1.0)]"),
    kernel(
        "_optim.multiply_up",
        "(Tensor[] mu_products, Tensor[] state_steps, *, float beta1, float momentum_decay) -> None",
        F,
        body!(rule_multiply_up, anywhere: run_multiply_up).mutates(1),
        "Multiplies the products of NAdam by the momenta of these steps.",
    ).no_grad().samples("[f32(0.9), f64(0.5)], [f32(3.0), f32(1.0)], beta1=0.9, momentum_decay=0.004"),
    kernel(
        "_optim.adadelta",
        "(Tensor[] params, Tensor[] grads, Tensor[] square_avgs, Tensor[] acc_deltas, *, float lr, float rho, float eps, float weight_decay, bool maximize) -> None",
        F,
        body!(rule_adadelta, anywhere: run_adadelta, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.square_avgs, a.acc_deltas], room)).mutates(0b1101),
        "One step of Adadelta for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [f32[3, 4].pos, bf16[5].pos], lr=0.1, rho=0.9, eps=1e-6, weight_decay=0.1, maximize=False; [f64[3]], [f64[3]], [f64[3].pos], [f64[3].pos], lr=0.1, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=True"),
    kernel(
        "_optim.adafactor",
        "(Tensor[] directions, Tensor[] grads, Tensor[] variances, Tensor[] state_steps, *, float beta2_decay, float least, bool maximize) -> None",
        F,
        body!(rule_adafactor, anywhere: run_adafactor, scratch: |a, _, _, room| takes(&[a.directions, a.grads, a.variances], room)).mutates(0b101),
        "The directions of a step of Adafactor; without variances, directions are estimates of them before.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [f32(3.0), f32(1.0)], beta2_decay=-0.8, least=1e-6, maximize=False; [f64[3].pos], [f64[3]], [], [f32(3.0)], beta2_decay=-0.8, least=0.001, maximize=True"),
    kernel(
        "_optim.adamax",
        "(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_infs, Tensor[] state_steps, *, float lr, float beta1, float beta2, float eps, float weight_decay, bool maximize) -> None",
        F,
        body!(rule_adamax, anywhere: run_adamax, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.exp_avgs, a.exp_infs], room)).mutates(0b1101),
        "One step of Adamax for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [f32(3.0), f32(1.0)], lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, maximize=False"),
    kernel(
        "_optim.asgd",
        "(Tensor[] params, Tensor[] grads, Tensor[] axs, Tensor[] mus, Tensor[] etas, Tensor[] state_steps, *, float lr, float lambd, float alpha, float t0, float weight_decay, bool maximize) -> None",
        F,
        body!(rule_asgd, anywhere: run_asgd, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.axs], room)).mutates(0b11101),
        "One step of ASGD for all parameters of a list; sets the rates of the next.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32(1.0), f32(0.5)], [f32(0.1), f32(0.2)], [f32(3.0), f32(1.0)], lr=0.1, lambd=0.01, alpha=0.75, t0=2.0, weight_decay=0.1, maximize=False"),
    kernel(
        "_optim.nadam",
        "(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] mu_products, Tensor[] state_steps, *, float lr, float beta1, float beta2, float eps, float weight_decay, float momentum_decay, bool decoupled_weight_decay, bool maximize) -> None",
        F,
        body!(rule_nadam, anywhere: run_nadam, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.exp_avgs, a.exp_avg_sqs], room)).mutates(0b1101),
        "One step of NAdam for all parameters of a list; the products are those after it.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [f32(0.9), f32(0.5)], [f32(3.0), f32(1.0)], lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, momentum_decay=0.004, decoupled_weight_decay=True, maximize=False"),
    kernel(
        "_optim.radam",
        "(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float beta2, float eps, float weight_decay, bool decoupled_weight_decay, bool maximize) -> None",
        F,
        body!(rule_radam, anywhere: run_radam, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.exp_avgs, a.exp_avg_sqs], room)).mutates(0b1101),
        "One step of RAdam for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [f32(30.0), f32(1.0)], lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, decoupled_weight_decay=True, maximize=False"),
    kernel(
        "_optim.rmsprop",
        "(Tensor[] params, Tensor[] grads, Tensor[] square_avgs, Tensor[] grad_avgs, Tensor[] momentum_buffer_list, *, float lr, float alpha, float eps, float weight_decay, float momentum, bool centered, bool maximize) -> None",
        F,
        body!(rule_rmsprop, anywhere: run_rmsprop, scratch: |a, _, _, room| takes(&[vec![a.params, a.grads], rmsprop_states(a)].concat(), room)).mutates(0b11101),
        "One step of RMSprop for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [], [], lr=0.1, alpha=0.9, eps=1e-8, weight_decay=0.1, momentum=0.0, centered=False, maximize=False; [f64[3]], [f64[3]], [f64[3].pos], [f64[3].unit], [f64[3]], lr=0.1, alpha=0.9, eps=1e-8, weight_decay=0.0, momentum=0.9, centered=True, maximize=True; [f64[3]], [f64[3]], [f64[3].pos], [], [f64[3]], lr=0.1, alpha=0.9, eps=1e-8, weight_decay=0.0, momentum=0.9, centered=False, maximize=True"),
    kernel(
        "_optim.rprop",
        "(Tensor[] params, Tensor[] grads, Tensor[] prevs, Tensor[] step_sizes, *, float etaminus, float etaplus, float step_size_min, float step_size_max, bool maximize) -> None",
        F,
        body!(rule_rprop, anywhere: run_rprop, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.prevs, a.step_sizes], room)).mutates(0b1101),
        "One step of Rprop for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], etaminus=0.5, etaplus=1.2, step_size_min=1e-6, step_size_max=50.0, maximize=False"),
];

fn rule_count_up(a: &calls::_OptimCountUp) -> Result<Plan> {
    check_numbers(a.state_steps)?;
    Ok(Plan::default())
}

fn run_count_up(a: &calls::_OptimCountUp, (): &(), _: &[Tensor]) -> Result<()> {
    for step in a.state_steps.iter() {
        kernels::fill(step, Scalar::Float(number(step)? + 1.0))?;
    }
    Ok(())
}

fn rule_multiply_up(a: &calls::_OptimMultiplyUp) -> Result<Plan> {
    check_numbers(a.mu_products)?;
    check_numbers(a.state_steps)?;
    ensure!(
        a.mu_products.len() == a.state_steps.len(),
        Runtime,
        "Tensor lists must have the same number of tensors, got {} and {}",
        a.mu_products.len(),
        a.state_steps.len()
    );
    Ok(Plan::default())
}

/// NAdam's momentum of a step.
fn momentum(step: f64, beta1: f64, momentum_decay: f64) -> f64 {
    beta1 * (1.0 - 0.5 * 0.96f64.powf(step * momentum_decay))
}

fn run_multiply_up(a: &calls::_OptimMultiplyUp, (): &(), _: &[Tensor]) -> Result<()> {
    for (product, step) in a.mu_products.iter().zip(a.state_steps.iter()) {
        let mu = momentum(number(step)?, a.beta1, a.momentum_decay);
        // As a product in the type of the state.
        let value = match product.dtype() {
            DType::F32 => f64::from(number(product)? as f32 * mu as f32),
            _ => number(product)? * mu,
        };
        kernels::fill(product, Scalar::Float(value))?;
    }
    Ok(())
}

fn rule_adadelta(a: &calls::_OptimAdadelta) -> Result<Plan> {
    check(a.params, &[a.grads, a.square_avgs, a.acc_deltas], &[])
}

fn run_adadelta(a: &calls::_OptimAdadelta, (): &(), _: &[Tensor]) -> Result<()> {
    let update = Adadelta {
        entry: coupled(a.maximize, a.weight_decay),
        lr: a.lr,
        rho: a.rho,
        eps: a.eps,
    };
    let states = [a.square_avgs, a.acc_deltas];
    step(a.params, a.grads, &states, Rounds::Each, |_| Ok(update))
}

fn rule_adafactor(a: &calls::_OptimAdafactor) -> Result<Plan> {
    let kept = (!a.variances.is_empty()).then_some(a.variances);
    let beside: Vec<_> = [a.grads].into_iter().chain(kept).collect();
    check(a.directions, &beside, &[a.state_steps])
}

fn run_adafactor(a: &calls::_OptimAdafactor, (): &(), _: &[Tensor]) -> Result<()> {
    fn of<const FACTORED: bool>(a: &calls::_OptimAdafactor, states: &[Tensors]) -> Result<()> {
        let steps = numbers(a.state_steps)?;
        let make = |count: f64| Adafactor::<FACTORED> {
            entry: coupled(a.maximize, 0.0),
            weight: count.powf(a.beta2_decay),
            least: a.least,
        };
        let make = by_count(&steps, make);
        step(a.directions, a.grads, states, Rounds::Each, make)
    }
    match a.variances.is_empty() {
        true => of::<true>(a, &[]),
        false => of::<false>(a, &[a.variances]),
    }
}

fn rule_adamax(a: &calls::_OptimAdamax) -> Result<Plan> {
    let beside = [a.grads, a.exp_avgs, a.exp_infs];
    check(a.params, &beside, &[a.state_steps])
}

fn run_adamax(a: &calls::_OptimAdamax, (): &(), _: &[Tensor]) -> Result<()> {
    let steps = numbers(a.state_steps)?;
    let make = |count: f64| Adamax {
        entry: coupled(a.maximize, a.weight_decay),
        betas: [a.beta1, a.beta2],
        eps: a.eps,
        size: a.lr / (1.0 - a.beta1.powf(count)),
    };
    let (states, make) = ([a.exp_avgs, a.exp_infs], by_count(&steps, make));
    step(a.params, a.grads, &states, Rounds::Each, make)
}

fn rule_asgd(a: &calls::_OptimAsgd) -> Result<Plan> {
    let numbers = [a.mus, a.etas, a.state_steps];
    check(a.params, &[a.grads, a.axs], &numbers)
}

fn run_asgd(a: &calls::_OptimAsgd, (): &(), _: &[Tensor]) -> Result<()> {
    let (mus, etas) = (numbers(a.mus)?, numbers(a.etas)?);
    let make = |i: usize| {
        Ok(Asgd {
            entry: coupled(a.maximize, a.weight_decay),
            lambd: a.lambd,
            eta: etas[i],
            mu: mus[i],
        })
    };
    step(a.params, a.grads, &[a.axs], Rounds::Each, make)?;
    let next = a.mus.iter().zip(a.etas.iter());
    for (step, (mu, eta)) in numbers(a.state_steps)?.into_iter().zip(next) {
        let falling = (1.0 + a.lambd * a.lr * step).powf(a.alpha);
        kernels::fill(eta, Scalar::Float(a.lr / falling))?;
        kernels::fill(mu, Scalar::Float(1.0 / (step - a.t0).max(1.0)))?;
    }
    Ok(())
}

fn rule_nadam(a: &calls::_OptimNadam) -> Result<Plan> {
    let beside = [a.grads, a.exp_avgs, a.exp_avg_sqs];
    check(a.params, &beside, &[a.mu_products, a.state_steps])
}

fn run_nadam(a: &calls::_OptimNadam, (): &(), _: &[Tensor]) -> Result<()> {
    let steps = numbers(a.state_steps)?;
    let momentum = |step: f64| momentum(step, a.beta1, a.momentum_decay);
    let products = numbers(a.mu_products)?;
    let make = |i: usize| {
        let (mu, next) = (momentum(steps[i]), momentum(steps[i] + 1.0));
        Ok(Nadam {
            entry: entry(a.maximize, a.weight_decay, a.decoupled_weight_decay, a.lr),
            betas: [a.beta1, a.beta2],
            eps: a.eps,
            correction: 1.0 - a.beta2.powf(steps[i]),
            sizes: [
                -a.lr * (1.0 - mu) / (1.0 - products[i]),
                -a.lr * next / (1.0 - products[i] * next),
            ],
        })
    };
    let states = [a.exp_avgs, a.exp_avg_sqs];
    step(a.params, a.grads, &states, Rounds::Each, make)
}

fn rule_radam(a: &calls::_OptimRadam) -> Result<Plan> {
    let beside = [a.grads, a.exp_avgs, a.exp_avg_sqs];
    check(a.params, &beside, &[a.state_steps])
}

fn run_radam(a: &calls::_OptimRadam, (): &(), _: &[Tensor]) -> Result<()> {
    let steps = numbers(a.state_steps)?;
    let limit = 2.0 / (1.0 - a.beta2) - 1.0;
    let make = |step: f64| {
        let correction = 1.0 - a.beta2.powf(step);
        let length = limit - 2.0 * step * a.beta2.powf(step) / correction;
        let trust =
            (length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length);
        Radam {
            entry: entry(a.maximize, a.weight_decay, a.decoupled_weight_decay, a.lr),
            lr: a.lr,
            betas: [a.beta1, a.beta2],
            eps: a.eps,
            correction: 1.0 - a.beta1.powf(step),
            adaptive: (length > 5.0).then(|| [correction.sqrt(), trust.sqrt()]),
        }
    };
    let (states, make) = ([a.exp_avgs, a.exp_avg_sqs], by_count(&steps, make));
    step(a.params, a.grads, &states, Rounds::Each, make)
}

/// The states that RMSprop has with these options.
fn rmsprop_states<'a>(a: &calls::_OptimRmsprop<'a>) -> Vec<Tensors<'a>> {
    let mut states = vec![a.square_avgs];
    states.extend(a.centered.then_some(a.grad_avgs));
    states.extend((a.momentum > 0.0).then_some(a.momentum_buffer_list));
    states
}

fn rule_rmsprop(a: &calls::_OptimRmsprop) -> Result<Plan> {
    let mut beside = rmsprop_states(a);
    beside.push(a.grads);
    check(a.params, &beside, &[])
}

fn run_rmsprop(a: &calls::_OptimRmsprop, (): &(), _: &[Tensor]) -> Result<()> {
    fn of<const CENTERED: bool, const MOMENTUM: bool>(a: &calls::_OptimRmsprop) -> Result<()>
    where
        Rmsprop<CENTERED, MOMENTUM>: Update,
    {
        let update = Rmsprop::<CENTERED, MOMENTUM> {
            entry: coupled(a.maximize, a.weight_decay),
            lr: a.lr,
            alpha: a.alpha,
            eps: a.eps,
            momentum: a.momentum,
        };
        let states = rmsprop_states(a);
        step(a.params, a.grads, &states, Rounds::Each, |_| Ok(update))
    }
    match (a.centered, a.momentum > 0.0) {
        (false, false) => of::<false, false>(a),
        (false, true) => of::<false, true>(a),
        (true, false) => of::<true, false>(a),
        (true, true) => of::<true, true>(a),
    }
}

fn rule_rprop(a: &calls::_OptimRprop) -> Result<Plan> {
    check(a.params, &[a.grads, a.prevs, a.step_sizes], &[])
}

fn run_rprop(a: &calls::_OptimRprop, (): &(), _: &[Tensor]) -> Result<()> {
    let update = Rprop {
        entry: coupled(a.maximize, 0.0),
        etas: [a.etaminus, a.etaplus],
        sizes: [a.step_size_min, a.step_size_max],
    };
    let states = [a.prevs, a.step_sizes];
    step(a.params, a.grads, &states, Rounds::Each, |_| Ok(update))
}
