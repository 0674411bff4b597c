"""State dicts of models and optimizers under names that do not depend on how the model is spread over processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import distributed as dist
from torchlike.distributed.tensor._distribute import distribute_tensor
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.nn.parallel import DistributedDataParallel
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torchlike import nn
    from torchlike.optim import Optimizer

__all__ = [
    "StateDictOptions",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "get_state_dict",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "set_state_dict",
]

_WRAPPERS = frozenset(("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"))


@dataclass
class StateDictOptions:
    """How state dicts are made and taken.

    `full_state_dict`: tensors are wholes, on every rank; with `cpu_offload`, which moves them to the CPU, on the first
    alone. `ignore_frozen_params` leaves out parameters that want no gradient. `strict` is that of `load_state_dict`.
    `broadcast_from_rank0`: the first rank has the wholes, and sends them. `flatten_optimizer_state_dict`: an
    optimizer's values are named one by one, `state.layer.weight.exp_avg`. `keep_submodule_prefixes`: names of
    `submodules` begin at the model.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _settled(options: StateDictOptions | None) -> StateDictOptions:
    """What is asked for.

    Raises:
        ValueError: if the first rank is to send wholes, and nobody wants wholes.
    """
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    return options


def _plain(model: nn.Module, name: str) -> str:
    """A name without the modules that only wrap others."""
    kept, here = [], model
    for part in name.split("."):
        wraps = part in _WRAPPERS or (
            part == "module" and isinstance(here, DistributedDataParallel)
        )
        if not wraps:
            kept.append(part)
        here = getattr(here, part, None)  # type: ignore[assignment]
    return ".".join(kept)


def _is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _given(values: Any, options: StateDictOptions) -> Any:
    """Tensors as the options ask for them."""

    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        if options.full_state_dict and isinstance(t, DTensor):
            t = t.full_tensor()
        return t.cpu() if options.cpu_offload else t

    with torch.no_grad():
        made = pytree.tree_map(one, values)
    alone = options.full_state_dict and options.cpu_offload
    return made if _is_first() or not alone else {}


def _chosen(model: nn.Module, submodules: Iterable[nn.Module] | None) -> list[str] | None:
    """The prefixes of the modules that are asked for; None for all."""
    if not submodules:
        return None
    wanted = set(submodules)
    return [_plain(model, name) + "." for name, m in model.named_modules() if m in wanted]


