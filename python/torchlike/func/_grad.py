"""Gradients of functions as functions: `grad`, `vjp`, `jvp`, `linearize`."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Tensor
from torchlike.autograd.graph import disable_saved_tensors_hooks
from torchlike.utils._pytree import tree_flatten, tree_map, tree_unflatten, treespec_pprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_GRAD = "grad_and_value(f)(*args)"
_NO_HOOKS = (
    "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks. Please open an issue with your use "
    "case."
)


class Recorded:
    """A function that was run while its calls are recorded: its inputs, apart from what was before, and its outputs."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.outside = torch.is_grad_enabled()
        self.inputs: list[Tensor] = []
        self._places: list[Tensor] = []
        self._nested = False
        for x in leaves:
            if not isinstance(x, Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")
            if not (x.is_floating_point() or x.is_complex()):
                raise RuntimeError("only Tensors of floating point dtype can require gradients")
            with torch.enable_grad():
                made, place = _C._func_input(x)
            self.inputs.append(made)
            self._places.append(made if place is None else place)
            self._nested |= place is not None

    def run(self, func: Callable[[], Any], given: Any = ()) -> Any:
        """Runs the function on `inputs`; `given` is what else it gets.

        Raises:
            RuntimeError: if there are hooks for saved tensors, outside of it or inside.
        """
        with (
            disable_saved_tensors_hooks(_NO_HOOKS),
            torch.enable_grad(),
            _inside([*self.inputs, *tree_flatten(given)[0]], records=True),
        ):
            return func()

    def lasts(self, outputs: Sequence[Any]) -> bool:
        """Whether somebody else, of before or around, can ask for gradients of the outputs."""
        if not self.outside:
            return False
        return self._nested or _C._leads_elsewhere(list(outputs), self._places)

    def outward(self, value: Any) -> Any:
        """A value without the history that ends at the inputs; its tangents may have one too."""

        def one(x: Any) -> Any:
            if not isinstance(x, Tensor) or (self.outside and self._nested):
                return x
            if not x.requires_grad and not _C._dual_levels():
                return x
            return _C._outward(x, self._places, self.outside)

        return tree_map(one, value)

    def gradients(
        self,
        outputs: Sequence[Tensor],
        along: Sequence[Tensor],
        keep: bool = False,
        again: bool | None = None,
    ) -> list[Tensor]:
        """The gradients of the inputs; zeros for those that do not matter.

        `again`: whether they can be differentiated.
        """
        if again is None:
            tracked = any(v.requires_grad for v in along)
            again = self.outside and (tracked or self.lasts(outputs))
        used = [(o, v) for o, v in zip(outputs, along, strict=True) if o.requires_grad]
        made: Sequence[Tensor | None] = [None] * len(self.inputs)
        if used:
            made = torch.autograd.grad(
                [o for o, _ in used],
                self._places,
                [v for _, v in used],
                retain_graph=keep or again,
                create_graph=again,
                allow_unused=True,
            )
        return [
            torch.zeros_like(_C._untracked(x)) if g is None else g
            for g, x in zip(made, self.inputs, strict=True)
        ]


@contextlib.contextmanager
def _inside(given: list[Any], records: bool) -> Iterator[None]:
    """Inside, a function runs that may write to what it makes, and to what it is given, alone."""
    _C._transform_enter(given, records)
    try:
        yield
    finally:
        _C._transform_exit()


def chosen(args: tuple[Any, ...], argnums: Any) -> Any:
    """The arguments that `argnums` names; as a tuple if it is one."""
    if not isinstance(argnums, int | tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if len(numbers) == 0:
        raise RuntimeError("argnums must be non-empty")
    count = len(args)
    for n in numbers:
        if not isinstance(n, int):
            raise RuntimeError(f"argnum must be int, got: {type(n)}")
        if not -count <= n < count:
            raise RuntimeError(f"Got argnum={n}, but only {count} positional inputs")
    wrapped = [n % count for n in numbers]
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in numbers)


def replaced(args: tuple[Any, ...], argnums: Any, values: Any) -> tuple[Any, ...]:
    """The arguments with others for those that `argnums` names."""
    made = list(args)
    if isinstance(argnums, int):
        made[argnums] = values
    else:
        for n, v in zip(argnums, values, strict=True):
            made[n] = v
    return tuple(made)


def _with_aux(made: Any, where: str) -> tuple[Any, Any]:
    if not (isinstance(made, tuple) and len(made) == 2):
        raise RuntimeError(
            f"{where}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    for x in tree_flatten(made[1])[0]:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(x)}")
    return made


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """The gradient of a function whose output is one number, and its value.

    Args:
        argnums: by which arguments; a tuple gives a tuple of gradients.
        has_aux: the function returns the number and something else, which is passed on beside the value.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        leaves, spec = tree_flatten(chosen(args, argnums))
        record = Recorded(leaves)
        given = replaced(args, argnums, tree_unflatten(record.inputs, spec))
        made = record.run(lambda: func(*given, **kwargs), (given, kwargs))
        aux = None
        if has_aux:
            made, aux = _with_aux(made, _GRAD)
        if not isinstance(made, Tensor):
            raise RuntimeError(f"{_GRAD}: Expected f(*args) to return a Tensor, got {type(made)}")
        if made.dim() != 0:
            raise RuntimeError(
                f"{_GRAD}: Expected f(*args) to return a scalar Tensor, got tensor with {made.dim()} dims. "
                "Maybe you wanted to use the vjp or jacrev APIs instead?"
            )
        if made.dtype.is_complex:
            raise RuntimeError(
                f"grad can be implicitly created only for real scalar outputs but got {made.dtype}"
            )
        grads = record.gradients(
            [made], [torch.ones_like(_C._untracked(made), memory_format=torch.preserve_format)]
        )
        value = record.outward((made, aux) if has_aux else made)
        return tree_unflatten(grads, spec), value

    return wrapper


def grad(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient of a function whose output is one number; see `grad_and_value`."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapper


def tensors_alone(made: Any, where: str) -> tuple[list[Tensor], Any]:
    """The flattened outputs of a function.

    Raises:
        RuntimeError: if there are others than tensors, or none.
    """
    leaves, spec = tree_flatten(made)
    if not leaves or (len(leaves) == 1 and leaves[0] is None):
        raise RuntimeError(
            f"{where}: Expected f to be a function that has non-empty output (got output = {leaves})"
        )
    for x in leaves:
        if not isinstance(x, Tensor):
            raise RuntimeError(
                f"{where}: expected f(*primals) to return only tensors, got unsupported type {type(x)}"
            )
    return leaves, spec


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The output of a function, and a function that gives the product of a cotangent of it with the Jacobian.

    With `has_aux` the function returns its output and something else, which is passed on at the end.
    """
    leaves, spec = tree_flatten(primals)
    record = Recorded(leaves)
    where = "vjp(f, *primals)"
    made = record.run(lambda: func(*tree_unflatten(record.inputs, spec)))
    aux = None
    if has_aux:
        made, aux = _with_aux(made, where)
    outputs, shape = tensors_alone(made, where)

    def wrapper(
        cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        given, given_shape = tree_flatten(cotangents)
        if given_shape != shape:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {treespec_pprint(given_shape)}, primal output: {treespec_pprint(shape)}"
            )
        for i, (v, o) in enumerate(zip(given, outputs, strict=True)):
            if v.shape != o.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {v.shape} and output[{i}] has a shape of "
                    f"{o.shape}."
                )
        # Whether gradients are on counts where the product is asked for.
        record.outside = torch.is_grad_enabled()
        grads = record.gradients(outputs, given, keep=retain_graph, again=create_graph)
        return tree_unflatten(grads, spec)

    value = record.outward(made)
    return (value, wrapper, record.outward(aux)) if has_aux else (value, wrapper)


