"""A module whose parameters lie flat, cut over the ranks of a group, and are gathered where they are used."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed import _groups
from torchlike.distributed.device_mesh import DeviceMesh
from torchlike.distributed.fsdp import _state_dicts, _wrapped_state
from torchlike.distributed.fsdp._auto import auto_wrap
from torchlike.distributed.fsdp._flat import FlatGroup, Ranks
from torchlike.distributed.fsdp._fully_shard._state import state_of
from torchlike.distributed.fsdp._state_dict_methods import OptimStateKeyType, StateDictMethods
from torchlike.distributed.fsdp._state_dicts import WRAPPED, clean
from torchlike.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictType,
)
from torchlike.nn.modules.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torchlike.nn import Parameter

__all__ = [
    "FullyShardedDataParallel",
    "OptimStateKeyType",
    # libraries import these from here
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
]

_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
_KEEPS = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


def _ranks(group: Any, mesh: DeviceMesh | None, strategy: ShardingStrategy) -> Ranks:
    """Who has the other parts, by the strategy."""
    if strategy in _HYBRID:
        if mesh is not None and mesh.ndim == 2:
            replicas, parts = mesh.get_group(0), mesh.get_group(1)
        elif isinstance(group, tuple) and len(group) == 2:
            parts, replicas = group
        else:
            raise ValueError(
                f"Manual wrapping with {strategy} requires explicit specification of process group or device_mesh."
            )
        return Ranks(parts, replicas, _groups.group_of(None))
    if mesh is not None:
        group = mesh.get_group()
    return Ranks.of(_groups.group_of(group), strategy is not ShardingStrategy.NO_SHARD)


def _ignored(module: Module, modules: Any, states: Any) -> tuple[set[Module], list[Parameter]]:
    """The modules and parameters that a wrapper leaves alone."""
    if modules is not None and states is not None:
        raise ValueError("Cannot pass both ignored_modules and ignored_states at the same time")
    given = list(modules or states or ())
    if modules is not None and not all(isinstance(m, Module) for m in given):
        raise TypeError("`ignored_modules` should be an iterable of `torch.nn.Module`s")
    roots = [m for m in given if isinstance(m, Module)]
    if any(isinstance(m, FullyShardedDataParallel) for m in roots):
        raise ValueError("`ignored_modules` should not include FSDP modules")
    below = {
        m for root in roots for m in root.modules() if not isinstance(m, FullyShardedDataParallel)
    }
    params = [p for m in below for p in m.parameters(False)]
    return below, params + [p for p in given if isinstance(p, torch.Tensor)]


class FullyShardedDataParallel(StateDictMethods, Module):
    """Keeps a part of a module's parameters on each rank; the wholes are there in its passes alone.

    All parameters below that no other wrapper has taken are one flat tensor: gathered at once, and reduced at once.

    Args:
        module: what is wrapped.
        process_group: the ranks; for hybrid strategies two groups, that of the parts and that of the replicas.
        sharding_strategy: whether wholes are let go between forward and backward (`FULL_SHARD`) or not
            (`SHARD_GRAD_OP`), and whether there are parts at all.
        cpu_offload: parts are on the host where the module is.
        auto_wrap_policy: which modules below get a wrapper of their own, as in `wrap`.
        backward_prefetch, forward_prefetch, limit_all_gathers: change nothing here: nothing runs beside the passes.
        mixed_precision: the dtypes of parameters, reductions and buffers.
        ignored_modules, ignored_states: what is left alone.
        param_init_fn: gives a module whose parameters are on meta values.
        device_id: where the module is brought.
        sync_module_states: whether all ranks begin with the values of the first.
        use_orig_params: whether parameters stay those that they were, and hold pieces, or are one.
        device_mesh: the ranks, in place of a group.

    Raises:
        ValueError: for what cannot be flattened or wrapped.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Any = None,
        device_mesh: DeviceMesh | None = None,
    ) -> None:
        super().__init__()
        ignoring, params = _ignored(module, ignored_modules, ignored_states)
        strategy = ShardingStrategy.FULL_SHARD if sharding_strategy is None else sharding_strategy
        if auto_wrap_policy is not None:
            kwargs = {
                "process_group": process_group,
                "sharding_strategy": strategy,
                "cpu_offload": cpu_offload,
                "backward_prefetch": backward_prefetch,
                "mixed_precision": mixed_precision,
                "param_init_fn": param_init_fn,
                "device_id": device_id,
                "sync_module_states": sync_module_states,
                "forward_prefetch": forward_prefetch,
                "limit_all_gathers": limit_all_gathers,
                "use_orig_params": use_orig_params,
                "device_mesh": device_mesh,
            }
            auto_wrap(FullyShardedDataParallel, module, auto_wrap_policy, ignoring, params, kwargs)
        self.sharding_strategy, self.mixed_precision = strategy, mixed_precision or MixedPrecision()
        self.cpu_offload, self.device_mesh = cpu_offload or CPUOffload(), device_mesh
        self._modules[WRAPPED] = module
        _wrapped_state.make_real(module, param_init_fn, device_id)
        if device_id is not None:
            module.to(torch.device(device_id))
        if self.cpu_offload.offload_params and any(
            p.device.type != "cpu" for p in module.parameters()
        ):
            raise NotImplementedError(
                "torch.distributed.fsdp.CPUOffload: parameters of a GPU that stay on the host are not supported by "
                "torchlike"
            )
        ranks = _ranks(process_group, device_mesh, strategy)
        if (
            ranks.size == 1
            and strategy is not ShardingStrategy.NO_SHARD
            and strategy not in _HYBRID
        ):
            warnings.warn(
                f"FSDP is switching to use `NO_SHARD` instead of {strategy} since the world size is 1.",
                stacklevel=2,
            )
            self.sharding_strategy = strategy = ShardingStrategy.NO_SHARD
            ranks = Ranks.of(ranks.everyone, sharded=False)
        self.process_group = ranks.everyone if strategy not in _HYBRID else ranks.group
        if sync_module_states:
            self._spread(ranks, params)
        policy = _wrapped_state.Policy.of(mixed_precision)
        state = _wrapped_state.WrappedState(self, policy)
        reshards = strategy not in _KEEPS
        state.group = _wrapped_state.group_for(
            self, ranks, policy, use_orig_params, reshards, params
        )
        object.__setattr__(self, "_fsdp_state", state)
        self._set_state_dicts()

    def _set_state_dicts(self) -> None:
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: StateDictConfig = FullStateDictConfig()
        self._optim_state_dict_config: OptimStateDictConfig = FullOptimStateDictConfig()
        self._opened = 0
        self.register_state_dict_pre_hook(_state_dicts.before_saving)
        self._register_state_dict_hook(_state_dicts.after_saving)
        self._register_load_state_dict_pre_hook(_state_dicts.before_loading, with_module=True)
        self.register_load_state_dict_post_hook(_state_dicts.after_loading)

    def _spread(self, ranks: Ranks, ignored: list[Parameter]) -> None:
        """Gives all ranks the values of the first."""
        keep = {id(p) for p in ignored}
        found = [p for p, _ in _wrapped_state.own_parameters(self.module, keep)]
        buffers = [b for m in _wrapped_state.own_modules(self.module) for b in m.buffers(False)]
        for t in [*found, *buffers]:
            torch.distributed.broadcast(t.detach(), ranks.everyone.ranks[0], ranks.everyone)

    # What is wrapped

    @property
    def module(self) -> Module:
        """The module that is wrapped."""
        found = self._modules[WRAPPED]
        assert found is not None
        return found._modules.get("_checkpoint_wrapped_module") or found

    @property
    def _group(self) -> FlatGroup | None:
        state = state_of(self)
        return None if state is None else state.group  # type: ignore[return-value]

    @property
    def _has_params(self) -> bool:
        return self._group is not None

    def __getattr__(self, name: str) -> Any:
        try:
            return Module.__getattr__(self, name)
        except AttributeError:
            if name == WRAPPED:
                raise
            return getattr(self._modules[WRAPPED], name)

    def __getitem__(self, key: int) -> Any:
        wrapped: Any = self.module
        return wrapped[key]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        wrapped: Any = self._modules[WRAPPED]
        return wrapped(*args, **kwargs)

    def check_is_root(self) -> bool:
        """Whether no wrapper is around this one."""
        state = state_of(self)
        assert state is not None
        state.prepare()
        return bool(state.is_root)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers in a module, or those that are in no other."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if not root_only:
            return found
        inner = {id(m) for f in found for m in f.modules() if m is not f}
        return [f for f in found if id(f) not in inner]

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        for m in self.fsdp_modules(self):
            if m._group is not None:
                m._group.to_parts()
        made = super()._apply(*args, **kwargs)
        for m in self.fsdp_modules(self):
            if m._group is not None:
                m._group.param.reset()
        return made

    def apply(self, fn: Callable[[Module], None]) -> FullyShardedDataParallel:
        """Calls a function for every module, with whole parameters, whose new values are kept."""
        with self.summon_full_params(self):
            super().apply(fn)
        return self

    # Wholes

    def _open_whole(self) -> None:
        """Gathers the parameters in their own precision; calls nest."""
        self._opened += 1
        group = self._group
        if group is None or self._opened > 1:
            return
        group.to_parts()
        self._dtype_of_passes, group.param.param_dtype = group.param.param_dtype, None
        group.unshard()
        group.wait()

    def _close_whole(self, writes: bool = False) -> None:
        """Lets the parameters go."""
        self._opened -= 1
        group = self._group
        if group is None or self._opened:
            return
        if writes:
            group.param.write_back()
        group.to_parts()
        group.param.param_dtype = self._dtype_of_passes

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Within, the parameters are whole, under the names that they have unwrapped.

        Args:
            module: a model with wrappers.
            recurse: whether those below the outermost are opened too.
            writeback: whether what is written to the wholes is kept.
            rank0_only: whether all ranks but the first have parts.
            offload_to_cpu: changes nothing on the host.
            with_grads: whether gradients are whole too; needs `use_orig_params`.

        Raises:
            NotImplementedError: for combinations that would lose writes.
        """
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported")
        cls = FullyShardedDataParallel
        opened = cls.fsdp_modules(module, root_only=not recurse)
        mine = [m for m in opened if not rank0_only or torch.distributed.get_rank() == 0]
        for m in opened:
            m._open_whole()
            if with_grads:
                m._open_grads()
        for m in opened:
            if m not in mine and m._group is not None:
                m._group.to_parts()
        try:
            yield
        finally:
            for m in opened:
                if with_grads:
                    m._close_grads(writeback)
                m._close_whole(writes=writeback)

    def _open_grads(self) -> None:
        group = self._group
        if group is None:
            return
        if not group.param.use_orig:
            raise NotImplementedError("with_grads=True requires use_orig_params=True")
        with torch.no_grad():
            part = group.param.part_of_grads()
            flat = group.gather(part)
        for whole, piece in zip(group.param.wholes, group.param.pieces, strict=True):
            if whole.requires_grad:
                whole.grad = flat[piece.start : piece.stop].view(piece.shape)

    def _close_grads(self, writes: bool) -> None:
        group = self._group
        if group is None:
            return
        flat = group.param.take_grad()
        if writes and flat is not None:
            part = flat.view(group.info.size, -1)[group.info.group.rank()]
            for piece in group.param.pieces:
                if piece.param.grad is not None:
                    start, stop = group.param.within(piece)
                    piece.param.grad.copy_(part[start:stop].view(piece.param.shape))

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """The parameters; under the names that they have unwrapped where they are whole."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield (clean(name) if self._opened else name), p

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """The buffers; under the names that they have unwrapped where parameters are whole."""
        for name, b in super().named_buffers(*args, **kwargs):
            yield (clean(name) if self._opened else name), b

    # Gradients

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within, gradients stay whole and add up; the first backward pass outside reduces them.

        Raises:
            RuntimeError: for a wrapper within another.
        """
        if not self.check_is_root():
            raise RuntimeError(
                "`no_sync()` on inner FSDP instances is not supported. Please call `no_sync()` on root FSDP module."
            )
        groups = [m._group for m in self.fsdp_modules(self) if m._group is not None]
        before = [g.reduce_grads for g in groups]
        for g in groups:
            g.reduce_grads = False
        try:
            yield
        finally:
            for g, was in zip(groups, before, strict=True):
                g.reduce_grads = was

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """Scales the gradients of all parameters so that their norm over all ranks is at most `max_norm`.

        Returns:
            The norm before.

        Raises:
            RuntimeError: for a wrapper within another.
        """
        if not self.check_is_root():
            raise RuntimeError(
                "`clip_grad_norm_()` should only be called on the root FSDP instance"
            )
        cut: dict[int, Any] = {}
        for m in self.fsdp_modules(self):
            group = m._group
            if group is not None and group.info.size > 1:
                held = (
                    [p.param for p in group.param.pieces]
                    if group.param.use_orig
                    else [group.param.flat]
                )
                cut.update({id(p): p for p in held})
        grads = [(id(p) in cut, p.grad) for p in self.parameters() if p.grad is not None]
        norm_type = float(norm_type)
        of_parts = _norm([g for is_cut, g in grads if is_cut], norm_type)
        of_wholes = _norm([g for is_cut, g in grads if not is_cut], norm_type)
        if cut:
            op = torch.distributed.ReduceOp
            if norm_type == float("inf"):
                torch.distributed.all_reduce(of_parts, op.MAX, self.process_group)
            else:
                of_parts = of_parts**norm_type
                torch.distributed.all_reduce(of_parts, op.SUM, self.process_group)
                of_parts = of_parts ** (1 / norm_type)
        total = _norm([of_parts, of_wholes], norm_type)
        scale = torch.clamp(float(max_norm) / (total + 1e-6), max=1.0)
        for _, g in grads:
            g.mul_(scale.to(g.dtype))
        if not grads:
            warnings.warn(
                f"Called FSDP.clip_grad_norm_() on rank {torch.distributed.get_rank()} with no gradients -- returning "
                f"the total norm in the default dtype {total.dtype}",
                stacklevel=2,
            )
            return total
        dtype = grads[0][1].dtype
        for _, g in grads:
            dtype = torch.promote_types(dtype, g.dtype)
        return total.to(dtype)

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """Has a function reduce the gradients: `hook(state, grad)` in place where nothing is cut, and
        `hook(state, grad, part)` elsewhere.

        Raises:
            AssertionError: for a wrapper within another, and if there is a hook.
            NotImplementedError: for hybrid strategies.
        """
        if not self.check_is_root():
            raise AssertionError("register_comm_hook can only be called on a root instance.")
        for m in self.fsdp_modules(self):
            if m._group is None:
                continue
            if m.sharding_strategy in _HYBRID:
                raise NotImplementedError(
                    f"Communication hook is not supported for hybrid strategies: {m.sharding_strategy}"
                )
            if m._group.hook is not None:
                raise AssertionError("A communication hook is already registered")
            if not callable(hook):
                raise ValueError(f"The communication hook must be callable but got {hook}")
            m._group.hook = (state, hook)

    # State dicts

    def _mesh(self) -> DeviceMesh:
        if self.device_mesh is not None and self.device_mesh.ndim == 1:
            return self.device_mesh
        return DeviceMesh.from_group(self.process_group, "cpu")


def _norm(tensors: list[Any], norm_type: float) -> Any:
    """The norm of several tensors, in single precision."""
    if not tensors:
        return torch.zeros(())
    norms = [torch.linalg.vector_norm(t, norm_type, dtype=torch.float32) for t in tensors]
    return torch.linalg.vector_norm(torch.stack(norms), norm_type)
