"""Names of `_C` that are written in Python and seldom asked for."""

from __future__ import annotations

import enum
from typing import Any

from torchlike import _C
from torchlike._script_objects import ScriptObject


class DispatchKey(enum.Enum):
    """The layers and devices that PyTorch's dispatcher knows; those that mean something here."""

    CPU = "CPU"
    CUDA = "CUDA"
    Meta = "Meta"
    AutogradCPU = "AutogradCPU"
    AutogradCUDA = "AutogradCUDA"
    AutogradMeta = "AutogradMeta"
    Autograd = "Autograd"
    CompositeExplicitAutograd = "CompositeExplicitAutograd"
    CompositeImplicitAutograd = "CompositeImplicitAutograd"
    FuncTorchBatched = "FuncTorchBatched"
    Python = "Python"
    AutocastCPU = "AutocastCPU"
    AutocastCUDA = "AutocastCUDA"
    AutocastXPU = "AutocastXPU"


class DispatchKeySet:
    """Keys together."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys | other._keys))

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys & other._keys))

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*(self._keys - other._keys))

    def has(self, key: DispatchKey) -> bool:
        """Whether the key is one of them."""
        return key in self._keys

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(k.name for k in self._keys))})"


class _ExcludeDispatchKeyGuard:
    """Switches layers off for a block: mixed precision; there is nothing else to switch off."""

    def __init__(self, keys: DispatchKeySet) -> None:
        names = {DispatchKey.AutocastCPU: "cpu", DispatchKey.AutocastCUDA: "cuda"}
        self._devices = [names[k] for k in keys._keys if k in names]
        self._inside: Any = None

    def __enter__(self) -> None:
        import contextlib

        from torchlike.amp import autocast

        self._inside = contextlib.ExitStack()
        for device in self._devices:
            self._inside.enter_context(autocast(device, enabled=False))

    def __exit__(self, *exc: object) -> None:
        self._inside.close()


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing to set: nothing is compiled."""


def _unfused() -> bool:
    """False: operators of TorchScript are not fused."""
    return False


def _is_tracing() -> bool:
    """True while `torch.jit.trace` runs a program."""
    from torchlike import jit

    return jit.is_tracing()


def _get_tracing_state() -> None:
    """None: nothing is being traced."""


def _log_api_usage_once(name: str) -> None:
    """Nothing is counted."""


def _get_accelerator(check: bool | None = None) -> Any:
    """The type of accelerator, or the CPU."""
    return _C.device("cuda" if _C._cuda_device_count() > 0 else "cpu")


def _get_privateuse1_backend_name() -> str:
    """The name of devices that nobody has added."""
    return "privateuseone"


def _mps_is_available() -> bool:
    """False: of Apple's GPUs there are none."""
    return False


def _cuda_isInBadFork() -> bool:
    """False: a GPU is opened at its first use."""
    return False


class Graph:
    """A graph of TorchScript: none is made."""


class Value:
    """A value of such a graph."""


class Node:
    """A node of such a graph."""


def _known(name: str) -> bool:
    from torchlike._ops import _find

    try:
        _find(name)
    except AttributeError:
        return False
    return True


def _dispatch_has_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    return _known(name)


def _dispatch_has_kernel(name: str) -> bool:
    return _known(name)


def _is_autocast_available(device_type: str) -> bool:
    from torchlike import amp

    return amp.is_autocast_available(device_type)


def _is_any_autocast_enabled() -> bool:
    return any(map(_C._autocast_is_on, _C._autocast_supported_devices()))


def _get_default_device() -> str:
    return str(_C.get_default_device())


def _is_alias_of(a: Any, b: Any) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def _are_functorch_transforms_active() -> bool:
    """Whether a function is run by `vmap`, or by a transform that computes gradients."""
    return _C._transforms_active()


_NAMES = {
    "ScriptObject": ScriptObject,
    "_TensorMeta": type(_C.Tensor),
    **dict.fromkeys(("_has_xpu", "_has_mps", "_has_mkldnn", "_has_kleidiai"), False),
    "DispatchKey": DispatchKey,
    "DispatchKeySet": DispatchKeySet,
    "Graph": Graph,
    "Node": Node,
    "Value": Value,
    "_ExcludeDispatchKeyGuard": _ExcludeDispatchKeyGuard,
    "_are_functorch_transforms_active": _are_functorch_transforms_active,
    "_cuda_isInBadFork": _cuda_isInBadFork,
    "_mps_is_available": _mps_is_available,
    "_get_accelerator": _get_accelerator,
    "_get_privateuse1_backend_name": _get_privateuse1_backend_name,
    "_get_tracing_state": _get_tracing_state,
    "_is_tracing": _is_tracing,
    "_jit_can_fuse_on_cpu": _unfused,
    "_jit_can_fuse_on_gpu": _unfused,
    "_log_api_usage_once": _log_api_usage_once,
    **dict.fromkeys(
        (
            *(
                "_jit_set_profiling_executor",
                "_jit_set_profiling_mode",
                "_jit_override_can_fuse_on_gpu",
            ),
            *(
                "_jit_override_can_fuse_on_cpu",
                "_jit_set_texpr_fuser_enabled",
                "_jit_set_nvfuser_enabled",
                "_jit_set_nvfuser_guard_mode",
                "_set_math_sdp_allow_fp16_bf16_reduction",
                "_cuda_clearCublasWorkspaces",
                "_host_emptyCache",
            ),
        ),
        _nothing,
    ),
    "_dispatch_has_kernel": _dispatch_has_kernel,
    "_dispatch_has_kernel_for_dispatch_key": _dispatch_has_kernel_for_dispatch_key,
    "_get_default_device": _get_default_device,
    "_is_alias_of": _is_alias_of,
    "_is_any_autocast_enabled": _is_any_autocast_enabled,
    "_is_autocast_available": _is_autocast_available,
}


def find_nn(name: str) -> Any:
    """The attribute of `_C._nn` of this name, where it is no function of `nn.functional`.

    Raises:
        AttributeError: if there is none.
    """
    from torchlike import _utils, ops
    from torchlike.nn.utils import rnn

    if name == "pad_sequence":
        return rnn.pad_sequence
    if name in ("flatten_dense_tensors", "unflatten_dense_tensors"):
        return getattr(_utils, f"_{name}")
    if name.startswith("__") or not hasattr(ops.aten, name):
        raise AttributeError(f"module 'torchlike._C._nn' has no attribute '{name}'")
    return getattr(ops.aten, name)


def find(name: str) -> Any:
    """The attribute of `_C` of this name.

    Raises:
        AttributeError: if there is none.
    """
    if name in ("parse_schema", "FunctionSchema"):
        from torchlike._ops import schema

        return {"parse_schema": schema.parse, "FunctionSchema": schema.FunctionSchema}[name]
    if "_autocast_" in name:
        from torchlike import _autocast

        if name in _autocast.__all__:
            return getattr(_autocast, name)
    if name == "_AutoDispatchBelowAutograd":
        from torchlike._ops.gradient import BelowAutograd

        return BelowAutograd
    if name == "_VariableFunctions":
        from torchlike import _VF

        return _VF
    if name == "_functorch":
        from importlib import import_module

        return import_module("torchlike._C._functorch")
    if name not in _NAMES:
        raise AttributeError(f"module 'torchlike._C' has no attribute '{name}'")
    return _NAMES[name]
