"""Operators of Python: their kernels by device, and which one a call takes."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops import batches, binding, fake, gradient, modes
from torchlike._ops.batches import RULE
from torchlike._ops.schema import PLAIN
from torchlike._tags import Tag
from torchlike.autograd import no_grad

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

ANYWHERE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd", "default")
_KEYS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta"}


def key_name(key: Any) -> str:
    """The name of a dispatch key: `CPU` for `cpu`, `DispatchKey.CPU` and `CPU`."""
    text = str(key).rpartition(".")[2]
    return _KEYS.get(text, text)


def _device_key(given: tuple[Any, ...]) -> str:
    kinds = {t.device.type for t in given}
    for kind in ("meta", "cuda"):
        if kind in kinds:
            return _KEYS[kind]
    return "CPU"


def _place(overload: OpOverload, given: tuple[Any, ...], values: dict[str, Any]) -> str:
    """The device of a call: that of the tensors, or what `device` says where there is none.

    Raises:
        RuntimeError: if a function that makes tensors has no kernel there.
    """
    definition, device = overload.definition, values.get("device")
    if given or definition is None or device is None or None in definition._functions:
        return _device_key(given)
    kind = _C.device(device).type
    if kind not in definition._functions:
        raise RuntimeError(
            f"{definition._name} does not have a kernel registered for {kind}. Please use register_kernel to do so."
        )
    return key_name(kind)


def kernel_of(overload: OpOverload, key: str, mode: Any = None) -> Any:
    """The kernel for a device; for `Meta`, on behalf of a mode of fake tensors if one is given.

    Raises:
        NotImplementedError: if there is none.
        RuntimeError: if a function of Python's has none for shapes alone.
        UnsupportedOperatorException: if there is none for fake tensors.
    """
    kernels, definition = overload.kernels, overload.definition
    shapes = key == "Meta"
    if shapes and definition is not None and key not in kernels:
        if (trivial := definition.trivial_fake()) is not None:
            return trivial
        raise RuntimeError(
            f"There was no fake impl registered for {definition!r}. This is necessary for torch.compile/export/fx "
            f"tracing to work. Please use `{definition._init_fn.__name__}.register_fake` to add an fake impl."
        )
    for name in (key, *ANYWHERE):
        if name in kernels:
            return fake.Shown(overload, kernels[name], mode) if shapes else kernels[name]
    if mode is not None:
        from torchlike._subclasses.fake_tensor import UnsupportedOperatorException

        raise UnsupportedOperatorException(overload)
    name = overload.name()
    if shapes:
        raise NotImplementedError(
            f"{name}: attempted to run this operator with Meta tensors, but there was no fake impl or Meta kernel "
            "registered. You may have run into this message while using an operator with PT2 compilation APIs "
            "(torch.compile/torch.export); in order to use this operator with those APIs you'll need to add a fake "
            "impl. Please see the following for next steps:  "
            "https://pytorch.org/tutorials/advanced/custom_ops_landing_page.html"
        )
    known = ", ".join(k for k in kernels if isinstance(k, str))
    raise NotImplementedError(
        f"Could not run '{name}' with arguments from the '{key}' backend. This could be because the operator doesn't "
        "exist for this backend, or was omitted during the selective/custom build process (if using custom build). "
        "If you are a Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes for possible "
        f"resolutions. '{name}' is only available for these backends: [{known}]."
    )


_KEPT = 64
_SIMPLE = frozenset(("CompositeExplicitAutograd", "Autograd"))


def kernel_for(overload: OpOverload, args: tuple[Any, ...]) -> Any:
    """The kernel of a call that is known to fit, and of which nobody else is to know; None for other calls."""
    if tuple(map(type, args)) not in overload.fitting or modes.stack() or _C._batch_levels(args):
        return None
    kernels = overload.kernels
    if not kernels.keys() <= _SIMPLE or gradient.wanted(overload, args):
        return None
    if "Autograd" in kernels and gradient.own(overload, "") is not None:
        return None
    kernel = kernels.get("CompositeExplicitAutograd")
    mode = None if kernel is None else fake.mode_of(args)
    return kernel if mode is None else fake.Shown(overload, kernel, mode)


def note(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Remembers that a call fitted, if that depends on nothing but the types of its arguments."""
    declared = overload._schema.arguments
    known = kwargs or len(args) != len(declared) or len(overload.fitting) > _KEPT
    if known or overload.definition is not None or _C._dispatch_handlers(modes.tensors(args)):
        return
    for a, value in zip(declared, args, strict=True):
        if isinstance(value, list | tuple):
            return
        if isinstance(value, _C.Tensor) and a.base != "Tensor":
            return
        if a.base in PLAIN and type(value) is not PLAIN[a.base]:
            return
    overload.fitting.add(tuple(map(type, args)))


