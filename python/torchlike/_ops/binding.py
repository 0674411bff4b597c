"""The arguments of a call of an operator, fitted to its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops.schema import PLAIN, SCRIPTED, Argument, FunctionSchema, fits, plain

if TYPE_CHECKING:
    from torchlike._ops import OpOverload, OpOverloadPacket


def _head(schema: FunctionSchema) -> str:
    return f"{schema.name}()"


def bind(
    schema: FunctionSchema, args: tuple[Any, ...], kwargs: dict[str, Any], loose: bool = True
) -> dict[str, Any]:
    """Every argument by name, defaults filled in; numbers of any kind are made those of the schema, if `loose`.

    Raises:
        RuntimeError: if the call does not fit.
    """
    positional = schema.positional
    if len(args) > len(positional):
        raise RuntimeError(
            f"{_head(schema)} expected at most {len(positional)} argument(s) but received "
            f"{len(args)} argument(s). Declaration: {schema}"
        )
    given = dict(zip(positional, args, strict=False))
    for name, value in kwargs.items():
        if name in given or all(a.name != name for a in schema.arguments):
            raise RuntimeError(
                f"Unknown keyword argument '{name}' for operator '{schema.name}'. Schema: {schema}"
            )
        given[name] = value
    for position, argument in enumerate(schema.arguments):
        _check(schema, position, argument, given, loose)
    return given


def _check(
    schema: FunctionSchema,
    position: int,
    argument: Argument,
    given: dict[str, Any],
    loose: bool,
) -> None:
    if argument.name not in given:
        if not argument.has_default:
            raise RuntimeError(
                f"{_head(schema)} is missing value for argument '{argument.name}'. Declaration: {schema}"
            )
        given[argument.name] = argument.default_value
        return
    value = given[argument.name]
    aten = schema.name.startswith("aten::")
    if loose and argument.base in PLAIN:
        value = given[argument.name] = plain(argument, value, not aten)
    if not fits(argument, value, aten):
        unit = (
            " (of Python compilation unit at: 0)" if argument.spelled.startswith(SCRIPTED) else ""
        )
        number = argument.base == "Scalar"
        cast = "Cannot cast {} to number" if number else f"Unable to cast {{}} to {argument.base}"
        raise RuntimeError(
            f"{_head(schema)} Expected a value of type '{argument.type}{unit}' for argument '{argument.name}' "
            f"but instead found type '{type(value).__name__}'.\nPosition: {position}\nValue: {value!r}\n"
            f"Declaration: {schema}\nCast error details: {cast.format(value)}"
        )


def choose(packet: OpOverloadPacket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
    """The first overload that fits a call, one that takes no number for a tensor before others.

    Raises:
        RuntimeError: if none fits.
    """
    overloads = packet.real()
    if len(overloads) == 1 and packet._qualified_op_name.partition("::")[0] != "aten":
        return overloads[0]
    for numbers, loose in ((False, False), (True, False), (True, True)):
        for overload in overloads:
            if not _has_enough(overload._schema, args, kwargs):
                continue
            try:
                values = bind(overload._schema, args, kwargs, loose)
            except RuntimeError:
                continue
            if all(
                fits(a, values[a.name], numbers) or a.has_default
                for a in overload._schema.arguments
            ):
                return overload
    text = "Overloaded torch operator invoked from Python failed to match any schema:\n"
    reasons = (_misfit(overload._schema, args, kwargs) for overload in overloads)
    raise RuntimeError(text + "\n\n".join(dict.fromkeys(r for r in reasons if r)))


def _has_enough(schema: FunctionSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether all arguments without defaults are given; words for those that are not cost more."""
    return all(a.has_default or a.name in kwargs for a in schema.arguments[len(args) :])


def _misfit(schema: FunctionSchema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why a call does not fit; nothing if it does."""
    try:
        bind(schema, args, kwargs)
    except RuntimeError as e:
        return str(e)
    return ""


def spelled(
    schema: FunctionSchema, values: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as a dispatch handler gets them: defaults at the end, and of keywords, left out."""
    positional: list[Any] = []
    kwargs: dict[str, Any] = {}
    needed = 0
    for argument in schema.arguments:
        value = values[argument.name]
        default = argument.has_default and _is_default(value, argument)
        if argument.kwarg_only:
            if not default:
                kwargs[argument.name] = value
            continue
        positional.append(value)
        if not default:
            needed = len(positional)
    return tuple(positional[:needed]), kwargs


def _is_default(value: Any, argument: Argument) -> bool:
    default = argument.default_value
    if value is default:
        return True
    if isinstance(value, list | tuple) and argument.is_list:
        spread = default if isinstance(default, list | tuple) else [default] * len(value)
        return list(value) == list(spread)
    numbers = isinstance(value, int | float) and isinstance(default, int | float)
    same = (numbers and argument.base != "Scalar") or type(value) is type(default)
    return same and bool(value == default)


def check_results(schema: FunctionSchema, result: Any) -> None:
    """Checks that a kernel or handler gave tensors where the schema says so; of several, some may not have been wanted.

    Raises:
        RuntimeError: if it gave something else.
    """
    results = (result,) if len(schema.returns) == 1 else result
    for declared, value in zip(schema.returns, results or (), strict=False):
        masked = value is None and len(schema.returns) > 1
        if declared.spelled == "Tensor" and not masked and not isinstance(value, _C.Tensor):
            raise RuntimeError(f"Unable to cast {value} to Tensor")
