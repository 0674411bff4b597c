"""What is said where a call cannot be faked: exceptions, made for the core, which raises them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.leaves import overload_of

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
    from torchlike._subclasses.fake_tensor import unset_fake_temporarily
    from torchlike._tensor_str import _str

    if type(value) is _C.Tensor or isinstance(value, torch.nn.Parameter):
        if value.storage_offset() == 0 and value.numel() == 1 and value.is_cpu:
            with unset_fake_temporarily():
                inside = repr(value.detach().reshape(()).as_subclass(_C.Tensor))[7:-1]
        else:
            inside = "[...]"
        head = "Parameter containing:\n" if isinstance(value, torch.nn.Parameter) else ""
        return head + _str(value, tensor_contents=inside + f", size={tuple(value.shape)}")
    return repr(value)


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
    return AssertionError(
        "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
        f"'allow_non_fake_inputs'. Found in {overload}({', '.join(parts)})"
    )


def _of(row: str, form: str, values: Any, outs: Any, within: str | None) -> OpOverload:
    if row.partition("#")[0] in _BY_POSITION:
        return torch.ops.aten.nonzero.default
    return _overload(row, form, values, outs, within)[0]


def shape(
    row: str, form: str, values: Any, outs: Any, leaf: bool, within: str | None
) -> RuntimeError:
    """That the shape of a result depends on values."""
    from torchlike._subclasses.fake_tensor import DynamicOutputShapeException

    return DynamicOutputShapeException(_of(row, form, values, outs, within))


def value() -> RuntimeError:
    """That a value was asked for."""
    from torchlike._subclasses.fake_tensor import DataDependentOutputException

    return DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)


def devices(text: str) -> RuntimeError:
    """That tensors are on different devices."""
    from torchlike._subclasses.fake_tensor import FakeTensorDeviceMismatchError

    return FakeTensorDeviceMismatchError(text)


def modes(one: Any, other: Any) -> AssertionError:
    """That tensors are of different modes."""
    return AssertionError(f"Mixing fake modes NYI x.fake_mode={one} vs self={other}")