def get_model_state_dict(
    model: nn.Module,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The model's state dict under plain names; pieces of parameters are `DTensor`s."""
    options = _settled(options)
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    state = {
        _plain(model, name): value
        for name, value in model.state_dict().items()
        if not (options.ignore_frozen_params and name in frozen)
    }
    prefixes = _chosen(model, submodules)
    if prefixes is not None:
        found = {}
        for name, value in state.items():
            prefix = next((p for p in prefixes if name.startswith(p)), None)
            if prefix is not None:
                kept = name if options.keep_submodule_prefixes else name.removeprefix(prefix)
                found[kept] = value
        state = found
    made: dict[str, Any] = _given(state, options)
    return made


def _flat(optimizers: Any) -> tuple[Optimizer, ...]:
    return (optimizers,) if isinstance(optimizers, torch.optim.Optimizer) else tuple(optimizers)


def _fill(optimizer: Optimizer) -> None:
    """Has an optimizer make its states: by a step that changes nothing."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in params):
        return
    for p in params:
        if p.requires_grad:
            p.grad = torch.zeros_like(p)
    rates = [group.get("lr") for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = torch.tensor(0.0) if isinstance(rate, torch.Tensor) else 0.0
    optimizer.step(closure=None)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def _names(model: nn.Module) -> dict[Any, str]:
    """The plain names of parameters; of one that is used twice, the first."""
    return {p: _plain(model, name) for name, p in model.named_parameters()}


def _wraps_flat(model: nn.Module) -> bool:
    """Whether the older wrapper, whose parameters are flat, is in the model."""
    from torchlike.distributed.fsdp import FullyShardedDataParallel

    return any(isinstance(m, FullyShardedDataParallel) for m in model.modules())


def get_optimizer_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """The state of one or several optimizers of the model's parameters, by their plain names. States that are not there
    yet are made.

    Raises:
        RuntimeError: for parameters that are not the model's.
    """
    options = _settled(options)
    names = _names(model)
    prefixes = _chosen(model, submodules)
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _flat(optimizers):
        _fill(optimizer)
        if _wraps_flat(model):
            from torchlike.distributed.fsdp import FullyShardedDataParallel

            own = FullyShardedDataParallel.optim_state_dict(model, optimizer)
        else:
            own = _by_name(optimizer, names)
        made["state"].update(own["state"])
        made["param_groups"] += own["param_groups"]
    if prefixes is not None:
        wanted = tuple(prefixes)
        made["state"] = {n: s for n, s in made["state"].items() if n.startswith(wanted)}
        for group in made["param_groups"]:
            group["params"] = [n for n in group["params"] if n.startswith(wanted)]
    if options.flatten_optimizer_state_dict:
        made = _flattened(made)
    given: dict[str, Any] = _given(made, options)
    return given


def _by_name(optimizer: Optimizer, names: dict[Any, str]) -> dict[str, Any]:
    """An optimizer's state dict with names in the place of numbers."""
    own = optimizer.state_dict()
    params = [p for group in optimizer.param_groups for p in group["params"]]
    unknown = [p for p in params if p not in names]
    if unknown:
        raise RuntimeError(
            f"a parameter of the optimizer, of shape {tuple(unknown[0].shape)}, is none of the model's"
        )
    numbered = {i: names[p] for i, p in enumerate(params)}
    state = {numbered[i]: values for i, values in own["state"].items()}
    groups = [
        {**group, "params": [numbered[i] for i in group["params"]]} for group in own["param_groups"]
    ]
    return {"state": state, "param_groups": groups}


def _flattened(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Each value by a name of its own.

    Raises:
        NotImplementedError: for states that are neither tensors nor numbers.
    """
    made: dict[str, Any] = {}

    def add(prefix: str, values: dict[Any, Any]) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                add(f"{prefix}.{key}", value)
                continue
            if not isinstance(value, torch.Tensor | int | float):
                raise NotImplementedError(
                    "Flattening optimizer state_dict only supports tensor, int, float, dict states now. "
                    f"Type is {type(value)}."
                )
            made[f"{prefix}.{key}"] = value

    for name, values in state_dict["state"].items():
        add(f"state.{name}", values)
    for group in state_dict["param_groups"]:
        for name in group["params"]:
            made.update({f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"})
    return made


def _unflattened(
    optimizer: Optimizer, names: dict[Any, str], flat: dict[str, Any]
) -> dict[str, Any]:
    """The nested state dict of one optimizer, of values with names of their own."""
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    for group in optimizer.param_groups:
        own = [names[p] for p in group["params"]]
        found: dict[str, Any] = {"params": own}
        for name in own:
            values = _below(flat, f"param_groups.{name}.")
            for key, value in values.items():
                if found.setdefault(key, value) != value:
                    raise RuntimeError(
                        "All the parameters in the same parameter group should have the same saved param_group value. "
                        f"But {name}.{key} is {value} while other(s) is {found[key]}."
                    )
            state = _below(flat, f"state.{name}.")
            if state:
                made["state"][name] = state
        made["param_groups"].append(found)
    return made


def _below(flat: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in flat.items():
        if name.startswith(prefix):
            *path, last = name.removeprefix(prefix).split(".")
            here = found
            for part in path:
                here = here.setdefault(part, {})
            here[last] = value
    return found


def get_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    submodules: Any = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state dicts of a model and of its optimizers, ready to be saved by `checkpoint.save`, and to be filled by
    `checkpoint.load`."""
    state = get_model_state_dict(model, submodules=submodules, options=options)
    own = tuple(_flat(optimizers))
    if not own:
        return state, {}
    return state, get_optimizer_state_dict(model, own, submodules=submodules, options=options)


def _sent(value: Any) -> Any:
    """What the first rank has, on all."""
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def _pairs(state_dict: dict[str, Any], sends: bool) -> Iterator[tuple[str, Any]]:
    """Names and values; those of the first rank, which are sent one by one, if it alone has them."""
    if not sends:
        yield from state_dict.items()
        return
    for name in _sent(list(state_dict) if _is_first() else None):
        value = state_dict.get(name)
        is_tensor = isinstance(value, torch.Tensor)
        about = ("tensor", value.shape, value.dtype) if is_tensor else ("value", value, None)  # type: ignore[union-attr]
        kind, what, dtype = _sent(about if _is_first() else None)
        if kind == "value":
            yield name, what
            continue
        sent = value.detach().contiguous() if _is_first() else torch.empty(what, dtype=dtype)  # type: ignore[union-attr]
        dist.broadcast(sent, 0)
        yield name, sent


def _spread(value: Any, like: Any) -> Any:
    """A whole as the tensor lies for which it is."""
    whole = isinstance(value, torch.Tensor) and not isinstance(value, DTensor)
    if not whole or not isinstance(like, DTensor) or value.shape != like.shape:
        return value
    return distribute_tensor(
        value.to(like._locals[0].device) if not like.is_meta else value,
        like.device_mesh,
        like.placements,
        src_data_rank=None,
    )


def set_model_state_dict(
    model: nn.Module,
    model_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> Any:
    """Loads what `get_model_state_dict` gave, of this model or of one that is spread otherwise; what
    `load_state_dict` gives. Parameters on meta become those that are loaded.

    Raises:
        RuntimeError: if there is nothing to load.
    """
    options = _settled(options)
    away = options.cpu_offload and options.full_state_dict
    lenient = away or options.broadcast_from_rank0 or options.ignore_frozen_params
    if not model_state_dict and options.strict and not lenient:
        rank = dist.get_rank() if dist.is_initialized() else 0
        raise RuntimeError(
            "The option indicates that model state_dict is required to save or load, but model state_dict is empty."
            f"rank = dist.get_rank()={rank}."
        )
    own = model.state_dict()
    names = {_plain(model, name): name for name in own}
    made: dict[str, Any] = {}
    for name, value in _pairs(model_state_dict, options.broadcast_from_rank0):
        known = names.get(name, name)
        like = own.get(known)
        made[known] = _spread(value, like) if options.full_state_dict else value
    assign = any(isinstance(t, torch.Tensor) and t.is_meta for t in own.values())
    return model.load_state_dict(made, strict=options.strict, assign=assign)


def set_optimizer_state_dict(
    model: nn.Module,
    optimizers: Any,
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Loads what `get_optimizer_state_dict` gave, into optimizers of this model.

    Raises:
        RuntimeError: if there is nothing to load, or the state of a parameter that wants a gradient is not there.
        ValueError: if a parameter's group is not there.
    """
    options = _settled(options)
    away = options.cpu_offload and options.full_state_dict
    if not optim_state_dict and not away and not options.broadcast_from_rank0:
        raise RuntimeError(
            "The option indicates that model state_dict is required to save, or load but optim state_dict is empty. "
            f"{optim_state_dict}"
        )
    names = _names(model)
    if options.broadcast_from_rank0:
        flat = (
            optim_state_dict
            if options.flatten_optimizer_state_dict or not optim_state_dict
            else _flattened(optim_state_dict)
        )
        optim_state_dict = dict(_pairs(flat, True))
    named_one_by_one = options.flatten_optimizer_state_dict or options.broadcast_from_rank0
    for optimizer in _flat(optimizers):
        _fill(optimizer)
        if named_one_by_one:
            nested = _unflattened(optimizer, names, optim_state_dict)
        else:
            nested = optim_state_dict
        if _wraps_flat(model):
            from torchlike.distributed.fsdp import FullyShardedDataParallel

            own = FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, nested)
        else:
            own = _numbered(optimizer, names, nested, options)
        optimizer.load_state_dict(own)


def _numbered(
    optimizer: Optimizer, names: dict[Any, str], nested: dict[str, Any], options: StateDictOptions
) -> dict[str, Any]:
    """The state dict of one optimizer, with numbers, of one with names that may be that of several."""
    state: dict[int, Any] = {}
    groups = []
    number = 0
    for group in optimizer.param_groups:
        own = [names[p] for p in group["params"]]
        found = next((g for g in nested["param_groups"] if set(own) & set(g["params"])), None)
        if found is None and own:
            if len(nested["param_groups"]) < len(optimizer.param_groups):
                raise ValueError("loaded state dict has a different number of parameter groups")
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        kept = {k: v for k, v in (found or group).items() if k != "params"}
        groups.append({**kept, "params": list(range(number, number + len(own)))})
        for p, name in zip(group["params"], own, strict=True):
            values = nested["state"].get(name)
            if values is not None:
                mine = optimizer.state.get(p, {})
                state[number] = {
                    k: _spread(v, mine.get(k)) if options.full_state_dict else v
                    for k, v in values.items()
                }
            elif options.strict and optimizer.state and p.requires_grad:
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{name}' in checkpoint. The parameter requires gradients "
                    "but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
            number += 1
    return {"state": state, "param_groups": groups}


def set_state_dict(
    model: nn.Module,
    optimizers: Any,
    *,
    model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Loads what `get_state_dict` gave; what the model's `load_state_dict` gives."""
    own = tuple(_flat(optimizers))
    if own:
        set_optimizer_state_dict(model, own, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
