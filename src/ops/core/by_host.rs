//! Calls of rows that a device has no kernel for: they run on copies of their operands in host memory.
//!
//! Slow, and right: the same rule, kernel and checks as on the host. Whoever asked to be told is told once an operator.

use crate::ops::core::args::{Arg, Args, OwnedArg, OwnedArgs};
use crate::ops::core::call::{Call, Form};
use crate::ops::core::dispatch;
use crate::ops::core::op::{KernelBody, Op, Ret};
use crate::ops::core::schema::Kind;
use crate::ops::core::survey::Survey;
use crate::random::SharedGenerator;
use crate::{Device, Result, Tensor, dims, kernels, warning};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Warns that a row has no kernel on a device, the first time that this happens.
fn told(op: &'static Op) {
    static SEEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    let new = SEEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(op.id);
    if new {
        warning::say(&format!(
            "{}() has no CUDA kernel yet: it runs on the CPU, on copies of its operands.",
            op.path()
        ));
    }
}

/// A copy of a tensor on another device, laid out as it is where its elements are dense.
fn moved(t: &Tensor, device: Device) -> Result<Tensor> {
    let strides = dims::preserved_strides(t.shape(), t.strides());
    let made = Tensor::empty_strided(t.shape().clone(), strides, t.dtype(), device)?;
    kernels::copy(&made, t)?;
    Ok(made)
}

/// What is drawn on the host in a device's place: by a generator that the given one, or the device's own, seeds.
///
/// # Errors
/// If the given one is the host's.
pub fn generator(given: Option<&SharedGenerator>, device: Device) -> Result<SharedGenerator> {
    match given {
        Some(g) => g.for_host(),
        None => kernels::accelerator()?.generator(device)?.for_host(),
    }
}

fn draw_on_host(owned: &mut OwnedArgs, device: Device) -> Result<()> {
    for (p, v) in owned.op.schema.params.iter().zip(&mut owned.values) {
        let given = match v {
            OwnedArg::Plain(Arg::Generator(g)) => Some(&*g),
            _ => None,
        };
        if p.kind == Kind::Generator {
            *v = OwnedArg::Plain(Arg::Generator(generator(given, device)?));
        }
    }
    Ok(())
}

/// Runs a row's host kernel for results on another device.
///
/// # Errors
/// What the row's checks and kernel report, or if memory cannot be had.
#[cold]
pub(super) fn fill(args: &Args, k: &KernelBody, outs: &[Tensor]) -> Result<()> {
    told(args.op);
    let mut owned = args.to_owned();
    let mut written = Vec::new();
    owned.replace_tensors(|i, t| {
        if !t.device().is_accelerator() {
            return Ok(None);
        }
        let host = moved(t, Device::CPU)?;
        if k.traits.mutates >> i & 1 == 1 {
            written.push((t.clone(), host.clone()));
        }
        Ok(Some(host))
    })?;
    if let Some(out) = outs.first() {
        draw_on_host(&mut owned, out.device())?;
    }
    (k.run)(&owned.borrow(), &mut |plan, exec| {
        (exec.values)()?;
        let made = plan
            .outs
            .into_iter()
            .map(|s| Tensor::empty_strided(s.shape, s.strides, s.dtype, Device::CPU));
        let made = made.collect::<Result<Vec<_>>>()?;
        (exec.cpu)(&made)?;
        outs.iter()
            .zip(&made)
            .try_for_each(|(to, from)| kernels::copy(to, from))?;
        Ok(Ret::Tuple(Vec::new()))
    })?;
    written
        .iter()
        .try_for_each(|(to, from)| kernels::copy(to, from))
}

/// Runs a whole call whose results have a shape that depends on values, and moves the results to its device.
///
/// # Errors
/// As [`fill`].
#[cold]
pub(super) fn whole(c: Call, k: &KernelBody, found: &Survey, device: Device) -> Result<Ret> {
    told(c.args.op);
    let mut owned = c.args.to_owned();
    owned.replace_tensors(|_, t| {
        Ok(if t.device().is_accelerator() {
            Some(moved(t, Device::CPU)?)
        } else {
            None
        })
    })?;
    draw_on_host(&mut owned, device)?;
    for v in &mut owned.values {
        if matches!(v, OwnedArg::Plain(Arg::Device(d)) if d.is_accelerator()) {
            *v = OwnedArg::Plain(Arg::Device(Device::CPU));
        }
    }
    let here = Survey {
        device: Some(Device::CPU),
        ..*found
    };
    let args = owned.borrow();
    let ret = dispatch::run_plain(
        Call {
            args: &args,
            form: Form::New,
        },
        k,
        &here,
    )?;
    let ret = ret.map(|_, t| moved(&t, device))?;
    match c.form {
        Form::Out(outs) => dispatch::write_out(c.args, ret.tensors(), outs),
        _ => Ok(ret),
    }
}
