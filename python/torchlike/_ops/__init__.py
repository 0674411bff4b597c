"""`torchlike.ops`: operators by their names, overloads and schemas, as PyTorch's dispatcher knows them."""

from __future__ import annotations

import functools
import types
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlike import _C, ops
from torchlike._ops.schema import Argument, FunctionSchema, parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Argument", "FunctionSchema", "OpOverload", "OpOverloadPacket", "ops"]


# Kernels of operators that nobody has defined yet, by their names and devices.
waiting: dict[str, dict[str | type, Callable[..., Any]]] = {}


class OpOverload:
    """One overload of an operator: callable, with a schema."""

    def __init__(self, packet: OpOverloadPacket, text: str, implicit: bool = False) -> None:
        self.overloadpacket = self._overloadpacket = packet
        self.implicit = implicit
        self._text = text
        overload = text.partition("(")[0].partition(".")[2]
        self._overloadname = overload or "default"
        self._opname = packet._name
        self.namespace = packet._qualified_op_name.partition("::")[0]
        self.__name__ = f"{packet._name}.{self._overloadname}"
        self.__qualname__ = self.__name__
        self.__module__ = f"torch._ops.{self.namespace}"
        self.kernels: dict[str | type, Callable[..., Any]] = {}
        self.definition: Any = None  # the `CustomOpDef` that made it
        self.fitting: set[tuple[type, ...]] = set()  # types of arguments that fit

    @functools.cached_property
    def _schema(self) -> FunctionSchema:
        return parse(self._text)

    @functools.cached_property
    def tags(self) -> list[Any]:
        """What is said of it, as `Tag.pointwise`."""
        if self.namespace != "aten":
            return []
        from torchlike import _tags

        to_given = any(argument.is_out for argument in self._schema.arguments)
        return list(_tags.of_aten(self._opname, self._overloadname, to_given))

    def name(self) -> str:
        """The full name: `aten::add.Tensor`."""
        overload = "" if self._overloadname == "default" else f".{self._overloadname}"
        return self.overloadpacket._qualified_op_name + overload

    @property
    def _name(self) -> str:
        return self.name()

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.overloadpacket}', overload='{self._overloadname}')>"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def __reduce__(self) -> Any:
        return _find, (self.name(),)

    @property
    def op(self) -> OpOverload:
        """The overload itself."""
        return self

    @property
    def is_view(self) -> bool:
        """True if a result shares memory with an argument that is not written."""
        infos = [a.alias_info for a in self._schema.arguments if a.alias_info is not None]
        return bool(infos) and not any(i.is_write for i in infos)

    @functools.cached_property
    def without_writing(self) -> OpOverload | None:
        """The overload that gives what this one writes, in place or where it is told; None if there is none."""
        packet: OpOverloadPacket | None = self.overloadpacket
        wanted = self._overloadname
        if any(a.is_out for a in self._schema.arguments):
            plain = [n for n in self.overloadpacket.overloads() if "out" not in n] or [""]
            usual = next((n for n in ("default", "Tensor") if n in plain), plain[0])
            wanted = wanted.removesuffix("_out") if wanted.endswith("_out") else usual
        else:
            space = getattr(ops, self.namespace)
            packet = getattr(space, self._opname.removesuffix("_"), None)
        return None if packet is None else self.form_in(packet, wanted)

    def form_in(self, packet: OpOverloadPacket, wanted: str = "") -> OpOverload | None:
        """The overload of another operator that takes what this one takes, and writes nowhere that it is told.

        Args:
            wanted: its name, where several do.
        """

        def takes(one: OpOverload) -> list[Any]:
            given = [a for a in one._schema.arguments if not a.is_out]
            return [(a.name, a.base, a.is_list) for a in given]

        plain = [o for o in packet.real() if not any(a.is_out for a in o._schema.arguments)]
        alike = [o for o in plain if takes(o) == takes(self)]
        named = [o for o in alike if o._overloadname == wanted]
        return next(iter(named or alike), getattr(packet, wanted, None))

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """True if there is a kernel for a device or layer."""
        from torchlike._ops.custom import key_name

        name = key_name(key)
        if self.namespace == "aten" and name not in self.kernels:
            # What is made of others has a kernel that says so, and no other.
            return (name == "CompositeImplicitAutograd") == self.implicit
        return name in self.kernels

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The value of every argument by name.

        Raises:
            RuntimeError: if the call does not fit the schema.
        """
        from torchlike._ops.binding import bind

        return bind(self._schema, args, kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if _C._watched(args, kwargs):
            relevant = _flat(args, kwargs)
            return _C._handle(self, f"torch._ops.{self}", relevant, args, kwargs, parsed=True)
        return _runner()(self, args, kwargs)

    def redispatch(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the operator; layers are not chosen by hand here."""
        return self(*args, **kwargs)

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """The call in other operators, or NotImplemented."""
        from torchlike._ops import leaves

        return leaves.decomposed(self, args, kwargs)


@functools.cache
def _runner() -> Any:
    from torchlike._ops import calls

    return calls.run