def run(overload: OpOverload, values: dict[str, Any]) -> Any:
    """The result of a call with checked arguments."""
    if (kind := _cast_for(overload, values)) is not None:
        return _run_cast(overload, values, kind)
    args, kwargs = binding.spelled(overload._schema, values)
    given = modes.tensors(values.values())
    key, tracked = _place(overload, given, values), gradient.wanted(overload, given)
    composed = _made_of_others(overload, key)
    # A transform that records inside of vmap is nearer to the call than vmap is.
    inside = tracked and _C._transforms_record()
    if not inside and (RULE in overload.kernels or not composed):
        levels = _C._batch_levels(given)
        if levels:
            return batches.run(overload, args, kwargs, levels)
    recording = gradient.own(overload, key)
    if recording is not None:
        made = recording(*args, **kwargs)
        binding.check_results(overload._schema, made)
        return made
    if not composed and modes.wanted(given):
        if tracked and modes.recorded(given):
            # Modes are below what records.
            return gradient.run(overload, args, kwargs, functools.partial(_asked, overload))
        return modes.ask(overload, args, kwargs)
    mode = fake.mode_of(given)
    kernel = kernel_of(overload, key if mode is None else "Meta", mode)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = kernel(*args, **kwargs)
        binding.check_results(overload._schema, result)
        if overload.definition is not None:
            _check_aliases(overload.definition, values, result)
            for name in overload.definition._written:
                for t in modes.tensors([values[name]]):
                    _C._increment_version(t)
        return result

    if tracked:
        return gradient.run(overload, args, kwargs, call)
    if overload.definition is not None and _C.is_grad_enabled():
        # A function that writes its arguments is no node, and below autograd like one.
        with no_grad():
            return call(*args, **kwargs)
    return call(*args, **kwargs)


def _asked(overload: OpOverload, *args: Any, **kwargs: Any) -> Any:
    return modes.ask(overload, args, kwargs)


def _made_of_others(overload: OpOverload, key: str) -> bool:
    """Whether an operator is a function of others and nothing else, so that these are what is seen."""
    kernels = overload.kernels
    others = (key, "CompositeExplicitAutograd", "default", "Autograd")
    return "CompositeImplicitAutograd" in kernels and not any(k in kernels for k in others)


def _cast_for(overload: OpOverload, values: dict[str, Any]) -> str | None:
    """The type of device for which the arguments are cast first."""
    if len(overload.kernels) == 1:
        return None
    for kind in ("cuda", "cpu"):
        told = f"Autocast{_KEYS[kind]}" in overload.kernels and _C._autocast_is_on(kind)
        if told and any(t.device.type == kind for t in modes.tensors(values.values())):
            return kind
    return None


def _run_cast(overload: OpOverload, values: dict[str, Any], kind: str) -> Any:
    from torchlike.amp.autocast_mode import _cast

    dtype = overload.kernels[f"Autocast{_KEYS[kind]}"]
    _C._autocast_switch(kind, False)
    try:
        return run(overload, {name: _cast(v, kind, dtype) for name, v in values.items()})
    finally:
        _C._autocast_switch(kind, True)


def _check_aliases(definition: Any, values: dict[str, Any], result: Any) -> None:
    """Refuses results of a function of Python's that share memory with arguments or each other."""
    if Tag.inplace in definition._tags or Tag.out in definition._tags:
        return
    results = result if isinstance(result, tuple | list) else (result,)
    taken = {t.untyped_storage()._cdata for t in modes.tensors(values.values())}
    for t in modes.tensors(results):
        storage = t.untyped_storage()._cdata
        if storage in taken:
            function = definition._init_fn
            where = inspect.getmodule(function)
            raise RuntimeError(
                f"{function.__name__} (with implementation in {where}): The output of this custom operator (1) must "
                "not also be an input to this custom operator and (2) may not alias any inputs to this custom operator "
                "or other returns. The most common way to trigger this error is if we have y = custom_op(x) and y and "
                "x are the same Tensor. Please instead return a clone of the offending output tensor(s) (e.g. return "
                "x.clone()) or refactor the custom operator to not return y."
            )
        taken.add(storage)
