"""Names: of variables in generated code, and of functions as PyTorch calls them."""

from __future__ import annotations

import builtins
import functools
import keyword
import math
import re
import types
import typing
from typing import Any

import torchlike

# functions of `nn.functional` that PyTorch takes over from its core, some under another name
_OF_NN = """
avg_pool2d avg_pool3d elu_ gelu hardtanh_ leaky_relu_ linear logsigmoid one_hot scaled_dot_product_attention softplus
softshrink
"""
_NN_NAMES = {"logsigmoid": "log_sigmoid"}
# ... and those that are the functions of `torch` themselves
_OF_TORCH = """
adaptive_avg_pool1d avg_pool1d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d cosine_similarity hardshrink native_channel_shuffle pairwise_distance pdist
pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ selu_ threshold_
"""
# functions of `torch` that PyTorch writes in Python
_OF_FUNCTIONAL = """
atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum
lu meshgrid norm split stft tensordot unique unique_consecutive unravel_index
"""
_SPACES = {"nn": set(_OF_NN.split()), "torch": set(_OF_TORCH.split())}
_SPACES["functional"] = set(_OF_FUNCTIONAL.split())
_CORE_SPACES = ("linalg", "special", "fft")
_ROOT = torchlike.__name__

_qualified: dict[Any, str] = {}


def _of_builtin(func: Any) -> str | None:
    """The name of a function of the core; None for any other built-in function."""
    module, name = func.__module__ or "", func.__name__
    if module == f"{_ROOT}.nn.functional":
        if name in _SPACES["nn"]:
            return f"{_ROOT}._C._nn.{_NN_NAMES.get(name, name)}"
        return f"{_ROOT}.{name}" if name in _SPACES["torch"] else f"{module}.{name}"
    if module in (_ROOT, f"{_ROOT}._C") and getattr(torchlike, name, None) is func:
        return f"{_ROOT}.functional.{name}" if name in _SPACES["functional"] else f"{_ROOT}.{name}"
    space = module.rpartition(".")[2]
    if module == f"{_ROOT}.{space}" and space in _CORE_SPACES and name.startswith(f"{space}_"):
        return f"{_ROOT}._C._{space}.{name}"
    return None


def _of_python(func: Any) -> str | None:
    """The name of one of our Python functions that PyTorch has elsewhere."""
    module, name = func.__module__ or "", func.__name__
    if not module.startswith(f"{_ROOT}."):
        return None
    if getattr(torchlike.nn.functional, name, None) is func:
        return f"{_ROOT}.nn.functional.{name}"
    if getattr(torchlike, name, None) is func:
        return f"{_ROOT}.functional.{name}" if name in _SPACES["functional"] else f"{_ROOT}.{name}"
    return None


def _name_core_functions() -> None:
    """Puts the functions of the core where PyTorch has them, too: `_C._linalg.linalg_norm`."""
    for space in _CORE_SPACES:
        names = vars(getattr(torchlike._C, f"_{space}"))
        names.update({f"{space}_{k}": v for k, v in names.items() if not k.startswith("_")})
    nn = torchlike._C._nn
    for name in _SPACES["nn"]:
        setattr(nn, _NN_NAMES.get(name, name), getattr(torchlike.nn.functional, name))


def _function_name(func: Any) -> str:
    """The name that PyTorch gives a function."""
    name: str = func.__name__
    renamed = _NN_NAMES.get(name)
    return renamed if renamed and func.__module__ == f"{_ROOT}.nn.functional" else name


def _find_module_of_method(orig_method: Any) -> str:
    name, module = orig_method.__name__, orig_method.__module__
    if module is not None:
        return module
    for guess in (torchlike, torchlike.nn.functional):
        if getattr(guess, name, None) is orig_method:
            return guess.__name__
    raise RuntimeError(f"cannot find module for {orig_method}")


def _lambda_name(func: Any) -> str:
    import inspect

    try:
        source = inspect.getsource(func)
        return source.split("=")[0].strip()
    except Exception as e:
        raise RuntimeError("Unable to represent lambda") from e