class HigherOrderOperator:
    """An operator that takes functions: calling it runs what a subclass says, or a kernel that it was given: that for
    gradients where a tensor wants one, else that for any device. Kernels of other keys are kept, and not asked."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self.namespace = "higher_order"
        self.py_kernels: dict[Any, Callable[..., Any]] = {}

    def name(self) -> str:
        """Its name."""
        return self._name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        from torchlike.utils import _pytree as pytree

        kernels = {getattr(key, "name", key): fn for key, fn in self.py_kernels.items()}
        asks = _C.is_grad_enabled() and any(
            isinstance(t, _C.Tensor) and t.requires_grad for t in pytree.tree_leaves((args, kwargs))
        )
        kernel = kernels.get("Autograd") if asks else None
        kernel = kernel or kernels.get("CompositeExplicitAutograd")
        if kernel is None:
            raise NotImplementedError(
                f"{self._name}: a higher order operator without a kernel for CompositeExplicitAutograd"
            )
        return kernel(*args, **kwargs)

    def __str__(self) -> str:
        return self._name

    def py_impl(self, key: Any) -> Any:
        """Takes a kernel, as a decorator."""

        def taken(fn: Callable[..., Any]) -> Callable[..., Any]:
            self.py_kernels[key] = fn
            return fn

        return taken

    def py_autograd_impl(self, fn: Any) -> Any:
        """Takes the kernel for tensors that want gradients, as a decorator."""
        return self.py_impl("Autograd")(fn)


class OpOverloadPacket:
    """The overloads of an operator; a call takes the first that fits."""

    def __init__(self, qualified: str) -> None:
        self._qualified_op_name = qualified
        self._name = qualified.partition("::")[2]
        self.__name__ = self._name
        self.__module__ = f"torch._ops.{qualified.partition('::')[0]}"
        self._overload_names: list[str] = []

    def add(self, text: str, implicit: bool = False) -> OpOverload:
        """Adds an overload by its schema."""
        made = OpOverload(self, text, implicit)
        setattr(self, made._overloadname, made)
        self._overload_names.append(made._overloadname)
        return made

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return list(self._overload_names)

    def real(self) -> list[OpOverload]:
        """The overloads that can be called here."""
        found = (self.__dict__.get(n) for n in self._overload_names)
        return [f for f in found if f is not None]

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self._overload_names]

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".")

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self

    def __reduce__(self) -> Any:
        return _find_packet, (self._qualified_op_name,)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")

    def __iter__(self) -> Any:
        return iter(self._overload_names)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if _C._watched(args, kwargs):
            relevant = _flat(args, kwargs)
            return _C._handle(self, f"torch._ops.{self}", relevant, args, kwargs, parsed=True)
        from torchlike._ops import binding

        return binding.choose(self, args, kwargs)(*args, **kwargs)


def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found += value if isinstance(value, list | tuple) else [value]
    return found


class _OpNamespace(types.ModuleType):
    """The operators of a namespace: `ops.aten`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self._space = name
        self.__file__ = "torch.ops"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and not (self._space == "aten" and name in _aten()):
            raise AttributeError(name)
        packet = _load(self._space, name)
        if packet is None:
            raise AttributeError(f"'_OpNamespace' '{self._space}' object has no attribute '{name}'")
        setattr(self, name, packet)
        return packet

    def __dir__(self) -> list[str]:
        known = list(_aten()) if self._space == "aten" else []
        return [*self.__dict__, *known]

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self._space}' from 'torch.ops'>"

    def define(self, text: str) -> OpOverload:
        """Adds an operator of Python's by its schema.

        Raises:
            RuntimeError: if the text is no schema.
        """
        schema = parse(text)
        name = text.partition("(")[0].partition("::")[2].partition(".")[0]
        packet = self.__dict__.get(name) or OpOverloadPacket(f"{self._space}::{name}")
        self.__dict__[name] = packet
        made = packet.add(text)
        made._schema = schema
        made.kernels.update(waiting.pop(made.name(), {}))
        return made


@functools.cache
def _aten() -> dict[str, list[str]]:
    """The lines of each operator's overloads."""
    # `importlib.resources` would load archives, compressors and random numbers for it.
    schemas = Path(__file__).with_name("aten.txt").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for line in schemas.splitlines():
        name = line.partition("(")[0].partition(".")[0].lstrip("+-")
        found.setdefault(name, []).append(line)
    return found


def known_to_aten(name: str) -> list[tuple[str, str, bool, bool]]:
    """The overloads of an operator that PyTorch has under a name, none for those of the user's: name, schema, whether
    it is made of others, whether it can be called."""
    found = []
    for line in _aten().get(name, ()):
        mark, text = (line[0], line[1:]) if line[0] in "+-" else ("", line)
        head = text.partition("(")[0]
        overload = head.partition(".")[2]
        full = f"{name}.{overload}" if overload else name
        schema = f"aten::{full}{text[len(head) :]}"
        found.append((overload or "default", schema, mark == "+", mark != "-"))
    return found


# Namespaces whose operators a module defines, once one of them is asked for.
_DEFINED_BY = {
    "quantized": "torchlike._ops.quantized",
    "quantized_decomposed": "torchlike._ops.quantized_decomposed",
}


def _load(space: str, name: str) -> OpOverloadPacket | None:
    if space in _DEFINED_BY:
        import_module(_DEFINED_BY[space])
        found: OpOverloadPacket | None = vars(getattr(ops, space)).get(name)
        return found
    if space != "aten" or name not in _aten():
        return None
    packet = OpOverloadPacket(f"{space}::{name}")
    for overload, schema, implicit, real in known_to_aten(name):
        if real:
            packet.add(schema, implicit)
        else:
            packet._overload_names.append(overload)
    return packet


def _find_packet(name: str) -> OpOverloadPacket:
    space, _, op = name.partition("::")
    packet: OpOverloadPacket = getattr(getattr(ops, space), op)
    return packet


def _find(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    found: OpOverload = getattr(_find_packet(packet), overload or "default")
    return found
