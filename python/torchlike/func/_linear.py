"""What a function does with tangents, kept as the list of calls that it came down to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Tensor
from torchlike._tags import Tag
from torchlike.fx.experimental.proxy_tensor import READS, SHAPES_OF_VALUES, place
from torchlike.utils import _pytree as pytree
from torchlike.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

aten: Any = torch.ops.aten


class _Slot:
    """The number of a value that depends on the tangents."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class _Kept:
    """A tensor that does not depend on the tangents, as it is when a call uses it."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        self.version = None if tensor.is_inference() else tensor._version

    def copy(self) -> None:
        """Holds on to the values, which are about to be written."""
        self.tensor = self.tensor.clone()
        self.version = self.tensor._version

    def value(self) -> Tensor:
        if self.version is not None and self.tensor._version != self.version:
            raise RuntimeError(
                "linearize: a tensor that the linear function needs has been modified by an inplace operation since: "
                f"it is at version {self.tensor._version}; expected version {self.version} instead"
            )
        return self.tensor


class _Call:
    """A call, its arguments flattened, and the numbers of its results."""

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func = func
        self.args, self.spec = pytree.tree_flatten((args, kwargs))
        self.results: list[tuple[int, int]] = []
        self.last_use_of: list[int] = []

    def run(self, values: list[Any]) -> None:
        """Makes the call with the values of slots, and puts its results beside them."""
        given = [_now(a, values) for a in self.args]
        args, kwargs = pytree.tree_unflatten(given, self.spec)
        made = pytree.tree_leaves(self.func(*args, **kwargs))
        for i, number in self.results:
            values[number] = made[i]
        for number in self.last_use_of:
            values[number] = None


def _now(a: Any, values: list[Any]) -> Any:
    if isinstance(a, _Slot):
        return values[a.number]
    return a.value() if isinstance(a, _Kept) else a


def _memory(tensor: Tensor) -> int:
    """What all views of the same memory have in common."""
    held = tensor if tensor.layout is torch.strided else _values_of(tensor)
    return held.untyped_storage()._cdata


def _values_of(tensor: Tensor) -> Tensor:
    return tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()


class LinearCalls(TorchDispatchMode):
    """Keeps the calls that depend on given tensors: the rest is values, whatever the given tensors are.

    Tensors are told apart by their memory, as the core hands each out as another object.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []
        self._alive: list[Tensor] = []
        self._slots: dict[Any, _Slot] = {}
        self._reached: dict[int, _Slot] = {}
        self._kept: dict[int, list[_Kept]] = {}
        self._layouts: list[tuple[Any, Any, int]] = []
        self._count = 0

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True."""
        return True

    def input(self, tensor: Tensor) -> None:
        """Notes a tensor that the linear function will be given another one for."""
        self._slot(tensor)
        self._layouts.append((tensor.shape, tensor.stride(), tensor.untyped_storage().nbytes()))

    def _must_see(self, given: Iterable[Tensor]) -> bool:
        """Whether a call with these tensors would be missed."""
        return any(_memory(t) in self._reached for t in given)

    def _reads(self, tensor: Tensor) -> None:
        if self._must_see((tensor,)):
            raise _refused("aten::_local_scalar_dense")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if types and any(t is not Tensor and t is not torch.nn.Parameter for t in types):
            return NotImplemented
        depends = self._must_see(
            t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)
        )
        written = _written(func, args, kwargs)
        for t in written:
            if _memory(t) not in self._reached:
                self._before_write(t, depends)
        if not depends:
            return func(*args, **kwargs)
        if func._schema.name in READS or func._schema.name in SHAPES_OF_VALUES:
            raise _refused(func._schema.name)
        call = _Call(_replayed(func), *pytree.tree_map_only(Tensor, self._argument, (args, kwargs)))
        if Tag.inplace_view in func.tags:
            # the replayed call must leave what the slot's other users see as it is
            call.args[0] = self._alias(call.args[0])
        result = func(*args, **kwargs)
        self._calls.append(call)
        for i, t in enumerate(pytree.tree_leaves(result)):
            if isinstance(t, Tensor):
                call.results.append((i, self._slot(t).number))
        return result

    def _slot(self, tensor: Tensor) -> _Slot:
        slot = _Slot(self._count)
        self._count += 1
        self._alive.append(tensor)
        self._slots[place(tensor)] = slot
        self._reached.setdefault(_memory(tensor), slot)
        return slot

    def _add(self, func: Any, *args: Any) -> _Slot:
        """A call of our own, whose one result gets a slot."""
        slot = _Slot(self._count)
        self._count += 1
        call = _Call(func, args, {})
        call.results.append((0, slot.number))
        self._calls.append(call)
        return slot

    def _alias(self, slot: _Slot | _Kept) -> _Slot:
        return self._add(aten.alias, slot)

    def _argument(self, tensor: Tensor) -> _Slot | _Kept:
        found = self._slots.get(place(tensor))
        if found is not None:
            return found
        memory = _memory(tensor)
        if memory in self._reached:
            # a view that was made before anything of its memory depended on the tangents
            found = self._add(
                _view_of,
                self._reached[memory],
                tensor.shape,
                tensor.stride(),
                tensor.storage_offset(),
                tensor.dtype,
            )
            self._slots[place(tensor)] = found
            return found
        kept = _Kept(tensor)
        self._kept.setdefault(memory, []).append(kept)
        return kept

    def _before_write(self, tensor: Tensor, depends: bool) -> None:
        """Holds on to the values that calls before need; from here on the memory may depend on the tangents."""
        memory = _memory(tensor)
        for kept in self._kept.pop(memory, ()):
            kept.copy()
        if depends:
            whole = _whole(tensor)
            self._alive.append(tensor)
            inputs = [_Slot(i) for i in range(len(self._layouts))]
            self._reached[memory] = self._add(_fresh, _Kept(whole.clone()), inputs)

    def function(self, outputs: Sequence[Any]) -> Callable[[Sequence[Tensor]], list[Any]]:
        """The linear function: of the inputs, in order, to the outputs; what does not depend on them stays."""
        answer: list[Any] = [
            self._alias(self._argument(t)) if isinstance(t, Tensor) and self._must_see((t,)) else t
            for t in outputs
        ]
        calls, layouts, count = self._calls, self._layouts, self._count
        _forget_early(calls, len(layouts), {a.number for a in answer if isinstance(a, _Slot)})
        self._alive, self._slots, self._reached, self._kept = [], {}, {}, {}

        def function(given: Sequence[Tensor]) -> list[Any]:
            values: list[Any] = [None] * count
            for i, (t, layout) in enumerate(zip(given, layouts, strict=True)):
                values[i] = _laid(t, *layout)
            for call in calls:
                call.run(values)
            return [_now(a, values) for a in answer]

        return function


def _refused(name: str) -> RuntimeError:
    shown = name.replace("::", ".") + ".default"
    return RuntimeError(
        f"linearize: the function reads the values of a tangent with {shown}, which the linear function would have to "
        "do for each tangent anew; use torch.func.jvp"
    )


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The tensors that a call writes."""
    found = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(a.name)
            found += [t for t in pytree.tree_leaves(value) if isinstance(t, Tensor)]
    return found


