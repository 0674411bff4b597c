//! Conversions to other dtypes and devices.

use crate::dims::MemoryFormat;
use crate::ops::arrange::join::suggested_format;
use crate::ops::core::op::{M, OpDef, Ret, compose};
use crate::ops::{copy, f};
use crate::source::Provider;
use crate::{DType, Device, Result, Tensor, kernels};
use std::sync::Arc;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "to#dtype",
        "(Tensor self, dtype dtype, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
        M,
        |a| {
            Wish {
                dtype: Some(a.dtype),
                copy: a.copy,
                format: a.memory_format,
                ..Wish::default()
            }
            .of(a.input)
        },
        "The tensor in another dtype.",
    ).samples(
        "f32[5, 5, 5, 5], f64, True, True, memory_format=channels_last; \
         c64[3, 4], f64, False, True, memory_format=preserve_format",
    ),
    compose(
        "to#device",
        "(Tensor self, device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
        M,
        |a| {
            Wish {
                dtype: a.dtype,
                device: a.device,
                copy: a.copy,
                format: a.memory_format,
            }
            .of(a.input)
        },
        "The tensor on another device.",
    ).samples("f32[5, 5, 5, 5], dev, f64, True, True, memory_format=channels_last"),
    compose(
        "to#other",
        "(Tensor self, Tensor tensor, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
        M,
        |a| {
            Wish {
                copy: a.copy,
                format: a.memory_format,
                ..Wish::like(a.tensor)
            }
            .of(a.input)
        },
        "The tensor in the dtype and on the device of another.",
    ).samples("f32[5, 5, 5, 5], f64[5, 5, 5, 5], True, True, memory_format=channels_last"),
    compose(
        "type_as",
        "(Tensor self, Tensor other)",
        M,
        |a| Wish::like(a.other).of(a.input),
        "The tensor in the dtype of another.",
    ).samples("f32[2, 3], f64[1]; i64[3], f32[2]"),
    compose(
        "cpu",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| {
            Wish {
                device: Some(Device::CPU),
                format: a.memory_format,
                ..Wish::default()
            }
            .of(a.input)
        },
        "The tensor on the host.",
    ).samples("f32[2, 3]"),
    compose(
        "cuda",
        "(Tensor self, device? device=None, bool non_blocking=False, *, format? memory_format=None)",
        M,
        to_cuda,
        "The tensor on a GPU.",
    ).samples("f32[2, 3]"),
    compose(
        "bool",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::Bool, a.memory_format),
        "The tensor as bool.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], memory_format=contiguous_format"),
    compose(
        "byte",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::U8, a.memory_format),
        "The tensor as byte.",
    ).samples("f32[3, 4]; f32[3, 4], memory_format=contiguous_format"),
    compose(
        "char",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::I8, a.memory_format),
        "The tensor as char.",
    ).samples(
        "f32[3, 4]; \
         b8[2, 3, 2, 3], memory_format=channels_last; \
         f32[3, 4], memory_format=contiguous_format",
    ),
    compose(
        "short",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::I16, a.memory_format),
        "The tensor as short.",
    ).samples("f32[3, 4], memory_format=contiguous_format; c64[3, 4]"),
    compose(
        "int",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::I32, a.memory_format),
        "The tensor as int.",
    ).samples(
        "f32[3, 4]; \
         b8[2, 3, 2, 3], memory_format=channels_last; \
         f32[2, 3, 2, 3], memory_format=channels_last",
    ),
    compose(
        "long",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::I64, a.memory_format),
        "The tensor as long.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], memory_format=contiguous_format"),
    compose(
        "half",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::F16, a.memory_format),
        "The tensor as half.",
    ).samples(
        "f32[3, 4], memory_format=contiguous_format; \
         c64[2, 3, 2, 3], memory_format=channels_last",
    ),
    compose(
        "bfloat16",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::BF16, a.memory_format),
        "The tensor as bfloat16.",
    ).samples("f32[3, 4]; c64[3, 4]"),
    compose(
        "float",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::F32, a.memory_format),
        "The tensor as float.",
    ).samples("f32[3, 4], memory_format=contiguous_format; c64[3, 4]"),
    compose(
        "double",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::F64, a.memory_format),
        "The tensor as double.",
    ).samples(
        "f32[3, 4]; \
         b8[2, 3, 2, 3], memory_format=channels_last; \
         f32[3, 4], memory_format=contiguous_format",
    ),
    compose(
        "chalf",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::C32, a.memory_format),
        "The tensor as chalf.",
    ).samples("f32[3, 4], memory_format=contiguous_format; c64[3, 4]"),
    compose(
        "cfloat",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::C64, a.memory_format),
        "The tensor as cfloat.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], memory_format=contiguous_format"),
    compose(
        "cdouble",
        "(Tensor self, *, format? memory_format=None)",
        M,
        |a| cast(a.input, DType::C128, a.memory_format),
        "The tensor as cdouble.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[3, 4], memory_format=contiguous_format"),
];

/// What `to` is asked for; what is absent stays as it is.
#[derive(Clone, Copy, Default)]
struct Wish {
    dtype: Option<DType>,
    device: Option<Device>,
    /// A fresh tensor even if nothing changes.
    copy: bool,
    format: Option<MemoryFormat>,
}

impl Wish {
    fn like(t: &Tensor) -> Self {
        Self {
            dtype: Some(t.dtype()),
            device: Some(t.device()),
            ..Self::default()
        }
    }

    /// The tensor as wished: itself if nothing changes.
    fn of(self, t: &Tensor) -> Result<Ret> {
        let dtype = self.dtype.unwrap_or(t.dtype());
        let here = crate::parts::located(t);
        let device = self.device.map_or(here, Device::canonical);
        let format_ok = match self.format {
            None | Some(MemoryFormat::Preserve) => true,
            // Whatever is not channels-last counts as the contiguous format here, dense or not.
            Some(f) => suggested_format(t) == f,
        };
        if dtype == t.dtype() && device == here && !self.copy && format_ok {
            return Ok(Ret::Same(0));
        }
        if let Some(file) = copy::file_behind(t, device) {
            return self.sourced(t, file);
        }
        f::_ToCopy::new(t)
            .dtype(dtype)
            .device(device)
            .memory_format(self.format)
            .call()
            .map(Ret::from)
    }

    /// A tensor on meta that has a file's bytes as its source, in the dtype and format that are wished.
    #[cold]
    fn sourced(self, t: &Tensor, file: Arc<dyn Provider>) -> Result<Ret> {
        let made = copy::on_meta(t, file)?;
        Self {
            device: None,
            copy: false,
            ..self
        }
        .of(&made)
        .map(|ret| match ret {
            Ret::Same(_) => Ret::from(made),
            other => other,
        })
    }
}

fn cast(t: &Tensor, dtype: DType, format: Option<MemoryFormat>) -> Result<Ret> {
    Wish {
        dtype: Some(dtype),
        format,
        ..Wish::default()
    }
    .of(t)
}

fn to_cuda(a: &calls::Cuda) -> Result<Ret> {
    let device = a.device.unwrap_or(Device::cuda(-1)).canonical();
    if !a.input.storage().is_fake() {
        kernels::check(device)?;
    }
    Wish {
        device: Some(device),
        format: a.memory_format,
        ..Wish::default()
    }
    .of(a.input)
}
