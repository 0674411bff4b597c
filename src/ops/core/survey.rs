//! What a call's arguments say before any rule runs: who wants to see the call, where the data is.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::Traits;
use crate::{Device, Error, Result, Tensor, err, mode};

/// The flag bytes of all tensors and storages among the arguments, in one word; see [`crate::mode`] for the bits.
#[inline]
#[must_use]
pub fn glance(args: &Args) -> u32 {
    let mut seen = mode::CALL;
    for v in &args.values {
        match v {
            Arg::Tensor(t) => seen |= t.glance(),
            Arg::Tensors(list) => list.iter().for_each(|t| seen |= t.glance()),
            Arg::OptTensors(list) => list.iter().flatten().for_each(|t| seen |= t.glance()),
            _ => {}
        }
    }
    seen
}

/// What the arguments of a kernel have in common.
pub struct Survey {
    /// Where the data is, if a tensor says so.
    pub device: Option<Device>,
    /// A lazily conjugated or negated tensor is among them.
    pub lazy: bool,
}

/// Finds the common device, and whether anything lazy is among the arguments.
///
/// # Errors
/// If tensors are on different devices.
#[inline]
pub fn survey(args: &Args, traits: &Traits) -> Result<Survey> {
    match alike(args) {
        Some(seen) if traits.any_device == 0 => Ok(seen),
        _ => each(args, traits),
    }
}

/// What tensors have in common that are on one device and not lazy, as nearly all are: exceptions make no difference then.
#[inline]
fn alike(args: &Args) -> Option<Survey> {
    let mut device = None;
    let mut same = true;
    args.for_each_tensor(|_, t| {
        let d = t.device();
        same &= !t.is_lazy() && *device.get_or_insert(d) == d;
    });
    same.then_some(Survey {
        device,
        lazy: false,
    })
}

fn each(args: &Args, traits: &Traits) -> Result<Survey> {
    let mut seen = Survey {
        device: None,
        lazy: false,
    };
    let mut on_host = None;
    let mut clash = None;
    args.for_each_tensor(|i, t| {
        seen.lazy |= t.is_lazy();
        let d = t.device();
        let bit = 1u16 << i.min(15);
        if traits.any_device & bit != 0 {
            return;
        }
        if d.is_cpu() && (t.ndim() == 0 || traits.index_args & bit != 0) {
            on_host = Some(d);
            return;
        }
        match seen.device {
            None => seen.device = Some(d),
            Some(first) if first == d => {}
            Some(first) => {
                clash.get_or_insert((first, d));
            }
        }
    });
    if let Some((first, other)) = clash {
        return Err(device_clash(first, other));
    }
    if let (Some(d), true) = (seen.device, traits.index_args != 0) {
        check_others(args, traits, d)?;
    }
    // A host tensor that was only let in as an index or scalar still decides if nothing else does.
    if seen.device.is_none() {
        seen.device = on_host;
    }
    Ok(seen)
}

/// Arguments with dimensions that are no indices have to be where the others are.
fn check_others(args: &Args, traits: &Traits, device: Device) -> Result<()> {
    let mut wrong: Option<&Tensor> = None;
    args.for_each_tensor(|i, t| {
        let index = traits.index_args & (1 << i.min(15)) != 0;
        if !index && t.ndim() > 0 && t.device() != device && traits.any_device == 0 {
            wrong = Some(t);
        }
    });
    wrong.map_or(Ok(()), |t| Err(device_clash(device, t.device())))
}

#[cold]
fn device_clash(first: Device, other: Device) -> Error {
    if first.is_meta() || other.is_meta() {
        err!(
            Runtime,
            "Tensor on device {other} is not on the expected device {first}!"
        )
    } else {
        err!(
            Runtime,
            "Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
        )
    }
}
