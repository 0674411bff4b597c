"""One model in several processes, each with a batch of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.nn.modules.module import Module
from torchlike.nn.parallel._join import Join, Joinable, JoinHook

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DistributedDataParallel"]

_UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss. You can enable unused parameter detection by "
    "passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by "
    "making sure all `forward` function outputs participate in calculating loss. "
)


class _Reducer:
    """Averages the gradients of all ranks at the end of a backward pass."""

    def __init__(self, parameters: list[Any], group: Any, find_unused: bool) -> None:
        self.parameters, self.group, self.find_unused = parameters, group, find_unused
        self.ready: set[int] = set()
        self.expecting = self.waits = False
        self.hook: Any = None
        self.active: Any = None
        for number, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))

    def _hook(self, number: int) -> Any:
        def ready(_: Any) -> None:
            if self.expecting:
                self.ready.add(number)
                if not self.waits:
                    self.waits = True
                    _C._queue_callback(self._finish)

        return ready

    def prepare_for_backward(self, outputs: Any) -> None:
        """The next backward pass is averaged.

        Raises:
            RuntimeError: if the last one had no gradients for some parameters.
        """
        if self.expecting and self.ready:
            missing = [n for n in range(len(self.parameters)) if n not in self.ready]
            raise RuntimeError(
                f"{_UNFINISHED}\nParameter indices which did not receive grad for rank {self.group.rank()}: "
                f"{' '.join(map(str, missing))}"
            )
        self.expecting, self.ready = True, set()

    def _finish(self) -> None:
        """Averages what any rank has, if every rank has all or need not."""
        import torchlike.distributed as dist

        self.waits = False
        used = torch.zeros(len(self.parameters), dtype=torch.int64)
        used[sorted(self.ready)] = 1
        dist.all_reduce(used, group=self.group)
        if not self.find_unused and int(used.min()) < self.group.size():
            return  # the next forward pass says so
        self.expecting = False
        with torch.no_grad():
            for bucket in self._buckets(used):
                bucket.give(self._reduced(bucket))

    def _buckets(self, used: Any) -> list[Any]:
        """The gradients of what any rank has used, those of a type together."""
        from torchlike.distributed import GradBucket

        by_kind: dict[Any, list[Any]] = {}
        for parameter, n in zip(self.parameters, used.tolist(), strict=True):
            if n:
                by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        last = len(by_kind) - 1
        return [GradBucket(i, alike, i == last) for i, alike in enumerate(by_kind.values())]

    def _reduced(self, bucket: Any) -> Any:
        """What all ranks make of a bucket: the average, or what the hook says."""
        import torchlike.distributed as dist

        if self.hook is not None:
            state, hook = self.hook
            return hook(state, bucket).wait()
        count = self.group.size() if self.active is None else self.active
        flat = bucket.buffer().div_(count)
        dist.all_reduce(flat, group=self.group)
        return flat

    def shadow(self) -> None:
        """Takes part in a backward pass of the others, with gradients that are nothing."""
        import torchlike.distributed as dist

        mine = 0 if self.find_unused else 1
        used = torch.full((len(self.parameters),), mine, dtype=torch.int64)
        dist.all_reduce(used, group=self.group)
        with torch.no_grad():
            for bucket in self._buckets(used):
                bucket.buffer().zero_()
                self._reduced(bucket)


class _DDPJoinHook(JoinHook):
    """Takes part in what other ranks do after this one has no more batches."""

    def __init__(self, ddp: DistributedDataParallel, divide_by_initial_world_size: bool) -> None:
        self.ddp = ddp
        ddp._divides_by_all = divide_by_initial_world_size

    def main_hook(self) -> None:
        """One iteration of the others."""
        ddp = self.ddp
        syncs = ddp._agreed(False)
        ddp._spread_joined(has_batch=False)
        if syncs:
            ddp.reducer.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Gives all ranks the model of one that was done last."""
        ddp = self.ddp
        source = ddp._common_rank(is_last_joiner)
        ddp._spread(
            [p for n, p in ddp.module.named_parameters() if n not in ddp.parameters_to_ignore],
            source,
        )
        ddp._spread(ddp._buffers_to_spread(), source)
        ddp.reducer.active = None


