"""Calling a module with other tensors than its own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.nn.utils._named_member_accessor import MISSING, swap_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """The older name of ``torchlike.func.functional_call``."""
    import warnings

    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be "
        "removed in a future version of PyTorch. Please use `torch.func.functional_call` instead "
        "which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


def _check_tied(own: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuses different tensors for names that are one tensor of the module."""
    groups: dict[int, list[str]] = {}
    for name in given:
        if name in own:
            groups.setdefault(id(own[name]), []).append(name)
    for names in groups.values():
        if any(given[n] is not given[names[0]] for n in names):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(names)}, which are tied. Consider using "
                "tie_weights=False"
            )


def _functional_call(
    module: Any,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: Any = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the given tensors in place of parameters and buffers."""
    if torch.jit.is_tracing() or isinstance(
        module, (torch.jit.ScriptModule, torch.jit.ScriptFunction)
    ):
        raise RuntimeError("The stateless API can't be used with Jitted modules")
    if isinstance(module, torch.nn.DataParallel):
        raise RuntimeError("The stateless API can't be used with nn.DataParallel module")
    if isinstance(parameters_and_buffers, (list, tuple)):
        given: dict[str, Any] = {}
        for part in parameters_and_buffers:
            given.update(part)
    else:
        given = parameters_and_buffers
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _reparametrize_module(module, given, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def _members(module: Any) -> dict[str, Any]:
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _tied(module: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The given tensors, under all names of the parameters that they stand for."""
    own = _members(module)
    _check_tied(own, given)
    by_tensor = {id(own[name]): value for name, value in given.items() if name in own}
    more = {n: by_tensor[id(t)] for n, t in own.items() if n not in given and id(t) in by_tensor}
    return {**given, **more}


def _check_keys(module: Any, given: dict[str, Any]) -> None:
    own = _members(module)
    unexpected = [repr(n) for n in sorted(given.keys() - own.keys())]
    missing = [repr(n) for n in sorted(own.keys() - given.keys())]
    told = [
        f"{what} key(s): {', '.join(names)}."
        for what, names in (("Unexpected", unexpected), ("Missing", missing))
        if names
    ]
    if told:
        raise RuntimeError(
            f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(told)
        )


@contextlib.contextmanager
def _reparametrize_module(
    module: Any,
    parameters_and_buffers: dict[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """The module has the given tensors in place of parameters and buffers until the context ends; what it has in their
    places then is put into the dictionary.

    Args:
        tie_weights: whether a tensor stands for all names of the parameter.
        strict: whether all have to be given, and no others.
        stack_weights: whether the module's own come back in the opposite order.

    Raises:
        RuntimeError: with `strict`, for other names.
        ValueError: with `tie_weights`, for several tensors in place of one.
    """
    given = _tied(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    if strict:
        _check_keys(module, given)
    saved = []
    try:
        for name, tensor in given.items():
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            saved.append((name, owner, last, swap_tensor(owner, last, tensor, allow_missing=True)))
        yield
    finally:
        for name, owner, last, value in reversed(saved) if stack_weights else saved:
            now = swap_tensor(owner, last, value, allow_missing=True)
            if name in parameters_and_buffers and now is not MISSING:
                parameters_and_buffers[name] = now
