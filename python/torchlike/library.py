"""Operators written in Python: schemas, kernels for devices, shapes without data, and checks of them."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._library_checks import opcheck as opcheck
from torchlike._library_custom import CustomOpDef as CustomOpDef
from torchlike._library_custom import custom_op as custom_op
from torchlike._library_custom import refuse_keyword_tensors
from torchlike._library_schema import infer_schema, listed
from torchlike._ops import OpOverload, known_to_aten, ops, waiting
from torchlike._ops.batches import RULE
from torchlike._ops.custom import key_name
from torchlike._ops.fake import get_ctx as get_ctx
from torchlike._ops.schema import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "register_autocast",
    "register_fake",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]


# Where operators of PyTorch have kernels that nobody can replace.
_HELD = ("CPU", "CUDA", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "Autograd")


def fallthrough_kernel() -> Any:
    """Stands for "no kernel of its own"."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def _caller() -> str:
    """File and line of whoever called the function that asks."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Library:
    """The operators of a namespace that one owner defines; those of one object go with `_destroy`."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns == "prim" and kind != "IMPL":
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        if ns == "aten" and kind == "DEF":
            raise RuntimeError(
                "Only a single TORCH_LIBRARY can be used to register the namespace aten; please put all of your "
                "definitions in a single TORCH_LIBRARY block.  If you were trying to specify implementations, "
                "consider using TORCH_LIBRARY_IMPL (which can be duplicated).  If you really intended to define "
                "operators for a single namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to "
                "explicitly indicate this.  Previous registration of TORCH_LIBRARY was registered at "
                f"RegisterSchema.cpp; latest registration was registered at {_caller()}"
            )
        self.ns = ns
        self.kind = kind
        self.dispatch_key = dispatch_key
        self._made: list[OpOverload] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Adds an operator by its schema, `name(Tensor x) -> Tensor`; returns its name.

        Raises:
            RuntimeError: if the text is no schema, or the operator exists.
        """
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        parsed = parse(schema)
        overload = parsed.overload_name or "default"
        packet = getattr(ops, self.ns).__dict__.get(parsed.name)
        if packet is not None and overload in packet.overloads():
            raise RuntimeError(
                f"Tried to register an operator ({self.ns}::{schema}) with the same name and overload name "
                "multiple times. Each overload's schema should only be registered with a single call to def()."
            )
        made = getattr(ops, self.ns).define(f"{self.ns}::{schema.strip()}")
        made.tags = listed(tags)
        self._made.append(made)
        return parsed.name + (f".{parsed.overload_name}" if parsed.overload_name else "")

    def impl(
        self, op_name: Any, fn: Any, dispatch_key: Any = "", *, with_keyset: bool = False, **_: Any
    ) -> None:
        """Sets the kernel of an operator for a device, or for all.

        Raises:
            TypeError: if `fn` is no function.
            NotImplementedError: for operators of PyTorch on the devices there are, whose kernels stay.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        name = op_name.name() if isinstance(op_name, OpOverload) else op_name
        name = name.rpartition("::")[2]
        key = key_name(dispatch_key or self.dispatch_key or "CompositeImplicitAutograd")
        packet, _dot, overload = name.partition(".")
        held = self.ns == "aten" and key in _HELD and fn is not fallthrough_kernel
        if held and any(overload in (n, "") for n, *_ in known_to_aten(packet)):
            raise NotImplementedError(
                f"Library.impl(): aten::{name} keeps its kernels, for {key} too; "
                "a TorchDispatchMode sees its calls"
            )
        found = getattr(getattr(ops, self.ns), packet, None)
        target = getattr(found, overload or "default", None)
        kernels = waiting.setdefault(f"{self.ns}::{name}", {}) if target is None else target.kernels
        if fn is fallthrough_kernel and key.startswith("Autograd"):
            kernels.pop(key, None)
        else:
            kernels[key] = fn

    def fallback(self, fn: Any, dispatch_key: Any = "", **_: Any) -> None:
        """Says that calls without a kernel for a key go on to the next, as they do here.

        Raises:
            NotImplementedError: for any other function than `fallthrough_kernel`.
        """
        if fn is not fallthrough_kernel:
            raise NotImplementedError(
                "Library.fallback(): what operators without a kernel come down to is not a function of the user's here"
            )

    def _register_fake(self, op_name: str, fn: Any, **_: Any) -> None:
        self.impl(op_name, fn, "Meta")

    def _destroy(self) -> None:
        for made in self._made:
            vars(getattr(ops, self.ns)).pop(made._opname, None)
        self._made.clear()


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    lib = Library(*args, **kwargs)
    try:
        yield lib
    finally:
        lib._destroy()


