"""Fake tensors: shapes, dtypes and devices that need not exist, and no elements.

Inside `FakeTensorMode()` every call computes what its results look like, on the device they would be on, and nothing
else: a model for eight GPUs runs, forward and backward, on a laptop. A fake tensor stays one outside of the mode.

The core does this (`src/layers/fake.rs`); here are the classes, names and exceptions of PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._subclasses.meta_utils import Converter
from torchlike._tensor import _deepcopy, _with_state
from torchlike.overrides import TorchFunctionMode
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "CrossRefFakeMode",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeCopyMode",
    "FakeTensor",
    "FakeTensorConverter",
    "FakeTensorDeviceMismatchError",
    "FakeTensorMode",
    "MetadataMismatchError",
    "UnsupportedFakeTensorException",
    "UnsupportedOperatorException",
    "get_plain_tensors",
    "is_fake",
    "maybe_get_fake_mode",
    "unset_fake_temporarily",
]


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that no fake tensor can stand for. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _OfOperator(RuntimeError):
    def __init__(self, func: Any) -> None:
        super().__init__(func)
        self.func = func


class DynamicOutputShapeException(_OfOperator):
    """The shape of the result of the operator `func` depends on values, which fake tensors have not."""


class DataDependentOutputException(_OfOperator):
    """The operator `func` gives a value, which fake tensors have not."""


class UnsupportedOperatorException(_OfOperator):
    """The operator `func` cannot be faked."""


class MetadataMismatchError(RuntimeError):
    """A fake result looks unlike the real one. `reason` says how."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FakeTensorDeviceMismatchError(RuntimeError):
    """Tensors of a call are on different devices."""


@_C._fake_class
class FakeTensor(_C.Tensor):
    """A tensor without elements that says it is on `device`.

    Args:
        fake_mode: the mode it belongs to.
        elem: a meta tensor, whose layout and dtype it has.
        device: the device it claims to be on.

    Raises:
        AssertionError: if `elem` is not on meta.
    """

    __torch_function__ = _C._disabled_torch_function_impl

    fake_mode: FakeTensorMode
    constant: Any

    def __new__(
        cls,
        fake_mode: FakeTensorMode,
        elem: Any,
        device: Any,
        constant: Any = None,
        real_tensor: Any = None,
        *,
        requires_grad: bool | None = None,
    ) -> FakeTensor:
        if constant is not None or real_tensor is not None:
            raise NotImplementedError(
                "FakeTensor(constant=, real_tensor=): elements are remembered by the mode alone"
            )
        if not elem.is_meta:
            raise AssertionError(f"elem.device.type must be 'meta', got {elem.device.type}")
        made = fake_mode._core.claim(elem, torch.device(device))
        return made.requires_grad_(elem.requires_grad if requires_grad is None else requires_grad)

    @property
    def fake_device(self) -> Any:
        """The device it claims to be on."""
        return self.device

    @staticmethod
    def from_tensor(t: Any, fake_mode: FakeTensorMode) -> Any:
        """The fake tensor of a mode that stands for a tensor."""
        return fake_mode.from_tensor(t)

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy; outside of the mode it is of a mode of its own, as that is copied with it."""
        if not self.is_leaf:
            return _deepcopy(self, memo)
        if _C._fake_mode_here() is not None:
            if id(self) not in memo:
                memo[id(self)] = made = self._copied()
                if getattr(self, "_is_param", False):
                    made._is_param = True
                _with_state(made, self, memo)
            return memo[id(self)]
        if id(self) not in memo:
            old = self.fake_mode
            mode = memo.setdefault(
                id(old), FakeTensorMode(allow_non_fake_inputs=old.allow_non_fake_inputs)
            )
            with unset_fake_temporarily():
                bare = torch.empty_strided(
                    self.shape, self.stride(), dtype=self.dtype, device="meta"
                )
            made = FakeTensor(mode, bare, self.device, requires_grad=self.requires_grad)
            made.__dict__.update(self.__dict__)
            memo[id(self)] = made
        return memo[id(self)]

    def _copied(self) -> Any:
        """A copy in the mode that is on, with a storage of its own that is as large."""
        if self.layout is not torch.strided or self._has_parts():
            return self.detach().clone()
        size = self.untyped_storage().nbytes()
        memory = torch.empty(size, dtype=torch.uint8, device=self.device).untyped_storage()
        made = torch.empty(0, dtype=self.dtype, device=self.device)
        return made.set_(memory, self.storage_offset(), self.shape, self.stride())

    def __reduce_ex__(self, protocol: Any) -> Any:
        claim = (tuple(self.shape), self.stride(), self.storage_offset(), self.dtype, self.device)
        return _rebuild, (claim, self.untyped_storage().nbytes(), self.requires_grad)


FakeTensor.fake_mode = property(_C._fake_mode_of)  # type: ignore[assignment]
FakeTensor.constant = property(_C._fake_constant)


def _rebuild(claim: Any, nbytes: int, requires_grad: bool) -> Any:
    """A fake tensor from a pickle: of the mode that is on, or of one of its own."""
    shape, strides, offset, dtype, device = claim
    mode = _C._fake_mode_here() or FakeTensorMode()
    with unset_fake_temporarily():
        bare = torch.empty(nbytes, dtype=torch.uint8, device="meta")
        elem = bare.view(dtype).as_strided(shape, strides, offset).detach()
    return FakeTensor(mode, elem, device, requires_grad=requires_grad)


class FakeTensorConverter:
    """Makes the fake tensors of modes that stand for real ones, under PyTorch's name for that."""

    def __init__(self) -> None:
        self._claimed = WeakIdKeyDictionary()

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Any, **_: Any) -> Any:
        """The fake tensor that stands for `t`, as `fake_mode.from_tensor(t)`."""
        return fake_mode.from_tensor(t)

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: Any, device: Any) -> Any:
        """A meta tensor as a fake one on a device, always the same one as long as that lives."""
        made = self._claimed.get(t)
        if made is None:
            made = self._claimed[t] = FakeTensor(fake_mode, t, device)
        return made


