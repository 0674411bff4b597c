//! The steps that PyTorch has as operators: computed without rounding in between, and with gradients that may be scaled.

use super::{by_count, check, entry, number, numbers, step, takes, value};
use crate::cpu::update::Rounds;
use crate::cpu::update::rules::{Adagrad, Adam, Sgd};
use crate::ops::core::op::{F, OpDef, Plan, kernel};
use crate::ops::core::typed::Tensors;
use crate::ops::optim::coupled;
use crate::{Result, Tensor, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_fused_sgd_",
        "(Tensor[] self, Tensor[] grads, Tensor[] momentum_buffer_list, *, float weight_decay, float momentum, Operand lr, float dampening, bool nesterov, bool maximize, bool is_first_step, Tensor? grad_scale=None, Tensor? found_inf=None) -> None",
        F,
        body!(rule_sgd, anywhere: run_sgd, scratch: |a, _, _, room| takes(&sgd_lists([a.input, a.grads, a.momentum_buffer_list], a.momentum), room)).mutates(0b111),
        "One step of SGD for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], f32[5]], [f32[3, 4], f32[5]], [f32[3, 4], f32[5]], weight_decay=0.1, momentum=0.9, lr=0.5, dampening=0.0, nesterov=True, maximize=False, is_first_step=False; [f64[3]], [f64[3]], [], weight_decay=0.0, momentum=0.0, lr=f32(0.5), dampening=0.0, nesterov=False, maximize=True, is_first_step=False; [bf16[3]], [bf16[3]], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0, nesterov=False, maximize=True, is_first_step=False, grad_scale=f32(2.0), found_inf=f32(0.0)"),
    kernel(
        "_fused_adam_",
        "(Tensor[] self, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] max_exp_avg_sqs, Tensor[] state_steps, *, Operand lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> None",
        F,
        body!(rule_adam, anywhere: run_adam, scratch: |a, _, _, room| takes(&adam_lists([a.input, a.grads, a.exp_avgs, a.exp_avg_sqs, a.max_exp_avg_sqs], a.amsgrad), room)).mutates(0b11111),
        "One step of Adam for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], f32[5]], [f32[3, 4], f32[5]], [f32[3, 4], f32[5]], [f32[3, 4].pos, f32[5].pos], [], [f32(3.0), f32(1.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False; [f64[3]], [f64[3]], [f64[3]], [f64[3].pos], [f64[3].pos], [f32(3.0)], lr=f32(0.1), beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=True, maximize=True"),
    kernel(
        "_fused_adamw_",
        "(Tensor[] self, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] max_exp_avg_sqs, Tensor[] state_steps, *, Operand lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> None",
        F,
        body!(rule_adamw, anywhere: run_adamw, scratch: |a, _, _, room| takes(&adam_lists([a.input, a.grads, a.exp_avgs, a.exp_avg_sqs, a.max_exp_avg_sqs], a.amsgrad), room)).mutates(0b11111),
        "One step of AdamW for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], f32[5]], [f32[3, 4], f32[5]], [f32[3, 4], f32[5]], [f32[3, 4].pos, f32[5].pos], [], [f32(3.0), f32(1.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False; [f16[3]], [f16[3]], [f16[3]], [f16[3].pos], [f16[3].pos], [f32(3.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-4, amsgrad=True, maximize=True"),
    kernel(
        "_fused_adagrad_",
        "(Tensor[] self, Tensor[] grads, Tensor[] state_sums, Tensor[] state_steps, *, Operand lr, float lr_decay, float weight_decay, float eps, bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> None",
        F,
        body!(rule_adagrad, anywhere: run_adagrad, scratch: |a, _, _, room| takes(&[a.input, a.grads, a.state_sums], room)).mutates(0b111),
        "One step of Adagrad for all parameters of a list.",
    ).no_grad().samples("[f32[3, 4], f32[5]], [f32[3, 4], f32[5]], [f32[3, 4].pos, f32[5].pos], [f32(3.0), f32(1.0)], lr=0.1, lr_decay=0.01, weight_decay=0.1, eps=1e-10, maximize=False; [f64[3]], [f64[3]], [f64[3].pos], [f32(2.0)], lr=f32(0.1), lr_decay=0.0, weight_decay=0.0, eps=1e-10, maximize=True"),
    kernel(
        "_optim.sgd",
        "(Tensor[] params, Tensor[] grads, Tensor[] momentum_buffer_list, *, float weight_decay, float momentum, float lr, float dampening, bool nesterov, bool maximize, bool is_first_step) -> None",
        F,
        body!(rule_own_sgd, anywhere: run_own_sgd, scratch: |a, _, _, room| takes(&sgd_lists([a.params, a.grads, a.momentum_buffer_list], a.momentum), room)).mutates(0b101),
        "One step of SGD for all parameters of a list, rounded after every operation.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], weight_decay=0.1, momentum=0.9, lr=0.5, dampening=0.1, nesterov=False, maximize=False, is_first_step=False; [f16[3]], [f16[3]], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0, nesterov=False, maximize=True, is_first_step=False"),
    kernel(
        "_optim.adam",
        "(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, float eps, bool amsgrad, bool maximize, bool decoupled_weight_decay) -> None",
        F,
        body!(rule_own_adam, anywhere: run_own_adam, scratch: |a, _, _, room| takes(&adam_lists([a.params, a.grads, a.exp_avgs, a.exp_avg_sqs, a.max_exp_avg_sqs], a.amsgrad), room)).mutates(0b11101),
        "One step of Adam or AdamW for all parameters of a list, rounded after every operation.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [], [f32(3.0), f32(1.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False, decoupled_weight_decay=True; [f64[3]], [f64[3]], [f64[3]], [f64[3].pos], [f64[3].pos], [f32(3.0)], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-4, amsgrad=True, maximize=True, decoupled_weight_decay=False"),
    kernel(
        "_optim.adagrad",
        "(Tensor[] params, Tensor[] grads, Tensor[] state_sums, Tensor[] state_steps, *, float lr, float lr_decay, float weight_decay, float eps, bool maximize) -> None",
        F,
        body!(rule_own_adagrad, anywhere: run_own_adagrad, scratch: |a, _, _, room| takes(&[a.params, a.grads, a.state_sums], room)).mutates(0b101),
        "One step of Adagrad for all parameters of a list, rounded after every operation.",
    ).no_grad().samples("[f32[3, 4], bf16[5]], [f32[3, 4], bf16[5]], [f32[3, 4].pos, bf16[5].pos], [f32(3.0), f32(1.0)], lr=0.1, lr_decay=0.01, weight_decay=0.1, eps=1e-10, maximize=False"),
];

