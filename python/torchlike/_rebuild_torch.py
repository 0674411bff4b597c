"""PyTorch's objects besides tensors: modules, generators, named results, made as torchlike's own."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike._rebuild_builders import Builder, Refused, need

_HOOKS = (
    *("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    "_load_state_dict_post_hooks",
)


def _module_class(module: str, name: str) -> Any:
    """torchlike's class of layers for the name of one of PyTorch's."""
    if module != "torch.nn" and not module.startswith("torch.nn.modules."):
        return None
    from torchlike import nn

    found = getattr(nn, name, None)
    if found is None:
        last = module.rpartition(".")[2]
        found = getattr(getattr(nn.modules, last, None), name, None)
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def _module_state(obj: Any, state: Any) -> None:
    from torchlike import nn

    need(isinstance(state, dict) and all(type(k) is str for k in state), "the state of a module")
    kinds: tuple[tuple[str, Any], ...] = (
        ("_parameters", torchlike.Tensor),
        ("_buffers", torchlike.Tensor),
        ("_modules", (nn.Module, _opaque())),
    )
    for registry, kind in kinds:
        table = state.get(registry)
        need(table is None or isinstance(table, dict), "the registry of a module")
        for key, value in (table or {}).items():
            need(type(key) is str and "." not in key, "the name of a registered value")
            need(value is None or isinstance(value, kind), "a registered value of another kind")
    for hooks in _HOOKS:
        table = state.get(hooks) or {}
        need(isinstance(table, dict), "the hooks of a module")
        # Objects kept as data fail where they are called, which is better than a module that goes on without them.
        need(
            all(isinstance(hook, _opaque()) for hook in table.values()),
            "hooks, which are functions, in the state of a module",
        )
    state = {k: v for k, v in state.items() if k not in ("forward", "__class__")}
    obj.__setstate__(state)


def _opaque() -> type:
    from torchlike._opaque import Opaque

    return Opaque


def of_modules(cls: Any) -> Builder:
    """How modules of a class are made: of their attributes, without a call of the class or its `__new__`."""

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not args and not kwargs, f"arguments for {cls.__name__}")
        return torchlike.nn.Module.__new__(cls)

    return Builder(make, _module_state)


def _generator() -> Builder:
    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) <= 1, "arguments for a Generator")
        device = args[0] if args else "cpu"
        need(isinstance(device, str | torchlike.device), "the device of a Generator")
        return torchlike.Generator(device)

    def give(obj: Any, state: Any) -> None:
        need(isinstance(state, tuple) and len(state) == 3, "the state of a Generator")
        seed, _, data = state
        need(type(seed) is int and isinstance(data, torchlike.Tensor), "the state of a Generator")
        if data.is_meta:  # without its data it can only be seeded
            obj.manual_seed(seed)
        else:
            obj.set_state(data)

    return Builder(make, give)


def _script_object() -> Builder:
    """Packed parameters of quantised layers: their state says what they are."""
    from torchlike._script_objects import ScriptObject

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not args and not kwargs, "arguments for a ScriptObject")
        return ScriptObject()

    def give(obj: Any, state: Any) -> None:
        need(isinstance(state, tuple) and len(state) == 2, "the state of a ScriptObject")
        need(isinstance(state[0], tuple) and type(state[1]) is str, "the state of a ScriptObject")
        try:
            obj.__setstate__(state)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as e:
            raise Refused(f"the state of {state[1]}") from e

    return Builder(make, give)


def _named_result(name: str) -> Any:
    fields = {
        **dict.fromkeys(
            (
                "max",
                "min",
                "median",
                "nanmedian",
                "mode",
                "sort",
                "topk",
                "kthvalue",
                "cummax",
                "cummin",
            ),
            ("values", "indices"),
        ),
        **{"aminmax": ("min", "max"), "slogdet": ("sign", "logabsdet"), "qr": ("Q", "R")},
        **{"svd": ("U", "S", "V"), "frexp": ("mantissa", "exponent")},
        **{
            "linalg_eigh": ("eigenvalues", "eigenvectors"),
            "linalg_eig": ("eigenvalues", "eigenvectors"),
        },
        **{"linalg_qr": ("Q", "R"), "linalg_svd": ("U", "S", "Vh")},
        **{"linalg_slogdet": ("sign", "logabsdet")},
    }.get(name)
    if fields is None:
        return None

    def make(args: tuple[Any, ...], kwargs: Any) -> Any:
        need(not kwargs and len(args) in (1, 2), "arguments for a named result")
        need(isinstance(args[0], tuple) and len(args[0]) == len(fields), "the parts of a result")
        need(len(args) == 1 or not args[1], "further parts of a result")
        return torchlike.return_types._class(name, fields)(args[0])

    return Builder(make)


def _from_numpy(args: tuple[Any, ...], kwargs: Any) -> Any:
    import numpy as np

    need(not kwargs and len(args) == 4 and isinstance(args[0], np.ndarray), "a tensor of an array")
    data, dtype, _, grad = args
    need(isinstance(dtype, torchlike.dtype) and isinstance(grad, bool), "a tensor of an array")
    made = torchlike.from_numpy(data.copy()).to(dtype)
    return made.requires_grad_() if grad else made


_JAGGED = "torch.nested._internal.nested_tensor"
_JAGGED_PARTS = ("values", "offsets", "lengths")


def jagged(func: Any, cls: Any, inner: Any, state: Any) -> Any:
    """A jagged tensor, of the call that PyTorch's files have for classes of tensors."""
    from torchlike.nested._internal.nested_tensor import NestedTensor, _rebuild_njt

    need(func is _rebuild_njt and cls is NestedTensor, "a tensor of an unknown class")
    need(isinstance(inner, tuple) and len(inner) == 1, "the parts of a jagged tensor")
    need(isinstance(inner[0], dict) and isinstance(state, dict), "the parts of a jagged tensor")
    given = dict(inner[0])
    cache, idx = given.get("_metadata_cache") or {}, given.get("_ragged_idx", 1)
    tensors: list[Any] = [given.get(n) for n in _JAGGED_PARTS]
    need(all(t is None or isinstance(t, torchlike.Tensor) for t in tensors), "a part of a tensor")
    values, offsets, lengths = tensors
    need(values is not None and offsets is not None and type(idx) is int, "a jagged tensor")
    need(offsets.dim() == 1 and not offsets.dtype.is_floating_point, "the offsets of a tensor")
    need(1 <= idx <= values.dim() and offsets.shape[0] > 0, "the ragged dimension of a tensor")
    fits = lengths is None or lengths.shape == (offsets.shape[0] - 1,)
    need(fits and values.device == offsets.device, "the parts of a jagged tensor")
    need(isinstance(cache, dict), "what is known of a jagged tensor")
    known = {n: cache[n] for n in ("min_seqlen", "max_seqlen") if cache.get(n) is not None}
    need(all(isinstance(t, torchlike.Tensor) and t.dim() == 2 for t in known.values()), "a length")
    return _rebuild_njt(
        {
            **dict(zip(_JAGGED_PARTS, tensors, strict=True)),
            "_ragged_idx": idx,
            "_metadata_cache": known,
            "requires_grad": given.get("requires_grad") is True,
        }
    )


