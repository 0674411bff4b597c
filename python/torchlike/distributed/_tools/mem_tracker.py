"""What memory a step needs, by class and device: parameters, buffers, gradients, activations, optimizer states.

Works on meta, under a fake mode and for real. What lives is counted where storages come and go (`src/ledger.rs`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torchlike as torch
from torchlike import _C
from torchlike.distributed._tools.mod_tracker import ModTracker, tensors_in
from torchlike.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torchlike.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MemTracker"]

# CUDA's allocator of PyTorch gives multiples of this.
_CUDA_UNIT = 512


class _MemRefType(str, Enum):
    """What a storage is for."""

    PARAM = "Parameter"
    BUFFER = "Buffer"
    GRAD = "Gradient"
    ACT = "Activation"
    TEMP = "Temp"
    OPT = "Optstate"
    OTH = "Other"


_CLASSES = list(_MemRefType)
_NUMBER = {kind: i for i, kind in enumerate(_CLASSES)}
_TOTAL = "Total"

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class _ModState(str, Enum):
    """Moments in the life of a module."""

    PRE_FW = "Pre-Forward"
    POST_FW = "Post-Forward"
    PRE_BW = "Pre-Backward"
    POST_BW = "Post-Backward"


class _ModMemStats:
    """What was alive when a module began and ended, and what belongs to it."""

    def __init__(self, mod_fqn: str) -> None:
        self.mod_fqn = mod_fqn
        self.parameter_mem = self.buffer_mem = self.input_mem = self.output_mem = 0
        self.snapshots: dict[_ModState, list[dict[Any, dict[str, int]]]] = {}


class MemTracker(TorchDispatchMode):
    """Counts the bytes of living storages by class and device while it is entered, and the most there were.

    >>> tracker = MemTracker()
    >>> tracker.track_external(model, x, optimizer)
    >>> with tracker:
    ...     model(x).sum().backward()
    ...     optimizer.step()
    >>> tracker.display_snapshot("peak", units="MiB")
    """

    def __init__(self) -> None:
        super().__init__()
        self._ledger = _C._Ledger(_CUDA_UNIT)
        self._mod_tracker = ModTracker()
        self.memory_tracking: WeakKeyDictionary[Any, _ModMemStats] = WeakKeyDictionary()
        self._hooked: dict[int, tuple[Any, Any, Any]] = {}
        self._in_opt = False

    # What is counted.

    def track_external(self, *external: Any) -> None:
        """Counts what was there before: the tensors of modules and optimizers, and other tensors.

        Raises:
            TypeError: for anything else.
        """
        for thing in external:
            for value in thing if isinstance(thing, (list, tuple, dict)) else [thing]:
                if isinstance(value, torch.nn.Module):
                    self._track_module(value, hooks=False)
                elif isinstance(value, torch.optim.Optimizer):
                    self._track_optimizer(value)
                elif isinstance(value, _C.Tensor):
                    self._note(value, _MemRefType.OTH)
                else:
                    raise TypeError(
                        f"Object of type {type(value)} is not supported for tracking. Only stateful objects like "
                        "modules, optimizers, and tensors are supported for tracking."
                    )

    def _note(self, t: Any, kind: _MemRefType) -> int:
        self._ledger.note(t, _NUMBER[kind])
        return self._ledger.bytes_of(t) or 0

    def _track_module(self, module: Any, hooks: bool) -> tuple[int, int]:
        parameters = buffers = 0
        for p in module.parameters():
            parameters += self._note(p, _MemRefType.PARAM)
            if p.grad is not None:
                self._note(p.grad, _MemRefType.GRAD)
            if hooks and p.requires_grad and id(p) not in self._hooked:
                before = p.register_hook(self._is_gradient)
                after = p.register_post_accumulate_grad_hook(
                    lambda p: self._note(p.grad, _MemRefType.GRAD) and None
                )
                self._hooked[id(p)] = (p, before, after)
        for b in module.buffers():
            buffers += self._note(b, _MemRefType.BUFFER)
        return parameters, buffers

    def _is_gradient(self, grad: Any) -> None:
        self._note(grad, _MemRefType.GRAD)

    def _track_optimizer(self, optimizer: Any) -> None:
        for state in optimizer.state.values():
            for t in tensors_in(state):
                self._note(t, _MemRefType.OPT)

    # What it says.

    def _shown(self, account: Sequence[int]) -> dict[str, int]:
        said: dict[str, int] = {kind: account[i] for kind, i in _NUMBER.items()}
        said[_TOTAL] = sum(account)
        return said

    def get_tracker_snapshot(self, type: str = "current") -> dict[Any, dict[str, int]]:
        """Bytes by class for each device: "current" ones, or those of the "peak"."""
        if type not in ("current", "peak"):
            raise ValueError(f"type must be 'current' or 'peak', got {type!r}")
        accounts = self._ledger.accounts()
        return {
            torch.device(device): self._shown(now if type == "current" else most)
            for device, now, most in accounts
        }

    def display_snapshot(
        self, type: str = "current", units: str = "B", tabulate: bool = False
    ) -> None:
        """Prints a snapshot, a line a device."""
        for device, said in self.get_tracker_snapshot(type).items():
            if said[_TOTAL] > 0:
                print(f"Device: {device}")
                print("\t".join(f"{_name(k)}: {_in(v, units)}" for k, v in said.items()))

    def display_modulewise_snapshots(
        self, depth: int = 2, units: str = "B", tabulate: bool = False
    ) -> None:
        """Prints what was alive when modules began and ended, down to a depth."""
        for stats in sorted(self.memory_tracking.values(), key=lambda s: s.mod_fqn):
            if stats.mod_fqn.count(".") + 1 > depth:
                continue
            print(f"Module: {stats.mod_fqn}")
            for state, snapshots in stats.snapshots.items():
                for i, snapshot in enumerate(snapshots):
                    for device, said in snapshot.items():
                        values = "\t".join(f"{_name(k)}: {_in(v, units)}" for k, v in said.items())
                        print(f"{state.value} {i + 1} {device}\t{values}")

    def reset_mod_stats(self) -> None:
        """Forgets what was noted of modules."""
        self.memory_tracking.clear()

    # When it counts.

    def _stats(self, module: Any) -> _ModMemStats:
        stats = self.memory_tracking.get(module)
        if stats is None:
            stats = _ModMemStats(self._mod_tracker.get_known_fqn(module) or "")
            self.memory_tracking[module] = stats
            stats.parameter_mem, stats.buffer_mem = self._track_module(module, hooks=True)
        return stats

    def _moment(self, module: Any, state: _ModState) -> _ModMemStats:
        stats = self._stats(module)
        stats.snapshots.setdefault(state, []).append(self.get_tracker_snapshot())
        return stats

    def _sum(self, values: Any) -> int:
        return sum(self._ledger.bytes_of(t) or 0 for t in tensors_in(values))

    def _pre_fw(self, module: Any, inputs: Any) -> None:
        self._moment(module, _ModState.PRE_FW).input_mem = self._sum(inputs)

    def _post_fw(self, module: Any, inputs: Any, outputs: Any) -> None:
        self._moment(module, _ModState.POST_FW).output_mem = self._sum(outputs)

    def _pre_bw(self, module: Any, grads: Any) -> None:
        self._moment(module, _ModState.PRE_BW)

    def _post_bw(self, module: Any, grads: Any) -> None:
        self._moment(module, _ModState.POST_BW)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        self._in_opt = True

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        self._track_optimizer(optimizer)
        self._in_opt = False

    def __enter__(self) -> MemTracker:
        self._step_hooks = (
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        )
        self._mod_tracker.register_user_hooks(
            self._pre_fw, self._post_fw, self._pre_bw, self._post_bw
        )
        self._ledger.mark()
        self._mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self._mod_tracker.__exit__()
        self._mod_tracker.clear_user_hooks()
        for hook in self._step_hooks:
            hook.remove()
        for _, before, after in self._hooked.values():
            before.remove()
            after.remove()
        self._hooked.clear()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._in_opt:
            kind = _MemRefType.OPT
        else:
            kind = _MemRefType.TEMP if self._mod_tracker.is_bw else _MemRefType.ACT
        for t in tensors_in(out):
            self._ledger.note_new(t, _NUMBER[kind])
        self._ledger.mark()
        return out


def _name(kind: str) -> str:
    return kind.value if isinstance(kind, Enum) else kind


def _in(number: int, units: str) -> str:
    if units not in _UNITS:
        raise ValueError(f"unknown unit {units!r}: one of {', '.join(_UNITS)}")
    return f"{number}B" if units == "B" else f"{number / _UNITS[units]:.2f}{units}"
