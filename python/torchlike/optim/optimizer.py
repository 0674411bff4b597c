"""What all optimizers are: parameters in groups with options, state by parameter, hooks, and their pickled form."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias

import torchlike as torch
from torchlike.autograd._record_function import record_function
from torchlike.optim._common import (
    Begins,
    required,
    step_count,
    zeros,
)
from torchlike.optim._common import (
    _default_to_fused_or_foreach as _default_to_fused_or_foreach,
)
from torchlike.optim._common import (
    _device_dtype_check_for_fused as _device_dtype_check_for_fused,
)
from torchlike.optim._common import (
    _get_capturable_supported_devices as _get_capturable_supported_devices,
)
from torchlike.optim._common import (
    _get_scalar_dtype as _get_scalar_dtype,
)
from torchlike.optim._common import (
    _get_value as _get_value,
)
from torchlike.optim._common import (
    _stack_if_compiling as _stack_if_compiling,
)
from torchlike.optim._common import (
    _to_scalar as _to_scalar,
)
from torchlike.optim._common import (
    _use_grad_for_differentiable as _use_grad_for_differentiable,
)
from torchlike.optim._common import (
    _view_as_real as _view_as_real,
)
from torchlike.utils.hooks import RemovableHandle

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

Tensor = torch.Tensor
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
StateDict: TypeAlias = dict[str, Any]
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]

_global_optimizer_pre_hooks: OrderedDict[int, Any] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Any] = OrderedDict()

# The hook tables of an optimizer, which do not survive pickling.
_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


def _register(table: OrderedDict[int, Any], hook: Any, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Any) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before every step of every optimizer."""
    return _register(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Any) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after every step of every optimizer."""
    return _register(_global_optimizer_post_hooks, hook)


class Optimizer:
    """The base of all optimizers.

    Args:
        params: tensors, pairs of names and tensors, or dicts with ``"params"`` and options of their own.
        defaults: the options of groups that do not say them.
    """

    OptimizerPreHook: TypeAlias = Callable[["Optimizer", Args, Kwargs], Any]
    OptimizerPostHook: TypeAlias = Callable[["Optimizer", Args, Kwargs], None]

    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]

    # Options that groups in old state dicts lack, and entries of a parameter's state that were numbers there.
    _added: dict[str, Any] = {}
    _counts: tuple[str, ...] = ()

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for table in _TABLES:
            setattr(self, table, OrderedDict())
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {torch.typename(params)}"
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)
        for group in self.param_groups:
            for name, value in self._added.items():
                group.setdefault(name, value)
            for p in group["params"]:
                state = self.state.get(p) or {}
                for name in self._counts if state else ():
                    if not isinstance(state[name], Tensor):
                        state[name] = self._count(p, group, float(state[name]))

    # A number of the state as a tensor, and what is said of sparse gradients where they are refused.
    _count = staticmethod(step_count)
    _refusal = ""

    def _begins(self, group: dict[str, Any]) -> Begins | None:
        """The entries that a parameter's state begins with; None if `_start` alone says that."""
        return None

    def _start(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        """What the state of a parameter begins with."""
        return {
            name: zeros(p) if value is None else step_count(p, group, value)
            for name, value in self._begins(group) or ()
        }

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            names = sorted(name for name in group if name != "params")
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {name}: {group[name]}\n" for name in names)
        return text + ")"

    def _optimizer_step_code(self) -> None:
        """Called after each step; a place for profilers to look at."""

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: list[list[Any]], with_indices: bool = False
    ) -> dict[Any, Any]:
        from torchlike.utils import _foreach_utils

        return _foreach_utils._group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    @staticmethod
    def profile_hook_step(func: Any) -> Any:
        """The step function with the hooks around it."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            with record_function(f"Optimizer.step#{type(self).__name__}.step"):
                for hook in _chained(_global_optimizer_pre_hooks, self._optimizer_step_pre_hooks):
                    changed = hook(self, args, kwargs)
                    if changed is None:
                        continue
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError(
                            f"{func} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                        )
                    args, kwargs = changed
                out = func(*args, **kwargs)
                self._optimizer_step_code()
                for hook in _chained(self._optimizer_step_post_hooks, _global_optimizer_post_hooks):
                    hook(self, args, kwargs)
                return out

        return wrapper

    def _patch_step_function(self) -> None:
        """The class's step gets its hooks with the first instance: users' classes define steps of their own."""
        cls = type(self)
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{cls.__name__}.zero_grad"
        if not getattr(cls.step, "hooked", False):
            hooked = self.profile_hook_step(cls.step)
            hooked.hooked = True
            cls.step = hooked  # type: ignore[method-assign]

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return other arguments."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before a state dict is made."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` with each state dict made; it may return another."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` with a state dict to be loaded; it may return another."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after a state dict has been loaded."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self) -> StateDict:
        """State and groups as plain dicts, in which numbers stand for the parameters, in their order."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        # Numbers go on past every entry; of a parameter that stands in a group twice the last one counts.
        number: dict[int, int] = {}
        start = 0
        for group in self.param_groups:
            own = {id(p): i for i, p in enumerate(group["params"], start)}
            number = {**own, **number}
            start += len(group["params"])
        packed: StateDict = {
            "state": {
                number[id(k)] if isinstance(k, Tensor) else k: v for k, v in self.state.items()
            },
            "param_groups": [
                {
                    **{k: v for k, v in group.items() if k != "params"},
                    "params": [number[id(p)] for p in group["params"]],
                }
                for group in self.param_groups
            ],
        }
        return _changed_by(self._optimizer_state_dict_post_hooks, self, packed)

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Any, value: Any, param_id: Any, param_groups: Any, key: Any = None
    ) -> Any:
        """Where and of which type a loaded tensor of the state has to be."""
        if key == "step":
            group: Any = next((g for g in param_groups if param_id in g["params"]), {})
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=torch.float32, device=param.device)
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over a state dict: options as they are, tensors moved and cast to their parameters."""
        packed = _changed_by(self._optimizer_load_state_dict_pre_hooks, self, state_dict.copy())
        saved = deepcopy(packed["param_groups"])
        if len(self.param_groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        pairs = list(zip(self.param_groups, saved, strict=True))
        if any(len(own["params"]) != len(other["params"]) for own, other in pairs):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        by_number = {
            n: p
            for own, other in pairs
            for n, p in zip(other["params"], own["params"], strict=True)
        }
        state: defaultdict[Any, Any] = defaultdict(dict)
        for k, v in packed["state"].items():
            if k in by_number:
                p = by_number[k]
                state[p] = _cast(p, v, k, packed["param_groups"])
            else:
                state[k] = v
        for own, other in pairs:
            other["params"] = own["params"]
            if "param_names" in own:
                other.setdefault("param_names", own["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        with record_function(self._zero_grad_profile_name):
            for p in chain.from_iterable(group["params"] for group in self.param_groups):
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    if p.grad.grad_fn is not None:
                        p.grad.detach_()
                    else:
                        p.grad.requires_grad_(False)
                    p.grad.zero_()

    def step(self, closure: Any = None) -> Any:
        """One update of the parameters; some optimizers evaluate the loss again by the closure."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _split_names(param_group)
        for p in param_group["params"]:
            self._check_param(p)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter {name}"
                )
            param_group.setdefault(name, default)
        own = set(param_group["params"])
        if len(own) != len(param_group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {kind} to the optimizer"
                )
        if any(not own.isdisjoint(group["params"]) for group in self.param_groups):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def _check_param(self, p: Any) -> None:
        if not isinstance(p, Tensor):
            raise TypeError(
                f"optimizer can only optimize Tensors, but one of the params is {torch.typename(p)}"
            )
        if not self.defaults.get("differentiable") and not (p.is_leaf or p.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")


def _chained(*tables: OrderedDict[int, Any]) -> Iterable[Any]:
    return chain.from_iterable(table.values() for table in tables)


def _changed_by(hooks: OrderedDict[int, Any], optimizer: Optimizer, packed: StateDict) -> StateDict:
    for hook in hooks.values():
        other = hook(optimizer, packed)
        if other is not None:
            packed = other
    return packed


def _cast(param: Any, value: Any, number: Any, groups: Any, key: Any = None) -> Any:
    """A copy of part of a parameter's state, with its tensors where and what the parameter wants."""
    if isinstance(value, Tensor):
        return Optimizer._process_value_according_to_param_policy(param, value, number, groups, key)
    if isinstance(value, dict):
        return {k: _cast(param, v, number, groups, k) for k, v in value.items()}
    if isinstance(value, Iterable):
        return type(value)(_cast(param, v, number, groups) for v in value)  # type: ignore[call-arg]
    return value


def _split_names(group: dict[str, Any]) -> None:
    """Make the group's parameters a list, and take names out of it if it holds pairs."""
    params = group["params"]
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in "
            "sets will change between runs. Please use a list instead."
        )
    given = [params] if isinstance(params, Tensor) else list(params)
    names = [entry[0] for entry in given if isinstance(entry, tuple)]
    group["params"] = [entry[1] if isinstance(entry, tuple) else entry for entry in given]
    if names:
        if len(names) != len(given):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        group["param_names"] = names
