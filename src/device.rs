//! Devices: where a storage's bytes live. `meta` is a device whose storages hold none.

use crate::{Error, Result, bail, err};
use std::cell::Cell;
use std::fmt;

/// The kinds of device this crate computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DeviceKind {
    /// Host memory.
    Cpu,
    /// No memory: shapes, strides and dtypes only.
    Meta,
    /// An NVIDIA GPU.
    Cuda,
}

impl DeviceKind {
    /// The name in device strings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Meta => "meta",
            Self::Cuda => "cuda",
        }
    }
}

/// A device kind with an optional index, as in `cuda:1`; an index of -1 means none was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// What kind of device.
    pub kind: DeviceKind,
    /// Which one of its kind, or -1.
    pub index: i8,
}

/// Device type names that PyTorch knows, in the order of its error message.
const KNOWN: &str = "cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, \
vulkan, mps, meta, hpu, mtia, privateuseone";

impl Device {
    /// Host memory.
    pub const CPU: Self = Self {
        kind: DeviceKind::Cpu,
        index: -1,
    };
    /// No memory.
    pub const META: Self = Self {
        kind: DeviceKind::Meta,
        index: -1,
    };

    /// The CUDA device of number `index`.
    #[must_use]
    pub const fn cuda(index: i8) -> Self {
        Self {
            kind: DeviceKind::Cuda,
            index,
        }
    }

    /// The device as one number, never `u16::MAX`.
    #[inline]
    pub(crate) const fn word(self) -> u16 {
        (self.index as u8 as u16) << 8 | self.kind as u16
    }

    /// The device of a [`word`](Self::word).
    #[inline]
    pub(crate) const fn from_word(word: u16) -> Self {
        let kind = match word as u8 {
            0 => DeviceKind::Cpu,
            1 => DeviceKind::Meta,
            _ => DeviceKind::Cuda,
        };
        let index = (word >> 8) as i8;
        Self { kind, index }
    }

    /// Reads `cpu`, `meta`, `cuda`, `cuda:1`, ...
    ///
    /// # Errors
    /// PyTorch's message for an empty, malformed or unknown device string.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "cpu" => return Ok(Self::CPU),
            "meta" => return Ok(Self::META),
            "" => bail!(Runtime, "Device string must not be empty"),
            _ => {}
        }
        let (name, index) = Self::parts(text)?;
        let kind = match name {
            "cpu" => DeviceKind::Cpu,
            "meta" => DeviceKind::Meta,
            "cuda" => DeviceKind::Cuda,
            known if KNOWN.split(", ").any(|k| k == known) => return Err(Self::absent(known)),
            _ => bail!(
                Runtime,
                "Expected one of {KNOWN} device type at start of device string: {name}"
            ),
        };
        Ok(Self { kind, index })
    }

    /// The type and index of a device of a type that PyTorch knows and this crate has not, which can be named.
    #[must_use]
    pub fn elsewhere(text: &str) -> Option<(&'static str, i8)> {
        let (name, index) = Self::parts(text).ok()?;
        let known = KNOWN.split(", ").find(|k| *k == name)?;
        (!matches!(known, "cpu" | "cuda" | "meta")).then_some((known, index))
    }

    /// The error of whoever would use a device of such a type.
    #[cold]
    #[must_use]
    pub fn absent(name: &str) -> Error {
        err!(
            NotImplemented,
            "torchlike has no device of type '{name}': it knows cpu, meta and cuda"
        )
    }

    /// The type that a device string says, and the index, or -1.
    fn parts(text: &str) -> Result<(&str, i8)> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        if !name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') || name.is_empty() {
            bail!(Runtime, "Invalid device string: '{text}'");
        }
        let index = match index {
            None => -1,
            Some(digits) => {
                let ok = !digits.is_empty()
                    && digits.bytes().all(|b| b.is_ascii_digit())
                    && (digits == "0" || !digits.starts_with('0'));
                if !ok {
                    bail!(Runtime, "Invalid device string: '{text}'");
                }
                match digits.parse::<i64>() {
                    Ok(n) if n <= 127 => n as i8,
                    Ok(_) | Err(_) => bail!(
                        Runtime,
                        "Could not parse device index '{digits}' in device string '{text}'"
                    ),
                }
            }
        };
        Ok((name, index))
    }

    /// True for the meta device.
    #[must_use]
    pub fn is_meta(self) -> bool {
        self.kind == DeviceKind::Meta
    }

    /// True for host memory.
    #[must_use]
    pub fn is_cpu(self) -> bool {
        self.kind == DeviceKind::Cpu
    }

    /// True for the memory of a device beside the host.
    #[must_use]
    pub fn is_accelerator(self) -> bool {
        self.kind == DeviceKind::Cuda
    }

    /// The device a storage made for this one reports: meta and cpu drop their index, cuda without one is the [`current`].
    #[must_use]
    pub fn canonical(self) -> Self {
        match self.kind {
            DeviceKind::Cuda if self.index < 0 => Self::cuda(current()),
            DeviceKind::Cuda => self,
            kind => Self { kind, index: -1 },
        }
    }
}

thread_local! {
    static CURRENT: Cell<i8> = const { Cell::new(0) };
}

/// The number of the GPU that this thread means when it names none.
#[must_use]
pub fn current() -> i8 {
    CURRENT.get()
}

/// Makes a GPU the one that this thread means when it names none.
pub fn set_current(index: i8) {
    CURRENT.set(index);
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.index >= 0 {
            write!(f, ":{}", self.index)
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
