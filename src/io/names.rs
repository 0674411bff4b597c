//! The classes and functions that checkpoints name, and which of them PyTorch reads by default.

use super::tree::{Global, Tree};
use crate::{DType, Error, err};

/// What a name in a pickle means to us.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Known {
    Unknown,
    OrderedDict,
    Counter,
    Dict,
    List,
    Set,
    FrozenSet,
    ByteArray,
    Bytes,
    Complex,
    Encode,
    DType(DType),
    /// A storage class; without a dtype the untyped one.
    Storage(Option<DType>),
    /// A typed tensor class of old files.
    TypedTensor(DType),
    Tensor,
    Parameter,
    Size,
    Device,
    GetLayout,
    RebuildTensor,
    RebuildTensorV2,
    RebuildTensorV3,
    RebuildParameter,
    RebuildParameterWithState,
    RebuildMeta,
    RebuildFromTypeV2,
    RebuildDeviceFromCpu,
    RebuildSparse,
    RebuildNested,
    RebuildQuantized,
    /// `copyreg._reconstructor(cls, object, None)`, as protocols 0 and 1 make objects.
    Reconstructor,
    /// `copyreg.__newobj__(cls, *args)`.
    NewObj,
    /// `copyreg.__newobj_ex__(cls, args, kwargs)`.
    NewObjEx,
}

impl Known {
    /// A class of containers that may be made empty and filled.
    pub(super) fn is_container(self) -> bool {
        matches!(
            self,
            Self::OrderedDict
                | Self::Counter
                | Self::Dict
                | Self::List
                | Self::Set
                | Self::FrozenSet
        )
    }

    /// A function that makes a tensor from its data and layout.
    pub(super) fn is_tensor(self) -> bool {
        matches!(
            self,
            Self::RebuildTensor
                | Self::RebuildTensorV2
                | Self::RebuildTensorV3
                | Self::RebuildMeta
                | Self::RebuildSparse
                | Self::RebuildNested
                | Self::RebuildQuantized
        )
    }
}

/// Storage and tensor classes by the prefix of their names.
const PREFIXES: &[(&str, DType)] = &[
    ("Float", DType::F32),
    ("Double", DType::F64),
    ("Half", DType::F16),
    ("BFloat16", DType::BF16),
    ("Long", DType::I64),
    ("Int", DType::I32),
    ("Short", DType::I16),
    ("Char", DType::I8),
    ("Byte", DType::U8),
    ("Bool", DType::Bool),
    ("ComplexFloat", DType::C64),
    ("ComplexDouble", DType::C128),
    ("QInt8", DType::QI8),
    ("QUInt8", DType::QU8),
    ("QInt32", DType::QI32),
    ("QUInt4x2", DType::QU4x2),
    ("QUInt2x4", DType::QU2x4),
];

/// The storage class that holds elements of this type, where PyTorch has one.
pub(super) fn storage_prefix(dtype: DType) -> Option<&'static str> {
    PREFIXES.iter().find(|p| p.1 == dtype).map(|p| p.0)
}

fn by_suffix(name: &str, suffix: &str) -> Option<DType> {
    let prefix = name.strip_suffix(suffix)?;
    PREFIXES.iter().find(|p| p.0 == prefix).map(|p| p.1)
}

pub(super) fn classify(global: &Global) -> Known {
    let name = &*global.name;
    match (&*global.module, name) {
        ("collections", "OrderedDict") => Known::OrderedDict,
        ("collections", "Counter") => Known::Counter,
        ("builtins", "dict") => Known::Dict,
        ("builtins", "list") => Known::List,
        ("builtins", "set") => Known::Set,
        ("builtins", "frozenset") => Known::FrozenSet,
        ("builtins", "bytearray") => Known::ByteArray,
        ("builtins", "bytes") => Known::Bytes,
        ("builtins", "complex") => Known::Complex,
        ("_codecs", "encode") => Known::Encode,
        ("torch.storage", "UntypedStorage") | ("torch", "UntypedStorage") => Known::Storage(None),
        ("torch", "Tensor") => Known::Tensor,
        ("torch.nn.parameter", "Parameter") => Known::Parameter,
        ("torch", "Size") => Known::Size,
        ("torch", "device") => Known::Device,
        ("torch.serialization", "_get_layout") => Known::GetLayout,
        ("torch._utils", "_rebuild_tensor") => Known::RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v2") => Known::RebuildTensorV2,
        ("torch._utils", "_rebuild_tensor_v3") => Known::RebuildTensorV3,
        ("torch._utils", "_rebuild_parameter") => Known::RebuildParameter,
        ("torch._utils", "_rebuild_parameter_with_state") => Known::RebuildParameterWithState,
        ("torch._utils", "_rebuild_meta_tensor_no_storage") => Known::RebuildMeta,
        ("torch._tensor", "_rebuild_from_type_v2") => Known::RebuildFromTypeV2,
        ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor") => Known::RebuildDeviceFromCpu,
        ("torch._utils", "_rebuild_sparse_tensor") => Known::RebuildSparse,
        ("torch._utils", "_rebuild_nested_tensor") => Known::RebuildNested,
        ("torch._utils", "_rebuild_qtensor") => Known::RebuildQuantized,
        ("copyreg", "_reconstructor") => Known::Reconstructor,
        ("copyreg", "__newobj__") => Known::NewObj,
        ("copyreg", "__newobj_ex__") => Known::NewObjEx,
        ("torch" | "torch.cuda", _) => {
            if let Some(dtype) = by_suffix(name, "Storage") {
                Known::Storage(Some(dtype))
            } else if let Some(dtype) = by_suffix(name, "Tensor") {
                Known::TypedTensor(dtype)
            } else if &*global.module == "torch" {
                DType::from_name(name).map_or(Known::Unknown, Known::DType)
            } else {
                Known::Unknown
            }
        }
        _ => Known::Unknown,
    }
}

