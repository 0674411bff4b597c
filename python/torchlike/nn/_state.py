"""State dicts: what a module saves and how it loads."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any

import torchlike as torch
from torchlike import __future__ as future
from torchlike._C import Tensor, _save_state
from torchlike.nn.parameter import Parameter, is_lazy
from torchlike.utils import swap_tensors

EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(
    namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"]),
):
    """What ``load_state_dict`` returns: the keys that found no partner."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _hooks(module: Any, table: str) -> list[Any]:
    tables = module._state_["_state_hooks"]
    return list(tables[table].values()) if tables and tables.get(table) else []


def overrides(module: Any, method: str, base: type) -> bool:
    """Whether the class of ``module`` has its own version of a ``Module`` method."""
    return getattr(type(module), method) is not getattr(base, method)


def save(module: Any, destination: Any, prefix: str, keep_vars: bool, base: type) -> None:
    """Put the module's own parameters, persistent buffers and extra state into a dict."""
    state = module._state_
    buffers = []
    for name, kind in state["_kinds"].items():
        if kind == "parameter":
            value = state[name]
            if value is not None:
                destination[prefix + name] = value if keep_vars else value.detach()
        elif kind == "buffer":
            buffers.append(name)
    if buffers:
        transient = state["_non_persistent_buffers_set"]
        for name in buffers:
            value = state[name]
            if value is not None and name not in transient:
                destination[prefix + name] = value if keep_vars else value.detach()
    if overrides(module, "get_extra_state", base):
        destination[prefix + EXTRA_STATE] = module.get_extra_state()


def positional(*args: Any, destination: Any, prefix: str, keep_vars: bool) -> tuple[Any, str, bool]:
    """The arguments of ``Module.state_dict`` as it was called before they had names."""
    import warnings

    warnings.warn(
        "Positional args are being deprecated, use kwargs instead. Refer to "
        "https://pytorch.org/docs/main/generated/torch.nn.Module.html"
        "#torch.nn.Module.state_dict for details.",
        FutureWarning,
        stacklevel=3,
    )
    if destination is None:
        destination = args[0]
    if len(args) > 1 and prefix == "":
        prefix = args[1]
    if len(args) > 2 and keep_vars is False:
        keep_vars = args[2]
    return destination, prefix, keep_vars


