"""Signatures of operators and modules, and arguments brought into their form."""

from __future__ import annotations

import inspect
import numbers
import types
import typing
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike
from torchlike._tensor import typename
from torchlike.fx._names import _get_qualified_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]

_TYPES: dict[str, Any] = {
    "Tensor": torchlike.Tensor,
    "int": int,
    "SymInt": int,
    "float": float,
    "bool": bool,
    "str": str,
    "Scalar": numbers.Number,
    "number": numbers.Number,
    "complex": complex,
    "ScalarType": torchlike.dtype,
    "Device": torchlike.device,
    "Layout": torchlike.layout,
    "MemoryFormat": torchlike.memory_format,
    "Generator": torchlike.Generator,
}


class ArgsKwargsPair(NamedTuple):
    """Arguments by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def _schemas(op: Any) -> list[Any]:
    """The schemas of an operator of PyTorch, for each overload; none for other functions."""
    schema = getattr(op, "_schema", None)
    if schema is not None:
        return [schema]
    if hasattr(op, "overloads"):
        packet = op
    else:
        builtin = isinstance(op, types.BuiltinFunctionType)
        if op is not getattr(torchlike, getattr(op, "__name__", ""), None) and not builtin:
            return []
        if builtin and _python_signature(op) is not None:
            return []
        name = _get_qualified_name(op) if builtin else op.__name__
        if builtin and not name.startswith("torch"):
            return []  # Python's own, of which some have an operator's name
        packet = getattr(torchlike.ops.aten, name.rpartition(".")[2], None)
    return [] if packet is None else [overload._schema for overload in packet.real()]


def _annotation(arg: Any) -> Any:
    kind: Any = _TYPES.get(arg.base, Any)
    if arg.is_list:
        kind = list.__class_getitem__(kind)
    return typing.Optional[kind] if arg.optional else kind  # noqa: UP045


def _signature(schema: Any) -> inspect.Signature:
    parameters: list[inspect.Parameter] = []
    for arg in schema.arguments:
        default = arg.default_value if arg.has_default_value() else inspect.Parameter.empty
        # PyTorch's functions call the first argument of a method `input`
        name = "input" if arg.name == "self" else arg.name
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        if arg.kwarg_only:
            kind = inspect.Parameter.KEYWORD_ONLY
        elif name == "from":
            kind = inspect.Parameter.POSITIONAL_ONLY
            parameters = [p.replace(kind=kind) for p in parameters]
        annotation = _annotation(arg)
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
    returned = [_annotation(r) for r in schema.returns]
    result: Any = tuple(returned)
    if len(returned) == 1:
        result = returned[0]
    elif not returned:
        result = None
    return inspect.Signature(parameters, return_annotation=result)


def get_signature_for_torch_op(op: Callable[..., Any], return_schemas: bool = False) -> Any:
    """The signatures of a function's overloads; None for what is no operator.

    Args:
        return_schemas: gives the schemas, too.
    """
    schemas = _schemas(op)
    if not schemas:
        return (None, None) if return_schemas else None
    signatures = [_signature(s) for s in schemas]
    return (signatures, schemas) if return_schemas else signatures


def check_for_mutable_operation(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuses calls that write their arguments.

    Raises:
        RuntimeError: if this one does.
    """
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    if not signatures:
        return
    fitting = []
    for signature, schema in zip(signatures, schemas, strict=True):
        if _fits(signature, args, kwargs):
            fitting.append(schema)
    if fitting and all(s.is_mutable for s in fitting):
        raise RuntimeError(
            f"Tried to trace mutable operation {fitting[0]}. FX only supports functional "
            "code, so operations that mutate operands in-place (e.g. via `out` arguments) are "
            "not supported"
        )