/// True for the names that PyTorch accepts with `weights_only=True` and nothing allowed by the user.
#[must_use]
pub fn allowed_by_default(global: &Global) -> bool {
    let name = &*global.name;
    if matches!(
        classify(global),
        Known::Dict
            | Known::List
            | Known::FrozenSet
            | Known::Bytes
            | Known::Reconstructor
            | Known::NewObj
            | Known::NewObjEx
    ) {
        return false;
    }
    let other_dtype = |n: &str| {
        let bits = n.strip_prefix("uint").or_else(|| n.strip_prefix("int"));
        bits.is_some_and(|b| matches!(b, "1" | "2" | "3" | "4" | "5" | "6" | "7"))
            || matches!(n, "bits16" | "bits1x8" | "bits2x4" | "bits4x2")
    };
    match &*global.module {
        "torch" => {
            classify(global) != Known::Unknown
                || other_dtype(name)
                || matches!(
                    name,
                    "per_tensor_affine" | "per_tensor_symmetric" | "per_channel_affine"
                )
                || matches!(
                    name,
                    "per_channel_symmetric" | "per_channel_affine_float_qparams"
                )
        }
        "torch.sparse" | "torch.cuda.sparse" => by_suffix(name, "Tensor").is_some(),
        "torch._utils" => {
            classify(global) != Known::Unknown
                || matches!(
                    name,
                    "_rebuild_sparse_tensor" | "_rebuild_qtensor" | "_rebuild_nested_tensor"
                )
                || matches!(
                    name,
                    "_rebuild_wrapper_subclass" | "_rebuild_device_tensor_from_numpy"
                )
        }
        "torch.storage" => matches!(name, "UntypedStorage" | "TypedStorage"),
        "torch.nested._internal.nested_tensor" => matches!(name, "NestedTensor" | "_rebuild_njt"),
        "torch._dynamo.decorators" => name == "_DimRange",
        _ => classify(global) != Known::Unknown,
    }
}

impl Tree {
    /// The names in this checkpoint that PyTorch would refuse with `weights_only=True`, in the order of the
    /// file; `allow` says which others the user has allowed.
    pub fn disallowed<'a>(
        &'a self,
        allow: &'a dyn Fn(&Global) -> bool,
    ) -> impl Iterator<Item = &'a Global> + 'a {
        self.globals
            .iter()
            .filter(move |g| !allowed_by_default(g) && !allow(g))
    }

    /// The names whose calls were recorded without a meaning, and the classes that came with their source text, each
    /// once, in the order of the file. Whoever
    /// turns the tree into live objects must know how to make these from plain data, or refuse.
    #[must_use]
    pub fn unresolved(&self) -> Vec<&Global> {
        let mut seen = vec![false; self.globals.len()];
        for &g in &self.containers {
            seen[g as usize] = true;
        }
        for object in &self.objects {
            if let super::tree::Object::Call(c) = object
                && let Some(call) = self.calls.get(*c as usize)
                && let Some(super::tree::Object::Global(g)) = self.object(call.func)
            {
                seen[*g as usize] = true;
            }
        }
        self.globals
            .iter()
            .zip(seen)
            .filter(|(_, seen)| *seen)
            .map(|(g, _)| g)
            .collect()
    }
}

/// PyTorch's refusal of a name, to be raised as `UnpicklingError`.
#[must_use]
pub fn unsupported_global(global: &Global) -> Error {
    let full = global.to_string();
    let full = full.strip_prefix("builtins.").unwrap_or(&full);
    weights_only_error(&format!(
        "Unsupported global: GLOBAL {full} was not an allowed global by default. \
         Please use `torch.serialization.add_safe_globals([{full}])` or the \
         `torch.serialization.safe_globals([{full}])` context manager to allowlist this global \
         if you trust this class/function."
    ))
}

/// PyTorch's frame around the reason why a file is refused with `weights_only=True`. Unlike PyTorch, reading
/// the same file with `weights_only=False` executes nothing here, and the text says so.
#[must_use]
pub fn weights_only_error(reason: &str) -> Error {
    err!(
        Unpickling,
        "Weights only load failed. This file can still be loaded with `weights_only=False`, which executes \
         nothing in torchlike: objects of unknown classes are kept as plain data.\n\t\
         WeightsUnpickler error: {reason}"
    )
}
