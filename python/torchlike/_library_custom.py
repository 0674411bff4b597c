"""`custom_op`: operators made of functions of Python, and where their kernels are registered."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from torchlike._library_schema import infer_schema, listed
from torchlike._ops import OpOverload, ops
from torchlike._ops.custom import key_name
from torchlike._ops.schema import parse
from torchlike._tags import Tag

if TYPE_CHECKING:
    from collections.abc import Iterator


def refuse_keyword_tensors(schema: Any, asker: str, text: Any) -> None:
    """An error if a tensor can be given by its name alone: nobody would know its gradient or its batches."""
    if any(a.kwarg_only and a.base == "Tensor" for a in schema.arguments):
        raise NotImplementedError(
            f"{asker} with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: {text}"
        )


class CustomOpDef:
    """An operator that `custom_op` made: callable, and where its kernels are registered."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Any, tags: Any = None) -> None:
        self._namespace = namespace
        self._name = name
        self._qualname = f"{namespace}::{name}"
        self.__name__ = name
        self.__doc__ = fn.__doc__
        self._init_fn = fn
        self._tags = [
            Tag.pt2_compliant_tag,
            *(t for t in listed(tags) if t is not Tag.pt2_compliant_tag),
        ]
        self._functions: dict[str | None, Any] = {}
        self._disabled: set[str] = set()
        if Tag.out not in self._tags:
            refuse_keyword_tensors(parse(f"{name}{schema}"), "custom_op", f"{name}{schema}")
        packet, _dot, overload = name.partition(".")
        space = getattr(ops, namespace)
        known = space.__dict__.get(packet)
        if known is not None and (overload or "default") in known.overloads():
            vars(space).pop(packet)
        self._opoverload: OpOverload = space.define(f"{self._qualname}{schema}")
        self._opoverload.definition = self
        self._opoverload.tags = self._tags
        self._written = [
            a.name
            for a in self._opoverload._schema.arguments
            if a.alias_info and a.alias_info.is_write
        ]

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """Sets the kernel for devices; None means all.

        Raises:
            ValueError: if no argument would say which device is meant.
        """
        if device_types is not None:
            self._check_place()

        def inner(fn: Any) -> Any:
            one = device_types is None or isinstance(device_types, str)
            for kind in [device_types] if one else device_types:
                self._functions[kind] = fn
                self._opoverload.kernels[key_name(kind or "default")] = self._kernel(kind)
            return fn

        return inner if fn is None else inner(fn)

    def _check_place(self) -> None:
        arguments = self._opoverload._schema.arguments
        if not any(
            a.base == "Tensor" or (a.type, a.name) == ("Device", "device") for a in arguments
        ):
            raise ValueError(
                "Functions without tensor inputs are required to have a `device: torch.device` argument"
            )

    def _kernel(self, kind: str | None) -> Any:
        """What runs for a device: its function, unless that is switched off."""

        def run(*args: Any, **kwargs: Any) -> Any:
            function = self._init_fn if kind in self._disabled else self._functions[kind]
            result = function(*args, **kwargs)
            self._check_returned(function, args, kwargs, result)
            return result

        return run

    def _check_returned(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Tags that say which arguments are returned are kept to."""
        if Tag.inplace in self._tags:
            kept, what = result is args[0], "its first argument"
        elif Tag.out in self._tags:
            results = result if isinstance(result, tuple) else (result,)
            given = [kwargs[name] for name in self._written]
            kept = len(results) == len(given) and all(map(lambda a, b: a is b, results, given))
            what = "its mutable keyword-only arguments"
        else:
            return
        if not kept:
            tag = "inplace" if Tag.inplace in self._tags else "out"
            raise RuntimeError(
                f"{self._name} (with implementation in {inspect.getmodule(function)}): An operator tagged with "
                f"torch.Tag.{tag} must return {what}."
            )

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """While the context lasts, has the kernel of a device (not) used; without it the operator's function is."""
        import logging

        log = logging.getLogger("torch._library.custom_ops")
        action, was_disabled = "enable" if enabled else "disable", device_type in self._disabled
        if device_type not in self._functions:
            log.warning(
                "Attempted to %s kernel for %s but no kernel was registered for this device type.",
                action,
                device_type,
            )
        if enabled != was_disabled:
            log.warning(
                "Attempted to %s kernel for %s but it was already %sd.", action, device_type, action
            )
        change = self._disabled.discard if enabled else self._disabled.add
        change(device_type)
        try:
            yield
        finally:
            (self._disabled.add if was_disabled else self._disabled.discard)(device_type)

    def trivial_fake(self) -> Any:
        """What stands for the operator where there is no data, if its schema alone says it; else None."""
        if Tag.inplace in self._tags:
            return lambda *args, **kwargs: args[0]
        if Tag.out in self._tags:
            written = self._written
            return lambda *args, **kwargs: (
                tuple(kwargs[n] for n in written) if len(written) > 1 else kwargs[written[0]]
            )
        schema = self._opoverload._schema
        return (lambda *args, **kwargs: None) if schema.is_mutable and not schema.returns else None

    register_impl = register_kernel

    def register_fake(self, fn: Any, /) -> Any:
        """Sets what makes the results' shapes on meta."""
        self._opoverload.kernels["Meta"] = fn
        return fn

    def register_autograd(self, backward: Any, /, *, setup_context: Any = None) -> None:
        """Sets the gradient's formula: ``backward(ctx, *grads)``, and ``setup_context`` that notes what it needs.

        Raises:
            RuntimeError: if the operator writes arguments.
        """
        from torchlike.library import _register_autograd

        _register_autograd(self._opoverload, backward, setup_context, self)

    def register_vmap(self, func: Any = None) -> Any:
        """Sets how batches are computed, as `torch.library.register_vmap` does."""
        from torchlike.library import register_vmap

        return register_vmap(self, func)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Sets what a mode or a class of tensors does with it, as `torch.library.register_torch_dispatch` does."""
        from torchlike.library import register_torch_dispatch

        return register_torch_dispatch(self, torch_dispatch_class, fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Notes the dtype of arguments under autocast.

        Raises:
            ValueError: for other devices than "cpu" and "cuda".
        """
        from torchlike.library import _register_autocast

        _register_autocast(self._opoverload, device_type, cast_inputs)


def custom_op(
    name: str,
    fn: Any = None,
    /,
    *,
    mutates_args: Any,
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes an operator of a Python function, which other code sees as one call.

    Args:
        name: `namespace::name`.
        mutates_args: the names of arguments that the function writes, or "unknown".
        device_types: the devices that it is for; None means all.
        schema: its schema without the name; else it is read from the annotations.
        tags: what is said of it; `Tag.inplace` and `Tag.out` also say that what is written is returned.

    Raises:
        ValueError: if the annotations say no schema, or the schema that other arguments are written.
    """

    def inner(fn: Any) -> CustomOpDef:
        text = schema
        if text is None:
            text = infer_schema(fn, mutates_args=mutates_args, tags=tags)
        names = name.split("::")
        if len(names) != 2:
            raise ValueError(f"not enough values to unpack (expected 2, got {len(names)})")
        made = CustomOpDef(names[0], names[1], text, fn, tags)
        if schema is not None and set(made._written) != set(mutates_args):
            raise ValueError(
                f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The schema "
                f"suggests that the op mutates {set(made._written)}which is different from what was provided to us in "
                "`mutates_args`. Please make these consistent."
            )
        made.register_kernel(device_types)(fn)
        return made

    return inner if fn is None else inner(fn)