class DistributedDataParallel(Module, Joinable):
    """A module that every process of a group has: all begin with the parameters and buffers of the first, and gradients
    are averaged when a backward pass ends.

    Parameters that no loss depends on are an error in the next forward pass, unless `find_unused_parameters`. All
    gradients of a type are averaged in one exchange: arguments that speak of buckets are accepted, and change nothing.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        self._divides_by_all = True
        if mixed_precision is not None:
            raise NotImplementedError(
                "torch.nn.parallel.DistributedDataParallel: mixed_precision is not supported by torchlike"
            )
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        from torchlike.distributed import _groups

        group = device_mesh.get_group() if device_mesh is not None else process_group
        self.process_group = _groups.group_of(group)
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        own = [p for n, p in module.named_parameters() if p.requires_grad and n not in ignored]
        if not own:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module = module
        self.device, self.dim, self.device_ids, self.output_device = (
            own[0].device,
            dim,
            device_ids,
            output_device,
        )
        self.is_multi_device_module = len({p.device for p in own}) > 1
        self.broadcast_buffers = broadcast_buffers is not False
        self.find_unused_parameters = find_unused_parameters or static_graph
        self.static_graph, self.gradient_as_bucket_view = static_graph, gradient_as_bucket_view
        self.parameters_to_ignore = ignored
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        if init_sync:
            self._spread([p for n, p in module.named_parameters() if n not in ignored])
            self._spread(self._buffers_to_spread())
        self.reducer = _Reducer(own, self.process_group, self.find_unused_parameters)

    def _buffers_to_spread(self) -> list[Any]:
        named = self.module.named_buffers()
        return [b for n, b in named if n not in self.parameters_to_ignore and b.numel()]

    def _spread(self, tensors: list[Any], rank: int = 0) -> None:
        """Gives all ranks the tensors of one."""
        import torchlike.distributed as dist

        for tensor in tensors:
            if not tensor.is_meta:
                dist.broadcast(tensor.detach(), self.process_group.ranks[rank], self.process_group)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        syncs = torch.is_grad_enabled() and self.require_backward_grad_sync
        if syncs:
            self.reducer.prepare_for_backward([])
        if self._join_config.enable:
            self._joined_forward(syncs)
        elif self.broadcast_buffers and self.require_forward_param_sync and self.training:
            self._spread(self._buffers_to_spread())
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within, gradients add up in each process; those of the first forward pass outside are averaged with them."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        self.reducer.expecting = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Any) -> None:
        """Has a function reduce gradients: `hook(state, bucket)` gives a future of what becomes of a `GradBucket`.

        Raises:
            TypeError: if it cannot be called.
            KeyError: if it has no parameter `bucket`.
            ValueError: if its annotations say something else.
            RuntimeError: if there is one.
        """
        _check_hook(hook)
        if self.reducer.hook is not None:
            raise RuntimeError(
                "register_comm_hook or register_builtin_comm_hook can only be called once."
            )
        self.reducer.hook = (state, hook)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context in which ranks may have unequal numbers of batches: those that are done take part in the
        collectives of the others, and get the model of one that was done last.

        Args:
            divide_by_initial_world_size: whether gradients are averaged over all ranks, or over those with a batch.
            enable: whether it does anything.
            throw_on_early_termination: whether all ranks raise when the first is done.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank does that has no more batches."""
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """Where the parameters are."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The ranks."""
        return self.process_group

    def _joined_forward(self, syncs: bool) -> None:
        """What comes before a forward pass where some ranks may be done."""
        work = Join.notify_join_context(self)
        if work is not None:
            work.wait()
            count = int(work.result()[0].item())
            self.reducer.active = None if self._divides_by_all else count
        self._agreed(syncs)
        self._spread_joined(has_batch=True)

    def _agreed(self, syncs: bool) -> bool:
        """Whether any rank averages gradients in this iteration."""
        import torchlike.distributed as dist

        said = torch.full((1,), float(syncs), device=self.device)
        dist.all_reduce(said, group=self.process_group)
        return bool(said.item())

    def _common_rank(self, chosen: bool) -> int:
        """The highest rank for which `chosen` is true."""
        import torchlike.distributed as dist

        rank = torch.full((1,), self.process_group.rank() if chosen else -1, device=self.device)
        dist.all_reduce(rank, dist.ReduceOp.MAX, self.process_group)
        if rank.item() == -1:
            raise ValueError("no rank has a batch")
        return int(rank.item())

    def _spread_joined(self, has_batch: bool) -> None:
        """Gives all ranks the buffers of one that has a batch."""
        buffers = self._buffers_to_spread()
        if self.broadcast_buffers and self.training and buffers:
            self._spread(buffers, self._common_rank(has_batch))

    def _set_static_graph(self) -> None:
        """The same parameters are used in all iterations, and need not be all."""
        self.static_graph = self.reducer.find_unused = True


def _check_hook(hook: Any) -> None:
    """Whether something can be a hook, as far as it says."""
    import inspect

    from torchlike.distributed import GradBucket

    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    kind = inspect.signature(hook).parameters["bucket"].annotation
    if kind not in (inspect.Parameter.empty, GradBucket, "GradBucket", "dist.GradBucket"):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
