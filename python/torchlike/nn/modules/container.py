"""Modules that hold modules or parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.nn._registry import count, member, members, type_name
from torchlike.nn.modules._own import own
from torchlike.nn.modules.module import Module, _addindent
from torchlike.nn.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _position(idx: Any, size: int) -> int:
    """A position counted from the front."""
    idx = as_index(idx)
    if not -size <= idx < size:
        raise IndexError(f"index {idx} is out of range")
    return idx + size if idx < 0 else idx


class Container(Module):
    """A module with children given by keyword; superseded by the others."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for key, value in kwargs.items():
            self.add_module(key, value)


class _Numbered(Module):
    """Children under the names "0", "1", ..., as in a list."""

    def _list(self) -> list[Any]:
        return members(self, "module")

    def _refill(self, modules: Iterable[Any]) -> None:
        self._modules = OrderedDict((str(i), module) for i, module in enumerate(modules))

    def __len__(self) -> int:
        return count(self, "module")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list())

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, module: Any) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: Any) -> Any:
        """Take a module out."""
        module = self[key]  # type: ignore[index]
        del self[key]
        return module


@own("append", "pop")
class Sequential(_Numbered):
    """Calls its children one after another."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def _key(self, idx: Any) -> str:
        at = _position(idx, len(self))
        return next(islice(iter(self._modules), at, None))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        modules = self._list()
        return modules[_position(idx, len(modules))]

    def __setitem__(self, idx: Any, module: Any) -> None:
        setattr(self, self._key(idx), module)

    def __delitem__(self, idx: Any) -> None:
        if isinstance(idx, slice):
            for key in list(self._modules)[idx]:
                delattr(self, key)
        else:
            delattr(self, self._key(idx))
        self._refill(self._list())

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects "
                f"of Sequential class, but {type(other)!s} is given."
            )
        both = Sequential()
        for module in chain(self, other):
            both.append(module)
        return both

    def __iadd__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects "
                f"of Sequential class, but {type(other)!s} is given."
            )
        return self.extend(list(other))

    def _factor(self, other: Any) -> int:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return other

    def __mul__(self, other: Any) -> Any:
        return Sequential(*(self._list() * self._factor(other)))

    __rmul__ = __mul__

    def __imul__(self, other: Any) -> Any:
        return self.extend(self._list() * (self._factor(other) - 1))

    def insert(self, index: int, module: Any) -> Any:
        """Put a module before position ``index``."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        modules = self._list()
        modules.insert(index + size if index < 0 else index, module)
        self._refill(modules)
        return self

    def extend(self, sequential: Iterable[Any]) -> Any:
        """Add several modules at the end."""
        for module in sequential:
            self.append(module)
        return self


@own("append", "pop")
class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(self._list()[idx])
        return member(self, "module", str(_position(idx, len(self))))

    def __setitem__(self, idx: Any, module: Any) -> None:
        setattr(self, str(_position(idx, len(self))), module)

    def __delitem__(self, idx: Any) -> None:
        modules = self._list()
        if isinstance(idx, slice):
            del modules[idx]
        else:
            del modules[_position(idx, len(modules))]
        self._refill(modules)

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def __add__(self, other: Iterable[Any]) -> Any:
        both = ModuleList()
        for i, module in enumerate(chain(self, other)):
            both.add_module(str(i), module)
        return both

    def __repr__(self) -> str:
        runs: list[list[Any]] = []
        for i, text in enumerate(repr(module) for module in self):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        if not runs:
            return self._get_name() + "()"
        lines = []
        for first, last, text in runs:
            if first == last:
                line = f"({first}): {text}"
            else:
                line = f"({first}-{last}): {last - first + 1} x {text}"
            lines.append(_addindent(line, 2))
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"

    def insert(self, index: int, module: Any) -> None:
        """Put a module before position ``index``."""
        modules = self._list()
        modules.insert(index, module)
        self._refill(modules)

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add several modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an "
                "iterable, but got " + type(modules).__name__
            )
        start = len(self)
        for i, module in enumerate(modules):
            self.add_module(str(start + i), module)
        return self


def _pairs(values: Any, caller: str, owner: str) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a mapping or of an iterable of pairs."""
    if not isinstance(values, Iterable):
        raise TypeError(
            f"{caller}.update should be called with an iterable of key/value pairs, "
            "but got " + type(values).__name__
        )
    if isinstance(values, (Mapping, ModuleDict, ParameterDict)):
        yield from values.items()
        return
    for j, item in enumerate(values):
        if not isinstance(item, Iterable):
            raise TypeError(
                f"{owner} update sequence element #{j} should be Iterable; is" + type(item).__name__
            )
        if len(item) != 2:  # type: ignore[arg-type]
            raise ValueError(
                f"{owner} update sequence element #{j} has length {len(item)}; 2 is required"  # type: ignore[arg-type]
            )
        yield item[0], item[1]  # type: ignore[index]


class ModuleDict(Module):
    """A dictionary of modules."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return member(self, "module", key)

    def __setitem__(self, key: str, module: Any) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return count(self, "module")

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take one module out."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Names and modules."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Put in the modules of a mapping, or of pairs."""
        for key, module in _pairs(modules, "ModuleDict", "ModuleDict"):
            self[key] = module


def _described(key: Any, value: Any, kind: str) -> str:
    if not isinstance(value, torch.Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    size = "x".join(str(n) for n in value.size())
    where = f" ({value.device})" if value.device.type == "cuda" else ""
    word = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"  ({key}): {word} containing: [{kind} of size {size}{where}]"


def _as_parameter(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


class ParameterList(Module):
    """A list of parameters; tensors that are put in become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            out = type(self)()
            for i in range(*idx.indices(len(self))):
                out.append(self[i])
            return out
        return getattr(self, str(_position(idx, len(self))))

    def __setitem__(self, idx: Any, param: Any) -> None:
        setattr(self, str(_position(idx, len(self))), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value: Any) -> Any:
        """Add a value at the end."""
        at = len(self)
        self._size += 1
        self[at] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Add several values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, torch.Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an "
                "iterable, but got " + type(values).__name__
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(
            _described(i, p, str(p.dtype) if isinstance(p, torch.Tensor) else "")
            for i, p in enumerate(self)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters; tensors that are put in become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is "
                f"not a string (type is '{type(key).__name__}'). Open an issue on "
                "github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, self._key_to_attr(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, put there first if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take all out."""
        for k in list(self._keys):
            del self[k]

    def pop(self, key: str) -> Any:
        """Take one out."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take the last one out."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value under ``key``, or ``default``."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with one value under all keys."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Any:
        """Names and values."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Any:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Put in the values of a mapping, or of pairs."""
        pairs = _pairs(parameters, "ParametersDict", "ParameterDict")
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            pairs = iter(sorted(pairs))
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_described(k, p, type_name(p)) for k, p in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: Any) -> ParameterDict:
        both = self.copy()
        both.update(other)
        return both

    def __ror__(self, other: Any) -> Any:
        both = other.copy()
        both.update(self)
        return both

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self
