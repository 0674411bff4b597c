//! Steps of optimizers: operators that change lists of tensors. A group of parameters is one call.
//!
//! `fused` has those that PyTorch has, with its names; `rows` the others, which round as a call for each operation would.

pub mod amp;
pub mod fused;
pub mod rows;

use crate::cpu::room::Room;
use crate::cpu::update::rules::Entry;
use crate::cpu::update::{self, Rounds, Set, Step, Update};
use crate::ops::core::typed::{Operand, Tensors};
use crate::plan::Plan;
use crate::{DType, Result, Tensor, ensure, kernels};

/// Checks the lists of a step. All have an entry for each parameter, and are of its size and type; `numbers` have one element.
fn check(params: Tensors, beside: &[Tensors], numbers: &[Tensors]) -> Result<Plan> {
    for list in beside.iter().chain(numbers) {
        ensure!(
            list.len() == params.len(),
            Runtime,
            "Tensor lists must have the same number of tensors, got {} and {}",
            params.len(),
            list.len()
        );
    }
    for (i, p) in params.iter().enumerate() {
        ensure!(
            matches!(
                p.dtype(),
                DType::F32 | DType::F64 | DType::F16 | DType::BF16
            ),
            Runtime,
            "a step of an optimizer is made of floating point tensors, but parameter {i} is {}",
            p.dtype().scalar_type()
        );
        for t in beside.iter().filter_map(|list| list.get(i)) {
            ensure!(
                t.dtype() == p.dtype() && t.shape() == p.shape(),
                Runtime,
                "what belongs to a parameter has to be of its shape and type: parameter {i} is {} {}, but there is {} {}",
                p.dtype().scalar_type(),
                p.shape(),
                t.dtype().scalar_type(),
                t.shape()
            );
        }
    }
    numbers.iter().try_for_each(|list| check_numbers(*list))?;
    Ok(Plan::default())
}

/// Checks a list of single numbers.
fn check_numbers(list: Tensors) -> Result<()> {
    list.iter().try_for_each(|t| {
        ensure!(
            t.numel() == 1 && t.dtype().is_float(),
            Runtime,
            "counts of steps are single floating point numbers, but there is one of shape {} and type {}",
            t.shape(),
            t.dtype().scalar_type()
        );
        Ok(())
    })
}

/// The number in a tensor of one element.
fn number(t: &Tensor) -> Result<f64> {
    Ok(kernels::read(t)?.to_f64())
}

/// A number that may be given as a tensor.
fn value(o: Operand) -> Result<f64> {
    match o {
        Operand::Scalar(s) => Ok(s.to_f64()),
        Operand::Tensor(t) => number(t),
    }
}

/// The number in each tensor of a list.
fn numbers(list: Tensors) -> Result<Vec<f64>> {
    list.iter().map(number).collect()
}

/// Updates by the counts of their parameters, which are mostly the same: then `make`, with its powers, is asked once.
fn by_count<U: Copy>(steps: &[f64], make: impl Fn(f64) -> U) -> impl FnMut(usize) -> Result<U> {
    let mut last: Option<(f64, U)> = None;
    move |i| {
        let count = steps[i];
        let (_, update) = *match &mut last {
            Some(known) if known.0 == count => known,
            other => other.insert((count, make(count))),
        };
        Ok(update)
    }
}

/// L2 decay, which belongs to the gradient.
fn coupled(maximize: bool, weight_decay: f64) -> Entry {
    Entry {
        maximize,
        decay: weight_decay,
        shrink: None,
    }
}

/// Decay that shrinks the parameter by itself, or belongs to the gradient.
fn entry(maximize: bool, weight_decay: f64, decoupled: bool, lr: f64) -> Entry {
    if !decoupled || weight_decay == 0.0 {
        return coupled(maximize, weight_decay);
    }
    Entry {
        maximize,
        decay: 0.0,
        shrink: Some(1.0 - lr * weight_decay),
    }
}

/// What a step takes besides what it writes: of parameters, gradients, and lists of state.
fn takes(lists: &[Tensors], room: &mut Room) -> Result<()> {
    let lists: Vec<_> = lists.iter().map(|list| list.iter().collect()).collect();
    update::room::step(&lists, room)
}

/// One step of all parameters by the updates that `make` gives for their numbers in the list.
fn step<U: Update>(
    params: Tensors,
    grads: Tensors,
    states: &[Tensors],
    rounds: Rounds,
    make: impl FnMut(usize) -> Result<U>,
) -> Result<()> {
    let updates = (0..params.len()).map(make).collect::<Result<Vec<_>>>()?;
    let updates = updates.iter().map(|u| u as &dyn Step).collect();
    step_by(params, grads, states, rounds, updates)
}

fn step_by(
    params: Tensors,
    grads: Tensors,
    states: &[Tensors],
    rounds: Rounds,
    updates: Vec<&dyn Step>,
) -> Result<()> {
    let each = params.iter().zip(grads.iter()).zip(updates).enumerate();
    let set = |(i, ((p, g), update))| Set {
        update,
        p,
        g,
        s: states.iter().filter_map(|list| list.get(i)).collect(),
    };
    kernels::update::run(each.map(set).collect(), rounds)
}
