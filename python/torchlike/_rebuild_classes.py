"""Tensors of classes of their own, as PyTorch's files keep them: the function that makes the tensor, its class, and its
attributes. Of the class nothing runs unless the user has registered it.
"""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import _utils
from torchlike._opaque import Opaque, OpaqueClass
from torchlike._rebuild_builders import Builder, attributes, need

# What of a class of its own would run, or says that attributes alone do not make its objects.
_OWN_CODE = (
    *("__setstate__", "__getstate__", "__reduce__", "__reduce_ex__"),
    *("__getattribute__", "__setattr__", "__eq__", "__hash__"),
)


def _is_ints(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(n) is int for n in value)


def _is_storage(value: Any) -> bool:
    from torchlike.storage import TypedStorage, UntypedStorage

    return isinstance(value, TypedStorage | UntypedStorage)


def _is_hooks(value: Any) -> bool:
    return isinstance(value, dict) and not value


def _is_flags(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is(kind: type) -> Any:
    return lambda value: isinstance(value, kind)


_LAYOUT = (_is_storage, _is(int), _is_ints, _is_ints)
_DTYPE = _is(torchlike.dtype)
# The functions that make tensors, with what their arguments are, and those that may be left out.
_MAKERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "_rebuild_tensor": (_LAYOUT, ()),
    "_rebuild_tensor_v2": ((*_LAYOUT, _is(bool), _is_hooks), (_is_flags,)),
    "_rebuild_tensor_v3": ((*_LAYOUT, _is(bool), _is_hooks, _DTYPE), (_is_flags,)),
    "_rebuild_meta_tensor_no_storage": ((_DTYPE, _is_ints, _is_ints, _is(bool)), ()),
    "_rebuild_sparse_tensor": ((_is(torchlike.layout), _is(tuple)), ()),
    "_rebuild_wrapper_subclass": (
        (_is(object), _DTYPE, _is_ints, _is_ints, _is(int), _is(torchlike.layout))
        + (_is(torchlike.device), _is(bool)),
        (),
    ),
}


def maker(name: str) -> Any:
    """The function of a name in `torch._utils` that makes tensors of what a file says, or None."""
    return getattr(_utils, name) if name in _MAKERS else None


def _checked(func: Any, args: Any) -> None:
    need(isinstance(args, tuple), "the arguments of a tensor")
    needed, more = _MAKERS[func.__name__]
    need(len(needed) <= len(args) <= len(needed) + len(more), "the arguments of a tensor")
    fits = all(is_kind(a) for is_kind, a in zip(needed + more, args, strict=False))
    need(fits, "an argument of a tensor")


def _is_inert(cls: type) -> bool:
    """True for a class whose objects are made of their attributes without running code of the class."""
    same = all(getattr(cls, n, None) is getattr(torchlike.Tensor, n, None) for n in _OWN_CODE)
    return same and not hasattr(cls, "__del__")


def _class_of(said: Any) -> Any:
    """The class that a file means: what the user registered, or a class of the program that runs nothing; else None."""
    if isinstance(said, OpaqueClass):
        from torchlike._rebuild import loaded_class

        found = loaded_class(said.module, said.name)
        is_tensor = found is not None and issubclass(found, torchlike.Tensor)
        return found if is_tensor and _is_inert(found) else None
    need(
        isinstance(said, type) and issubclass(said, torchlike.Tensor), "a tensor of a class of none"
    )
    return said


def _of_class(args: tuple[Any, ...], kwargs: Any) -> Any:
    from torchlike._tensor import _rebuild_from_type_v2

    need(not kwargs and len(args) == 4, "the arguments of a tensor with a class of its own")
    func, said, inner, state = args
    if getattr(func, "__name__", "") == "_rebuild_njt":
        from torchlike._rebuild_torch import jagged

        return jagged(*args)
    is_maker = maker(getattr(func, "__name__", "")) is func
    need(is_maker, "a tensor made by a function of another kind")
    _checked(func, inner)
    is_wrapper = func is _utils._rebuild_wrapper_subclass
    need(not is_wrapper or inner[0] == said, "a tensor of two classes")
    cls = _class_of(said)
    if cls is None:  # no such class here: what it was made of, as plain data
        opaque = Opaque(said.module, said.name, () if is_wrapper else (func(*inner),))
        opaque.state = state
        return opaque
    if is_wrapper:
        inner = (cls, *inner[1:])
    if cls is not said:
        made = func(*inner)
        made = made if type(made) is cls else made.as_subclass(cls)
        attributes(made, state)
        return made
    return _rebuild_from_type_v2(func, cls, inner, state)


def builder() -> Builder:
    """How tensors of classes of their own are made."""
    return Builder(_of_class)