def _range(args: tuple[Any, ...], kwargs: Any) -> Any:
    """A mark for a compiler, on tensors that PyTorch keeps lengths in."""
    from torchlike._dynamo.decorators import _DimRange

    need(not args and not kwargs, "the arguments of a range")
    return _DimRange.__new__(_DimRange)


def _ranged(made: Any, state: Any) -> None:
    need(isinstance(state, list) and len(state) == 3, "the ends of a range")
    for name, value in zip(("dim", "min", "max"), state, strict=True):
        need(type(value) is int or (value is None and name != "dim"), "an end of a range")
        object.__setattr__(made, name, value)


def builder(module: str, name: str) -> Any:
    """How objects of this name are made, or None."""
    if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
        from torchlike import _rebuild_classes

        return _rebuild_classes.builder()
    if (module, name) == ("torch._dynamo.decorators", "_DimRange"):
        return Builder(_range, _ranged)
    cls = _module_class(module, name)
    if cls is not None:
        return of_modules(cls)
    if (module, name) == ("torch._C", "Generator"):
        return _generator()
    if name == "ScriptObject" and module in ("torch", "torch._C"):
        return _script_object()
    if module == "torch.return_types":
        return _named_result(name)
    if (module, name) == ("torch._utils", "_rebuild_device_tensor_from_numpy"):
        return Builder(_from_numpy)
    return None


def value(module: str, name: str) -> Any:
    """What a name of PyTorch's stands for where nothing calls it, or `Refused`."""
    kinds = (torchlike.dtype, torchlike.memory_format, torchlike.layout, torchlike.qscheme)
    if module == "torch":
        found = getattr(torchlike, name, None)
        if isinstance(found, kinds) or found in (
            torchlike.Tensor,
            torchlike.Size,
            torchlike.device,
        ):
            return found
    if module == "torch._C" and name in ("TensorBase", "_VariableFunctionsClass"):
        return getattr(torchlike._C, name)
    if module in ("torch.nn.parameter", "torch.nn") and name == "Parameter":
        return torchlike.nn.Parameter
    if module in ("torch.nn.functional", "torch._C._nn"):
        found = getattr(torchlike.nn.functional, name, None)
        if callable(found) and not name.startswith("_") and not isinstance(found, type):
            return found
    if module == "torch._utils":
        from torchlike import _rebuild_classes

        return _rebuild_classes.maker(name) or Refused
    if module == _JAGGED and name in ("NestedTensor", "_rebuild_njt"):
        from torchlike.nested._internal import nested_tensor

        return getattr(nested_tensor, name)
    cls = _module_class(module, name)
    return Refused if cls is None else cls
