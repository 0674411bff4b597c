//! What a call's arguments say before any rule runs: who wants to see the call, where the data is.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::Traits;
use crate::parts::Layout;
use crate::{Device, DeviceKind, Error, Result, Tensor, err, mode, storage};

/// What one look at the tensors of a call and at the settings of the thread shows.
#[derive(Clone, Copy)]
pub struct Seen {
    /// The flag bytes of all tensors and storages in one word; see [`mode`] for the bits.
    pub flags: u32,
    /// The thread's [word](mode::word).
    pub word: u32,
    /// The bits that any of the devices has, as [`Device`] words.
    any: u16,
    /// The bits that all of the devices have; more than that without a tensor.
    all: u16,
}

impl Seen {
    /// True if a layer wants to see the call.
    #[inline]
    pub(super) fn watched(self) -> bool {
        self.flags & self.word & mode::WATCHED != 0
    }

    /// What asks for layers: those that are on, and flags of arguments.
    #[inline]
    pub(crate) fn asked(self) -> u32 {
        let flags = self.flags & (self.word | !mode::GRAD) & !mode::CALL;
        flags & mode::WATCHED | self.word & mode::LAYERS
    }

    /// Takes a look at another tensor.
    #[inline]
    fn add(&mut self, t: &Tensor) {
        let device = t.storage().device_word();
        self.flags |= t.glance();
        self.any |= device;
        self.all &= device;
    }

    /// The device of all tensors, if there is one (or none, if there are no tensors) and not several.
    #[inline]
    fn device(self) -> Option<Option<Device>> {
        if self.any == self.all {
            return Some(Some(Device::from_word(self.any)));
        }
        (self.all == u16::MAX).then_some(None)
    }
}

/// Looks once at all tensors among the arguments.
#[inline(always)]
#[must_use]
pub fn glance(args: &Args) -> Seen {
    let mut seen = Seen {
        flags: mode::CALL,
        word: mode::word(),
        any: 0,
        all: u16::MAX,
    };
    for value in &args.values {
        match value {
            Arg::Tensor(t) => seen.add(t),
            Arg::Tensors(list) => list.iter().for_each(|t| seen.add(t)),
            Arg::OptTensors(list) => list.iter().flatten().for_each(|t| seen.add(t)),
            // What is asked for concerns the same layer as what is given.
            Arg::Layout(l) if *l != Layout::Strided => {
                seen.flags |= u32::from(storage::OPAQUE) << mode::STORAGE_FLAGS;
            }
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
    /// Inference mode is on.
    pub inference: bool,
}

impl Survey {
    /// Of plain arguments on a device.
    #[must_use]
    pub fn on(device: Device) -> Self {
        Self {
            device: Some(device),
            lazy: false,
            inference: mode::inference(),
        }
    }
}

/// Finds the common device, and whether anything lazy is among the arguments.
///
/// # Errors
/// If tensors are on different devices.
#[inline]
pub fn survey(args: &Args, traits: &Traits, seen: Seen) -> Result<Survey> {
    match seen.device() {
        // Exceptions make no difference among tensors on one device, as long as the first is none.
        Some(device) if traits.any_device & 1 == 0 => Ok(Survey {
            device,
            lazy: seen.flags & mode::LAZY != 0,
            inference: seen.word & mode::INFERENCE != 0,
        }),
        _ => each(args, traits, seen),
    }
}

fn each(args: &Args, traits: &Traits, seen: Seen) -> Result<Survey> {
    let fake = seen.flags & mode::FAKE != 0;
    let mut seen = Survey {
        device: None,
        lazy: seen.flags & mode::LAZY != 0,
        inference: seen.word & mode::INFERENCE != 0,
    };
    let mut on_host = None;
    let (mut clash, mut index_here) = (None, None);
    args.for_each_tensor(|i, t| {
        let d = t.device();
        let bit = 1u16 << i.min(15);
        if traits.any_device & bit != 0 {
            return;
        }
        if d.is_cpu() && (t.ndim() == 0 || traits.index_args & bit != 0) {
            on_host = Some(d);
            if t.ndim() > 0 {
                index_here = Some(d);
            }
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
    if let (Some(first), Some(other)) = (seen.device, index_here)
        && first.kind == DeviceKind::Cuda
        && !traits.host_indices
    {
        return Err(device_clash(first, other, fake));
    }
    if let Some((first, other)) = clash {
        return Err(device_clash(first, other, fake));
    }
    if let (Some(d), true) = (seen.device, traits.index_args != 0) {
        check_others(args, traits, d, fake)?;
    }
    // A host tensor that was only let in as an index or scalar still decides if nothing else does.
    if seen.device.is_none() {
        seen.device = on_host;
    }
    Ok(seen)
}

/// Arguments with dimensions that are no indices have to be where the others are.
fn check_others(args: &Args, traits: &Traits, device: Device, fake: bool) -> Result<()> {
    let mut wrong: Option<&Tensor> = None;
    args.for_each_tensor(|i, t| {
        let index = traits.index_args & (1 << i.min(15)) != 0;
        if !index && t.ndim() > 0 && t.device() != device && traits.any_device == 0 {
            wrong = Some(t);
        }
    });
    wrong.map_or(Ok(()), |t| Err(device_clash(device, t.device(), fake)))
}

#[cold]
fn device_clash(first: Device, other: Device, fake: bool) -> Error {
    if (first.is_meta() || other.is_meta()) && !fake {
        err!(
            Devices,
            "Tensor on device {other} is not on the expected device {first}!"
        )
    } else {
        err!(
            Devices,
            "Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
        )
    }
}
