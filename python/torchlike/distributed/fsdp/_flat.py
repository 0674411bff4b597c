"""The parameters of a wrapped module as one flat tensor, of which every rank keeps a part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, nn
from torchlike.distributed import ReduceOp
from torchlike.distributed._ops import c10d
from torchlike.distributed.fsdp._fully_shard._group import ParamGroup, Phase, evenly
from torchlike.distributed.fsdp._fully_shard._param import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlike.distributed._groups import ProcessGroup

FLAT_PARAM = "_flat_param"
_ALIGNED = 16
"""Bytes at whose multiples parameters begin in a flat tensor, where they stay parameters of their own."""


class _Alone:
    """The group of a rank that keeps everything."""

    def size(self) -> int:
        """One."""
        return 1

    def rank(self) -> int:
        """The first."""
        return 0


@dataclass(frozen=True)
class Ranks:
    """Who has the other parts, who has the same part, and all of them."""

    group: Any
    replicas: ProcessGroup | None
    everyone: ProcessGroup

    @property
    def size(self) -> int:
        """How many parts there are."""
        size: int = self.group.size()
        return size

    @classmethod
    def of(cls, group: ProcessGroup, sharded: bool) -> Ranks:
        """Parts for all ranks of a group, or the whole for each."""
        return cls(group, None, group) if sharded else cls(_Alone(), group, group)


@dataclass
class Piece:
    """A parameter: where it is used, and where it lies in the flat tensor."""

    param: nn.Parameter
    place: Place
    start: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.numel

    @property
    def numel(self) -> int:
        """Its elements."""
        count = 1
        for s in self.shape:
            count *= s
        return count


def _uniform(params: Sequence[nn.Parameter], what: str, use_orig: bool) -> Any:
    found = {getattr(p, what) for p in params}
    if len(found) > 1 and what == "dtype":
        a, b = sorted(map(str, found))[:2]
        raise ValueError(f"Must flatten tensors with uniform dtype but got {a} and {b}")
    if len(found) > 1 and not use_orig:
        raise ValueError(
            "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`"
        )
    return True in found if what == "requires_grad" else found.pop()


class FlatParam:
    """What a `ParamGroup` gathers and reduces: several parameters in one tensor.

    With `use_orig`, the parameters stay those that they were, and what each holds is its piece of this rank's part;
    without, `flat` is the only parameter.
    """

    def __init__(
        self,
        found: list[tuple[nn.Parameter, Place]],
        holder: nn.Module,
        ranks: Ranks,
        policy: Any,
        use_orig: bool,
    ) -> None:
        params = [p for p, _ in found]
        self.holder, self.ranks, self.use_orig = holder, ranks, use_orig
        self.orig_dtype = _uniform(params, "dtype", use_orig)
        self.requires_grad = _uniform(params, "requires_grad", use_orig)
        self.param_dtype = None if policy.param_dtype == self.orig_dtype else policy.param_dtype
        self.reduce_dtype = policy.reduce_dtype or policy.param_dtype
        self.pieces: list[Piece] = []
        step = max(_ALIGNED // params[0].element_size(), 1) if use_orig else 1
        end = 0
        for p, place in found:
            start = -(-end // step) * step
            self.pieces.append(Piece(p, place, start, tuple(p.shape), p.stride()))
            end = start + p.numel()
        self.rows = -(-end // ranks.size)
        self.accumulated: Any = None
        self._made: dict[Any, tuple[Any, list[nn.Parameter]]] = {}
        with torch.no_grad():
            whole = params[0].new_zeros(self.rows * ranks.size)
            for piece in self.pieces:
                whole[piece.start : piece.stop] = piece.param.detach().reshape(-1)
            self.keep(whole.view(ranks.size, -1)[ranks.group.rank()].clone())
        self.use_part()

    def keep(self, part: Any) -> None:
        """Takes this rank's part, and has the parameters hold it."""
        self.kept = part
        if not self.use_orig:
            self.flat = nn.Parameter(part, requires_grad=self.requires_grad)
            return
        for piece in self.pieces:
            piece.param.data = self.shown(piece, part)

    def within(self, piece: Piece) -> tuple[int, int]:
        """Which elements of this rank's part are a parameter's."""
        first = self.rows * self.ranks.group.rank()
        ends = (min(max(at - first, 0), self.rows) for at in (piece.start, piece.stop))
        start, stop = ends
        return start, stop

    def shown(self, piece: Piece, part: Any) -> Any:
        """A parameter's piece of a part: flat, but whole where nothing is cut."""
        start, stop = self.within(piece)
        made = part[start:stop]
        return made.view(piece.shape) if self.ranks.size == 1 else made

    def reset(self) -> None:
        """Takes the part again that the modules have now: it was moved or cast."""
        if not self.use_orig:
            self.flat = self.holder._parameters[FLAT_PARAM]
            self.kept = self.flat.detach()
        elif any(p.param.data_ptr() != self._start_of(p) for p in self.pieces if p.param.numel()):
            now = self.pieces[0].param
            part = self.kept.new_zeros(self.rows, dtype=now.dtype, device=now.device)
            for piece in self.pieces:
                start, stop = self.within(piece)
                part[start:stop] = piece.param.detach().reshape(-1)
            self.keep(part)
        self.orig_dtype = self.kept.dtype
        self._made.clear()

    def _start_of(self, piece: Piece) -> int:
        return int(self.kept.data_ptr() + self.within(piece)[0] * self.kept.element_size())

    # What a group asks for

    @property
    def _wanted_dtype(self) -> Any:
        return self.param_dtype or self.kept.dtype

    @property
    def _flat(self) -> Any:
        """The whole in memory."""
        return self._made[self._wanted_dtype][0]

    @property
    def wholes(self) -> list[nn.Parameter]:
        """The parameters that the modules use where there is a whole."""
        made = self._made.get(self._wanted_dtype)
        return [] if made is None else made[1]

    @property
    def width(self) -> int:
        """Elements of a part, padding included."""
        return self.rows

    def wanted(self) -> Any:
        """What is gathered."""
        return self.kept if self.param_dtype is None else self.kept.to(self.param_dtype)

    def _room(self) -> tuple[Any, list[nn.Parameter]]:
        """The whole and the parameters in it, in the dtype that is wanted."""
        dtype = self._wanted_dtype
        if dtype not in self._made:
            flat = self.kept.new_empty(self.rows * self.ranks.size, dtype=dtype)
            views = [flat[p.start : p.stop].view(p.shape) for p in self.pieces]
            pairs = zip(views, self.pieces, strict=True)
            wholes = [nn.Parameter(v, requires_grad=p.param.requires_grad) for v, p in pairs]
            self._made[dtype] = (flat, wholes)
        return self._made[dtype]

    def fill(self, gathered: Any) -> None:
        """Makes the whole of the parts of all ranks, `[ranks, elements of a part]`."""
        flat, wholes = self._room()
        for whole, piece in zip(wholes, self.pieces, strict=True):
            if whole.requires_grad != piece.param.requires_grad:
                whole.requires_grad_(piece.param.requires_grad)
        _C._refill([flat], [gathered])

    def _places(self) -> Iterator[tuple[nn.Module, str]]:
        return (p for piece in self.pieces for p in piece.place.everywhere())

    def use_whole(self) -> None:
        """Has the modules use the whole."""
        if not self.use_orig:
            self.holder._parameters.pop(FLAT_PARAM, None)
            for module, name in self._places():
                delattr(module, name)
        for whole, piece in zip(self.wholes, self.pieces, strict=True):
            piece.place.put(whole)

    def use_part(self, lets_go: bool = True) -> None:
        """Has the modules use the part, and lets the whole's memory go."""
        if self.use_orig:
            for piece in self.pieces:
                piece.place.put(piece.param)
        else:
            for whole, piece in zip(self._room()[1], self.pieces, strict=True):
                for module, name in piece.place.everywhere():
                    module._parameters.pop(name, None)
                    setattr(module, name, whole.data)
            self.holder._parameters[FLAT_PARAM] = self.flat
        if lets_go:
            self.let_go()

    def let_go(self) -> None:
        """Lets the memory of wholes go."""
        for flat, _ in self._made.values():
            flat.untyped_storage().resize_(0)

    def write_back(self) -> None:
        """Takes what the whole holds now as this rank's part."""
        rows = self._flat.view(self.ranks.size, -1)
        with torch.no_grad():
            self.kept.copy_(rows[self.ranks.group.rank()])

    # Gradients

    def _whole_grad(self) -> Any:
        """The gradients of the wholes as one tensor, which they lose; None if there are none."""
        wholes = self.wholes
        found = [w.grad for w in wholes if w.grad is not None]
        if not found:
            return None
        flat = found[0].new_zeros(self.rows * self.ranks.size)
        for whole, piece in zip(wholes, self.pieces, strict=True):
            if whole.grad is not None:
                flat[piece.start : piece.stop] = whole.grad.reshape(-1)
                whole.grad = None
        return flat

    def keep_grad(self) -> None:
        """Gradients are brought to the dtype of the reduction when they are reduced."""

    def hold_grad(self) -> None:
        """Keeps the wholes' gradients until the next backward pass reduces both."""
        self.accumulated = self.take_grad()

    def take_grad(self) -> Any:
        """The gradients of the wholes, which are forgotten; None if there are none."""
        grad, held = self._whole_grad(), self.accumulated
        self.accumulated = None
        if held is None or grad is None:
            return held if grad is None else grad
        return grad + held

    def padded_grad(self, grad: Any) -> Any:
        """A gradient as the parts that ranks get, `[ranks, elements of a part]`."""
        return grad.view(self.ranks.size, -1)

    def give_grad(self, part: Any) -> None:
        """Adds the reduced gradient of the part to those of the parameters."""
        if not self.use_orig:
            self.flat.grad = part if self.flat.grad is None else self.flat.grad + part
            return
        for piece in self.pieces:
            start, stop = self.within(piece)
            param = piece.param
            if not param.requires_grad or start == stop:
                continue
            new = self.shown(piece, part)
            param.grad = new if param.grad is None else param.grad + new

    def part_of_grads(self) -> Any:
        """The gradients that this rank keeps, as a part; None if there are none."""
        if not self.use_orig:
            return self.flat.grad
        part = torch.zeros_like(self.kept)
        for piece in self.pieces:
            if piece.param.grad is not None:
                start, stop = self.within(piece)
                part[start:stop] = piece.param.grad.reshape(-1)
        return part