class FakeTensorMode(TorchDispatchMode):
    """While it is on, tensors have no elements and claim to be where they would be; there need be no such device.

    Args:
        allow_fallback_kernels: accepted; no kernel ever runs.
        allow_non_fake_inputs: real tensors among the arguments of calls are converted. They are refused otherwise.
        shape_env: None, or a `ShapeEnv(assume_static_by_default=True)`: sizes are numbers.
        static_shapes: accepted, as sizes are numbers.
        export: accepted.

    Raises:
        NotImplementedError: if `shape_env` asks for symbols.
        AssertionError: by a call that mixes real and fake tensors, or those of two modes.
        FakeTensorDeviceMismatchError, DataDependentOutputException, DynamicOutputShapeException: by calls.
    """

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ) -> None:
        if not getattr(shape_env, "assume_static_by_default", shape_env is None):
            raise NotImplementedError(
                "FakeTensorMode(shape_env=): sizes are numbers here; export finds dynamic dimensions by probing"
            )
        self._stand_for(_C._FakeMode(allow_non_fake_inputs))
        self.allow_fallback_kernels = allow_fallback_kernels
        self.static_shapes = True if static_shapes is None else static_shapes
        self.shape_env = shape_env
        self.export = export

    def _stand_for(self, core: Any) -> None:
        self._core = core
        core.stand_for(self)
        self._converter = Converter(core)
        self._public_converter = FakeTensorConverter()

    @property
    def allow_non_fake_inputs(self) -> bool:
        """Whether real tensors among the arguments of calls are converted."""
        return self._core.allow_real

    @allow_non_fake_inputs.setter
    def allow_non_fake_inputs(self, on: bool) -> None:
        self._core.allow_real = on

    @property
    def fake_tensor_converter(self) -> FakeTensorConverter:
        """What makes fake tensors of others."""
        return self._public_converter

    def __enter__(self) -> FakeTensorMode:
        self._core.enter()
        return self

    def __exit__(self, *_: Any) -> None:
        self._core.leave()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        with self:
            return func(*args, **(kwargs or {}))

    def from_tensor(
        self,
        tensor: Any,
        *,
        static_shapes: bool | None = None,
        source: Any = None,
        symbolic_context: Any = None,
        trace: bool = True,
    ) -> Any:
        """The fake tensor that stands for `tensor`: its layout, dtype, device, and whether it wants a gradient.

        Views of one storage stay views of one storage; the same tensor gives the same fake tensor as long as that
        lives.

        Raises:
            TypeError: for what is no tensor.
        """
        return self._converter.convert(tensor)


