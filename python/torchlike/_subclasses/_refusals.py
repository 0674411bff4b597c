"""What is said where a call cannot be faked: exceptions, made for the core, which raises them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.leaves import overload_of
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

# Rows whose result has as many elements as a mask lets through come down to finding these in PyTorch.
_BY_POSITION = ("index", "argwhere", "nonzero_numpy", "_index")


def _overload(row: str, form: str, values: Any, outs: Any, within: str | None) -> Any:
    found = overload_of(row, form, values, outs, within)
    if found is not None:
        return found
    name = row.partition("#")[0].rpartition(".")[2]
    packet = getattr(torch.ops.aten, name, None)
    return (packet.default, {}) if packet is not None else (row, {})


def _tensor(value: Any) -> str:
    """A tensor without its elements, unless it has one alone."""
    from torchlike._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
    from torchlike._tensor_str import _str

    if isinstance(value, FakeTensor):
        return repr(value)
    with unset_fake_temporarily():
        inside = "[...]"
        if value.ndim == 0 and value.is_cpu:
            inside = repr(value.detach().as_subclass(_C.Tensor))[7:-1]
        head = "Parameter containing:\n" if isinstance(value, torch.nn.Parameter) else ""
        return head + _str(value, tensor_contents=inside + f", size={tuple(value.shape)}")


def _text(value: Any) -> str:
    if isinstance(value, _C.Tensor):
        return _tensor(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return repr(value)


def real(
    row: str, form: str, values: Any, outs: Any, leaf: bool, within: str | None
) -> AssertionError:
    """That real tensors are among the arguments of a call."""
    overload, given = _overload(row, form, values, outs, within)
    parts = []
    if given:
        for argument in overload._schema.arguments:
            value = given[argument.name]
            if argument.has_default and value == argument.default_value:
                continue
            named = f"{argument.name}=" if argument.kwarg_only else ""
            parts.append(named + _text(value))
    else:
        parts = [_text(v) for v in values]
    return _found_in(f"{overload}({', '.join(parts)})")


def _found_in(call: str) -> AssertionError:
    return AssertionError(
        "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
        f"'allow_non_fake_inputs'. Found in {call}"
    )


def real_value(t: Any) -> AssertionError:
    """That the value of a real tensor was asked for."""
    return _found_in(f"{torch.ops.aten._local_scalar_dense.default}({_tensor(t)})")


def _of(row: str, form: str, values: Any, outs: Any, within: str | None) -> OpOverload:
    if row.partition("#")[0] in _BY_POSITION:
        return torch.ops.aten.nonzero.default
    if row == "unique":
        by_slices = values[-1] is not None
        return torch.ops.aten.unique_dim.default if by_slices else torch.ops.aten._unique2.default
    return _overload(row, form, values, outs, within)[0]


def shape(
    row: str, form: str, values: Any, outs: Any, leaf: bool, within: str | None
) -> RuntimeError:
    """That the shape of a result depends on values."""
    from torchlike._subclasses.fake_tensor import DynamicOutputShapeException

    return DynamicOutputShapeException(_of(row, form, values, outs, within))


# Operators that give a truth value of elements, which the error names.
_ANSWERS = ("equal", "allclose")

# Operators that add a product to their first operand, which PyTorch looks at last.
_ADDED_LAST = ("addmm", "addmv", "addbmm", "baddbmm", "addr")


def value(
    row: str, form: str, values: Any, outs: Any, leaf: bool, within: str | None
) -> RuntimeError:
    """That an operator gives a value of elements."""
    from torchlike._subclasses.fake_tensor import DataDependentOutputException

    if row not in _ANSWERS:
        return no_value()
    return DataDependentOutputException(_of(row, form, values, outs, within))


def no_value() -> RuntimeError:
    """That a value was asked for."""
    from torchlike._subclasses.fake_tensor import DataDependentOutputException

    return DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)


def devices(
    row: str, form: str, values: Any, outs: Any, leaf: bool, within: str | None
) -> RuntimeError:
    """That tensors are on different devices."""
    from torchlike._subclasses.fake_tensor import FakeTensorDeviceMismatchError

    if row in _ADDED_LAST:
        values = (*values[1:], values[0])
    found = [t.device for t in pytree.tree_leaves(values) if isinstance(t, _C.Tensor)]
    other = next(d for d in found if d != found[0])
    return FakeTensorDeviceMismatchError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{found[0]} and {other}!"
    )


def modes(one: Any, other: Any) -> AssertionError:
    """That tensors are of different modes."""
    return AssertionError(f"Mixing fake modes NYI x.fake_mode={one} vs self={other}")
