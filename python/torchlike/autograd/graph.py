"""The graph of recorded calls: nodes, edges, hooks over several tensors."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike import _C
from torchlike._C import Node, Tensor
from torchlike.nn._hooks import RemovableHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class GradientEdge(NamedTuple):
    """Where a gradient goes: a node, and which of its results it belongs to."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """Where the gradient of a tensor goes; stands for the tensor in `backward` and `grad`."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require gradients"
        )
    return GradientEdge(_C._gradient_node(tensor), tensor.output_nr)


def _register_hook(self: Any, fn: Callable[..., Any]) -> RemovableHandle:
    """Calls ``fn(grad_inputs, grad_outputs)`` after the node has run; it may give other gradients of the inputs."""
    return _add(self._hooks(False), fn)


def _register_prehook(self: Any, fn: Callable[..., Any]) -> RemovableHandle:
    """Calls ``fn(grad_outputs)`` before the node runs; it may give others."""
    return _add(self._hooks(True), fn)


def _add(table: Any, fn: Callable[..., Any]) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = fn
    return handle


Node.register_hook = _register_hook
Node.register_prehook = _register_prehook


class _MultiHandle:
    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        """Forgets all of them."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _MultiHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: str = "all"
) -> _MultiHandle:
    """Calls ``fn`` once the gradients of several tensors are there, or with the first of them (``mode="any"``).

    Raises:
        ValueError: for another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    if mode == "any":
        done: set[int] = set()

        def first(grad: Any) -> None:
            run = _C._current_graph_task_id()
            with lock:
                if run in done:
                    return
                done.add(run)
            fn(grad)

        return _MultiHandle([t.register_hook(first) for t in tensors])
    grads: dict[int, list[Any]] = {}
    counts: dict[int, int] = {}
    nodes = [_C._gradient_node(t) for t in tensors]
    many = len(tensors)  # the hooks, which the graph holds, must not hold the tensors

    def hook(i: int) -> Callable[[Any], None]:
        def one(grad: Any) -> None:
            run = _C._current_graph_task_id()
            with lock:
                grads.setdefault(run, [None] * many)[i] = grad
                counts[run] = counts.get(run, 0) + 1
                ready = counts[run] == sum(map(_C._will_engine_execute_node, nodes))
            if ready:
                found = grads.pop(run)
                counts.pop(run)
                fn(found)

        return one

    return _MultiHandle([t.register_hook(hook(i)) for i, t in enumerate(tensors)])


class saved_tensors_hooks:
    """Inside, ``pack_hook(tensor)`` says what is kept of tensors that are saved for backward.

    ``unpack_hook`` makes them again.
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if not (callable(self.pack_hook) and callable(self.unpack_hook)):
            raise TypeError("saved_tensors_hooks(): the hooks must be callable")
        if _off.messages:
            raise RuntimeError(_off.messages[-1])
        _C._push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exc: object) -> None:
        _C._pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Inside, tensors that are saved for backward are kept in host memory."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple[Any, Tensor]:
            if not pin_memory:
                return (tensor.device, tensor.cpu())
            packed = tensor.new_empty(tensor.size(), device="cpu", pin_memory=True)
            return (tensor.device, packed.copy_(tensor))

        def unpack(packed: tuple[Any, Tensor]) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


class _Off(threading.local):
    """Why saved tensors hooks are refused on this thread, the newest reason last."""

    def __init__(self) -> None:
        self.messages: list[str] = []


_off = _Off()


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, saved tensors hooks are refused with this message."""
    if _C._packing():
        raise RuntimeError(error_message)
    _off.messages.append(error_message)
    try:
        yield
    finally:
        _off.messages.pop()


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Counts a change of a tensor's memory that was made behind autograd's back."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        _C._increment_version(t)


class _Kept:
    """A saved tensor, or its copy once its memory was written."""

    __slots__ = ("__weakref__", "copied", "value")

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.copied = False


class _AllowMutation:
    """The tensors saved in one context, by their storage."""

    def __init__(self) -> None:
        self.kept: dict[int, weakref.WeakSet[_Kept]] = {}
        self.on = True

    def clear(self) -> None:
        """Forgets all tensors: writes are not followed any more."""
        self.kept.clear()

    def pack(self, t: Tensor) -> _Kept:
        """What is kept of a saved tensor."""
        kept = _Kept(t.detach())
        self.kept.setdefault(t.untyped_storage()._cdata, weakref.WeakSet()).add(kept)
        return kept

    def unpack(self, kept: _Kept) -> Tensor:
        """The tensor as it was saved."""
        if not self.on:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
                "in which the graph was originally recorded."
            )
        return kept.value

    def written(self, t: Tensor) -> None:
        """Copies what is saved of a tensor that is about to be written."""
        for kept in tuple(self.kept.get(t.untyped_storage()._cdata, ())):
            if not kept.copied:
                kept.value, kept.copied = kept.value.clone(), True


_allowing: list[_AllowMutation] = []


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutation]:
    """Inside, tensors that are saved for backward may be written: they are copied first."""
    from torchlike.utils._python_dispatch import TorchDispatchMode

    if _allowing:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutation()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = {} if kwargs is None else kwargs
            for i, argument in enumerate(func._schema.arguments):
                if argument.alias_info is None or not argument.alias_info.is_write:
                    continue
                value = args[i] if i < len(args) else kwargs.get(argument.name)
                for t in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(t, Tensor):
                        context.written(t)
            return func(*args, **kwargs)

    _allowing.append(context)
    try:
        with saved_tensors_hooks(context.pack, context.unpack), Watch():
            yield context
    finally:
        context.on = False
        context.clear()
        _allowing.pop()


class enforce_grad_layout_policy:
    """Whether the first gradient of a leaf is copied if it does not lie as the leaf does (`True`: it is).

    As a function it says so from now on, as a context manager until its end, as a decorator while the function runs.
    Sums of gradients, and gradients that somebody else has too, lie as the leaf does in any case.
    """

    __module__ = "torchlike.autograd.grad_mode"

    def __init__(self, enable: bool = True) -> None:
        self._before = _C._is_grad_layout_enforcement_enabled()
        self.mode = enable
        _C._set_grad_layout_enforcement_enabled(enable)

    def __call__(self, orig_func: Any) -> Any:
        _C._set_grad_layout_enforcement_enabled(self._before)

        @functools.wraps(orig_func)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return orig_func(*args, **kwargs)

        return within

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _C._set_grad_layout_enforcement_enabled(self._before)

    def clone(self) -> enforce_grad_layout_policy:
        """Another of the kind, which says so now."""
        return type(self)(self.mode)


_multithreading = [True]


class set_multithreading_enabled:
    """Whether a backward pass may use several threads; kept for programs that ask, as one thread is always used."""

    __module__ = "torchlike.autograd.grad_mode"

    def __init__(self, mode: bool) -> None:
        self._before = _multithreading[0]
        _multithreading[0] = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _multithreading[0] = self._before


def is_multithreading_enabled() -> bool:
    """Whether a backward pass may use several threads."""
    return _multithreading[0]
