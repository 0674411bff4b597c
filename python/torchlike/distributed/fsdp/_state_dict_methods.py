"""What state dicts of wrapped modules and of their optimizers are made of."""

from __future__ import annotations

import contextlib
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NoReturn

import torchlike as torch
from torchlike.distributed.fsdp import _state_dicts
from torchlike.distributed.fsdp.api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.nn.modules.module import Module

__all__ = ["OptimStateKeyType", "StateDictMethods"]

_CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


class OptimStateKeyType(Enum):
    """By what an optimizer's state is keyed."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


class StateDictMethods:
    """The functions of a wrapper's class that are about state dicts."""

    @classmethod
    def set_state_dict_type(
        cls: Any,
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Says what the state dicts of all wrappers in a module are made of; what was said before.

        Raises:
            RuntimeError: for the settings of another type.
        """
        kind, optim_kind = _CONFIGS[state_dict_type]
        config = kind() if state_dict_config is None else state_dict_config
        optim = optim_kind() if optim_state_dict_config is None else optim_state_dict_config
        for given, wanted in ((config, kind), (optim, optim_kind)):
            if type(given) is not wanted:
                raise RuntimeError(
                    f"Expected state_dict_config of type {wanted} but got {type(given)}"
                )
        before = cls.get_state_dict_type(module)
        for m in cls.fsdp_modules(module):
            m._state_dict_type, m._state_dict_config = state_dict_type, config
            m._optim_state_dict_config = optim
        return before

    @classmethod
    def get_state_dict_type(cls: Any, module: Module) -> StateDictSettings:
        """What the state dicts of the wrappers in a module are made of."""
        for m in cls.fsdp_modules(module):
            return StateDictSettings(
                m._state_dict_type, m._state_dict_config, m._optim_state_dict_config
            )
        return StateDictSettings(
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()
        )

    @classmethod
    @contextlib.contextmanager
    def state_dict_type(
        cls: Any,
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """Within, state dicts are made of something else."""
        before = cls.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            cls.set_state_dict_type(
                module,
                before.state_dict_type,
                before.state_dict_config,
                before.optim_state_dict_config,
            )

    @classmethod
    def optim_state_dict(
        cls: Any,
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any] | None = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """An optimizer's state dict with whole tensors, by the names that parameters have unwrapped.

        Raises:
            NotImplementedError: if state dicts are not made of whole tensors.
        """
        settings = cls.get_state_dict_type(model)
        if settings.state_dict_type is not StateDictType.FULL_STATE_DICT:
            raise NotImplementedError(
                f"torch.distributed.fsdp.FullyShardedDataParallel.optim_state_dict: {settings.state_dict_type} is not "
                "supported by torchlike; FULL_STATE_DICT is"
            )
        config = settings.optim_state_dict_config
        rank0 = getattr(config, "rank0_only", False)
        return _state_dicts.whole_optimizer(
            model, optim, optim_state_dict, rank0, config.offload_to_cpu
        )

    @classmethod
    def optim_state_dict_to_load(
        cls: Any,
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """What this rank's optimizer loads of what `optim_state_dict` gave; `load_directly` loads it."""
        if is_named_optimizer:
            raise NotImplementedError(
                "torch.distributed.fsdp.FullyShardedDataParallel.optim_state_dict_to_load: is_named_optimizer is not "
                "supported by torchlike"
            )
        made = _state_dicts.part_of_optimizer(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(made)
        return made

    @classmethod
    def full_optim_state_dict(
        cls: Any,
        model: Module,
        optim: Any,
        optim_input: Any = None,
        rank0_only: bool = True,
        group: Any = None,
    ) -> dict[str, Any]:
        """The same, on the first rank alone by default."""
        return _state_dicts.whole_optimizer(model, optim, None, rank0_only, True)

    @classmethod
    def shard_full_optim_state_dict(
        cls: Any,
        full_optim_state_dict: dict[str, Any],
        model: Module,
        optim_input: Any = None,
        optim: Any = None,
    ) -> dict[str, Any]:
        """What this rank's optimizer loads of what `full_optim_state_dict` gave.

        Raises:
            ValueError: without the optimizer.
        """
        if optim is None:
            raise ValueError("shard_full_optim_state_dict needs the optimizer as `optim`")
        return _state_dicts.part_of_optimizer(model, optim, full_optim_state_dict)

    @classmethod
    def scatter_full_optim_state_dict(
        cls: Any,
        full_optim_state_dict: dict[str, Any] | None,
        model: Module,
        optim_input: Any = None,
        optim: Any = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """What each rank's optimizer loads of what the first has."""
        held = [full_optim_state_dict]
        torch.distributed.broadcast_object_list(held, 0, group)
        return cls.shard_full_optim_state_dict(held[0] or {}, model, optim_input, optim)

    @classmethod
    def rekey_optim_state_dict(
        cls: Any,
        optim_state_dict: dict[str, Any],
        optim_state_key_type: OptimStateKeyType,
        model: Module,
        optim_input: Any = None,
        optim: Any = None,
    ) -> dict[str, Any]:
        """A state dict of an optimizer with names in place of numbers, or numbers in place of names.

        Raises:
            ValueError: without the optimizer.
        """
        if optim is None:
            raise ValueError("rekey_optim_state_dict needs the optimizer as `optim`")
        to_ids = optim_state_key_type is OptimStateKeyType.PARAM_ID
        return _state_dicts.rekeyed(optim_state_dict, to_ids, model, optim)

    @classmethod
    def sharded_optim_state_dict(
        cls: Any, model: Module, optim: Any, group: Any = None
    ) -> NoReturn:
        """Not supported: optimizers have state dicts of whole tensors.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "torch.distributed.fsdp.FullyShardedDataParallel.sharded_optim_state_dict is not supported by torchlike; "
            "optim_state_dict is"
        )

    @classmethod
    def flatten_sharded_optim_state_dict(
        cls: Any, sharded_optim_state_dict: dict[str, Any], model: Module, optim: Any
    ) -> NoReturn:
        """Not supported: optimizers have state dicts of whole tensors.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "torch.distributed.fsdp.FullyShardedDataParallel.flatten_sharded_optim_state_dict is not supported by "
            "torchlike; optim_state_dict_to_load is"
        )