_JVP = "jvp(f, primals, tangents)"


def _check_jvp(primals: Any, tangents: Any) -> None:
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    leaves, spec = tree_flatten(primals)
    other = tree_flatten(tangents)[1]
    if spec != other:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure "
            f"{other}"
        )
    for what, value in (("primals", leaves), ("tangents", tree_flatten(tangents)[0])):
        if not value:
            raise RuntimeError(f"{_JVP}: Expected {what} to contain at least one Tensor.")
        for x in value:
            if not isinstance(x, Tensor):
                raise RuntimeError(
                    f"{_JVP}: Expected {what} to only contain Tensors, got {type(x)}"
                )


@contextlib.contextmanager
def _level() -> Iterator[int]:
    """Inside, a level of forward mode is open; gives its number."""
    before = _C._is_fwd_grad_enabled()
    level = _C._enter_dual_level()
    try:
        with _inside([], records=False):
            yield level
    finally:
        _C._exit_dual_level(level)
        _C._set_fwd_grad_enabled(before)


def _duals(leaves: Sequence[Tensor], along: Sequence[Tensor], spec: Any, level: int) -> Any:
    """Flattened inputs with their tangents."""
    for x in leaves:
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected primal to be floating point or complex, but got: {x.dtype}")
    pairs = zip(leaves, along, strict=True)
    duals = [_C._with_tangent(x, t, level) for x, t in pairs]
    _C._transform_give(duals)
    return tree_unflatten(duals, spec)


