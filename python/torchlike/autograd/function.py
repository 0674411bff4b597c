"""Functions whose gradient the user writes."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Node, Tensor
from torchlike._once import warn_once

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "NestedIOFunction", "once_differentiable"]


class FunctionCtx:
    """What a function notes while it runs forward, for its way back."""

    _to_save: tuple[Any, ...] = ()
    _saved: Any = None
    _for_forward: tuple[Any, ...] = ()
    _forward: bool = False
    _dirty: tuple[Any, ...] = ()
    _constant: tuple[Any, ...] = ()
    _materialize: bool = True
    _materialize_non_diff_grads: bool = True
    _freed: bool = False
    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps inputs or outputs for `backward`; they are `saved_tensors` there."""
        self._to_save = tensors

    def _check_saved(self) -> None:
        """Refuses what cannot be saved."""
        for i, t in enumerate(self._to_save):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}"
                )

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `jvp`."""
        self._for_forward = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs were written; they have to be outputs."""
        if not all(isinstance(a, Tensor) for a in args):
            raise RuntimeError("mark_dirty can only accept variables, but argument ")
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which outputs have no gradient."""
        if not all(isinstance(a, Tensor) for a in args):
            raise RuntimeError("mark_non_differentiable only accepts variable arguments, but got ")
        self._constant = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that are nothing are shown to `backward` as zeros."""
        if not isinstance(value, bool):
            raise TypeError(
                "set_materialize_grads received an invalid combination of arguments - got (), but "
                "expected (bool)"
            )
        self._materialize = value


class BackwardCFunction(Node, FunctionCtx):
    """The node of a function: `ctx` in its code."""

    _forward_cls: Any = None
    _metas: tuple[Any, ...] = ()
    _places: tuple[int, ...] = ()
    _count: int = 0

    def _begin(self, args: tuple[Any, ...]) -> bool:
        """Notes which arguments want gradients; gives whether any does."""
        self._count = len(args)
        self._places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor))
        self.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        return any(self.needs_input_grad) and torch.is_grad_enabled()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved for backward."""
        if self._forward:
            return self._for_forward
        if self._freed and self._to_save:
            raise RuntimeError(_C._freed_text())
        if self._saved is None:
            return self._to_save
        saved: Any = self._saved
        return tuple(s if s is None else s.unpack(self) for s in saved)

    saved_variables = saved_tensors

    @property
    def _raw_saved_tensors(self) -> tuple[Any, ...]:
        """What was saved for backward, as it is kept."""
        if self._freed and self._to_save:
            raise RuntimeError(_C._freed_text())
        return () if self._saved is None else tuple(self._saved)

    def _release(self) -> None:
        self._freed = True
        for saved in self._saved or ():
            if saved is not None:
                saved._free()
        self._saved = ()

    def _run(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of the tensors among the inputs, by the user's `backward`."""
        shown = self._shown(grads)
        cls = self._forward_cls
        user = cls.backward
        if cls.vjp is not Function.vjp:
            if user is not Function.backward:
                raise RuntimeError(
                    "Implementing both 'backward' and 'vjp' for a custom Function is not "
                    "allowed. You should only implement one of them."
                )
            user = cls.vjp
        return self._fitted(user(self, *shown))

    def _fitted(self, made: Any) -> tuple[Any, ...]:
        """The gradients of the tensors among the inputs, of those that the user's `backward` gave."""
        if not isinstance(made, tuple):
            made = (made,)
        places = self._places
        if len(made) > self._count and all(m is None for m in made[self._count :]):
            made = made[: self._count]
        if len(made) != self._count:
            raise RuntimeError(
                f"function {type(self).__name__} returned an incorrect number of gradients "
                f"(expected {self._count}, got {len(made)})"
            )
        for i, value in enumerate(made):
            if value is not None and i not in places:
                raise RuntimeError(
                    f"function {type(self).__name__} returned a gradient different than None at "
                    f"position {i + 1}, but the corresponding forward input was not a Variable"
                )
        return tuple(made[i] for i in places)

    def _shown(self, grads: tuple[Any, ...]) -> list[Any]:
        shown = []
        if len(grads) < len(self._metas):
            # That of the only tensor, which the function wrote.
            grads = tuple(None if meta is None else grads[0] for meta in self._metas)
        for meta, grad in zip(self._metas, grads, strict=True):
            if grad is None and self._materialize and meta is not None:
                shape, dtype, device, differentiable = meta
                if differentiable or self._materialize_non_diff_grads:
                    grad = torch.zeros(shape, dtype=dtype, device=device)
            shown.append(grad)
        return shown