def state_dict(module: Any, destination: Any, prefix: str, keep_vars: bool, base: type) -> Any:
    """Everything that ``module`` and its children save."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = metadata
    state = module._state_
    hooked = state["_state_hooks"] is not None
    if hooked:
        for hook in _hooks(module, "_state_dict_pre_hooks"):
            hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, kind in list(state["_kinds"].items()):
        if kind == "module" and state[name] is not None:
            _save_state(state[name], base, destination, prefix + name, keep_vars)
    for hook in _hooks(module, "_state_dict_hooks") if hooked else ():
        result = hook(module, destination, prefix, metadata)
        if not getattr(hook, "_from_public_api", False):
            if result is not None:
                destination = result
        elif result is not None:
            raise RuntimeError("state_dict post-hook must return None")
    return destination


def load_own(
    module: Any,
    state_dict: Any,
    prefix: str,
    metadata: dict[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
    base: type,
) -> None:
    """Load what belongs to ``module`` itself, and note every problem in the lists."""
    for hook in _hooks(module, "_load_state_dict_pre_hooks"):
        hook(state_dict, prefix, metadata, strict, missing, unexpected, errors)
    state = module._state_
    kinds = state["_kinds"]
    transient = state["_non_persistent_buffers_set"]
    own: dict[str, Any] = {}
    for wanted in ("parameter", "buffer"):
        for name, kind in kinds.items():
            if kind == wanted and state[name] is not None and name not in transient:
                own[name] = state[name]
    assign = metadata.get("assign_to_params_buffers", False)
    for name, target in own.items():
        key = prefix + name
        if key in state_dict:
            _load_one(module, name, key, target, state_dict[key], assign, errors)
        elif strict:
            missing.append(key)
    extra_key = prefix + EXTRA_STATE
    if overrides(module, "set_extra_state", base):
        if extra_key in state_dict:
            module.set_extra_state(state_dict[extra_key])
        elif strict:
            missing.append(extra_key)
    elif strict and extra_key in state_dict:
        unexpected.append(extra_key)
    if strict:
        for key in state_dict:
            if key.startswith(prefix) and key != extra_key:
                head, dot, _ = key[len(prefix) :].partition(".")
                if (kinds.get(head) != "module") if dot else (head not in own):
                    unexpected.append(key)


def _load_one(
    module: Any, name: str, key: str, target: Any, value: Any, assign: bool, errors: list[str]
) -> None:
    if not isinstance(value, Tensor) and not hasattr(value, "__torch_function__"):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like '
            f"object from checkpoint but received {type(value)}"
        )
        return
    lazy = is_lazy(target)
    if not lazy and len(target.shape) == 0 and tuple(value.shape) == (1,):
        value = value[0]  # files from before there were tensors without dimensions
    if not lazy and value.shape != target.shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {target.shape}."
        )
        return
    if target.is_meta and not value.is_meta and not assign:
        import warnings

        warnings.warn(
            f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter "
            "in the current model, which is a no-op. (Did you mean to pass `assign=True` to "
            "assign items in the state dictionary to their corresponding key in the module "
            "instead of copying them in place?)",
            stacklevel=2,
        )
        return
    swaps = future.get_swap_module_params_on_conversion()
    try:
        with torch.no_grad():
            if swaps:
                _swap_in(target, value, assign)
                return
            if not assign:
                target.copy_(value)
                return
            if isinstance(target, Parameter):
                if isinstance(value, Parameter):
                    value.requires_grad_(target.requires_grad)
                else:
                    value = Parameter(value, requires_grad=target.requires_grad)
            setattr(module, name, value)
    except Exception as error:
        errors.append(
            f'While {"swapping" if swaps else "copying"} the parameter named "{key}", '
            f"whose dimensions in the model are {target.size()} and "
            f"whose dimensions in the checkpoint are {value.size()}, "
            f"an exception occurred : {error.args}."
        )


def _swap_in(target: Any, value: Any, assign: bool) -> None:
    """Makes a parameter or buffer what it becomes by loading; whoever holds it sees that."""
    made = target.module_load(value, assign=assign)
    if made is target or made is value:
        raise RuntimeError(
            "module_load returned one of self or other, please .detach() "
            "the result if returning one of the inputs in module_load"
        )
    if isinstance(target, Parameter):
        if isinstance(made, Parameter):
            made.requires_grad_(target.requires_grad)
        else:
            made = Parameter(made, requires_grad=target.requires_grad)
    swap_tensors(target, made)


def _by_child(state_dict: Any, prefix: str) -> dict[str, dict[str, Any]]:
    """The entries below ``prefix``, by the child that they are for."""
    parts: dict[str, dict[str, Any]] = {}
    cut = len(prefix)
    for key, value in state_dict.items():
        if key.startswith(prefix):
            head, dot, _ = key[cut:].partition(".")
            if dot:
                parts.setdefault(head, {})[key] = value
    return parts


def _load_tree(
    module: Any,
    local: Any,
    prefix: str,
    strict: bool,
    assign: bool,
    all_metadata: Any,
    lists: tuple[list[str], list[str], list[str]],
) -> None:
    metadata = {} if all_metadata is None else all_metadata.get(prefix[:-1], {})
    if assign:
        metadata["assign_to_params_buffers"] = assign
    missing, unexpected, errors = lists
    module._load_from_state_dict(local, prefix, metadata, True, missing, unexpected, errors)
    state = module._state_
    children = [(n, state[n]) for n, kind in state["_kinds"].items() if kind == "module"]
    if children:
        parts = _by_child(local, prefix)
        for name, child in children:
            if child is not None:
                _load_tree(
                    child,
                    parts.get(name, {}),
                    f"{prefix}{name}.",
                    strict,
                    assign,
                    all_metadata,
                    lists,
                )
    keys = _IncompatibleKeys(missing, unexpected)
    for hook in _hooks(module, "_load_state_dict_post_hooks"):
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not"
                " expected to return new values, if incompatible_keys need to be modified,"
                " it should be done inplace."
            )


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def load(module: Any, state_dict: Any, strict: bool, assign: bool) -> _IncompatibleKeys:
    """Load ``state_dict`` into ``module`` and its children."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    all_metadata = getattr(state_dict, "_metadata", None)
    local = OrderedDict(state_dict)
    if all_metadata is not None:
        local._metadata = all_metadata  # type: ignore[attr-defined]
    _load_tree(module, local, "", strict, assign, all_metadata, (missing, unexpected, errors))
    if strict:
        if unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
        if missing:
            errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
    if errors:
        lines = "\n\t".join(errors)
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{lines}"
        )
    return _IncompatibleKeys(missing, unexpected)
