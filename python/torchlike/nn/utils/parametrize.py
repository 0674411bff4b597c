"""Tensors of a module that are computed from others each time they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torchlike as torch
from torchlike import __future__ as future
from torchlike.nn.modules.container import ModuleDict, ModuleList
from torchlike.nn.parameter import Parameter
from torchlike.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
_cache: dict[tuple[int, str], Any] = {}


class cached:
    """Inside, each parametrized tensor is computed once."""

    def __enter__(self) -> None:
        global _cache_enabled
        _cache_enabled += 1

    def __exit__(self, *exc: object) -> None:
        global _cache_enabled
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


_RETURNS_SEVERAL = "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...)."


def _put(tensor: Any, value: Any) -> None:
    """Lets a tensor have the elements of another, which nobody else uses."""
    swaps = future.get_swap_module_params_on_conversion()
    if swaps or is_traceable_wrapper_subclass(tensor):
        if isinstance(tensor, Parameter) and not isinstance(value, Parameter):
            value = Parameter(value, requires_grad=tensor.requires_grad)
        torch.utils.swap_tensors(tensor, value)
    else:
        tensor.set_(value)


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
        like = original.shape, original.dtype
        start = self._start(original)
        self.is_tensor = isinstance(start, torch.Tensor)
        self.ntensors = 1 if self.is_tensor else len(start)
        if self.is_tensor:
            for what in ("dtype", "device"):
                old, new = getattr(original, what), getattr(start, what)
                if old != new:
                    raise ValueError(
                        f"When `right_inverse` outputs one tensor, it may not change the {what}.\n"
                        f"original.{what}: {old}\nright_inverse(original).{what}: {new}"
                    )
            # The parameter stays the same object: optimizers have it.
            with torch.no_grad():
                _put(original, start)
            _keep(self, "original", original)
        else:
            self._keep_several(start, original)
        if not unsafe:
            _check(self(), *like)

    def _keep_several(self, start: Any, original: Any) -> None:
        for i, part in enumerate(start):
            if not isinstance(part, torch.Tensor):
                raise ValueError(
                    f"{_RETURNS_SEVERAL} Got element {i} of the sequence with type {type(part).__name__}."
                )
            if isinstance(original, Parameter):
                part = Parameter(part, original.requires_grad)
            _keep(self, f"original{i}", part.requires_grad_(original.requires_grad))

    def _start(self, value: Any) -> Any:
        """What the first function is given for the result to be ``value``, as far as the functions tell."""
        with torch.no_grad():
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):
                        value = module.right_inverse(value)
        if not isinstance(value, (torch.Tensor, Sequence)):
            raise ValueError(f"{_RETURNS_SEVERAL} Got {type(value).__name__}")
        return value

    def __reversed__(self) -> Any:
        return reversed(self._list())

    def right_inverse(self, value: Any) -> None:
        """Choose the originals such that the result is ``value``."""
        for module in reversed(self):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse."
                )
        with torch.no_grad():
            for module in reversed(self):
                value = module.right_inverse(value)
            for original, new in zip(self._originals(), self._fitting(value), strict=True):
                _put(original, new)

    def _originals(self) -> list[Any]:
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def _fitting(self, value: Any) -> list[Any]:
        """What `right_inverse` gave, a tensor for each original.

        Raises:
            ValueError: if it is not of their types.
        """
        if self.is_tensor:
            if not isinstance(value, torch.Tensor):
                raise ValueError(
                    f"`right_inverse` should return a tensor. Got {type(value).__name__}"
                )
            if value.dtype != self.original.dtype:
                raise ValueError(
                    f"The tensor returned by `right_inverse` has dtype {value.dtype} "
                    f"while `original` has dtype {self.original.dtype}"
                )
            return [value]
        if not isinstance(value, Sequence):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}."
            )
        if len(value) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got a sequence of length {len(value)}."
            )
        for i, (part, original) in enumerate(zip(value, self._originals(), strict=True)):
            if not isinstance(part, torch.Tensor):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors or reference-type opaques. "
                    f"Got element {i} of type {type(part).__name__}."
                )
            if part.dtype != original.dtype:
                raise ValueError(
                    f"Tensor {i} returned by `right_inverse` has dtype {part.dtype} "
                    f"while `original{i}` has dtype {original.dtype}"
                )
        return list(value)

    def forward(self) -> Any:
        value = self[0](*self._originals())
        for module in self._list()[1:]:
            value = module(value)
        return value


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

    methods: dict[str, Any] = {"__getstate__": __getstate__}
    if not hasattr(cls, "__deepcopy__"):
        methods["__deepcopy__"] = __deepcopy__
    module.__class__ = type(name, (cls,), methods)
    module.parametrizations = ModuleDict()


def _property(cls: type, name: str) -> None:
    def read(self: Any) -> Any:
        functions = self.parametrizations[name]
        if not _cache_enabled:
            return functions()
        if torch.jit.is_tracing():
            raise RuntimeError("Cannot trace a model while caching parametrizations.")
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = functions()
        return _cache[key]

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
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        functions.append(parametrization)
        functions.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        functions = ParametrizationList([parametrization], original, unsafe=unsafe)
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


def _check(value: Any, shape: Any, dtype: Any) -> None:
    """Checks that what the functions give is like the tensor whose place it takes."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")
    for what, old, new in (("dtype", dtype, value.dtype), ("shape", shape, value.shape)):
        if old != new:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag "
                f"is enabled.\nunparametrized {what}: {old}\nparametrized {what}: {new}"
            )


def _check_another(module: Any, name: str, function: Any) -> None:
    """Checks that one more function goes from tensors like the module's to such, and back."""
    before = getattr(module, name)
    after = function(before)
    if not isinstance(after, torch.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what in ("dtype", "shape"):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless the `unsafe` flag "
                f"is enabled.\nmodule.{name}.{what}: {old}\nparametrization(module.{name}).{what}: {new}"
            )
    if not hasattr(function, "right_inverse"):
        return
    try:
        back = function.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, torch.Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        old, new = getattr(before, what), getattr(back, what)
        if old != new:
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{name}, "
                f"unless the `unsafe` flag is enabled.\nmodule.{name}.{what}: {old}\nreturned {what}: {new}"
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
                _put(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
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


def transfer_parametrizations_and_params(
    from_module: Any, to_module: Any, tensor_name: str | None = None
) -> Any:
    """Gives a module the functions and originals of another's tensors, or of one of them."""
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        functions = from_module.parametrizations[name]
        for function in functions:
            register_parametrization(to_module, name, function)
        taken = to_module.parametrizations[name]
        if functions.is_tensor:
            taken.original = functions.original
        else:
            for i in range(functions.ntensors):
                setattr(taken, f"original{i}", getattr(functions, f"original{i}"))
    return to_module