class FunctionMeta(type):
    """Gives each function the class of its nodes."""

    def __init__(cls, name: str, bases: Any, attrs: dict[str, Any]) -> None:
        cls._backward_cls = type(name + "Backward", (BackwardCFunction,), {"_forward_cls": cls})
        super().__init__(name, bases, attrs)


class Function(FunctionCtx, metaclass=FunctionMeta):
    """A call with a gradient of its own: subclasses have static `forward(ctx, *args)` and `backward(ctx, *grads)`.

    With `setup_context(ctx, inputs, output)` beside it, `forward` takes no `ctx`.
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import warnings

        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, "
            "so you should invoke them on the class itself. Instantiating an autograd function will raise an "
            "error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The older way, which functions have no more.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. "
            "(Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """What the function computes."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Notes what `backward` needs, if `forward` takes no `ctx`."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the inputs, one each, from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the outputs, from those of the inputs."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The function over a batch."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or "
            "set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Calls the function, and records it."""
        if kwargs:
            args = _bound(
                cls.forward, args, kwargs, cls.setup_context is not Function.setup_context
            )
        if _C._transforms_record():
            return _applied(cls, args)
        return _C._apply_function(cls, args, Function, _applied, _wrapped)


def _applied(cls: Any, args: tuple[Any, ...]) -> Any:
    """Calls a function where somebody stands between: transforms, overrides, levels of tangents, a `setup_context`."""
    apart = cls.setup_context is not Function.setup_context
    args = _bound(cls.forward, args, {}, apart)
    examples = _C._batch_levels(args)
    if _C._transforms_active():
        _check_apart(apart)
    if examples:
        from torchlike.autograd import _batched_function

        own_rule = cls.vmap is not Function.vmap
        return _batched_function.apply(cls, own_rule, args, examples)
    watched = _C._watched(args, {})
    if watched and any(hasattr(type(a), "_plain_parts") for a in args):
        from torchlike.nested import _function

        return _function.apply(cls, args)
    ctx = cls._backward_cls()
    levels = _C._dual_levels()
    with _quiet(watched):
        tracked = ctx._begin(args)
        before = _C._set_grad_enabled(False)
    if levels:
        _C._set_fwd_grad_enabled(False)
    # What is written down is below all transforms.
    looking = _C._transforms_look(False)
    try:
        if apart:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
        else:
            output = cls.forward(ctx, *args)
    finally:
        with _quiet(watched):
            _C._set_grad_enabled(before)
        _C._transforms_look(looking)
        if levels:
            _C._set_fwd_grad_enabled(True)
    with _quiet(watched):
        made = _wrapped(ctx, args, output, tracked)
    if levels:
        from torchlike.autograd._forward_function import with_tangents

        return with_tangents(cls, ctx, args, made, levels)
    return made


def _check_apart(apart: bool) -> None:
    """Refuses functions without a `setup_context` inside transforms."""
    if not apart:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            "override the setup_context staticmethod. For more details, please see "
            "https://pytorch.org/docs/main/notes/extending.func.html"
        )


def _quiet(watched: bool) -> Any:
    """A context in which nobody is told of what a function does around the user's code."""
    return _C.DisableTorchFunction() if watched else _NOTHING


_NOTHING = contextlib.nullcontext()


def _bound(
    forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any], apart: bool
) -> tuple[Any, ...]:
    """All arguments by position; with a ``setup_context`` those that have defaults too."""
    if not kwargs and not apart:
        return args
    import inspect

    signature = inspect.signature(forward)
    bound = signature.bind(*args, **kwargs) if apart else signature.bind(None, *args, **kwargs)
    if apart:
        bound.apply_defaults()
    if bound.kwargs:
        name = next(iter(bound.kwargs))
        for i, (known, parameter) in enumerate(signature.parameters.items()):
            if known not in bound.arguments and parameter.kind is not parameter.KEYWORD_ONLY:
                raise TypeError(
                    f"forward() missing required argument: '{known}' (position {i - 1})"
                )
        raise TypeError(f"forward() got an unexpected keyword argument '{name}'")
    return bound.args if apart else bound.args[1:]


_LEAF_WRITTEN = "a leaf Variable that requires grad has been used in an in-place operation."
_NOT_RETURNED = (
    "Some elements marked as dirty during the forward method were not returned as output. The inputs that are "
    "modified inplace must all be outputs of the Function."
)
_SEVERAL_OF_VIEW = (
    "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return "
    "more than one Tensor. This is not supported by the current autograd engine. You should either make sure the "
    "input is not a view (using .clone() for example) or make your Function only return one Tensor (potentially "
    "splitting it into two Functions: one doing the inplace that returns a single Tensor and a second one that "
    "does the other operations). You can ask on the forum https://discuss.pytorch.org/ if you need help to do this "
    "change."
)