class FlatGroup(ParamGroup):
    """Gathers and reduces a flat tensor; what is kept between forward and backward stays out of the modules' sight."""

    params: list[Any]
    info: Any

    def __init__(self, param: FlatParam, modules: tuple[nn.Module, ...], reshards: bool) -> None:
        held: list[Any] = [param]
        ranks: Any = param.ranks
        super().__init__(held, modules, ranks, ranks if reshards else None)
        self.param = param
        self.hook: Any = None
        self._stays = False

    def unshard(self) -> None:
        """Gathers the parts of all ranks, unless the whole is still there."""
        if not self._stays:
            super().unshard()

    def _inputs(self) -> list[Any]:
        return [self.param.wanted()]

    def _fill(self, parts: Sequence[Any]) -> None:
        self.param.fill(parts[0])

    def _use_wholes(self) -> None:
        self.param.use_whole()

    def wait(self) -> None:
        """Has the modules use the whole."""
        if self._stays and not self.is_whole:
            self.param.use_whole()
            self.is_whole = True
        super().wait()

    def before_forward(self) -> bool:
        """Gathers anew: parts may have changed since the last forward pass."""
        if self.phase is Phase.IDLE:
            self._stays = False
        return super().before_forward()

    def reshard(self) -> None:
        """Has the modules use the part; the whole is let go, but between forward and backward only if that is asked
        for."""
        if not self.is_whole:
            return
        in_forward = self.phase is Phase.FORWARD and torch.is_grad_enabled()
        self._stays = in_forward and self.reshard_after_forward is None
        self.param.use_part(lets_go=not self._stays)
        self.is_whole = False

    def to_parts(self) -> None:
        """Has the modules use the part, and lets the whole go."""
        if self.is_whole or self._stays:
            self.param.use_part()
        self.is_whole = self._stays = False

    def finish(self) -> None:
        """A backward pass is done."""
        super().finish()
        self.to_parts()

    def _reduce(self, found: list[tuple[Any, Any]]) -> None:
        if self.hook is None:
            super()._reduce(found)
            return
        (param, grad), (state, hook) = found[0], self.hook
        if self.info.size == 1:
            hook(state, grad)
            param.give_grad(grad)
            return
        out = grad.new_empty(param.rows)
        hook(state, grad, out)
        param.give_grad(out)

    def _factors(self, dtype: Any) -> tuple[Any, Any, Any, Any]:
        replicas = self.info.replicas
        count = self.info.size * (replicas.size() if replicas is not None else 1)
        before = evenly(count)
        return before, count / before, ReduceOp.SUM, ReduceOp.SUM

    def gather(self, part: Any) -> Any:
        """The parts of all ranks, one after the other."""
        size = self.info.size
        if size == 1:
            return part.clone()
        out = part.new_empty(part.numel() * size)
        c10d._allgather_base_(out, part.contiguous(), self.info.group).wait()
        return out
