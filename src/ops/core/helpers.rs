//! Typed helpers for the ops that the crate itself calls often.

use crate::ops::core::args::Arg;
use crate::ops::core::dispatch;
use crate::{DType, Device, MemoryFormat, Result, Scalar, Tensor, bail, cpu, op};

/// Refuses a list of more tensors than memory could hold: what makes a list allocates it without asking.
///
/// # Errors
/// If there are too many.
pub fn check_many(n: i64) -> Result<()> {
    // A view, its plan, and the objects that Python has of it.
    const EACH: usize = 512;
    let room = (n as usize).checked_mul(EACH).and_then(|bytes| {
        let mut room: Vec<u8> = Vec::new();
        room.try_reserve_exact(bytes).ok()?;
        Some(std::hint::black_box(room))
    });
    crate::ensure!(
        room.is_some(),
        Memory,
        "a list of {n} tensors does not fit into memory"
    );
    Ok(())
}

/// Writes `src` (broadcast, converted, from any device) into `dst`.
///
/// # Errors
/// If the shapes do not fit or the data cannot be had.
pub fn copy_(dst: &Tensor, src: &Tensor) -> Result<()> {
    let op = op!("copy")?;
    let args = crate::ops::Args::new(op, [Arg::Tensor(dst), Arg::Tensor(src)])?;
    dispatch::call(crate::ops::Call::in_place(&args)?).map(drop)
}

/// A copy in another dtype and on another device, laid out alike.
///
/// # Errors
/// If the data cannot be had or converted.
pub fn to_copy(t: &Tensor, dtype: DType, device: Device) -> Result<Tensor> {
    dispatch::run(op!("_to_copy")?, &[t.into(), dtype.into(), device.into()])?.one()
}

/// A fresh copy.
///
/// # Errors
/// If memory cannot be had.
pub fn clone(t: &Tensor, format: MemoryFormat) -> Result<Tensor> {
    dispatch::run(op!("clone")?, &[t.into(), format.into()])?.one()
}

/// The tensor without lazy conjugation or negation.
///
/// # Errors
/// If memory cannot be had.
pub fn resolve(t: &Tensor) -> Result<Tensor> {
    if t.is_lazy() {
        clone(t, MemoryFormat::Preserve)
    } else {
        Ok(t.clone())
    }
}

/// The only element; recorded tensors answer by replaying.
///
/// # Errors
/// If there is not exactly one element, or no data.
pub fn item(t: &Tensor) -> Result<Scalar> {
    item_or(t, "Tensor.item() cannot be called on meta tensors")
}

/// As [`item`]; `text` says what is missing on meta.
///
/// # Errors
/// As of [`item`].
pub fn item_or(t: &Tensor, text: &str) -> Result<Scalar> {
    if t.numel() != 1 {
        bail!(
            Runtime,
            "a Tensor with {} elements cannot be converted to Scalar",
            t.numel()
        );
    }
    if crate::ops::sparse::is_sparse(t) {
        return item_or(&crate::ops::f::_to_dense(t)?, text);
    }
    if t.dtype().is_quantized() {
        return item_or(&crate::ops::f::_dequantize(t)?, text);
    }
    if is_without_memory(t) && t.batch().is_empty() {
        return crate::wiring::element(t);
    }
    if let Some(known) = crate::wiring::shown_element(t)? {
        return Ok(known);
    }
    first(&to_host(t, text)?)
}

/// The first element of a host tensor. What was brought from a device is no lazy view any more.
fn first(t: &Tensor) -> Result<Scalar> {
    cpu::read_scalar(&cpu::copy::dense(t, t.dtype())?, 0)
}

/// The only element, if it is known, as a kernel reads it: modes see no call, but a tensor without memory whose class handles its calls is
/// asked.
///
/// # Errors
/// As of [`item`].
pub fn known_item(t: &Tensor) -> Result<Option<Scalar>> {
    match has_no_values(t) {
        true if t.is_python() && !t.is_meta() => Ok(item(t).ok()),
        true => Ok(None),
        false => first(&readable(t, "the elements of a tensor are not known")?).map(Some),
    }
}

/// That a number is read which differs from example to example of `vmap`.
#[must_use]
pub fn data_dependent() -> crate::Error {
    crate::err!(
        Runtime,
        "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, \
         please file an issue at https://github.com/pytorch/pytorch/issues ."
    )
}

/// That the elements of a tensor lie nowhere.
#[must_use]
pub fn no_storage() -> crate::Error {
    crate::err!(
        Runtime,
        "Cannot access data pointer of Tensor that doesn't have storage"
    )
}

/// True for what only its class knows the elements of: neither in memory, nor on meta, nor fake.
fn is_without_memory(t: &Tensor) -> bool {
    let s = t.storage();
    !t.is_meta() && s.is_hollow() && !s.is_fake() && s.nbytes() > 0
}