/// Whether the step is to be made at all; takes a scale out of the gradients.
fn unscaled(grads: Tensors, scale: Option<&Tensor>, found_inf: Option<&Tensor>) -> Result<bool> {
    if let Some(found) = found_inf
        && number(found)? == 1.0
    {
        return Ok(false);
    }
    if let Some(scale) = scale {
        kernels::update::unscale(&grads.refs(), number(scale)?)?;
    }
    Ok(true)
}

/// What a step of SGD works on: buffers where there is momentum.
fn sgd_lists<'a>([p, g, buffers]: [Tensors<'a>; 3], momentum: f64) -> Vec<Tensors<'a>> {
    match momentum == 0.0 {
        true => vec![p, g],
        false => vec![p, g, buffers],
    }
}

/// What a step of Adam works on: the largest averages where they are asked for.
fn adam_lists(lists: [Tensors; 5], amsgrad: bool) -> Vec<Tensors> {
    lists.into_iter().take(4 + usize::from(amsgrad)).collect()
}

/// The numbers of SGD.
struct SgdNumbers {
    weight_decay: f64,
    momentum: f64,
    lr: f64,
    dampening: f64,
    nesterov: bool,
    maximize: bool,
    first: bool,
}

impl SgdNumbers {
    fn update<const MOMENTUM: bool>(&self) -> Sgd<MOMENTUM> {
        Sgd {
            entry: coupled(self.maximize, self.weight_decay),
            lr: self.lr,
            momentum: self.momentum,
            dampening: self.dampening,
            nesterov: self.nesterov,
            first: self.first,
        }
    }
}