def _get_qualified_name(func: Any) -> str:
    """The name by which generated code calls a function."""
    kind: Any = type(func)
    known = _qualified.get(func) if kind is types.BuiltinFunctionType else None
    if known is not None:
        return known
    name: Any = getattr(func, "__name__", None)
    if name is not None and getattr(builtins, name, None) is func:
        return name
    if kind in (types.MethodDescriptorType, types.WrapperDescriptorType):
        if getattr(torchlike.Tensor, func.__name__, None) is func:
            return f"{_ROOT}.Tensor.{func.__name__}"  # type: ignore[union-attr]
    elif kind is types.BuiltinFunctionType:
        found = _of_builtin(func)
        if found is not None:
            _qualified[func] = found
            return found
    elif kind is types.FunctionType:
        if name == "<lambda>":
            return f"{func.__module__}.{_lambda_name(func)}"
        if getattr(torchlike.Tensor, name, None) is func:
            return f"{_ROOT}.Tensor.{name}"
        found = _of_python(func)
        if found is not None:
            return found
    if kind.__name__ in ("OpOverload", "OpOverloadPacket"):
        return f"{_ROOT}.ops.{func}"
    if name is None:
        raise AttributeError(f"{kind.__name__!r} object has no attribute '__name__'")
    return f"{_find_module_of_method(func)}.{name}"


def _type_repr(obj: Any) -> str:
    """A type as it stands in an annotation."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


def _is_from_torch(obj: Any) -> bool:
    """True for what generated code finds under the name of this library."""
    module = getattr(obj, "__module__", None)
    if module is not None:
        return module == _ROOT or module.startswith((f"{_ROOT}.", "torch._ops", "torch.ops"))
    name = getattr(obj, "__name__", None)
    if name is None or name == _ROOT:
        return False
    spaces: tuple[Any, ...] = (torchlike, torchlike.nn.functional, torchlike.Tensor)
    return any(getattr(space, name, None) is obj for space in spaces)


# names of variables --------------------------------------------------------------------------


class _CustomBuiltin(typing.NamedTuple):
    """A name that generated code may use, and the statement that imports it."""

    import_str: str
    obj: Any


_custom_builtins: dict[str, _CustomBuiltin] = {}
_illegal_names: dict[str, Any] = dict.fromkeys(keyword.kwlist, object())
_illegal_names.update(vars(builtins))


def _register_custom_builtin(name: str, import_str: str, obj: Any) -> None:
    _custom_builtins[name] = _CustomBuiltin(import_str, obj)
    _illegal_names[name] = obj


def _register_defaults() -> None:
    from torchlike.fx import _pytree as fx_pytree
    from torchlike.utils import _pytree as pytree

    _name_core_functions()
    _register_custom_builtin("inf", "from math import inf", math.inf)
    _register_custom_builtin("nan", "from math import nan", math.nan)
    _register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
    _register_custom_builtin(_ROOT, f"import {_ROOT}", torchlike)
    if _ROOT != "torch":
        _register_custom_builtin("torch", f"import {_ROOT} as torch", torchlike)
    _register_custom_builtin("device", f"from {_ROOT} import device", torchlike.device)
    _register_custom_builtin("fx_pytree", f"import {_ROOT}.fx._pytree as fx_pytree", fx_pytree)
    _register_custom_builtin("pytree", f"import {_ROOT}.utils._pytree as pytree", pytree)


_illegal_character = re.compile(r"[^0-9a-zA-Z_]+")
_legal_name = re.compile(r"([a-zA-Z_][0-9a-zA-Z_]*?)(?:_(\d+))?$")
_hump = re.compile(r"(?<=[a-z])([A-Z])")


@functools.lru_cache(maxsize=4096)
def _snake_case(s: str) -> str:
    return _hump.sub(r"_\1", s).lower()


@functools.lru_cache(maxsize=4096)
def _split_name(candidate: str) -> tuple[str, str, int | None]:
    """The candidate as an identifier, what stands before a number at its end, and that number."""
    match = _legal_name.match(candidate)
    if match is None:
        candidate = _illegal_character.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = _legal_name.match(candidate)
        assert match is not None
    base, number = match.groups()
    return candidate, base, None if number is None else int(number)


class _Namespace:
    """Names that are taken, and which object has which."""

    __slots__ = ("__dict__", "_base_count", "_obj_to_name", "_used_names")

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any | None) -> str:
        """A free name like `candidate`: with a number behind it where that one is taken."""
        if obj is not None and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        used = self._used_names
        candidate, base, number = _split_name(candidate)
        if number is None or candidate in used:
            count = self._base_count.get(base, 0)
            if candidate in _illegal_names and _illegal_names[candidate] is not obj:
                count += 1
                candidate = f"{base}_{count}"
        else:
            count = number
        while candidate in used:
            count += 1
            candidate = f"{base}_{count}"
        used.add(candidate)
        self._base_count[base] = count
        if obj is not None:
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Notes the name of an object that has none yet."""
        if self._obj_to_name.setdefault(obj, name) is not name:
            raise AssertionError("obj is already associated")

    def _rename_object(self, obj: Any, name: str) -> None:
        if obj not in self._obj_to_name:
            raise AssertionError(f"Object {obj} is not in _obj_to_name")
        self._obj_to_name[obj] = name
        self._used_names.add(name)
