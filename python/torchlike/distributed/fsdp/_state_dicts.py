"""State dicts of wrapped models and their optimizers: whole tensors under the names that the model has unwrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.fsdp.api import StateDictType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike import nn
    from torchlike.distributed.fsdp._flat import FlatGroup, Piece

WRAPPED = "_fsdp_wrapped_module"
_HIDDEN = (f"{WRAPPED}.", "_checkpoint_wrapped_module.")


def clean(name: str) -> str:
    """A name without what wrappers add to it."""
    for part in _HIDDEN:
        name = name.replace(part, "")
    return name


def renamed(state: dict[str, Any], old: str, new: str) -> None:
    """Replaces the beginning of all keys that have it, in place."""
    for key in [k for k in state if k.startswith(old)]:
        state[new + key[len(old) :]] = state.pop(key)


# Models


def before_saving(module: Any, *_: Any) -> None:
    """Gathers what a state dict has."""
    kind = module._state_dict_type
    if kind is StateDictType.LOCAL_STATE_DICT:
        raise NotImplementedError(
            "torch.distributed.fsdp.StateDictType.LOCAL_STATE_DICT is not supported by torchlike; "
            "FULL_STATE_DICT and SHARDED_STATE_DICT are"
        )
    module._open_whole()


def after_saving(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Copies what was gathered, under the names of the model as it was."""
    group, settings = module._group, module._state_dict_config
    mine = f"{prefix}{WRAPPED}."
    held = (
        set()
        if group is None
        else {mine + n for p in group.param.pieces for n in _paths(module, p)}
    )
    drops = getattr(settings, "rank0_only", False) and torch.distributed.get_rank() != 0
    for key in [k for k in state if k.startswith(mine)]:
        value = state.pop(key)
        if key in held and not drops:
            value = _saved(module, value.detach())
        if key not in held or not drops:
            state[prefix + key[len(mine) :]] = value
    module._close_whole()


def _saved(module: Any, value: Any) -> Any:
    if module._state_dict_type is StateDictType.SHARDED_STATE_DICT:
        from torchlike.distributed.tensor import Shard, distribute_tensor

        cut = Shard(0)
        return distribute_tensor(value.clone(), module._mesh(), [cut], src_data_rank=None)
    return value.clone()


def _paths(module: nn.Module, piece: Piece) -> list[str]:
    """The names of a parameter below a wrapper's module.

    Raises:
        RuntimeError: if it has none any more.
    """
    root: Any = module._modules[WRAPPED]
    wanted = [(id(m), n) for m, n in piece.place.everywhere()]
    found = [
        f"{path}.{name}" if path else name
        for path, m in root.named_modules(remove_duplicate=False)
        for at, name in wanted
        if at == id(m)
    ]
    if not found:
        raise RuntimeError(f"{piece.place.name} is no parameter of the wrapped module any more")
    return found


def before_loading(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Gathers what a state dict is loaded into, and gives its keys the names of the wrapped model."""
    renamed(state, prefix, f"{prefix}{WRAPPED}.")
    for key, value in state.items():
        if key.startswith(prefix) and hasattr(value, "full_tensor"):
            state[key] = value.full_tensor()
    module._open_whole()


def after_loading(module: Any, _: Any) -> None:
    """Keeps this rank's part of what was loaded."""
    module._close_whole(writes=True)


# Optimizers


def _groups(model: nn.Module) -> Iterator[tuple[str, FlatGroup]]:
    """The flat tensors of a model, and the name of the module of each."""
    from torchlike.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel

    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel) and module._group is not None:
            yield clean(f"{name}.{WRAPPED}." if name else f"{WRAPPED}."), module._group


class Named:
    """The parameters of a model by the names that it has unwrapped: `of` by object, with the group of those that are
    cut."""

    def __init__(self, model: nn.Module) -> None:
        self.of: dict[int, tuple[list[str], FlatGroup | None, Piece | None]] = {}
        for prefix, group in _groups(model):
            module = group.modules[0]
            names = [clean(prefix + _paths(module, p)[0]) for p in group.param.pieces]
            if group.param.use_orig:
                for name, piece in zip(names, group.param.pieces, strict=True):
                    self.of[id(piece.param)] = ([name], group, piece)
            else:
                self.of[id(group.param.flat)] = (names, group, None)
        for name, p in model.named_parameters():
            self.of.setdefault(id(p), ([clean(name)], None, None))

    def names(self, p: Any) -> list[str]:
        """The names of what a parameter of an optimizer holds.

        Raises:
            KeyError: for a parameter of another model.
        """
        if id(p) not in self.of:
            raise KeyError(f"a parameter of shape {tuple(p.shape)} is none of the model's")
        return self.of[id(p)][0]


