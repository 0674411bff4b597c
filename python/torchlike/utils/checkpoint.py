"""Trading time for memory: what a part of a model saves for backward is computed again when it is needed."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Tensor
from torchlike.autograd.function import Function
from torchlike.autograd.graph import saved_tensors_hooks
from torchlike.utils import _pytree as pytree
from torchlike.utils._checkpoint_debug import Log, set_checkpoint_debug_enabled
from torchlike.utils._recompute import (
    CheckpointError,
    Frame,
    _early_stop,
    set_checkpoint_early_stop,
)
from torchlike.utils._selective import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors apart from their history, wanting gradients as they did."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}"
        )
    made = []
    for value in inputs:
        if isinstance(value, Tensor):
            apart = value.detach()
            apart.requires_grad = value.requires_grad
            made.append(apart)
        else:
            made.append(value)
    return tuple(made)


def check_backward_validity(inputs: Any) -> None:
    """Warns if no input wants a gradient."""
    if not any(t.requires_grad for t in inputs if isinstance(t, Tensor)):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


class DefaultDeviceType:
    """The device whose random numbers are kept, besides the CPU's."""

    _kind = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Sets it."""
        DefaultDeviceType._kind = device

    @staticmethod
    def get_device_type() -> str:
        """It."""
        return DefaultDeviceType._kind


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """The GPUs among the arguments, and the states of their generators."""
    devices: list[int] = []
    if torch.cuda.is_initialized():  # else they only claim to be there
        tensors = [t for t in pytree.tree_leaves(args) if isinstance(t, Tensor)]
        there = (t for t in tensors if t.is_cuda and not _C._is_fake(t))
        devices = sorted({t.get_device() for t in there})
    return devices, [torch.cuda.get_rng_state(d) for d in devices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], **_: Any) -> None:
    """Puts the generators of GPUs into states."""
    for device, state in zip(devices, states, strict=True):
        torch.cuda.set_rng_state(state, device)


def noop_context_fn() -> tuple[Any, Any]:
    """Contexts that do nothing, for forward and for computing again."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Surroundings:
    """What a part runs with: the states of all generators that it may draw from, and what autocast is on for."""

    def __init__(self, keep: bool, args: tuple[Any, ...]) -> None:
        # Where nothing is cast on GPUs, entering a context for them would only warn that there are none.
        kinds = ("cpu", "cuda") if torch.is_autocast_enabled("cuda") else ("cpu",)
        self.casts = [
            {
                "device_type": kind,
                "enabled": torch.is_autocast_enabled(kind),
                "dtype": torch.get_autocast_dtype(kind),
                "cache_enabled": torch.is_autocast_cache_enabled(),
            }
            for kind in kinds
        ]
        self.keep = keep
        if keep:
            self.cpu = torch.get_rng_state()
            self.devices, self.states = get_device_states(*args)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Draws what was drawn then, and casts what was cast."""
        with contextlib.ExitStack() as stack:
            if self.keep:
                stack.enter_context(torch.random.fork_rng(self.devices))
                torch.set_rng_state(self.cpu)
                set_device_states(self.devices, self.states)
            for cast in self.casts:
                stack.enter_context(torch.autocast(**cast))
            yield


class CheckpointFunction(Function):
    """The older kind: the part is one node, whose backward runs the part and its backward."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.around = _Surroundings(preserve_rng_state, args)
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.at))
        with torch.no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        if not _C._is_checkpoint_valid():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an "
                "`inputs` parameter to .backward(). To resolve this error, you can either set "
                "use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.inputs)
        for i, t in zip(ctx.at, ctx.saved_tensors, strict=True):
            inputs[i] = t
        with ctx.around.again():
            again = detach_variable(tuple(inputs))
            with torch.enable_grad():
                outputs = ctx.run_function(*again)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [
            (o, g)
            for o, g in zip(outputs, args, strict=True)
            if isinstance(o, Tensor) and o.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in again))


class _Kept(Function):
    """Keeps tensors as a node keeps what it saves: whoever packs saved tensors packs these, too."""

    @staticmethod
    def forward(ctx: Any, anchor: Any, *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors)
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise AssertionError("Did not expect to backward on this graph")


def _kept(args: tuple[Any, ...]) -> Callable[[], list[Any]]:
    """A function that gives arguments back, which does not hold tensors that were packed."""
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    others = [None if isinstance(a, Tensor) else a for a in args]
    made = _Kept.apply(torch.empty(0, requires_grad=True), *(args[i] for i in at))

    def given() -> list[Any]:
        found = list(others)
        for i, tensor in zip(at, made.grad_fn.saved_tensors, strict=True):
            found[i] = tensor
        return found

    return given


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Runs ``function(*args, **kwargs)``; what it saves for backward is computed again there.

    Args:
        use_reentrant: the older kind, one node for the whole part.
        context_fn: gives the contexts of the first run and of the other one.
        debug: an error tells which operators the two runs called.
        determinism_check: "none" accepts that the other run saves something else.
        early_stop: the other run ends once everything saved is there.

    Raises:
        CheckpointError: in backward, if the other run saved something else.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting "
            "in PyTorch 2.9, calling checkpoint without use_reentrant will raise an exception. "
            "use_reentrant=False is recommended, but if you need to preserve the current default "
            "behavior, you can pass use_reentrant=True. Refer to docs for more details on the "
            "differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs and use_reentrant:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant:
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError(
                "Passing `context_fn` or `debug` is only supported when use_reentrant=False."
            )
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(
            "determinism_check should be one of ['default', 'none'], but got " + determinism_check
        )
    log = Log.wanted(debug)
    if log is not None and context_fn is not noop_context_fn:
        raise ValueError("debug=True is incompatible with non-default context_fn")
    around = _Surroundings(preserve, args)
    first, second = context_fn() if log is None else log.contexts()

    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    inputs = _kept(args)

    def again() -> None:
        with around.again(), second:
            function(*inputs(), **kwargs)

    frame = Frame(again, early_stop and _early_stop[0], determinism_check == "default")
    unpack = frame.unpack if log is None else log.telling(frame.unpack)
    with saved_tensors_hooks(frame.pack, unpack), first:
        made = function(*args, **kwargs)
    frame.complete = True
    return made


def checkpoint_sequential(
    functions: Any,
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Runs functions one after the other in so many checkpointed parts; the last one is not."""
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed "
            "explicitly. In version 2.9 we will raise an exception if use_reentrant is not passed. "
            "use_reentrant=False is recommended, but if you need to preserve the current default "
            "behavior, you can pass use_reentrant=True. Refer to docs for more details on the "
            "differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    children = getattr(functions, "children", None)
    items = list(functions if children is None else children())

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for f in items[start : end + 1]:
                x = f(x)
            return x

        return run

    size = len(items) // segments
    end = -1
    for start in range(0, size * (segments - 1), size):
        end = start + size - 1
        input = checkpoint(
            part(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve
        )
    return part(end + 1, len(items) - 1)(input)


for _cls in (CheckpointError, CheckpointPolicy, SelectiveCheckpointContext):
    _cls.__module__ = __name__