def _check_dirty(ctx: Any, outputs: list[Any], tracked: bool, given: set[int]) -> None:
    """Refuses writes that the history cannot follow, and counts the others."""
    if not all(id(t) in given for t in ctx._dirty):
        warn_once(
            "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to "
            "pass it to mark_dirty()."
        )
    for t in ctx._dirty:
        if not any(t is o for o in outputs):
            raise RuntimeError(_NOT_RETURNED)
        if tracked and t.requires_grad and t.is_leaf:
            raise RuntimeError(_LEAF_WRITTEN)
        if tracked and t._is_view() and sum(isinstance(o, Tensor) for o in outputs) > 1:
            raise RuntimeError(_SEVERAL_OF_VIEW)
        _C._increment_version(t)


def _passed(o: Any, ids: tuple[set[int], set[int], set[int]], tracked: bool) -> tuple[Any, bool]:
    """An output as the caller gets it, and whether it has a gradient."""
    inputs, dirty, constant = ids
    float_ = o.dtype.is_floating_point or o.dtype.is_complex
    differentiable = tracked and float_ and id(o) not in constant
    if id(o) in inputs and id(o) not in dirty:
        with torch.no_grad():
            if type(o) is not Tensor:  # a class of the user's makes the view
                return type(o).__torch_function__(
                    Tensor.view_as, (type(o),), (o, o), {}
                ), differentiable
            return (o.view_as(o) if differentiable else o.detach()), differentiable
    # A view of an input stays one where gradients are off, as views that calls make there.
    if not differentiable and o.requires_grad and id(o) not in dirty and not o._is_view():
        o.detach_()
    return o, differentiable


def _alone(ctx: Any, args: tuple[Any, ...], output: Tensor, tracked: bool) -> Tensor:
    """The only output with its history, where nothing is saved, written or marked."""
    given = {id(a) for a in args if isinstance(a, Tensor)}
    made, differentiable = _passed(output, (given, set(), set()), tracked)
    ctx._metas = ((output.shape, output.dtype, output.device, differentiable),)
    if differentiable:
        _C._set_history(ctx, [args[i] for i in ctx._places], [made], False)
        ctx._saved = ()
        ctx._to_save = ()
    return made


def _wrapped(ctx: Any, args: tuple[Any, ...], output: Any, tracked: bool) -> Any:
    """The outputs with their history."""
    if isinstance(output, Tensor) and not (ctx._dirty or ctx._constant or ctx._to_save):
        return _alone(ctx, args, output, tracked)
    several = isinstance(output, tuple)
    outputs = list(output) if several else [output]
    ids = (
        {id(a) for a in args if isinstance(a, Tensor)},
        {id(t) for t in ctx._dirty},
        {id(t) for t in ctx._constant},
    )
    _check_dirty(ctx, outputs, tracked, ids[0])
    ctx._check_saved()
    history: list[Tensor | None] = []
    metas: list[Any] = []
    saved_outputs: dict[int, int] = {}
    for i, o in enumerate(outputs):
        history.append(None)
        if not isinstance(o, Tensor):
            metas.append(None)
            continue
        outputs[i], differentiable = _passed(o, ids, tracked)
        history[i] = outputs[i] if differentiable else None
        if differentiable and outputs[i] is o:  # an input that is given back is saved as that
            saved_outputs[id(o)] = i
        metas.append((o.shape, o.dtype, o.device, differentiable))
    ctx._metas = tuple(metas)
    if any(t is not None for t in history):
        written = [id(o) in ids[1] for o in outputs if isinstance(o, Tensor)]
        inputs = [args[i] for i in ctx._places]
        if written == [True]:
            history = [t for t in history if t is not None]
        _C._set_history(ctx, inputs, history, written == [True])
        ctx._saved = tuple(
            None if t is None else _C._save_tensor(t, saved_outputs.get(id(t)))
            for t in ctx._to_save
        )
        ctx._to_save = (True,) * bool(ctx._saved)
    return tuple(outputs) if several else outputs[0]


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of `backward`: its result has no gradient of its own."""

    def end(value: Any) -> Any:
        """The value, with a history that leads to an error."""
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        return _Once.apply(value.detach().requires_grad_())

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with torch.no_grad():
            outputs = fn(ctx, *args)
        if not torch.is_grad_enabled():
            return outputs
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        return tuple(map(end, outputs)) if isinstance(outputs, tuple) else end(outputs)

    return wrapper


class _Once(Function):
    """The end of what can be differentiated."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return t.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


class InplaceFunction(Function):
    """The old name of functions that write their inputs; any `Function` may."""


class NestedIOFunction(Function):
    """Kept for its name: functions of nested arguments are not supported."""

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("autograd.function.NestedIOFunction is not supported")
