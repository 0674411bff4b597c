"""Operators of Python: their kernels by device, and which one a call takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops import binding, modes

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

ANYWHERE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "default")
_KEYS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}


def key_name(key: Any) -> str:
    """The name of a dispatch key: `CPU` for `cpu`, `DispatchKey.CPU` and `CPU`."""
    text = str(key).rpartition(".")[2]
    return _KEYS.get(text, text)


def _device_key(values: dict[str, Any]) -> str:
    kinds = {t.device.type for t in modes.tensors(values.values())}
    for kind in ("meta", "cuda"):
        if kind in kinds:
            return _KEYS[kind]
    return "CPU"


def kernel_of(overload: OpOverload, key: str) -> Any:
    """The kernel for a device.

    Raises:
        NotImplementedError: if there is none.
    """
    for name in (key, *ANYWHERE):
        if name in overload.kernels:
            return overload.kernels[name]
    raise NotImplementedError(
        f"Could not run '{overload.name()}' with arguments from the '{key}' backend. This could be because the "
        f"operator doesn't exist for this backend. '{overload.name()}' is only available for these backends: "
        f"[{', '.join(overload.kernels)}]."
    )


def run(overload: OpOverload, values: dict[str, Any]) -> Any:
    """The result of a call with checked arguments."""
    args, kwargs = binding.spelled(overload._schema, values)
    if modes.wanted(values.values()):
        return modes.ask(overload, args, kwargs)
    kernel = kernel_of(overload, _device_key(values))
    result = kernel(*args, **kwargs)
    binding.check_results(overload._schema, result)
    result = _with_gradient(overload, values, result)
    return result


def _with_gradient(overload: OpOverload, values: dict[str, Any], result: Any) -> Any:
    """Results require gradients where an argument does, though there is no formula for them."""
    asks = any(t.requires_grad for t in modes.tensors(values.values()))
    mutable = overload._schema.is_mutable
    if asks and not mutable and _C.is_grad_enabled() and isinstance(result, _C.Tensor):
        floating = result.is_floating_point() or result.is_complex()
        if floating and not result.requires_grad:
            return result.detach().requires_grad_()
    return result
