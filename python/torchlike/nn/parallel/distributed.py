"""One model in several processes, each with a batch of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.nn.modules.module import Module

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
        size = self.group.size()
        if not self.find_unused and int(used.min()) < size:
            return  # the next forward pass says so
        self.expecting = False
        chosen = [p for p, n in zip(self.parameters, used.tolist(), strict=True) if n]
        by_kind: dict[Any, list[Any]] = {}
        for parameter in chosen:
            by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        with torch.no_grad():
            for alike in by_kind.values():
                _average(alike, self.group, size)


def _average(parameters: list[Any], group: Any, size: int) -> None:
    """Averages gradients of one type, in one exchange."""
    import torchlike.distributed as dist

    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = torch.cat([p.grad.reshape(-1) for p in parameters]).div_(size)
    dist.all_reduce(flat, group=group)
    at = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.grad.copy_(flat[at : at + count].view(parameter.shape))
        at += count


class DistributedDataParallel(Module):
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

    def _spread(self, tensors: list[Any]) -> None:
        """Gives all ranks the tensors of the first."""
        import torchlike.distributed as dist

        for tensor in tensors:
            if not tensor.is_meta:
                dist.broadcast(tensor.detach(), self.process_group.ranks[0], self.process_group)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        if torch.is_grad_enabled() and self.require_backward_grad_sync:
            self.reducer.prepare_for_backward([])
        if self.broadcast_buffers and self.require_forward_param_sync and self.training:
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
        """Not supported: gradients are averaged and nothing else.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "torch.nn.parallel.DistributedDataParallel.register_comm_hook is not supported by torchlike"
        )

    def join(self, *args: Any, **kwargs: Any) -> Any:
        """Not supported: all ranks run equally many batches.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "torch.nn.parallel.DistributedDataParallel.join is not supported by torchlike"
        )

    def _set_static_graph(self) -> None:
        """The same parameters are used in all iterations, and need not be all."""
        self.static_graph = self.reducer.find_unused = True
