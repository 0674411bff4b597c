"""The parameters of a module that are gathered, and whose gradients are reduced, at once."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed import ReduceOp
from torchlike.distributed._ops import c10d

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike import nn
    from torchlike.distributed._groups import ProcessGroup
    from torchlike.distributed.fsdp._fully_shard._param import FSDPParam, MeshInfo


class Phase(Enum):
    """Where a training step is."""

    IDLE = auto()
    FORWARD = auto()
    BEFORE_BACKWARD = auto()
    AFTER_BACKWARD = auto()


class ParamGroup:
    """Gathers and reduces. `order` lists the groups as their forward passes ended, over a whole model."""

    def __init__(
        self, params: list[FSDPParam], modules: tuple[nn.Module, ...], info: MeshInfo, reshards: Any
    ) -> None:
        self.params, self.modules, self.info = params, modules, info
        self.phase = Phase.IDLE
        self.order: list[ParamGroup] = []
        self.places: list[int] = []
        self.reshard_after_forward: MeshInfo | None = reshards
        self.reshard_after_backward = True
        self.reduce_grads = self.all_reduce_grads = True
        self.unshard_in_backward = True
        self.divide_factor: float | None = None
        self.sums_only = False
        self.unused = False
        self.is_whole = False
        self._after_forward: Any = None
        self._gathered: Any = None
        self._work: Any = None
        self._widths: list[int] = []
        self._mixed = False  # the parameters are of several dtypes
        # What modules have, by their tables and names: parts, with their memory; wholes, and the memory of each.
        self._parts: list[tuple[dict[str, Any], str, Any, Any]] | None = None
        self._wholes: list[tuple[dict[str, Any], str, Any]] | None = None
        self._flats: list[Any] = []
        self._partial: Any = None

    @property
    def group(self) -> ProcessGroup:
        """The ranks that parts are gathered from now."""
        return self._after_forward[0].group if self._after_forward else self.info.group

    def _inputs(self) -> list[Any]:
        if self._after_forward:
            return list(self._after_forward[1])
        if self._parts is None:
            params = self.params
            self._parts = [(*at, p.sharded, p.own) for p in params for at in p.place.tables]
        for state, name, part, own in self._parts:
            if part._locals[0] is not own or state.get(name) is not part:
                self.reset()
                return self._inputs()
        return [p.wanted() for p in self.params]

    def reset(self) -> None:
        """Takes the parts again that the modules have now: they were moved, cast, loaded or swapped."""
        for p in self.params:
            p.reset()
        self.forget()

    def forget(self) -> None:
        """Forgets what the modules have."""
        self._parts, self._wholes, self._flats = None, None, []

    def unshard(self) -> None:
        """Gathers the parts of all ranks, in one collective."""
        if self._gathered is not None or self.is_whole or not self.params:
            return
        if self.unshard_in_backward or self.phase is not Phase.BEFORE_BACKWARD:
            self._gather()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _gather(self) -> None:
        inputs, group = self._inputs(), self.group
        self._mixed = len({t.dtype for t in inputs}) > 1
        if self._mixed:
            inputs = [t.view(torch.uint8) for t in inputs]
        step = inputs[0].itemsize
        self._widths = [t.nbytes // step for t in inputs]
        flat = torch.cat(inputs)
        size = group.size()
        if size == 1:
            self._gathered = flat
            return
        out = flat.new_empty(sum(self._widths) * size)
        self._work = c10d._allgather_base_.default(out, flat, group)
        self._gathered = out

    def wait(self) -> None:
        """Makes wholes of what was gathered, and has the modules use them."""
        if self._gathered is None:
            return
        if self._work is not None:
            self._work.wait()
            self._work = None
        rows = self._gathered.view(self.group.size(), -1)
        self._fill(rows.split(self._widths, 1))
        self._use_wholes()
        self.is_whole, self._gathered, self._after_forward = True, None, None

    def _fill(self, parts: Sequence[Any]) -> None:
        """Makes wholes of the parts of all ranks, each `[ranks, elements of a part]`."""
        params = self.params
        if self._mixed or any([p.dim for p in params]):
            parts = [p.laid(part) for p, part in zip(params, parts, strict=True)]
        flats = _C._refill(self._flats or [p.flat for p in params], parts)
        if not self._flats:
            for p, flat in zip(params, flats, strict=True):
                p.make_whole(flat)
            self._flats = flats

    def _use_wholes(self) -> None:
        """Has the modules use the wholes."""
        if self._wholes is None:
            self._wholes = [(*at, p.whole) for p in self.params for at in p.place.tables]
        for state, name, whole in self._wholes:
            state[name] = whole

    def reshard(self) -> None:
        """Lets the wholes go; after forward only if that is asked for, and perhaps only to parts of a smaller group."""
        if not self.is_whole:
            return
        if self.phase is Phase.FORWARD:
            if self.reshard_after_forward is None:
                return
            if self.reshard_after_forward is not self.info:
                self._keep_parts(self.reshard_after_forward)
        self.to_parts()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _keep_parts(self, info: MeshInfo) -> None:
        """Keeps larger parts than this rank's own, to be gathered over fewer ranks."""
        rank, size = info.group.rank(), info.group.size()
        parts = [p.flat.view(size, -1)[rank].clone() for p in self.params]
        self._after_forward = (info, parts)

    def to_parts(self) -> None:
        """Has the modules use the parts."""
        if self.is_whole:
            for state, name, part, _ in self._parts or ():
                state[name] = part
            _C._empty_out(self._flats)
        self.is_whole = False

    def before_forward(self) -> bool:
        """Gathers; True if the forward pass of the modules begins with this."""
        enters = self.phase is not Phase.FORWARD
        self.phase = Phase.FORWARD
        self.unshard()
        self.wait()
        return enters

    def after_forward(self, in_backward: bool) -> None:
        """Lets the wholes go, and notes the order."""
        if not in_backward:
            self.reshard()
            self.places.append(len(self.order))
            self.order.append(self)
        self.phase = Phase.IDLE

    def before_backward(self, prefetches: bool) -> None:
        """Gathers, and asks for the group that comes next, which ended its forward pass before this one."""
        if self.phase is Phase.BEFORE_BACKWARD:
            return
        self.phase = Phase.BEFORE_BACKWARD
        self.unshard()
        self.wait()
        if prefetches and self.places:
            at = self.places.pop()
            if at > 0:
                self.order[at - 1].prefetch(Phase.BEFORE_BACKWARD)

    def prefetch(self, phase: Phase) -> None:
        """Gathers before it is needed."""
        before, self.phase = self.phase, phase
        self.unshard()
        self.phase = before

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def after_backward(self) -> None:
        """Lets the wholes go, and reduces their gradients to the parts."""
        self.phase = Phase.AFTER_BACKWARD
        for p in self.params:
            if p.reduce_dtype is not None:
                p.keep_grad()
        if not self.reduce_grads:
            for p in self.params:
                p.hold_grad()
            if self.reshard_after_backward:
                self.reshard()
            return
        found = [(p, p.take_grad()) for p in self.params]
        if self.unused:
            zeros = [(p, g if g is not None else torch.zeros_like(p.whole)) for p, g in found]  # type: ignore[arg-type]
            found = [(p, g) for p, g in zeros if p.requires_grad]
        with_grad = [(p, g) for p, g in found if g is not None]
        if self.reshard_after_backward:
            self.reshard()
        if with_grad:
            self._reduce(with_grad)

    def _reduce(self, found: list[tuple[FSDPParam, Any]]) -> None:
        dtypes = {g.dtype for _, g in found}
        if len(dtypes) != 1:
            raise AssertionError(
                f"FSDP reduce-scatter expects uniform gradient dtype but got {dtypes}"
            )
        dtype = found[0][0].reduce_dtype or found[0][1].dtype
        size = self.info.size
        flat = torch.cat([p.padded_grad(g) for p, g in found], 1).to(dtype).reshape(-1)
        before, after, scatter_op, reduce_op = self._factors(dtype)
        if before not in (None, 1):
            flat = flat / before
        out = flat.new_empty(flat.numel() // size)
        if size > 1:
            c10d._reduce_scatter_base_.default(out, flat, self.info.group, scatter_op).wait()
        else:
            out.copy_(flat)
        replicas = self.info.replicas
        if replicas is not None:
            if not self.all_reduce_grads:
                self._partial = out if self._partial is None else self._partial + out
                return
            if self._partial is not None:
                out, self._partial = out + self._partial, None
            c10d.allreduce_.default([out], replicas, reduce_op).wait()
        if after not in (None, 1):
            out = out / after
        out = out.to(found[0][0].orig_dtype)
        widths = [p.width for p, _ in found]
        for (p, _), part in zip(found, out.split(widths), strict=True):
            p.give_grad(part)

    def _factors(self, dtype: Any) -> tuple[Any, Any, Any, Any]:
        """What gradients are divided by before and after the reduction, and the two reductions."""
        replicas = self.info.replicas
        count = self.info.size * (replicas.size() if replicas is not None else 1)
        wide = dtype in (torch.float32, torch.bfloat16)
        if wide and not self.sums_only and self.divide_factor is None:
            op = ReduceOp.SUM if count == 1 else ReduceOp.AVG
            return None, None, op, op
        factor = float(count) if self.divide_factor is None else self.divide_factor
        if wide:
            return None, factor, ReduceOp.SUM, ReduceOp.SUM
        before = evenly(factor)
        return before, factor / before, ReduceOp.SUM, ReduceOp.SUM

    def finish(self) -> None:
        """A backward pass is done: what was asked for and not used is forgotten."""
        self._gathered = self._work = None
        self.places.clear()


def evenly(factor: float) -> float:
    """What to divide by before a sum that is divided by `factor` in all, so that neither side leaves its range."""
    before = 1.0
    while factor % before == 0 and factor / before > before:
        before *= 2
    return before
