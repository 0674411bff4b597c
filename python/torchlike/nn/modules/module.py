"""The base class of all layers and models."""

from __future__ import annotations

import gc
from types import GetSetDescriptorType
from typing import Any, ClassVar

from torchlike._C import Tensor
from torchlike.nn import _hooks, _state
from torchlike.nn._convert import Module as _ConversionMethods
from torchlike.nn._hook_methods import Module as _HookMethods
from torchlike.nn._hooks import *  # noqa: F403
from torchlike.nn._hooks import (
    CALL_TABLES,
    STATE_TABLES,
    Table,
    call_with_hooks,
    everywhere,
    global_tables,
    replaced,
)
from torchlike.nn._paths import Module as _PathMethods
from torchlike.nn._registry import Registry, kind_by_type, kind_of, module_types, type_name
from torchlike.nn._shown import Shown, pickled, replace
from torchlike.nn._state import EXTRA_STATE as _EXTRA_STATE_KEY_SUFFIX  # noqa: F401  (where PyTorch has it)
from torchlike.nn._state import _IncompatibleKeys  # noqa: F401  (where PyTorch has it)
from torchlike.nn._walks import Module as _WalkMethods
from torchlike.nn.parameter import Parameter

__all__ = ["Module"]
__all__ += _hooks.__all__

_set = object.__setattr__
parameter_hooks = global_tables["_parameter_registration"]


def _addindent(text: str, spaces: int) -> str:
    return text.replace("\n", "\n" + " " * spaces)


def _fits_a_buffer(value: Any) -> bool:
    return value is None or isinstance(value, Tensor) or hasattr(value, "__torch_function__")


def _unreachable(method: str) -> RuntimeError:
    return RuntimeError(
        f"Reached a code path in Module.{method}() that should never be called. "
        "Please file an issue at https://github.com/pytorch/pytorch/issues/new"
        "?template=bug-report.yml to report this bug."
    )


# PyTorch's names of the hooks of every module; libraries read them, and add by the functions that are there for it.
_global_forward_pre_hooks = _hooks.global_tables["_forward_pre_hooks"]
_global_forward_hooks = _hooks.global_tables["_forward_hooks"]
_global_forward_hooks_always_called = _hooks.global_tables["_forward_hooks_always_called"]
_global_forward_hooks_with_kwargs = _hooks.global_tables["_forward_hooks_with_kwargs"]
_global_backward_pre_hooks = _hooks.global_tables["_backward_pre_hooks"]
_global_backward_hooks = _hooks.global_tables["_backward_hooks"]
_global_buffer_registration_hooks = _hooks.global_tables["_buffer_registration"]
_global_module_registration_hooks = _hooks.global_tables["_module_registration"]
_global_parameter_registration_hooks = _hooks.global_tables["_parameter_registration"]


_plain_getattribute = object.__getattribute__


def _by_getattr(self: Any, name: str) -> Any:
    """An attribute of a class with a `__getattr__` of its own, which is asked for what is registered, as in PyTorch."""
    kinds = _plain_getattribute(self, "_state_").get("_kinds")
    if kinds and name in kinds and not hasattr(type(self), name):
        return type(self).__getattr__(self, name)
    return _plain_getattribute(self, name)


def _keep_layout(cls: type) -> None:
    """Makes `__dict__` of a class whose first base is none of modules that of modules again."""
    found = next(vars(c)["__dict__"] for c in cls.__mro__ if "__dict__" in vars(c))
    if isinstance(found, GetSetDescriptorType):
        # Classes do not let this name be set, and `__dict__` of a class is a view of what they have.
        (own,) = gc.get_referents(vars(cls))
        own["__dict__"] = vars(Module)["__dict__"]
        cls.__module__ = cls.__module__  # what was looked up before is forgotten


