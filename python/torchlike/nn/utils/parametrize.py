"""Tensors of a module that are computed from others each time they are read."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn.modules.container import ModuleDict, ModuleList
from torchlike.nn.modules.module import Module
from torchlike.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]

_depth = 0
_values: dict[tuple[int, str], Any] = {}


class cached:
    """Inside, each parametrized tensor is computed once."""

    def __enter__(self) -> None:
        global _depth
        _depth += 1

    def __exit__(self, *exc: object) -> None:
        global _depth
        _depth -= 1
        if not _depth:
            _values.clear()


def _keep(module: Any, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The functions behind one tensor, and the tensors that they start from."""

    original: Any

    def __init__(self, modules: Any, original: Any, unsafe: bool = False) -> None:
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        start = self._inverted(original)
        if isinstance(start, torch.Tensor):
            self.is_tensor = True
            if not isinstance(start, Parameter) and isinstance(original, Parameter):
                start = Parameter(start, original.requires_grad)
            _keep(self, "original", start)
        else:
            self.is_tensor = False
            self.ntensors = len(start)
            for i, part in enumerate(start):
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                _keep(self, f"original{i}", part)

    def _inverted(self, value: Any) -> Any:
        with torch.no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    break
                value = module.right_inverse(value)
        if not isinstance(value, (torch.Tensor, list, tuple)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(value).__name__}"
            )
        return value

    def __reversed__(self) -> Any:
        return reversed(self._list())

    def right_inverse(self, value: Any) -> None:
        """Choose the originals such that the result is ``value``."""
        for module in self:
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse."
                )
        start = self._inverted(value)
        with torch.no_grad():
            if self.is_tensor:
                self.original.data = start
            else:
                for i, part in enumerate(start):
                    getattr(self, f"original{i}").data = part

    def forward(self) -> Any:
        first = self[0]
        if self.is_tensor:
            value = first(self.original)
        else:
            value = first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in self._list()[1:]:
            value = module(value)
        return value

    def __repr__(self) -> str:
        return Module.__repr__(self)


def _subclass(module: Any) -> None:
    cls = type(module)
    name = f"Parametrized{cls.__name__}"

    def __getstate__(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only "
            "supported through state_dict(). See:\n"
            "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
            "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
        )

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        import copy

        twin = memo.get(id(self))
        if twin is None:
            twin = memo[id(self)] = self.__new__(type(self))
            twin._state_.update(copy.deepcopy(self._state_, memo))
        return twin

    module.__class__ = type(
        name, (cls,), {"__getstate__": __getstate__, "__deepcopy__": __deepcopy__}
    )
    module.parametrizations = ModuleDict()


def _property(cls: type, name: str) -> None:
    def read(self: Any) -> Any:
        functions = self.parametrizations[name]
        if not _depth:
            return functions()
        key = (id(self), name)
        if key not in _values:
            _values[key] = functions()
        return _values[key]

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(cls, name, property(read, write))


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Compute ``module.tensor_name`` by ``parametrization`` from now on."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        functions = module.parametrizations[tensor_name]
        if hasattr(parametrization, "right_inverse"):
            with torch.no_grad():
                value = getattr(module, tensor_name)
                functions.right_inverse(parametrization.right_inverse(value))
        functions.append(parametrization)
        functions.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        functions = ParametrizationList([parametrization], original, unsafe=unsafe)
        if not unsafe:
            _check(functions, original, tensor_name)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _subclass(module)
        _property(type(module), tensor_name)
        module.parametrizations[tensor_name] = functions
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a "
            f"parametrized element with name '{tensor_name}'"
        )
    return module


def _check(functions: Any, original: Any, name: str) -> None:
    with torch.no_grad():
        value = functions()
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    if value.dtype != original.dtype:
        raise ValueError(
            "Registering a parametrization may not change the dtype of the tensor, unless "
            f"`unsafe` flag is enabled.\nunparametrized dtype: {original.dtype}\n"
            f"parametrized dtype: {value.dtype}"
        )
    if value.shape != original.shape:
        raise ValueError(
            "Registering a parametrization may not change the shape of the tensor, unless "
            f"`unsafe` flag is enabled.\nunparametrized shape: {original.shape}\n"
            f"parametrized shape: {value.shape}"
        )


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether the module (or one of its tensors) is parametrized."""
    functions = module._state_.get("parametrizations")
    if not isinstance(functions, ModuleDict):
        return False
    return len(functions) > 0 if tensor_name is None else tensor_name in functions


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make the tensor an ordinary one: its present value, or the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    functions = module.parametrizations[tensor_name]
    if functions.is_tensor:
        original = functions.original
        if leave_parametrized:
            with torch.no_grad():
                original.data = getattr(module, tensor_name)
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor "
            "that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _keep(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """The class that the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
