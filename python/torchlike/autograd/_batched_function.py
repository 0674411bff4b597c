"""Functions of the user's under `vmap`: by their own rule, or by one that is made of their parts."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C, _vmap
from torchlike._C import Tensor
from torchlike.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class VmapInfo(NamedTuple):
    """What a function's rule is told of the batch."""

    batch_size: int
    randomness: str


_PAGE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


def apply(function: Any, own_rule: bool, args: tuple[Any, ...], levels: Sequence[int]) -> Any:
    """Calls a function whose arguments are examples of some levels of `vmap`.

    Raises:
        RuntimeError: if it has no rule, or two.
    """
    name = function.__name__
    if own_rule and function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overriden vmap "
            f"staticmethod. Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid "
            f"ambiguity. {_PAGE}"
        )
    if not own_rule and not function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap "
            f"staticmethod or set generate_vmap_rule=True. {_PAGE}"
        )

    def rule(info: VmapInfo, in_dims: Any, *whole: Any) -> Any:
        if own_rule:
            return function.vmap(info, in_dims, *whole)
        return _made(function, in_dims, info).apply(*whole), 0

    return by_rule(name, rule, args, {}, levels, told=own_rule)


def by_rule(
    name: str,
    rule: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    levels: Sequence[int],
    told: bool = True,
) -> Any:
    """The result of a call with examples, by a rule for whole batches.

    Args:
        name: what messages call that which is called.
        rule: called with `(info, in_dims, *whole, **kwargs)`, gives what it computes and along which dimensions the
            examples lie in that.
        levels: the levels of `vmap` whose examples are among the arguments; the innermost is left.
        told: the rule is told where examples were given to lie; otherwise they come along the first dimension.

    Raises:
        RuntimeError: if the rule gives something else, or the `vmap` has ended.
    """
    level = levels[-1]
    open_level = _C._batch_about(level)
    if open_level is None:
        raise RuntimeError(f"{name} was called with an example of a vmap that has ended")
    size, randomness = open_level
    leaves, spec = tree_flatten(args)
    batched = [isinstance(a, Tensor) and _C._batch_differs(a, level) for a in leaves]
    at = [
        (_C._batch_dim(a, level) if told else 0) if b else None
        for a, b in zip(leaves, batched, strict=True)
    ]
    whole = [
        a if d is None else _C._batch_show(a, d, level, size)
        for a, d in zip(leaves, at, strict=True)
    ]
    in_dims = tree_unflatten(at, spec)
    aside = _C._batch_set_aside(level)
    try:
        made = rule(VmapInfo(size, randomness), in_dims, *tree_unflatten(whole, spec), **kwargs)
    finally:
        _C._batch_take_back(aside)
    if not isinstance(made, tuple) or len(made) != 2:
        got = f"{len(made)} returns" if isinstance(made, tuple) else f"a {type(made)}"
        raise RuntimeError(
            "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
            f"compatible with the output. Got {got} instead"
        )
    made, out_dims = made
    leaves, spec = tree_flatten(made)
    dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise RuntimeError(
            "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
            f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure "
            f"{tree_flatten(out_dims)[1]} but output has structure {spec}. {_PAGE}"
        )
    return tree_unflatten(
        [
            _C._batch_hide(x, d, level) if isinstance(x, Tensor) and d is not None else x
            for x, d in zip(leaves, dims, strict=True)
        ],
        spec,
    )