def _parts(qualname: str) -> tuple[str, str]:
    names = qualname.split("::")
    if len(names) != 2:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The qualname passed to the '
            "torch.library APIs must consist of a namespace and a name, e.g. aten::sin"
        )
    return names[0], names[1]


def _overload(op: Any) -> OpOverload:
    if isinstance(op, OpOverload):
        return op
    if isinstance(op, CustomOpDef):
        return op._opoverload
    space, name = _parts(op)
    packet, _dot, overload = name.partition(".")
    found: OpOverload = getattr(getattr(getattr(ops, space), packet), overload or "default")
    return found


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """As `custom_op`."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel itself."""
    return triton_kernel


def define(
    qualname: Any,
    schema: str,
    *args: Any,
    lib: Library | None = None,
    tags: Any = (),
    **kwargs: Any,
) -> Any:
    """Adds an operator by its schema, which begins with the arguments.

    With a library in place of the name, as old code has it, the schema has the name, and the function that the result
    decorates is the operator's kernel.

    Raises:
        ValueError: if it does not, or the name has no namespace.
    """
    if isinstance(qualname, Library):
        library, name = qualname, qualname.define(schema, *args, tags=tags, **kwargs)

        def inner(fn: Any) -> Any:
            library.impl(name, fn)
            return fn

        return inner
    if not schema.lstrip().startswith("("):
        raise ValueError(
            'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got '
            f'"{schema}"'
        )
    namespace, name = _parts(qualname)
    (lib or Library(namespace, "FRAGMENT")).define(f"{name}{schema}", tags=tags)
    return None


def _check_key(kind: str) -> None:
    """Checks that it is "default", a dispatch key or a device."""
    from torchlike._late import DispatchKey

    if kind == "default" or kind in DispatchKey.__members__:
        return
    with contextlib.suppress(NotImplementedError):  # one of PyTorch's that is not here
        _C.device(kind)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Sets the kernel of an operator, which may be defined later, for devices; "default" means all.

    With a library in place of the name, as old code has it, an operator and a dispatch key follow.

    Raises:
        RuntimeError: if there are no such devices.
    """
    if isinstance(qualname, Library):
        library, key = qualname, "" if func is None else func

        def decorated(fn: Any) -> Any:
            library.impl(types, fn, key)
            return fn

        return decorated
    kinds = [types] if isinstance(types, str) else list(types)
    for kind in kinds:
        _check_key(kind)

    def inner(func: Any) -> Any:
        try:
            kernels = _overload(qualname).kernels
        except AttributeError:
            kernels = waiting.setdefault(qualname, {})
        kernels.update({key_name(kind): func for kind in kinds})
        return func

    if func is None:
        return inner
    inner(func)
    return None


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Sets the kernel of an operator for devices; None means all."""
    definition = op if isinstance(op, CustomOpDef) else None
    if definition is None:
        # The operator may be defined later.
        with contextlib.suppress(AttributeError):
            definition = _operator("register_kernel", op).definition
    if definition is not None:
        return definition.register_kernel(device_types, func)
    return impl(op, "default" if device_types is None else device_types, func, lib=lib)


