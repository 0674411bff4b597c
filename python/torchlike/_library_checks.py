"""`opcheck`: whether a custom operator does what it says."""

from __future__ import annotations

from typing import Any

from torchlike import _C
from torchlike._ops import OpOverload, modes


class OpCheckError(Exception):
    """A check of an operator failed."""


ALL = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: Any,
    args: Any,
    kwargs: Any = None,
    *,
    test_utils: Any = ALL,
    raise_exception: bool = True,
    **_: Any,
) -> dict[str, Any]:
    """Runs checks of an operator on sample arguments.

    Returns:
        for each check "SUCCESS", or the error.

    Raises:
        OpCheckError: at the first failure, unless `raise_exception` is false.
    """
    overload: OpOverload = getattr(op, "_opoverload", op)
    if not isinstance(overload, OpOverload):
        overload = overload.default
    results: dict[str, Any] = {}
    for name in [test_utils] if isinstance(test_utils, str) else test_utils:
        if name not in _CHECKS:
            raise ValueError(
                f"opcheck(op, ..., test_utils={test_utils}): expected test_utils to be subset of {ALL}"
            )
        try:
            _CHECKS[name](overload, tuple(args), dict(kwargs or {}))
            results[name] = "SUCCESS"
        except Exception as e:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {e} (scroll up for stack trace)"
                ) from e
            results[name] = e
    return results


def _copies(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def copy(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(copy(v) for v in x)
        return x.detach().clone() if isinstance(x, _C.Tensor) else x

    return tuple(copy(a) for a in args), {k: copy(v) for k, v in kwargs.items()}


def _check_schema(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the schema does not call mutable must not change."""
    mine, my_kwargs = _copies(args, kwargs)
    before = op.bind(*_copies(args, kwargs))
    after = op.bind(mine, my_kwargs)
    op(*mine, **my_kwargs)
    for argument in op._schema.arguments:
        changed = any(
            a.device.type != "meta" and not bool((a == b).all())
            for a, b in zip(
                modes.tensors([before[argument.name]]),
                modes.tensors([after[argument.name]]),
                strict=True,
            )
        )
        if changed and not (argument.alias_info and argument.alias_info.is_write):
            raise RuntimeError(
                f"Argument {argument.name} is not defined as mutable but was mutated"
            )


def _check_fake(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Results on meta must have the shapes and dtypes of those with data."""

    def meta(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(meta(v) for v in x)
        return x.detach().to("meta") if isinstance(x, _C.Tensor) else x

    real_args, real_kwargs = _copies(args, kwargs)
    real = modes.tensors([op(*real_args, **real_kwargs)])
    fake = modes.tensors([op(*(meta(a) for a in args), **{k: meta(v) for k, v in kwargs.items()})])
    for r, f in zip(real, fake, strict=True):
        if r.shape != f.shape or r.dtype != f.dtype:
            raise RuntimeError(
                f"the fake result has shape {tuple(f.shape)} and dtype {f.dtype}, "
                f"the real one {tuple(r.shape)} and {r.dtype}"
            )


_CHECKS: dict[str, Any] = {
    "test_schema": _check_schema,
    "test_autograd_registration": lambda op, args, kwargs: None,
    "test_faketensor": _check_fake,
    "test_aot_dispatch_dynamic": _check_fake,
}