fn sgd([p, g, buffers]: [Tensors; 3], n: &SgdNumbers, rounds: Rounds) -> Result<()> {
    if n.momentum == 0.0 {
        return step(p, g, &[], rounds, |_| Ok(n.update::<false>()));
    }
    step(p, g, &[buffers], rounds, |_| Ok(n.update::<true>()))
}

/// The lists beside the parameters: momenta only if there is momentum.
fn check_sgd(p: Tensors, g: Tensors, buffers: Tensors, momentum: f64) -> Result<Plan> {
    if momentum == 0.0 {
        return check(p, &[g], &[]);
    }
    check(p, &[g, buffers], &[])
}

fn rule_sgd(a: &calls::_FusedSgd_) -> Result<Plan> {
    check_sgd(a.input, a.grads, a.momentum_buffer_list, a.momentum)
}

fn run_sgd(a: &calls::_FusedSgd_, (): &(), _: &[Tensor]) -> Result<()> {
    let numbers = SgdNumbers {
        weight_decay: a.weight_decay,
        momentum: a.momentum,
        lr: value(a.lr)?,
        dampening: a.dampening,
        nesterov: a.nesterov,
        maximize: a.maximize,
        first: a.is_first_step,
    };
    if !unscaled(a.grads, a.grad_scale, a.found_inf)? {
        return Ok(());
    }
    sgd(
        [a.input, a.grads, a.momentum_buffer_list],
        &numbers,
        Rounds::Last,
    )
}

fn rule_own_sgd(a: &calls::_OptimSgd) -> Result<Plan> {
    check_sgd(a.params, a.grads, a.momentum_buffer_list, a.momentum)
}

fn run_own_sgd(a: &calls::_OptimSgd, (): &(), _: &[Tensor]) -> Result<()> {
    let numbers = SgdNumbers {
        weight_decay: a.weight_decay,
        momentum: a.momentum,
        lr: a.lr,
        dampening: a.dampening,
        nesterov: a.nesterov,
        maximize: a.maximize,
        first: a.is_first_step,
    };
    sgd(
        [a.params, a.grads, a.momentum_buffer_list],
        &numbers,
        Rounds::Each,
    )
}

/// The numbers of Adam.
struct AdamNumbers {
    lr: f64,
    betas: [f64; 2],
    weight_decay: f64,
    eps: f64,
    maximize: bool,
    decoupled: bool,
}

impl AdamNumbers {
    fn update<const LARGEST: bool>(&self, step: f64) -> Adam<LARGEST> {
        let [first, second] = self.betas.map(|beta| 1.0 - beta.powf(step));
        Adam {
            entry: entry(self.maximize, self.weight_decay, self.decoupled, self.lr),
            betas: self.betas,
            eps: self.eps,
            size: self.lr / first,
            root: second.sqrt(),
        }
    }
}

/// The lists of Adam: parameters, gradients, averages, averages of squares, the largest of these, step counts.
type AdamLists<'a> = [Tensors<'a>; 6];

fn check_adam([p, g, m, v, top, steps]: AdamLists, amsgrad: bool) -> Result<Plan> {
    let beside = [g, m, v, top];
    check(p, &beside[..3 + usize::from(amsgrad)], &[steps])
}

fn adam(lists: AdamLists, amsgrad: bool, n: &AdamNumbers, rounds: Rounds) -> Result<()> {
    let [p, g, m, v, top, steps] = lists;
    let steps = numbers(steps)?;
    if amsgrad {
        let make = by_count(&steps, |count| n.update::<true>(count));
        return step(p, g, &[m, v, top], rounds, make);
    }
    let make = by_count(&steps, |count| n.update::<false>(count));
    step(p, g, &[m, v], rounds, make)
}

