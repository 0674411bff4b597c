"""Calls of operators of Python that compute what results look like: on meta, and of fake tensors."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from torchlike import _C

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

_running: ContextVar[Shown | None] = ContextVar("_running", default=None)


class FakeImplCtx:
    """What a function registered by `register_fake` is told about the call it is asked for.

    Args:
        op: the operator that was called.
    """

    def __init__(self, op: OpOverload) -> None:
        self.op = op

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> NoReturn:
        """A size that depends on values.

        Raises:
            DynamicOutputShapeException: always, as sizes are numbers here.
        """
        from torchlike._subclasses.fake_tensor import DynamicOutputShapeException

        raise DynamicOutputShapeException(self.op)

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> NoReturn:
        """The older name of `new_dynamic_size`."""
        self.new_dynamic_size(min=min, max=max)


def get_ctx() -> FakeImplCtx | None:
    """The call that a function registered by `register_fake` runs for; None outside of one.

    Raises:
        RuntimeError: if the call has meta tensors, whose results must have shapes that are known.
    """
    call = _running.get()
    if call is None:
        return None
    if call.mode is None:
        name = call.op.name().partition(".")[0]
        raise RuntimeError(
            f"{name} ({_source(call.kernel)}): You're trying to run this operator with meta Tensors (as opposed to "
            "FakeTensors), but this operator may return an output Tensor with data-dependent shape. Meta Tensors don't "
            "support operators with outputs that have data-dependent shapes but FakeTensors do. If your operator does "
            "not return an output with data-dependent shape, make sure the FakeTensor and/or meta kernel does not call "
            "torch.library.get_ctx(). Otherwise, please use FakeTensors."
        )
    return FakeImplCtx(call.op)


def _source(kernel: Any) -> str:
    """Where a function is written."""
    code = getattr(kernel, "__code__", None)
    return repr(kernel) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def mode_of(tensors: tuple[Any, ...]) -> Any:
    """The mode of fake tensors that is on, or that one of the tensors belongs to; None if all is real."""
    mode = _C._fake_mode_here()
    if mode is not None:
        return mode
    return next((_C._fake_mode_of(t) for t in tensors if _C._is_fake(t)), None)


class Shown:
    """A kernel that computes what the results of an operator look like.

    Args:
        op: the operator.
        kernel: the function.
        mode: the mode of the fake tensors; None on meta.
    """

    def __init__(self, op: OpOverload, kernel: Any, mode: Any) -> None:
        self.op, self.kernel, self.mode = op, kernel, mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = _running.set(self)
        try:
            if self.mode is None or _C._fake_mode_here() is self.mode:
                return self.kernel(*args, **kwargs)
            with self.mode:
                return self.kernel(*args, **kwargs)
        finally:
            _running.reset(before)