def register_fake(
    op: Any, func: Any = None, /, *, lib: Any = None, _stacklevel: int = 1, **_: Any
) -> Any:
    """Sets what makes the results' shapes on meta."""

    def inner(func: Any) -> Any:
        try:
            overload = _overload(op)
        except AttributeError:
            raise RuntimeError(f"operator {op} does not exist") from None
        overload.kernels["Meta"] = func
        return func

    return inner if func is None else inner(func)


def impl_abstract(qualname: Any, func: Any = None, *, lib: Any = None, _stacklevel: int = 1) -> Any:
    """The old name of `register_fake`."""
    return register_fake(qualname, func, lib=lib)


def register_autograd(
    op: Any, backward: Any, /, *, setup_context: Any = None, lib: Any = None
) -> None:
    """Sets the gradient's formula: ``backward(ctx, *grads)``, and ``setup_context`` that notes what it needs.

    Raises:
        RuntimeError: if the operator writes arguments.
    """
    overload = _overload(op)
    _register_autograd(overload, backward, setup_context, op)


def _operator(asker: str, op: Any) -> OpOverload:
    """The overload that a registration means."""
    if not isinstance(op, str | OpOverload | CustomOpDef):
        raise ValueError(f"{asker}({op}): got unexpected type for op: {type(op)}")
    return _overload(op)


def _register_autograd(overload: Any, backward: Any, setup_context: Any, op: Any) -> None:
    from torchlike._ops.gradient import Formula

    if overload._schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {op} with schema "
            f"{overload._schema}. Please create a functional operator and register an autograd formula for "
            "that."
        )
    refuse_keyword_tensors(overload._schema, "register_autograd", op)
    overload.kernels["Autograd"] = Formula(backward, setup_context)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Sets how an operator is computed for whole batches under `vmap`; without it, examples are computed one by one.

    Args:
        op: the operator: a name, an overload or what `custom_op` made.
        func: called with `(info, in_dims, *args, **kwargs)`: `info.batch_size`, `info.randomness`, where the examples
            lie in each argument, and the arguments with all examples. It gives the outputs and where the examples
            lie in them.

    Raises:
        ValueError: if `op` is something else.
    """
    overload = _operator("register_vmap", op)
    refuse_keyword_tensors(overload._schema, "register_vmap", op)

    def inner(func: Any) -> None:
        overload.kernels[RULE] = func

    return inner if func is None else inner(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Notes the dtype that an operator's arguments are cast to under autocast.

    Raises:
        ValueError: for other devices than "cpu" and "cuda".
    """
    _register_autocast(_overload(op), device_type, cast_inputs)


def _register_autocast(overload: Any, device_type: str, cast_inputs: Any) -> None:
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type: {device_type}")
    overload.kernels[f"Autocast{device_type.upper()}"] = cast_inputs


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None
) -> Any:
    """Sets what a mode or a class of tensors does with an operator, in place of its `__torch_dispatch__`.

    Args:
        op: the operator: a name, an overload or what `custom_op` made.
        torch_dispatch_class: the class of the mode or of the tensors; classes that derive from it are others.
        func: called with `(mode, func, types, args, kwargs)`, the mode being off, or with the class of the tensors in
            its place.

    Raises:
        ValueError: if `op` is something else.
        RuntimeError: if there is a rule for that class.
    """
    overload = _operator("register_torch_dispatch", op)

    def inner(func: Any) -> Any:
        if torch_dispatch_class in overload.kernels:
            raise RuntimeError(
                f"{torch_dispatch_class} already has a `__torch_dispatch__` rule registered for {overload.name()}"
            )
        overload.kernels[torch_dispatch_class] = func
        return func

    return inner if func is None else inner(func)


def get_kernel(op: Any, dispatch_key: Any) -> Callable[..., Any]:
    """The kernel of an operator for a device."""
    from torchlike._ops.custom import kernel_of

    kernel: Callable[..., Any] = kernel_of(_overload(op), key_name(dispatch_key))
    return kernel
