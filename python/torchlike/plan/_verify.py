"""A plan beside a run for real."""

from __future__ import annotations

import copy
import gc
from typing import Any

import torchlike as torch
from torchlike import _C
from torchlike.plan._make import _as_tuple, make_optimizer, run_step, uncollected
from torchlike.plan._plan import Peak, Verification
from torchlike.utils import _pytree as pytree


class _Zeros:
    """Zeros for tensors: the same for the same."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}

    def __call__(self, t: Any) -> Any:
        if not isinstance(t, _C.Tensor):
            return t
        if id(t) not in self.made:
            made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")
            self.made[id(t)] = made.zero_()
        return self.made[id(t)]


def verify(question: dict[str, Any], peak: dict[str, Peak]) -> Verification:
    """Runs the step of a plan on the CPU, on zeros.

    Raises:
        ValueError: for a plan of another device.
    """
    if set(peak) - {"cpu"}:
        raise ValueError(f"verify() runs on the CPU; the plan is for {', '.join(peak)}")
    stats = torch.cpu.memory_stats
    gc.collect()  # what others left would go meanwhile, and count against the step
    with torch.random.fork_rng(devices=()), uncollected():
        before = stats()["allocated_bytes.all.current"]
        most = _most(question, stats) - before
    return Verification(peak["cpu"].bytes, most)


def _filled(model: Any) -> None:
    """Gives memory to what waits on meta: what may be indices its values if they are known, all else zeros."""

    def tensors() -> list[Any]:
        all = (*model.parameters(), *model.buffers())
        return [t for t in all if not torch.nn.parameter.is_lazy(t)]

    for t in tensors():
        if t.is_meta and not t.is_floating_point() and torch.plan.explain(t).kind != "none":
            torch.materialize(t)
    if any(t.is_meta for t in tensors()):
        model.to_empty(device="cpu")
    with torch.no_grad():
        for t in tensors():
            if torch.plan.explain(t).kind == "uninitialised":
                t.zero_()
    here = _Here()
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if here.concerns(value):
                setattr(module, name, pytree.tree_map(here, value))


class _Here(_Zeros):
    """Puts tensors that a module has besides its own on the host."""

    def __call__(self, t: Any) -> Any:
        if not self.concerns(t):
            return t
        known = torch.plan.explain(t).kind != "none"
        return torch.materialize(t) if known else super().__call__(t)

    def concerns(self, value: Any) -> bool:
        """Whether there are such tensors in a value."""
        leaves = pytree.tree_leaves(value)
        return any(isinstance(t, _C.Tensor) and t.is_meta for t in leaves)


def _copied(model: Any) -> Any:
    """A copy of a model, in which results that modules hold on to are tensors without history."""
    memo = {}
    for module in model.modules():
        for t in pytree.tree_leaves(list(vars(module).values())):
            if isinstance(t, _C.Tensor) and not t.is_leaf:
                memo[id(t)] = t.detach().clone()
    return copy.deepcopy(model, memo)


def _most(question: dict[str, Any], stats: Any) -> int:
    """The most bytes that were in use."""
    model = _copied(question["model"])
    _filled(model)
    inputs, kwargs = pytree.tree_map(
        _Zeros(), (_as_tuple(question["inputs"]), question["kwargs"] or {})
    )
    train, optimizer = question["step"] == "train", None
    if question["optimizer"] is not None:
        optimizer = make_optimizer(
            question["optimizer"], list(model.parameters()), question["model"]
        )
    torch.cpu.reset_peak_memory_stats()
    run_step(model, inputs, kwargs, question["loss"], optimizer, train, lambda _: None)
    return int(stats()["allocated_bytes.all.peak"])