/// A host tensor with the same values, if the data can be had at all; a recorded meta tensor is replayed aside and
/// stays on meta.
///
/// # Errors
/// A `Runtime` error with `text` on meta without a source.
pub fn readable(t: &Tensor, text: &str) -> Result<Tensor> {
    crate::wiring::reading(t)?;
    to_host(t, text)
}

fn to_host(t: &Tensor, text: &str) -> Result<Tensor> {
    let settled = t.settled();
    let t = settled.as_ref().unwrap_or(t);
    if !t.batch().is_empty() {
        return Err(data_dependent());
    }
    if t.storage().is_fake() {
        return crate::wiring::known(t);
    }
    if is_without_memory(t) {
        return Err(no_storage());
    }
    if !t.is_meta() {
        return t.to_device(Device::CPU);
    }
    match t.storage().source() {
        Some(source) => crate::wiring::peek(t, &source),
        None => bail!(Runtime, "{text}"),
    }
}

/// True for a tensor of a device beside the host, with or without values: some composites are made otherwise there.
#[must_use]
pub fn is_beside(t: &Tensor) -> bool {
    t.device().is_accelerator()
}

/// True if a tensor's values lie on a device beside the host.
#[must_use]
pub fn lies_beside(t: &Tensor) -> bool {
    is_beside(t) && !t.storage().is_fake() && !t.storage().is_hollow()
}

/// A tensor that a composite made of numbers, to go with `t`: on its device, fake if that is, recorded if that is.
///
/// # Errors
/// If it cannot be recorded.
pub fn made_for(made: Tensor, t: &Tensor) -> Result<Tensor> {
    if t.device().is_accelerator() && !t.storage().is_hollow() {
        return made.to_device(t.device());
    }
    if !made.is_meta() && t.is_meta() && t.storage().is_sourced() {
        return crate::wiring::recorded(&made);
    }
    Ok(match t.storage().fake_mode() {
        Some(mode) if !made.storage().is_fake() => {
            let made = mode.lift(&made);
            crate::wiring::made(&made);
            return made.to_device(t.device());
        }
        _ => made,
    })
}

/// True if the elements can be read at once: what a rule asks whose result has a shape that depends on them.
#[must_use]
pub fn at_hand(t: &Tensor) -> bool {
    t.device().is_cpu() && !t.storage().is_hollow()
}

/// True if elements can be asked for on the host: read at once, found where they are from, or refused by a fake mode.
#[must_use]
pub fn is_host(t: &Tensor) -> bool {
    at_hand(t) || t.storage().is_sourced() || (t.device().is_cpu() && t.storage().is_fake())
}

/// True if nobody can read the elements: not now, and not by replaying either.
#[must_use]
pub fn has_no_values(t: &Tensor) -> bool {
    t.storage().is_hollow() && !t.storage().is_sourced()
}

/// The tensor in host memory; a meta tensor as it is, for the recording to replay.
///
/// # Errors
/// If the copy fails.
pub fn on_host(t: &Tensor) -> Result<Tensor> {
    if t.is_meta() {
        return Ok(t.clone());
    }
    t.to_device(Device::CPU)
}

/// A result made in host memory where the arguments are; what a replay made stays where it is.
///
/// # Errors
/// If the copy fails.
pub fn back_to(t: Tensor, device: Device) -> Result<Tensor> {
    if device.is_meta() {
        return Ok(t);
    }
    t.to_device(device)
}

/// Where a composite makes a tensor to go with `t`: on its device, or nowhere in particular if `t` is recorded, which is
/// on meta only until it is replayed.
#[must_use]
pub fn beside(t: &Tensor) -> Option<Device> {
    let recorded = t.is_meta() && t.storage().is_sourced();
    (!recorded).then(|| t.device())
}

/// True for tensors on meta that nothing is recorded for: they have no elements, and will have none.
#[must_use]
pub fn is_nowhere(t: &Tensor) -> bool {
    beside(t).is_some_and(Device::is_meta)
}

/// True for tensors that calls on the host are made with: real ones there, and those that are recorded, as they will be.
#[must_use]
pub fn for_host(t: &Tensor) -> bool {
    beside(t).is_none_or(Device::is_cpu)
}

/// Runs calls that are part of a kernel's work: only the recording, which keeps their effects, sees them.
pub fn inside<R>(f: impl FnOnce() -> R) -> R {
    crate::mode::with_layers(crate::mode::RECORDING, f)
}

/// What a look at a tensor made anew; nothing if it is as it was.
pub(crate) fn changed(t: std::borrow::Cow<'_, Tensor>) -> Option<Tensor> {
    match t {
        std::borrow::Cow::Owned(now) => Some(now),
        std::borrow::Cow::Borrowed(_) => None,
    }
}