def _replayed(func: Any) -> Any:
    """What the linear function calls: gradients with respect to its tangents go through what was detached."""
    return aten.alias if func.overloadpacket is aten.detach else func


def _forget_early(calls: list[_Call], inputs: int, answer: set[int]) -> None:
    """Has each call let go of the values that it is the last to use."""
    used = set(answer)
    for call in reversed(calls):
        mine = {a.number for a in call.args if isinstance(a, _Slot)}
        mine |= {number for _, number in call.results}
        call.last_use_of = [n for n in mine if n not in used and n >= inputs]
        used |= mine


def _whole(tensor: Tensor) -> Tensor:
    """All the memory of a tensor, in a row."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((elements,), (1,), 0)


def _fresh(values: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """A copy that may be written with what depends on the inputs: a batch wherever they are one."""
    like = inputs[0].new_zeros(values.shape, dtype=values.dtype)
    for t in inputs[1:]:
        like = like + t.new_zeros((), dtype=values.dtype)
    return like.copy_(values)


def _view_of(held: Tensor, shape: Any, stride: Any, offset: int, dtype: Any) -> Tensor:
    """Another view of the memory of a tensor."""
    if held.dtype is not dtype:
        held = _whole(held).view(dtype)
    return held.as_strided(shape, stride, offset)


def _laid(tensor: Tensor, shape: Any, stride: Any, nbytes: int) -> Tensor:
    """A tensor that lies as the one that was given when the calls were kept."""
    if (
        not _C._batch_is_on()
        and tensor.stride() == stride
        and tensor.storage_offset() == 0
        and tensor.untyped_storage().nbytes() == nbytes
        and not (tensor.is_conj() or tensor.is_neg())
    ):
        return tensor
    return tensor.new_empty_strided(shape, stride).copy_(tensor)