def _or_zeros(tangent: Any, value: Any) -> Any:
    return torch.zeros_like(value) if tangent is None and value is not None else tangent


def jvp(
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """The output of a function, and the product of its Jacobian with tangents of its inputs.

    Args:
        strict: outputs that do not depend on the inputs are an error, in place of a tangent of zeros.
        has_aux: the function returns its output and something else, which is passed on at the end.
    """
    _check_jvp(primals, tangents)
    leaves, spec = tree_flatten(primals)
    with _level() as level:
        made = func(*_duals(leaves, tree_flatten(tangents)[0], spec, level))
        aux = None
        if has_aux:
            made, aux = _with_aux(made, _JVP)
        outputs, shape = tensors_alone(made, _JVP)
        pairs = [_C._without_tangent(o, level) for o in outputs]
        if strict and any(t is None for _, t in pairs):
            raise RuntimeError(
                "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
                "allowed with strict=True."
            )
        value = tree_unflatten([p for p, _ in pairs], shape)
        along = tree_unflatten([_or_zeros(t, p) for p, t in pairs], shape)
        aux = tree_map(
            lambda x: _C._without_tangent(x, level)[0] if isinstance(x, Tensor) else x, aux
        )
    return (value, along, aux) if has_aux else (value, along)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The output of a function, and the function that gives its tangent for tangents of the inputs.

    The function is run once, and what it does with tangents is kept. Inside another transform, and where gradients of
    the tangents are recorded, it is run again for each tangents, so that those go through it.
    """
    leaves, spec = tree_flatten(primals)
    nested = _C._transforms_active() or _C._batch_is_on() or bool(_C._dual_levels())
    classes = any(type(x) not in (Tensor, torch.nn.Parameter) for x in leaves)
    if nested or classes:
        return func(*primals), _checked(leaves, spec, _pushed(func, leaves, spec))
    from torchlike.func._linear import LinearCalls

    calls = LinearCalls()
    with calls:
        along = [torch.zeros_like(x, requires_grad=False) for x in leaves]
        for t in along:
            calls.input(t)
        value, made = _with_tangents(func, leaves, spec, along)
    results, shape = tree_flatten(made)
    if any(isinstance(t, Tensor) and t.requires_grad for t in results):
        return value, _checked(leaves, spec, _pushed(func, leaves, spec))
    linear = calls.function(results)
    return value, _checked(leaves, spec, lambda given: tree_unflatten(linear(given), shape))


def _with_tangents(
    func: Callable[..., Any], leaves: Sequence[Any], spec: Any, along: Sequence[Tensor]
) -> tuple[Any, Any]:
    """What a function makes of flattened inputs, and its tangents; what is no tensor stands in both."""
    with _level() as level:
        outputs, shape = tree_flatten(func(*_duals(leaves, along, spec, level)))
        pairs = [
            _C._without_tangent(o, level) if isinstance(o, Tensor) else (o, o) for o in outputs
        ]
        value = tree_unflatten([p for p, _ in pairs], shape)
        return value, tree_unflatten([_or_zeros(t, p) for p, t in pairs], shape)


def _pushed(func: Callable[..., Any], leaves: Sequence[Any], spec: Any) -> Callable[..., Any]:
    return lambda given: _with_tangents(func, leaves, spec, given)[1]


def _checked(
    leaves: Sequence[Any], spec: Any, push: Callable[[list[Any]], Any]
) -> Callable[..., Any]:
    """The function of tangents, which have to fit the primals."""

    def jvp_fn(*tangents: Any) -> Any:
        given, given_spec = tree_flatten(tangents)
        if given_spec != spec:
            raise RuntimeError(
                f"Expected the tangents {given_spec} to have the same argspec as the primals {spec}"
            )
        for i, (t, x) in enumerate(zip(given, leaves, strict=True)):
            for what in ("shape", "device", "dtype"):
                if getattr(t, what) != getattr(x, what):
                    raise RuntimeError(
                        f"tangent:{i} with {what} {getattr(t, what)} in flattened pytree doesn't match the {what} "
                        f"{getattr(x, what)} of the corresponding primal."
                    )
        return push(given)

    return jvp_fn