def whole_optimizer(
    model: nn.Module, optim: Any, given: dict[str, Any] | None, rank0_only: bool, to_cpu: bool
) -> dict[str, Any]:
    """An optimizer's state dict with whole tensors, by names."""
    named = Named(model)
    state_dict = optim.state_dict() if given is None else given
    params = [p for g in optim.param_groups for p in g["params"]]
    ids = [i for g in state_dict["param_groups"] for i in g["params"]]
    state: dict[str, Any] = {}
    for p, i in zip(params, ids, strict=True):
        names, group, piece = named.of[id(p)] if id(p) in named.of else (named.names(p), None, None)
        local = state_dict["state"].get(i, {})
        found = zip(names, _wholes(local, group, piece, len(names)), strict=True)
        state.update({n: values for n, values in found if values})
    if rank0_only and torch.distributed.get_rank() != 0:
        return {}
    if to_cpu:
        for values in state.values():
            values.update({k: v.cpu() for k, v in values.items() if isinstance(v, torch.Tensor)})
    groups = []
    for g, s in zip(optim.param_groups, state_dict["param_groups"], strict=True):
        groups.append({**s, "params": [n for p in g["params"] for n in named.names(p)]})
    return {"state": state, "param_groups": groups}


def _wholes(
    local: dict[str, Any], group: FlatGroup | None, piece: Piece | None, count: int
) -> list[dict[str, Any]]:
    """The whole state of each parameter that an entry of an optimizer holds."""
    if group is None:
        return [dict(local)]
    param = group.param
    parts: list[Any] = [None] * group.info.size
    if group.info.size == 1:
        parts = [local]
    else:
        torch.distributed.all_gather_object(parts, local, group.info.group)
    keys = list(dict.fromkeys(k for p in parts for k in p))
    made: list[dict[str, Any]] = [{} for _ in range(count)]
    pieces = [piece] if piece is not None else param.pieces
    for key in keys:
        values = [p.get(key) for p in parts]
        known = next(v for v in values if v is not None)
        if not isinstance(known, torch.Tensor) or not known.dim():
            for m in made:
                m[key] = known.clone() if isinstance(known, torch.Tensor) else known
            continue
        flat = torch.cat([v.reshape(-1) for v in values if v is not None])
        for m, of in zip(made, pieces, strict=True):
            start = 0 if piece is not None else of.start
            m[key] = flat[start : start + of.numel].reshape(of.shape).clone()
    return made


def part_of_optimizer(model: nn.Module, optim: Any, whole: dict[str, Any]) -> dict[str, Any]:
    """What this rank's optimizer loads of a state dict of whole tensors by names."""
    named = Named(model)
    known = {n: g for g in whole["param_groups"] for n in g["params"]}
    state: dict[int, Any] = {}
    groups, number = [], 0
    for g in optim.param_groups:
        ids = []
        options: dict[str, Any] = {k: v for k, v in g.items() if k != "params"}
        for p in g["params"]:
            names = named.names(p)
            _, group, piece = named.of[id(p)]
            options = {**options, **known.get(names[0], {})}
            local = _parts([whole["state"].get(n, {}) for n in names], group, piece)
            if local:
                state[number] = local
            ids.append(number)
            number += 1
        groups.append({**options, "params": ids})
    return {"state": state, "param_groups": groups}


def _parts(
    values: list[dict[str, Any]], group: FlatGroup | None, piece: Piece | None
) -> dict[str, Any]:
    """This rank's part of the state of what an entry of an optimizer holds."""
    if group is None:
        return dict(values[0])
    param = group.param
    made: dict[str, Any] = {}
    rank = group.info.group.rank()
    pieces = [piece] if piece is not None else param.pieces
    for key in dict.fromkeys(k for v in values for k in v):
        known = next(v[key] for v in values if key in v)
        if not isinstance(known, torch.Tensor) or not known.dim():
            made[key] = known
            continue
        flat = known.new_zeros(param.rows * param.ranks.size)
        for v, of in zip(values, pieces, strict=True):
            if key in v:
                flat[of.start : of.stop] = v[key].reshape(-1)
        part = flat.view(param.ranks.size, -1)[rank].clone()
        if piece is not None:
            start, stop = param.within(piece)
            if start == stop:
                return {}
            part = param.shown(piece, part).clone()
        made[key] = part
    return made


def rekeyed(
    state_dict: dict[str, Any], to_ids: bool, model: nn.Module, optim: Any
) -> dict[str, Any]:
    """A state dict of an optimizer with numbers in place of names, or names in place of numbers."""
    named = Named(model)
    params = [p for g in optim.param_groups for p in g["params"]]
    pairs = [(i, named.names(p)[0]) for i, p in enumerate(params)]
    keys: dict[Any, Any] = {n: i for i, n in pairs} if to_ids else dict(pairs)
    groups = [
        {**g, "params": [keys.get(k, k) for k in g["params"]]} for g in state_dict["param_groups"]
    ]
    state = {keys.get(k, k): v for k, v in state_dict["state"].items()}
    return {"state": state, "param_groups": groups}