class Module(_HookMethods, _PathMethods, _WalkMethods, _ConversionMethods):
    """A node in a tree of layers: parameters, buffers, child modules and a ``forward``.

    Values that are registered (parameters, buffers, modules) are ordinary instance
    attributes; ``_kinds`` says which names they are.
    """

    __constants__: ClassVar[list[str]] = []
    dump_patches: bool = False
    _version: int = 1
    training: bool
    call_super_init: bool = False
    _kinds: dict[str, str]
    _hooks: dict[str, Table] | None

    _parameters = Registry("parameter")
    _buffers = Registry("buffer")
    _modules = Registry("module")

    #: The attributes as they are kept; `__dict__` shows them as PyTorch lays them out.
    _state_: dict[str, Any] = vars(_HookMethods)["__dict__"]

    @property
    def __dict__(self) -> Shown:
        return Shown(self)

    @__dict__.setter
    def __dict__(self, value: dict[str, Any]) -> None:
        replace(self, value)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        onward = self.call_super_init
        if (args or kwargs) and not onward:
            if kwargs:
                wrong = f"got an unexpected keyword argument '{next(iter(kwargs))}'"
            else:
                wrong = f"takes 1 positional argument but {len(args) + 1} were given"
            raise TypeError(f"{type(self).__name__}.__init__() {wrong}")
        state = self._state_
        state["training"] = True
        state["_kinds"] = {}
        state["_non_persistent_buffers_set"] = set()
        state["_hooks"] = None
        state["_state_hooks"] = None
        if onward:
            super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not issubclass(cls.__bases__[0], Module):
            _keep_layout(cls)
        if (
            cls.__getattr__ is not Module.__getattr__
            and cls.__getattribute__ is _plain_getattribute
        ):
            cls.__getattribute__ = _by_getattr  # type: ignore[method-assign]

    # Calling

    def forward(self, *input: Any) -> Any:
        """What the module computes; every subclass has its own."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            hooks = self._hooks
        except AttributeError:
            raise AttributeError(
                f"'{type(self).__name__}' object has no attribute '_backward_hooks'"
            ) from None
        if hooks is None and not everywhere.busy:
            return self.forward(*args, **kwargs)
        return call_with_hooks(self, args, kwargs)

    _call_impl = _wrapped_call_impl = __call__

    # Registering

    def _check_name(self, what: str, name: Any) -> None:
        state = self._state_
        if "_kinds" not in state:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {type_name(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if state["_kinds"].get(name) != what and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a tensor that is part of the state but is not trained."""
        self._check_name("buffer", name)
        if not _fits_a_buffer(tensor):
            raise TypeError(
                f"cannot assign '{type_name(tensor)}' object to buffer '{name}' "
                "(torch Tensor or None required)"
            )
        if global_tables["_buffer_registration"]:
            tensor = replaced("_buffer_registration", self, name, tensor)
        state = self._state_
        state["_kinds"][name] = "buffer"
        state[name] = tensor
        if persistent:
            state["_non_persistent_buffers_set"].discard(name)
        else:
            state["_non_persistent_buffers_set"].add(name)

    def register_parameter(self, name: str, param: Any) -> None:
        """Add a parameter under ``name``; ``None`` keeps the name without a value."""
        self._check_name("parameter", name)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{type_name(param)}' object to parameter '{name}' "
                    "(torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model "
                    f"parameters must be created explicitly. To express '{name}' "
                    "as a function of another Tensor, compute the value in "
                    "the forward() method."
                )
            if global_tables["_parameter_registration"]:
                param = replaced("_parameter_registration", self, name, param)
        state = self._state_
        state["_kinds"][name] = "parameter"
        state[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under ``name``."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type_name(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {type_name(name)}")
        state = self._state_
        kinds = state["_kinds"]
        if kinds.get(name) != "module" and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        if global_tables["_module_registration"]:
            module = replaced("_module_registration", self, name, module)
        kinds[name] = "module"
        state[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as ``add_module``."""
        self.add_module(name, module)

    # Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(value)
        try:
            kind = kind_by_type[cls]
        except KeyError:
            kind = kind_of(value)
        kinds = self._state_.get("_kinds")
        if kind is None:
            if kinds is None or name not in kinds:
                _set(self, name, value)
                return
        elif kind == "parameter" and kinds is not None and value.grad_fn is None:
            # A new or known parameter under an unremarkable name: the common case of
            # constructors. Everything else takes the long way, with all its messages.
            own, known = type(self), name in kinds
            if (
                (
                    kinds[name] == "parameter"
                    if known
                    else name not in self._state_ and "." not in name and not hasattr(own, name)
                )
                and not parameter_hooks
                and own.register_parameter is _register_parameter
                and own.__getattr__ is _getattr
            ):
                kinds[name] = "parameter"
                self._state_[name] = value
                return
        self._assign(name, value, kind, kinds)

    def _assign(self, name: str, value: Any, kind: str | None, kinds: Any) -> None:
        state = self._state_
        if kinds is None:
            what = "parameters" if kind == "parameter" else kind
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        old = kinds.get(name)
        if kind == "parameter":
            if old != "parameter":
                if old is not None:
                    del kinds[name]
                    state["_non_persistent_buffers_set"].discard(name)
                state.pop(name, None)
            self.register_parameter(name, value)
        elif old == "parameter":
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as parameter '{name}' "
                    "(torch.nn.Parameter or None expected)"
                )
            state[name] = None
        elif kind == "module" or old == "module":
            if kind != "module" and value is not None:
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as child module '{name}' "
                    "(torch.nn.Module or None expected)"
                )
            if old != "module":
                if old is not None:
                    del kinds[name]
                    state["_non_persistent_buffers_set"].discard(name)
                kinds[name] = "module"
            if global_tables["_module_registration"]:
                value = replaced("_module_registration", self, name, value)
            state[name] = value
        else:
            if not _fits_a_buffer(value):
                raise TypeError(
                    f"cannot assign '{type_name(value)}' as buffer '{name}' "
                    "(torch.nn.Buffer, torch.Tensor or None expected)"
                )
            if kind == "buffer":
                self._put_buffer(name, value)
            else:
                if global_tables["_buffer_registration"]:
                    value = replaced("_buffer_registration", self, name, value)
                state[name] = value

    def _put_buffer(self, name: str, value: Any) -> None:
        """Registers a buffer by a method that a subclass may have put in the place of ours."""
        method = type(self).register_buffer
        plain = method is Module.register_buffer
        if not plain:
            from inspect import signature

            plain = "persistent" in signature(method).parameters
        if plain:
            self.register_buffer(name, value, value.persistent)
        elif value.persistent:
            self.register_buffer(name, value)
        else:
            raise RuntimeError(
                "Registering a non-persistent buffer on a Module subclass that implements "
                "register_buffer() without the persistent argument is not allowed."
            )

    def __getattr__(self, name: str) -> Any:
        # Asked for what is not there, and for what is registered by classes that put theirs before this one.
        state = self._state_
        if name in state.get("_kinds", ()):
            return state[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        state = self._state_
        kinds = state.get("_kinds", ())
        if name in kinds:
            del kinds[name]
            del state[name]
            state["_non_persistent_buffers_set"].discard(name)
        elif name in state or hasattr(type(self), name):
            object.__delattr__(self, name)
        else:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __getstate__(self) -> dict[str, Any]:
        return pickled(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        replace(self, {"_parameters": {}, **state}, keep=True)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self._state_}
        return sorted(name for name in names if not name[0].isdigit())

    # Saving and loading

    def get_extra_state(self) -> Any:
        """More to save than tensors; a class that has it defines this and set_extra_state."""
        raise _unreachable("get_extra_state")

    def set_extra_state(self, state: Any) -> None:
        """Take back what ``get_extra_state`` gave."""
        raise _unreachable("set_extra_state")

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        _state.save(self, destination, prefix, keep_vars, Module)

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """All parameters and persistent buffers by dotted name, not copied."""
        if args:
            destination, prefix, keep_vars = _state.positional(
                *args[:3], destination=destination, prefix=prefix, keep_vars=keep_vars
            )
        return _state.state_dict(self, destination, prefix, keep_vars, Module)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        _state.load_own(
            self, state_dict, prefix, local_metadata, strict,
            missing_keys, unexpected_keys, error_msgs, Module,
        )  # fmt: skip

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Copy tensors into this module by name, or with ``assign`` put them in its place."""
        return _state.load(self, state_dict, strict, assign)

    # Printing

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The part of the repr between the parentheses that is the class's own."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        state = self._state_
        below = [
            f"({name}): {_addindent(repr(state[name]), 2)}"
            for name, kind in state["_kinds"].items()
            if kind == "module"
        ]
        lines = own + below
        if not lines:
            inner = ""
        elif len(own) == 1 and not below:
            inner = own[0]
        else:
            inner = "\n  " + "\n  ".join(lines) + "\n"
        return f"{self._get_name()}({inner})"


for _name in CALL_TABLES:
    setattr(Module, _name, Table(_name, "_hooks"))
for _name in STATE_TABLES:
    setattr(Module, _name, Table(_name, "_state_hooks"))
del _name
module_types.append(Module)
kind_by_type[Parameter] = "parameter"
# Others may put theirs in their place.
_register_parameter = Module.register_parameter
_getattr = Module.__getattr__
