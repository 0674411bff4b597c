"""Calling a module with other tensors than its own."""

from __future__ import annotations

from typing import Any

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
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights, strict)


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
    args: Any,
    kwargs: Any,
    tie_weights: bool,
    strict: bool,
) -> Any:
    """``module(*args, **kwargs)`` with the given tensors in place of parameters and buffers."""
    if isinstance(parameters_and_buffers, (list, tuple)):
        given: dict[str, Any] = {}
        for part in parameters_and_buffers:
            given.update(part)
    else:
        given = dict(parameters_and_buffers)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    own = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    if tie_weights:
        _check_tied(own, given)
        by_tensor = {id(own[name]): value for name, value in given.items() if name in own}
        for name, tensor in own.items():
            if name not in given and id(tensor) in by_tensor:
                given[name] = by_tensor[id(tensor)]
    if strict:
        unexpected = sorted(given.keys() - own.keys())
        missing = sorted(own.keys() - given.keys())
        if unexpected or missing:
            raise RuntimeError(
                "Error(s) in loading state_dict for "
                f"{module._get_name()}: unexpected {unexpected}, missing {missing}"
            )
    saved = []
    try:
        for name, tensor in given.items():
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            state = owner._state_
            if last not in state.get("_kinds", ()):
                continue
            saved.append((state, last, state[last]))
            state[last] = tensor
        return module(*args, **(kwargs or {}))
    finally:
        for state, last, value in reversed(saved):
            state[last] = value