def _front_of(core: Any) -> FakeTensorMode:
    """The mode in front of the core's, for fake tensors that outlived the object they were made by."""
    mode = FakeTensorMode.__new__(FakeTensorMode)
    mode._stand_for(core)
    mode.allow_fallback_kernels, mode.static_shapes, mode.export = True, True, False
    mode.shape_env = None
    return mode


class FakeCopyMode(TorchFunctionMode):
    """While it is on, `copy.deepcopy` of tensors gives fake tensors: a fake copy of a real model."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func == _C.Tensor.clone:
            return func(self.fake_mode.from_tensor(args[0]), **kwargs)
        if func == _C.Tensor.__deepcopy__:
            tensor, memo = args[0], args[1] if len(args) > 1 else kwargs["memo"]
            if id(tensor) in memo:
                return memo[id(tensor)]
            memo[id(tensor)] = made = self.fake_mode.from_tensor(tensor)
            return made
        with _C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


class CrossRefFakeMode(TorchDispatchMode):
    """Runs every operator for real and fake, and compares what the results look like.

    Raises:
        MetadataMismatchError: if shapes, strides, dtypes or devices differ.
    """

    def __init__(
        self,
        ignore_op_fn: Callable[[Any], bool] | None = None,
        *,
        check_strides: bool = True,
        check_aliasing: bool = True,
        only_check_ops_with_meta: bool = True,
    ) -> None:
        super().__init__()
        self.ignore_op_fn = ignore_op_fn or (lambda _: False)
        self.check_strides = check_strides

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        from torchlike.utils import _pytree as pytree

        kwargs = kwargs or {}
        fakes = None
        if not self.ignore_op_fn(func):
            mode = FakeTensorMode()
            convert = lambda x: mode.from_tensor(x) if isinstance(x, _C.Tensor) else x  # noqa: E731
            fake_args, fake_kwargs = pytree.tree_map(convert, (args, kwargs))
            try:
                with mode:
                    fakes = func(*fake_args, **fake_kwargs)
            except (UnsupportedFakeTensorException, _OfOperator):
                fakes = None
        real = func(*args, **kwargs)
        if fakes is not None:
            pairs = zip(pytree.tree_leaves(real), pytree.tree_leaves(fakes), strict=True)
            for one, other in pairs:
                if isinstance(one, _C.Tensor):
                    self._compare(func, one, other)
        return real

    def _compare(self, func: Any, real: Any, fake: Any) -> None:
        looks = [("shape", real.shape, fake.shape), ("dtype", real.dtype, fake.dtype)]
        looks.append(("device", real.device, fake.device))
        if self.check_strides and real.layout is torch.strided:
            looks.append(("strides", real.stride(), fake.stride()))
        for what, one, other in looks:
            if one != other:
                raise MetadataMismatchError(f"{func}: {what} is {one}, and {other} when faked")


def is_fake(x: Any) -> bool:
    """True for a fake tensor."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t: Any) -> FakeTensorMode | None:
    """The mode of a fake tensor, None for anything else."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


def get_plain_tensors(subclass: Any, *, out: list[Any]) -> list[Any]:
    """Appends a tensor to a list."""
    out.append(subclass)
    return out


class unset_fake_temporarily:
    """Inside, no fake mode is on."""

    def __enter__(self) -> FakeTensorMode | None:
        self._mode = _C._fake_mode_here()
        self._before = _C._pause_fake_mode(True)
        return self._mode

    def __exit__(self, *_: Any) -> None:
        _C._pause_fake_mode(self._before)