def _fits(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def create_type_hint(x: Any) -> Any:
    """The type of a list or tuple of types, as one type with a parameter."""
    if not isinstance(x, list | tuple):
        return x

    def container(inner: Any) -> Any:
        return list[inner] if isinstance(x, list) else tuple[inner, ...]

    try:
        if not x:
            return container(Any)
        base = x[0]
        for kind in x:
            if issubclass(kind, base):
                continue
            if not issubclass(base, kind):
                return container(Any)
            base = kind
        return container(base)
    except TypeError:
        warnings.warn(
            f"We were not able to successfully create type hint from the type {x}", stacklevel=2
        )
        return x


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """True if a value of one type can be passed where another one is wanted."""
    if signature_type is argument_type:
        return True
    origin = typing.get_origin(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(t, argument_type) for t in typing.get_args(signature_type))
    if origin is list:
        return _list_matches(typing.get_args(signature_type)[0], argument_type)
    if signature_type is int and argument_type is torchlike.dtype:
        return True
    if signature_type is numbers.Number and argument_type in (int, float):
        return True
    if inspect.isclass(argument_type) and inspect.isclass(signature_type):
        return issubclass(argument_type, signature_type)
    return False


def _list_matches(item: Any, argument_type: Any) -> bool:
    if item is int and argument_type is int:
        return True
    if not inspect.isclass(item):
        return False
    origin, inner = typing.get_origin(argument_type), typing.get_args(argument_type)
    if origin is list:
        return issubclass(inner[0], item)
    return origin is tuple and all(t is ... or issubclass(t, item) for t in inner)


def _normalized(
    signature: inspect.Signature, args: Any, kwargs: Any, only_kwargs: bool
) -> ArgsKwargsPair | None:
    """The arguments as a signature names them; None if it has others than named ones."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if any(p.kind not in named for p in signature.parameters.values()):
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    values = bound.arguments
    count = 0 if only_kwargs else len(args)
    names = list(signature.parameters)
    return ArgsKwargsPair(
        tuple(values[n] for n in names[:count]), {n: values[n] for n in names[count:]}
    )


def _python_signature(target: Any) -> inspect.Signature | None:
    """The signature of a function that PyTorch writes in Python."""
    from torchlike._function import _forms

    if isinstance(target, types.BuiltinFunctionType):
        name = _get_qualified_name(target).partition(".")[2].removeprefix("functional.")
        form = _forms().get(name)
        if form is None or form.rest:
            return None
        empty, kind = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [*form.positional, *form.keywords]
        return inspect.Signature(
            [inspect.Parameter(n, kind, default=form.defaults.get(n, empty)) for n in names]
        )
    try:
        return inspect.signature(inspect.unwrap(target))
    except (ValueError, TypeError):
        return None


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call, with names and defaults; None if the signature is not known.

    Args:
        arg_types: types of the arguments, which choose among overloads.
        normalize_to_only_use_kwargs: all arguments get names.

    Raises:
        RuntimeError: if several overloads fit, and no types say which.
    """
    kwargs = kwargs or {}
    only = normalize_to_only_use_kwargs
    operator = hasattr(target, "_schema") or hasattr(target, "overloads")
    signature = None if operator else _python_signature(target)
    if signature is not None:
        return _normalized(signature, args, kwargs, only)
    signatures = get_signature_for_torch_op(target) or []
    fitting = [s for s in signatures if _fits(s, args, kwargs)]
    if not fitting:
        return None
    if len(fitting) == 1:
        return _normalized(fitting[0], args, kwargs, only)
    if arg_types is None and kwarg_types is None:
        shown = "\n".join(map(str, fitting))
        raise RuntimeError(
            f"Tried to normalize arguments to {typename(target)} but the schema match was "
            "ambiguous! Please provide argument types to the normalize_arguments() call. "
            f"Available schemas:\n{shown}"
        )
    for signature in fitting:
        bound = signature.bind(*(arg_types or ()), **(kwarg_types or {}))
        if all(
            type_matches(signature.parameters[n].annotation, kind)
            for n, kind in bound.arguments.items()
        ):
            return _normalized(signature, args, kwargs, only)
    return None


def normalize_module(
    root: Any,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of a layer, with names and defaults; None for other modules.

    Raises:
        RuntimeError: if there is no module at the path.
    """
    try:
        below = root.get_submodule(target)
    except AttributeError as e:
        raise RuntimeError(
            f"Tried to normalize node with target {target} but root did not have that target!"
        ) from e
    if getattr(torchlike.nn, type(below).__name__, None) is not type(below):
        return None
    signature = inspect.signature(inspect.unwrap(below.forward))
    return _normalized(signature, args, kwargs or {}, normalize_to_only_use_kwargs)