macro_rules! fused_adam {
    ($rule:ident $run:ident $class:ident $decoupled:literal) => {
        fn $rule(a: &calls::$class) -> Result<Plan> {
            let lists = [
                a.input,
                a.grads,
                a.exp_avgs,
                a.exp_avg_sqs,
                a.max_exp_avg_sqs,
                a.state_steps,
            ];
            check_adam(lists, a.amsgrad)
        }

        fn $run(a: &calls::$class, (): &(), _: &[Tensor]) -> Result<()> {
            let numbers = AdamNumbers {
                lr: value(a.lr)?,
                betas: [a.beta1, a.beta2],
                weight_decay: a.weight_decay,
                eps: a.eps,
                maximize: a.maximize,
                decoupled: $decoupled,
            };
            if !unscaled(a.grads, a.grad_scale, a.found_inf)? {
                return Ok(());
            }
            let lists = [
                a.input,
                a.grads,
                a.exp_avgs,
                a.exp_avg_sqs,
                a.max_exp_avg_sqs,
                a.state_steps,
            ];
            adam(lists, a.amsgrad, &numbers, Rounds::Last)
        }
    };
}
fused_adam!(rule_adam run_adam _FusedAdam_ false);
fused_adam!(rule_adamw run_adamw _FusedAdamw_ true);

fn own_lists<'a>(a: &calls::_OptimAdam<'a>) -> AdamLists<'a> {
    [
        a.params,
        a.grads,
        a.exp_avgs,
        a.exp_avg_sqs,
        a.max_exp_avg_sqs,
        a.state_steps,
    ]
}

fn rule_own_adam(a: &calls::_OptimAdam) -> Result<Plan> {
    check_adam(own_lists(a), a.amsgrad)
}

fn run_own_adam(a: &calls::_OptimAdam, (): &(), _: &[Tensor]) -> Result<()> {
    let numbers = AdamNumbers {
        lr: a.lr,
        betas: [a.beta1, a.beta2],
        weight_decay: a.weight_decay,
        eps: a.eps,
        maximize: a.maximize,
        decoupled: a.decoupled_weight_decay,
    };
    adam(own_lists(a), a.amsgrad, &numbers, Rounds::Each)
}

/// The numbers of Adagrad.
struct AdagradNumbers {
    lr: f64,
    lr_decay: f64,
    weight_decay: f64,
    eps: f64,
    maximize: bool,
}

fn adagrad([p, g, sums, steps]: [Tensors; 4], n: &AdagradNumbers, rounds: Rounds) -> Result<()> {
    let entry = coupled(n.maximize, n.weight_decay);
    let steps = numbers(steps)?;
    let make = |count: f64| Adagrad {
        entry,
        lr: n.lr / (1.0 + (count - 1.0) * n.lr_decay),
        eps: n.eps,
    };
    step(p, g, &[sums], rounds, by_count(&steps, make))
}

fn rule_adagrad(a: &calls::_FusedAdagrad_) -> Result<Plan> {
    check(a.input, &[a.grads, a.state_sums], &[a.state_steps])
}

fn run_adagrad(a: &calls::_FusedAdagrad_, (): &(), _: &[Tensor]) -> Result<()> {
    let numbers = AdagradNumbers {
        lr: value(a.lr)?,
        lr_decay: a.lr_decay,
        weight_decay: a.weight_decay,
        eps: a.eps,
        maximize: a.maximize,
    };
    if !unscaled(a.grads, a.grad_scale, a.found_inf)? {
        return Ok(());
    }
    adagrad(
        [a.input, a.grads, a.state_sums, a.state_steps],
        &numbers,
        Rounds::Last,
    )
}

fn rule_own_adagrad(a: &calls::_OptimAdagrad) -> Result<Plan> {
    check(a.params, &[a.grads, a.state_sums], &[a.state_steps])
}

fn run_own_adagrad(a: &calls::_OptimAdagrad, (): &(), _: &[Tensor]) -> Result<()> {
    let numbers = AdagradNumbers {
        lr: a.lr,
        lr_decay: a.lr_decay,
        weight_decay: a.weight_decay,
        eps: a.eps,
        maximize: a.maximize,
    };
    adagrad(
        [a.params, a.grads, a.state_sums, a.state_steps],
        &numbers,
        Rounds::Each,
    )
}
