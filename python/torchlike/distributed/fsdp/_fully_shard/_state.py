"""What stands between a module and its forward and backward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed.fsdp._fully_shard._group import ParamGroup, Phase
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from torchlike import nn


def in_backward() -> bool:
    """Whether a backward pass goes on on this thread."""
    return _C._current_graph_task_id() != -1


def wanting(values: Any) -> list[Any]:
    """The tensors that want a gradient."""
    flat = [values] if isinstance(values, torch.Tensor) else pytree.tree_leaves(values)
    return [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]


class Root:
    """What all states of a model share."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.running: State | None = None
        self.order: list[ParamGroup] = []
        self.queued = False
        self.is_last_backward = True


class State:
    """The hooks of the modules of one call of `fully_shard`."""

    def __init__(self, modules: tuple[nn.Module, ...], policy: Any, auto: bool) -> None:
        self.modules, self.policy, self.auto = modules, policy, auto
        self.group: ParamGroup | None = None
        self.root = Root()
        self.is_root: bool | None = None
        self.phase = Phase.IDLE
        self.forward_prefetch: list[State] = []
        self.backward_prefetch: list[State] = []
        self.to_run: set[nn.Module] = set()
        for module in modules:
            module.register_forward_pre_hook(self.before_forward, prepend=True, with_kwargs=True)
            module.register_forward_hook(self.after_forward)

    def prepare(self) -> None:
        """Finds the states below, once: the module whose forward pass runs first is the root."""
        if self.is_root is not None:
            return
        self.is_root = True
        if len(self.modules) > 1:
            raise RuntimeError(f"FSDP requires a single root module but got {self.modules}")
        known: set[State] = set()
        for name, module in self.modules[0].named_modules():
            state = state_of(module)
            if state is None or state in known:
                continue
            known.add(state)
            if state is not self:
                if state.is_root is not None:
                    raise RuntimeError(
                        f"FSDP state has already been lazily initialized for {name}\n"
                        "FSDP requires running forward through the root module first"
                    )
                state.is_root = False
            self.root.states.append(state)
        if self.auto and self.group is not None:
            self.group.reshard_after_forward = None
        for state in self.root.states:
            state.root = self.root
            if state.group is not None:
                state.group.order = self.root.order

    def before_forward(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Gathers the parameters, and has the inputs tell when their gradients are there."""
        if not self.to_run:
            self.to_run = set(self.modules)
        if self.phase is Phase.BEFORE_BACKWARD:
            # The forward pass is run again, by activation checkpointing.
            if self.group is not None:
                self.group.unshard()
                self.group.wait()
            return self._cast(args), self._cast(kwargs)
        if self.phase is not Phase.FORWARD:
            self.phase = Phase.FORWARD
            self.prepare()
            if self.root.running is None:
                self.root.running = self
            first = True
        else:
            first = False
        args, kwargs = self._cast(args), self._cast(kwargs)
        if self.group is not None and self.group.before_forward():
            args, kwargs = self._watched(args, kwargs)
        if first:
            for state in self.forward_prefetch:
                if state.group is not None:
                    state.group.prefetch(Phase.FORWARD)
        return args, kwargs

    def after_forward(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Lets the parameters go, and has the output tell when backward begins."""
        self.to_run.discard(module)
        if self.to_run:
            return self._cast_output(output)
        if self.phase is Phase.BEFORE_BACKWARD:
            return self._cast_output(output)
        if self.group is not None:
            self.group.after_forward(in_backward())
        if torch.is_grad_enabled():
            for t in wanting(output):
                t.register_hook(self.before_backward)
        self.phase = Phase.IDLE
        if self.root.running is self:
            self.root.running = None
        return self._cast_output(output)

    def _cast(self, values: Any) -> Any:
        dtype = self.policy.param_dtype
        if dtype is None or not self.policy.cast_forward_inputs:
            return values
        return _to(values, dtype)

    def _cast_output(self, output: Any) -> Any:
        dtype = self.policy.output_dtype
        return output if dtype is None else _to(output, dtype)

    def _watched(self, args: Any, kwargs: Any) -> Any:
        """The same inputs; once their gradients are computed, the group's backward pass is done."""
        if not torch.is_grad_enabled():
            return args, kwargs
        flat, shape = list(args), None
        if kwargs or not all([isinstance(t, torch.Tensor) for t in args]):
            flat, shape = pytree.tree_flatten((args, kwargs))
        at = [i for i, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not at:
            return args, kwargs
        made = _AfterBackward.apply(self.group, *[flat[i] for i in at])
        for i, t in zip(at, made if len(at) > 1 else (made,), strict=True):
            flat[i] = t
        return (tuple(flat), kwargs) if shape is None else pytree.tree_unflatten(flat, shape)

    def before_backward(self, grad: Any) -> Any:
        """The gradient of an output is there: gathers."""
        self.phase = Phase.BEFORE_BACKWARD
        if not self.root.queued:
            self.root.queued = True
            _C._queue_callback(self._done)
        if self.group is not None:
            self.group.before_backward(not self.backward_prefetch)
        for state in self.backward_prefetch:
            if state.group is not None:
                state.group.prefetch(Phase.BEFORE_BACKWARD)
        return grad

    def _done(self) -> None:
        """A backward pass is done: groups whose inputs wanted no gradient come last."""
        self.root.running = None
        for state in self.root.states:
            group = state.group
            if group is not None:
                if group.phase is not Phase.AFTER_BACKWARD:
                    group.after_backward()
                group.phase = Phase.IDLE
                if self.root.is_last_backward:
                    group.finish()
            state.phase = Phase.IDLE
            state.to_run.clear()
        if self.root.is_last_backward:
            self.root.order.clear()
        self.root.queued = False

    def forget(self) -> None:
        """Begins anew, after a step that was not finished."""
        if self.is_root is False:
            raise RuntimeError("reset_iter_state must be called on the root FSDP module")
        for state in self.root.states:
            state.phase = Phase.IDLE
            state.to_run.clear()
            if state.group is not None:
                state.group.phase = Phase.IDLE
                state.group.finish()
                state.group.to_parts()
        self.root.order.clear()
        self.root.running, self.root.queued = None, False


class _AfterBackward(torch.autograd.Function):
    """Its gradients are there once those of the modules behind it are."""

    @staticmethod
    def forward(ctx: Any, group: ParamGroup, *inputs: Any) -> Any:
        ctx.group = group
        made = [t.view_as(t) for t in inputs]
        return tuple(made) if len(made) > 1 else made[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.group.after_backward()
        return (None, *grads)


def _to(values: Any, dtype: Any) -> Any:
    """Floating-point tensors in another dtype."""

    def cast(t: Any) -> Any:
        floats = isinstance(t, torch.Tensor) and t.is_floating_point() and t.dtype != dtype
        return t.to(dtype) if floats else t

    return pytree.tree_map(cast, values)


def state_of(module: nn.Module) -> State | None:
    """The state that `fully_shard` gave a module."""
    found: State | None = module._state_.get("_fsdp_state")
    return found


def release(model: nn.Module) -> None:
    """Has the states of a model that is used no more let its modules go: cycles live until somebody looks for them."""
    for module in model.modules():
        state = state_of(module)
        if state is None:
            continue
        state.modules = ()
        state.root.states.clear()
        if state.group is not None:
            state.group.modules = ()
            state.group.forget()
            for p in state.group.params:
                del p.place
            state.group.params.clear()
