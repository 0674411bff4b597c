//! Steps of optimizers, by where the data is.

use super::job::{Job, Kernel};
use super::{accelerator, converted, on_host};
use crate::cpu::rows::Operand;
use crate::cpu::update::{self, Rounds, Rule, Set};
use crate::{DType, Result, Scalar, Tensor, dims};

const STEP: Kernel = Kernel {
    file: include_str!("../cuda/kernels/update.cu"),
    name: "step",
};

/// Parameters of one launch: as many as fit among its arguments.
const SETS: usize = 24;
/// Elements of a block.
const CHUNK: i64 = 2048;

/// See [`update::run`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn run(sets: Vec<Set<'_>>, rounds: Rounds) -> Result<()> {
    if sets.first().is_none_or(|s| on_host(s.p)) {
        return update::run(sets, rounds);
    }
    let states = sets.first().map_or(0, |s| s.update.states());
    let mut ready = Vec::with_capacity(sets.len());
    let mut back: Vec<(Tensor, Tensor)> = Vec::new();
    for s in sets {
        if s.p.numel() == 0 {
            continue;
        }
        let alike = |t: &Tensor| {
            !t.is_lazy()
                && (t.is_contiguous() && s.p.is_contiguous() || t.strides() == s.p.strides())
        };
        let dense = dims::is_dense(s.p.shape(), s.p.strides());
        if dense && alike(s.g) && s.s.iter().all(|t| alike(t)) {
            let own = s.s.iter().map(|t| (*t).clone()).collect();
            ready.push((s.p.clone(), s.g.clone(), own, s.update.rule()));
            continue;
        }
        let mut aside = |t: &Tensor| -> Result<Tensor> {
            let made = converted(t, t.dtype())?;
            if !made.shares_storage(t) {
                back.push((t.clone(), made.clone()));
            }
            Ok(made)
        };
        let p = aside(s.p)?;
        let own = s.s.iter().map(|t| aside(t)).collect::<Result<Vec<_>>>()?;
        ready.push((p, converted(s.g, s.g.dtype())?, own, s.update.rule()));
    }
    // Parameters of one launch are of one type.
    ready.sort_by_key(|(p, ..)| p.dtype() as u8);
    let mut rest = &ready[..];
    while let Some((p, ..)) = rest.first() {
        let alike = rest
            .iter()
            .take(SETS)
            .take_while(|(q, ..)| q.dtype() == p.dtype());
        let (now, later) = rest.split_at(alike.count());
        launch(now, states, rounds == Rounds::Each)?;
        rest = later;
    }
    back.iter().try_for_each(|(to, from)| super::copy(to, from))
}

fn launch(sets: &[(Tensor, Tensor, Vec<Tensor>, Rule)], states: usize, each: bool) -> Result<()> {
    let (p, rule) = (&sets[0].0, sets[0].3);
    let mut words: Vec<i64> = Vec::with_capacity(sets.len() * 19);
    let mut blocks = 0;
    let at = |t: &Tensor| t.data_ptr() as usize as i64;
    for (p, g, s, rule) in sets {
        words.extend([at(p), at(g)]);
        words.extend((0..3).map(|k| s.get(k).map_or(0, at)));
        words.extend([p.numel(), blocks]);
        let e = rule.entry;
        let entry = [
            f64::from(u8::from(e.maximize)),
            e.decay,
            f64::from(u8::from(e.shrink.is_some())),
            e.shrink.unwrap_or(1.0),
        ];
        words.extend(
            entry
                .iter()
                .chain(&rule.numbers)
                .map(|v| v.to_bits() as i64),
        );
        blocks += (p.numel() + CHUNK - 1) / CHUNK;
    }
    stepping(p.dtype(), each, states, sets.len(), rule.text)
        .group([], words)
        .blocks(p, blocks)
}

fn stepping(d: DType, each: bool, states: usize, sets: usize, text: &str) -> Job {
    Job::new(STEP)
        .ty("T", d)
        .define("EACH_ROUNDED", u8::from(each))
        .define("STATES", states)
        .define("SETS", sets)
        .define("STEP", text)
}

const UNSCALE: Kernel = Kernel {
    file: include_str!("../cuda/kernels/unscale.cu"),
    name: "unscale",
};

/// See [`update::unscale`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn unscale(grads: &[&Tensor], scale: f64) -> Result<()> {
    if grads.first().is_none_or(|g| on_host(g)) {
        update::unscale(grads, scale);
        return Ok(());
    }
    grads.iter().try_for_each(|g| {
        let operands = [Operand::Tensor(g), Operand::Number(Scalar::Float(scale))];
        accelerator()?.map("a / b", &operands, g.dtype(), &Default::default(), g)
    })
}

/// See [`update::unscale_checked`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn unscale_checked(grads: &[&Tensor], inverse: f64) -> Result<bool> {
    let Some(first) = grads.first().filter(|g| !on_host(g)) else {
        return update::unscale_checked(grads, inverse);
    };
    let found = Tensor::empty(&[], DType::F32, first.device())?;
    super::fill(&found, Scalar::Int(0))?;
    for g in grads {
        let job = Job::new(UNSCALE).ty("T", g.dtype()).int(g.numel());
        job.tensor(g)?.real(inverse).at(&found).each(g, g.numel())?;
    }
    Ok(super::read(&found)?.to_bool())
}

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    use crate::cpu::update::device;
    if !d.is_float() {
        return Vec::new();
    }
    let step = |(text, states): (&str, usize)| stepping(d, true, states, 2, text);
    let unscale = Job::new(UNSCALE).ty("T", d);
    device::texts()
        .into_iter()
        .map(step)
        .chain([unscale])
        .collect()
}
