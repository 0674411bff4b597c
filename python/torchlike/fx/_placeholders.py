"""Stand-ins for the arguments of the function that is traced."""

from __future__ import annotations

import inspect
import os
import types
import warnings
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from torchlike.fx.node import base_types
from torchlike.fx.proxy import TracerBase
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.nn import Module

_LIBRARY = os.path.dirname(torchlike.__file__) + os.sep
HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _patch_function(fn: types.FunctionType, nargs: int) -> types.FunctionType:
    """The function with `*args` and `**kwargs` as plain arguments."""
    code = fn.__code__.replace(
        co_argcount=nargs,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=fn.__code__.co_flags & ~HAS_VARSTUFF,
    )
    return types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def _annotations(fn: Any) -> dict[str, Any]:
    """The annotations of a function: of the library's own, which stand there as texts, what they mean."""
    found = inspect.get_annotations(fn)
    if not fn.__code__.co_filename.startswith(_LIBRARY):
        return found
    kinds = {}
    for name, text in found.items():
        try:
            kind = eval(text, fn.__globals__) if isinstance(text, str) else text
        except (NameError, TypeError):  # a name that type checkers alone see
            continue
        if kind is not Any:
            kinds[name] = kind
    return kinds


class PHBase:
    """Stands in `concrete_args` for an argument that stays an input."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class PHWithMeta(PHBase):
    """A `PH` whose attributes the placeholder takes over."""

    def __init__(self, ph_key: str | None = None) -> None:
        self.ph_key = ph_key


def _transfer_attrs(fr: Any, to: Any) -> None:
    for name in dir(fr):
        value = getattr(fr, name)
        if not callable(value) and not name.startswith("__") and not hasattr(to, name):
            setattr(to, name, value)


class Placeholders(TracerBase):
    """The part of a tracer that makes stand-ins for arguments."""

    root: Module

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:
        """Placeholders for the arguments of a function, and the function that takes them."""
        plain = inspect.unwrap(root_fn)
        code = plain.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames)
        args: list[Any] = []
        if is_module:
            if total == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
        first = len(args)
        rest = code.co_flags & HAS_VARSTUFF
        if isinstance(concrete_args, tuple):
            if concrete_args and rest and total == 1:
                return root_fn, args + self._numbered(concrete_args)
            if len(concrete_args) != total - first:
                raise RuntimeError(
                    f"Tracing expected {total - first} arguments but got "
                    f"{len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(names[first:total], concrete_args, strict=True))
        signature = inspect.signature(plain)
        wanted = names[first:total]
        if code.co_flags & inspect.CO_VARARGS:
            wanted.append(f"*{names[total]}")
        if code.co_flags & inspect.CO_VARKEYWORDS:
            wanted.append(f"**{names[total + bool(code.co_flags & inspect.CO_VARARGS)]}")
        args += [self._proxy_placeholder(n, concrete_args, signature, plain) for n in wanted]
        if code.co_kwonlyargcount > 0 or rest:
            root_fn = _patch_function(root_fn, len(args))  # type: ignore[arg-type]
        return self._flattened(root_fn, args, names[:total])

    def _numbered(self, concrete_args: tuple[Any, ...]) -> list[Any]:
        found = []
        for i, value in enumerate(concrete_args):
            out = self.create_proxy("placeholder", f"input_{i}", (), {})
            if isinstance(value, PHBase) and value is not PH:
                _transfer_attrs(fr=value, to=out.node)
            found.append(out)
        return found

    def _flattened(self, root_fn: Any, args: list[Any], names: list[str]) -> tuple[Any, list[Any]]:
        """A function of the leaves, where arguments are containers."""
        flat, spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children_specs):
            return root_fn, args
        self.graph._codegen = codegen = _PyTreeCodeGen(_PyTreeInfo(names, spec, None))

        def of_leaves(*leaves: Any) -> Any:
            out = root_fn(*pytree.tree_unflatten(list(leaves), spec))
            flat_out, out_spec = pytree.tree_flatten(out)
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return flat_out

        # what is traced has the annotations of no function of ours
        of_leaves.__annotations__ = {}
        return of_leaves, flat

    def _proxy_placeholder(
        self,
        name: str,
        concrete_args: dict[str, Any] | None,
        sig: inspect.Signature,
        fn_for_analysis: Callable[..., Any],
    ) -> Any:
        default: tuple[Any, ...] = ()
        if name[0] != "*":
            given = sig.parameters[name].default
            default = () if given is inspect.Parameter.empty else (given,)
        if concrete_args is None or name not in concrete_args:
            kind = _annotations(fn_for_analysis).get(name, None)
            return self.create_proxy("placeholder", name, default, {}, type_expr=kind)
        count = 0

        def specialized(x: Any) -> Any:
            nonlocal count
            count += 1
            out = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(x, PHBase):
                if x is not PH:
                    _transfer_attrs(fr=x, to=out.node)
                return out
            self._check_constant(name, out, x)
            return x

        return pytree.tree_map(specialized, concrete_args[name])

    def _check_constant(self, name: str, out: Any, x: Any) -> None:
        """Nodes that refuse other values than the one that the function was specialized for."""
        message = f"{name} has been specialized to have value {x} but got another value"
        if type(x) in base_types and type(x) is not torchlike.Tensor:
            torchlike._assert(out == x, message)
        elif x is None:
            from torchlike.fx._symbolic_trace import _assert_is_none

            self.create_proxy("call_function", _assert_is_none, (out, message), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to "
                "specialized function. It is up to the user to make sure that your inputs match "
                "the inputs you specialized the function with.",
                stacklevel=2,
            )