class _Context:
    """The `ctx` of one example, for the whole batch's: what is saved are all examples.

    Args:
        examples: tensors that the part was given, and the whole batches that these are of.
    """

    def __init__(
        self, ctx: Any, level: int, size: int, examples: Iterable[tuple[Any, Any]]
    ) -> None:
        # Contexts within contexts note on the same one what lies where.
        note = f"{ctx._note}_" if isinstance(ctx, _Context) else "_saved_at"
        whole = {id(one): (one, all_) for one, all_ in examples}
        self.__dict__.update(_ctx=ctx, _level=level, _size=size, _note=note, _whole=whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)

    def _all(self, tensors: tuple[Any, ...]) -> list[Any]:
        at = [isinstance(t, Tensor) and _C._batch_is_at(t, self._level) for t in tensors]
        setattr(self._ctx, self._note, at)
        return [self._shown(t) if b else t for t, b in zip(tensors, at, strict=True)]

    def _shown(self, t: Any) -> Any:
        # Inputs and outputs themselves: what only shows the same elements has no gradient here.
        if id(t) in self._whole:
            return self._whole[id(t)][1]
        return _C._batch_show(t, 0, self._level, self._size)

    def save_for_backward(self, *tensors: Any) -> None:
        """Saves all examples."""
        self._ctx.save_for_backward(*self._all(tensors))

    def save_for_forward(self, *tensors: Any) -> None:
        """Saves all examples."""
        self._ctx.save_for_forward(*self._all(tensors))

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, of one example."""
        return tuple(
            _C._batch_hide(t, 0, self._level) if b else t
            for t, b in zip(self._ctx.saved_tensors, getattr(self._ctx, self._note), strict=True)
        )


def _hidden(value: Any, dims: Any, level: int) -> Any:
    """One example of an argument, also of tensors in lists: examples lie along dimension 0 where `dims` says so."""
    if isinstance(value, Tensor):
        return _C._batch_hide(value, 0, level) if dims == 0 else value
    if value is None or dims is None:
        return value
    leaves, spec = tree_flatten(value)
    pairs = zip(leaves, tree_flatten(dims)[0], strict=True)
    return tree_unflatten(
        [_hidden(x, d, level) if isinstance(x, Tensor) else x for x, d in pairs], spec
    )


def _of_input(grad: Any, same: bool, shape: Any) -> Any:
    """A gradient of whole batches, summed to what the input is: its examples may have been broadcast."""
    if not isinstance(grad, Tensor) or shape is None:
        return grad
    if same:
        return grad.sum(0)  # the engine sums what was broadcast
    added = grad.dim() - 1 - len(shape)
    if added > 0:
        grad = grad.sum(tuple(range(1, 1 + added)))
    return grad.sum_to_size(grad.shape[0], *shape)


def _shapes_at(ctx: Any) -> str:
    """Where a context keeps the shapes of inputs; contexts within contexts keep theirs on the same one."""
    return f"_shapes{ctx._note if isinstance(ctx, _Context) else ''}"


def _made(function: Any, in_dims: tuple[Any, ...], info: VmapInfo) -> Any:
    """A function of whole batches, each of whose parts is that of one example, under `vmap`."""

    def each(call: Any, ctx: Any, args: Sequence[Any], dims: Sequence[Any]) -> Any:
        """A part of the function on examples, given whole batches; gives whole batches, and what was no tensor."""
        size = info.batch_size
        with _vmap.level(size, info.randomness) as number:
            given = [_hidden(a, d, number) for a, d in zip(args, dims, strict=True)]
            if ctx is not None:
                call = functools.partial(
                    call, _Context(ctx, number, size, zip(given, args, strict=True))
                )
            made = call(*given)
            leaves, spec = tree_flatten(made)
            return tree_unflatten(
                [
                    _C._batch_show(x, 0, number, size) if isinstance(x, Tensor) else x
                    for x in leaves
                ],
                spec,
            )

    class Whole(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any) -> Any:
            return each(function.forward, None, args, in_dims)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            shapes = [
                (x.shape if d is None else x.shape[1:]) if isinstance(x, Tensor) else None
                for x, d in zip(inputs, in_dims, strict=True)
            ]
            setattr(ctx, _shapes_at(ctx), shapes)
            several = isinstance(output, tuple)
            outs = output if several else (output,)

            def note(ctx: Any, *all_: Any) -> None:
                made = all_[len(inputs) :]
                function.setup_context(ctx, all_[: len(inputs)], made if several else made[0])

            each(note, ctx, (*inputs, *outs), (*in_dims, *(0 for _ in outs)))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            made = each(function.backward, ctx, grads, [0] * len(grads))
            made = made if isinstance(made, tuple) else (made,)
            inputs = zip(in_dims, getattr(ctx, _shapes_at(ctx)), strict=True)
            summed = [_of_input(g, d is None, s) for g, (d, s) in zip(made, inputs, strict=False)]
            return (*summed, *made[len(summed) :])

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return each(function.jvp, ctx, tangents, in_dims)

    Whole.__name__ = f"Vmapped{function.__name__}"
    return Whole
