"""Calls of operators on tensors that lie on meshes: what a rule says is looked up, arguments are brought there, and the
operator runs on the pieces."""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C
from torchlike._ops import modes
from torchlike._tags import Tag
from torchlike.distributed.tensor import _drawn, _moves, _written
from torchlike.distributed.tensor._rules import Call, Fixed, Rows, filled, rule_of
from torchlike.distributed.tensor._rules.reduce import evenly
from torchlike.distributed.tensor._rules.sizes import GROUPED, sizes_in
from torchlike.distributed.tensor._spec import (
    Spec,
    TensorMeta,
    from_code,
    local_strides,
    meta_of,
    replicated,
    twin,
)
from torchlike.distributed.tensor.placement_types import (
    _MaskPartial,
    is_cut,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike._ops import OpOverload
    from torchlike.distributed.device_mesh import DeviceMesh

aten: Any = torch.ops.aten

# Views for which dimensions have to lie as one.
_AS_ONE = frozenset(("view", "_unsafe_view", "view_as_complex"))


class Decision(NamedTuple):
    """What a call comes down to: where its tensors have to lie, and how its results do."""

    inputs: list[Spec]
    results: list[Spec | None]
    form: str  # "one", "tuple", "list" or "none"
    args: tuple[Any, ...] | None


_decisions: dict[Any, Decision] = {}
_LIMIT = 1 << 16


asides: list[Any] = [nullcontext]
"""The newest makes a context for calls that only ask what a whole looks like: who records a program leaves them out."""


def clear() -> None:
    """Forgets what was decided."""
    _decisions.clear()
    _C._forget_calls()


def _is_ours(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and hasattr(t, "_spec")


def _mesh_of(values: list[Any]) -> DeviceMesh:
    mesh: DeviceMesh = next(t._spec.mesh for t in values if _is_ours(t))
    return mesh


replicating = [False]
"""Whether plain tensors among arguments count as replicated ones."""


def _spec_of(func: OpOverload, t: Any, mesh: DeviceMesh) -> Spec:
    if _is_ours(t):
        spec: Spec = t._spec
        if spec.mesh != mesh:
            raise RuntimeError(
                f"{func}: got tensors on different meshes, {mesh} and {spec.mesh}: redistribution across meshes is not "
                "supported"
            )
        return spec
    if replicating[0]:
        _C._trace_void()  # the same call is refused outside
    elif t.numel() != 1:
        raise RuntimeError(
            f"{func} got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
            "distributed operators!"
        )
    elif t.ndim == 1:
        warnings.warn(
            "Found a non-scalar tensor with numel=1 and ndim!=0, we are implicitly creating a replicated DTensor for "
            "it. However, please consider changing it to a scalar tensor or explicitly create a DTensor under "
            "distributed environment.",
            stacklevel=2,
        )
    return Spec(mesh, replicated(mesh), meta_of(t))


_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device))


def mapped(value: Any, f: Any) -> Any:
    """An argument with `f` of each tensor in it."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        return f(value)
    if isinstance(value, list | tuple):
        made = [mapped(v, f) for v in value]
        return made if isinstance(value, list) else tuple(made)
    return value


def tensors_of(values: Any) -> list[Any]:
    """The tensors among arguments, also in lists."""
    found: list[Any] = []
    mapped(list(values), found.append)
    return found


def _key(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_key(v) for v in value)
    if isinstance(value, float | int):
        return (type(value), value)
    return value


def _name(func: OpOverload) -> str:
    """What an operator is called here: other libraries' with their name."""
    own = func.namespace == "aten"
    return func._opname if own else f"{func.namespace}::{func._opname}"


def dispatch(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator of which some argument lies on a mesh."""
    from torchlike.distributed.tensor import _handlers

    following = any(_is_ours(t) and t._spec.follows for t in tensors_of((*args, *kwargs.values())))
    if following:
        _C._trace_void()
    outs = [a.name for a in func._schema.arguments if a.is_out and _is_ours(kwargs.get(a.name))]
    handler = _handlers.HANDLERS.get(_name(func))
    made = NotImplemented
    if outs:
        made = _handlers.into(func, outs, args, kwargs)
    elif handler is not None:
        made = handler(func, args, kwargs)
    if made is NotImplemented:
        made = run(func, args, kwargs)
    if following:
        _written.written(func, args, kwargs)
    return made


def run(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As `dispatch`, by the operator's rule."""
    tensors = tensors_of((*args, *kwargs.values()))
    mesh = _mesh_of(tensors)
    decision = decide(func, args, kwargs, mesh)
    if decision is NotImplemented:
        return func.decompose(*args, **kwargs)
    pieces = [_brought(t, spec) for t, spec in zip(tensors, decision.inputs, strict=True)]
    if _name(func) in _AS_ONE and decision.inputs[0].placements != tensors[0].placements:
        # What was put together of uneven parts lies apart, unlike the whole of which a view was asked.
        pieces[0] = [p.contiguous() for p in pieces[0]]
    given = args
    if decision.args is not None:
        func, given = (
            aten.squeeze_.dims if func._opname == "squeeze_" else aten.squeeze.dims,
            (args[0], *decision.args),
        )
    if _name(func) in _drawn.RANDOM and _is_real(pieces):
        drawn = _drawn.drawn(func, args, kwargs, decision, pieces)
        return wrapped(func, args, kwargs, decision, drawn)
    results = []
    for seat in range(len(mesh._seats)):
        found = iter([p[seat] for p in pieces])
        local = mapped((given, list(kwargs.values())), lambda t, found=found: next(found))
        sized = _sized(_name(func), local[0], decision, seat)
        results.append(func(*sized, **dict(zip(kwargs, local[1], strict=True))))
    results = _masked(decision, results)
    made = wrapped(func, args, kwargs, decision, results)
    first = tensors[0]
    if func.is_view:
        origin = _written.origin_of(first, pieces[0], decision.inputs[0])
        if origin is not None:
            _written.follows(made, origin)
    elif made is first and first._spec.placements != decision.inputs[0].placements:
        back = _moves.redistribute(pieces[0], decision.inputs[0], first._spec)
        for piece, value in zip(first._locals, back, strict=True):
            piece.copy_(value)
    return made


def _masked(decision: Decision, results: list[Any]) -> list[Any]:
    """Results of which rows are not this rank's, with zeros there."""
    spec = decision.results[0] if decision.results else None
    for p in spec.placements if spec is not None else ():
        if isinstance(p, _MaskPartial) and p.masks:
            return p.applied(results)
    return results


def _is_real(pieces: list[Any]) -> bool:
    return any(not t.is_meta for p in pieces for t in p)


class Moves(Exception):
    """Something would have to be moved, where that is not wanted."""


_held = [False]


@contextmanager
def in_place() -> Iterator[None]:
    """In this context nothing is moved: `Moves` is raised instead."""
    before, _held[0] = _held[0], True
    try:
        yield
    finally:
        _held[0] = before


def _brought(t: Any, spec: Spec) -> list[Any]:
    if not _is_ours(t):
        pieces = [t] * len(spec.mesh._seats)
        whole = whole_spec(spec)
        return (
            pieces
            if spec.placements == whole.placements
            else _moves.redistribute(pieces, whole, spec)
        )
    if t._spec.lies == spec.lies or t._spec.placements == spec.placements:
        return list(t._locals)
    if _held[0]:
        raise Moves
    return _moves.redistribute(t._locals, t._spec, spec)


def _sized(name: str, args: Any, decision: Decision, seat: int) -> Any:
    """The arguments in which shapes of the whole stand, with those of the piece."""
    spec = decision.results[0] if decision.results else None
    if spec is None:
        return args
    if name in GROUPED:
        return _group_sized(args, GROUPED[name])
    places = sizes_in(name)
    if not places or not any(map(is_cut, spec.placements)):
        return args
    shape = spec.locals()[seat]
    made = list(args)
    if not isinstance(made[places[0]], list | tuple):
        return args
    made[places[0]] = shape
    if len(places) > 1:
        made[places[1]] = list(local_strides(spec.stride, shape))
    return tuple(made)


def _group_sized(args: Any, at: int) -> Any:
    """Examples, channels and the rest, as the piece has them."""
    shape = args[0].shape
    return (*args[:at], shape[0], shape[1], prod(shape[2:]), *args[at + 3 :])


def decide(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: DeviceMesh | None = None
) -> Any:
    """What a call comes down to; NotImplemented if there is no rule, and the operator is made of others.

    Raises:
        NotImplementedError: if there is no rule at all.
        RuntimeError: if the rule refuses the arguments.
    """
    mesh = mesh or _mesh_of(tensors_of((*args, *kwargs.values())))
    specs = mapped((list(args), list(kwargs.values())), lambda t: _spec_of(func, t, mesh))
    kinds = dict(zip(kwargs, specs[1], strict=True))
    # Slices of different meshes may be equal.
    named = tuple((n, _key(v)) for n, v in kinds.items())
    key: Any = (func, mesh._root, mesh._world, _key(specs[0]), named)
    try:
        known = _decisions.get(key)
    except TypeError:
        key, known = None, None
    if known is not None:
        return known
    before = _C._trace_select(0)
    try:
        made = _explained(func, tuple(specs[0]), kinds)
    finally:
        _C._trace_select(before)
    masks = made is not NotImplemented and any(
        isinstance(p, _MaskPartial) for s in made.inputs for p in s.placements
    )
    if masks:
        _C._trace_void()
    if key is not None and not masks and made is not NotImplemented:
        if len(_decisions) > _LIMIT:
            clear()
        _decisions[key] = made
    return made


def _explained(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As `_decide`; errors say of which call."""
    try:
        return _decide(func, args, kwargs)
    except (NotImplementedError, Moves):
        raise
    except Exception as error:
        shown = ", ".join(map(str, args))
        mesh = Call(func._opname, func._overloadname, args, kwargs, 1).mesh
        raise RuntimeError(
            f"{error}\n\nSharding propagation failed for {func}({shown}) on {mesh})"
        ) from error


def _decide(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    rule = rule_of(_name(func), func._overloadname)
    if rule is None:
        if func.implicit:
            return NotImplemented
        if Tag.dynamic_output_shape in func.tags or Tag.data_dependent_output in func.tags:
            raise RuntimeError(f"{func}")  # what the whole looks like is asked first
        raise NotImplementedError(f"Operator {func} does not have a sharding strategy registered.")
    metas, form = result_of(func, args, kwargs)
    call = Call(func._opname, func._overloadname, args, kwargs, _count(func, metas))
    said = rule(call)
    ordered: bool | None
    if isinstance(said, Rows):
        inputs, results, ordered = _chosen(call, said)
        if said.even is not None and not all(evenly(s.shape, s, s.placements) for s in inputs):
            inputs, results, ordered = _chosen(call, Rows(said.even, said.uneven))
    else:
        inputs = [s.placed(p) for s, p in zip(call.specs, said.inputs, strict=True)]
        results, ordered = said.results, said.ordered
    if form == "list":
        results = results * len(metas)
    ordered = _ordered(call.specs) if ordered is None else ordered
    made = [
        None if meta is None or p is None else Spec(call.mesh, p, meta, ordered)
        for meta, p in zip(metas, results, strict=True)
    ]
    return Decision(inputs, made, form, _adjusted(call))


def _count(func: OpOverload, metas: list[Any]) -> int:
    returns = func._schema.returns
    return len(returns) if returns and not returns[0].is_list else 1


def _ordered(specs: list[Spec]) -> bool:
    """What strided shards mean, if there are some."""
    return next((s.ordered for s in specs if any(p._code[0] == 2 for p in s.placements)), True)


def _adjusted(call: Call) -> tuple[Any, ...] | None:
    """The arguments of those operators that look at sizes themselves: pieces are to lose what the whole loses."""
    if call.name not in ("squeeze", "squeeze_"):
        return None
    shape = call.first.shape
    dims = call.arg(1, list(range(len(shape))))
    dims = [dims] if isinstance(dims, int) else dims
    kept = [d for d in dims if shape and shape[d] == 1]
    return (kept,)


def _chosen(call: Call, said: Rows) -> tuple[list[Spec], list[Any], bool]:
    mesh, count = call.mesh, call.results
    rows = filled(said.rows, call.specs, count + len(call.specs))
    known = [p for row in rows for p in row if p is not None]
    codes = [[None if p is None else p._code for p in row] for row in rows]
    given = [(*s.lies, list(s.shape), s.dtype.itemsize) for s in call.specs]
    try:
        outs, ins = mesh._seats[0].choose(given, codes, count, call.in_place, said.uneven)
    except RuntimeError as error:
        text = str(error)
        if call.in_place:
            now = f"The input has placement {call.first.placements}, but no valid strategy preserves this placement. "
            text = text.replace("Please", now + "Please")
        raise RuntimeError(f"aten.{call.name}.{call.overload}: {text}") from None
    inputs = [
        s.placed([from_code(c, known) for c in codes])
        for s, codes in zip(call.specs, ins, strict=True)
    ]
    results = [None if o is None else [from_code(c, known) for c in o] for o in outs]
    return inputs, results, _ordered(call.specs)


def result_of(func: OpOverload, args: Any, kwargs: Any) -> tuple[list[TensorMeta | None], str]:
    """What the results look like for the whole, and how they are given: as one, a tuple, a list, or not at all."""

    def whole(value: Any) -> Any:
        if isinstance(value, Spec):
            return twin(value.tensor_meta)
        if isinstance(value, list | tuple):
            return type(value)(whole(v) for v in value)
        return value

    named = {
        n: torch.device("meta") if n == "device" and v else whole(v) for n, v in kwargs.items()
    }
    if func._opname == "equal":
        return [None], "none"
    with asides[-1](), modes.without(), torch.no_grad():
        made = func(*(whole(a) for a in args), **named)
    if isinstance(made, torch.Tensor):
        return [meta_of(made)], "one"
    if isinstance(made, list | tuple):
        metas = [meta_of(t) if isinstance(t, torch.Tensor) else None for t in made]
        return metas, "list" if isinstance(made, list) else "tuple"
    return [None], "none"


def wrapped(
    func: OpOverload, args: Any, kwargs: Any, decision: Decision, results: list[Any]
) -> Any:
    """The results on the pieces, as tensors on the mesh."""
    from torchlike.distributed.tensor._dtensor import DTensor

    if (
        func._opname.endswith("_")
        and not func._opname.endswith("__")
        and _is_ours(args[0] if args else None)
    ):
        spec = decision.results[0]
        if spec is not None and spec.shape != args[0]._spec.shape:
            raise NotImplementedError(f"{func}: a DTensor cannot take another shape in place")
        args[0]._hold(args[0]._locals)
        return args[0]
    if decision.form == "none":
        return results[0] if results else None
    if decision.form == "one":
        return DTensor._of(results, decision.results[0])
    parts = []
    for i, spec in enumerate(decision.results):
        pieces = [r[i] for r in results]
        parts.append(None if spec is None else DTensor._of(pieces, spec))
    return parts if decision.form == "list" else tuple(parts)


def whole_spec(spec: Spec) -> Spec:
    """The same tensor, replicated."""
    return spec.placed(replicated(spec.mesh))


def no_partial(spec: Spec) -> Spec:
    """The same tensor with what is partial reduced."""
    return spec.placed(spec.unsplit)


def fixed(func: OpOverload, args: Any, kwargs: Any) -> Fixed:
    """What a rule that follows the arguments says of a call."""
    mesh = _mesh_of(tensors_of((*args, *kwargs.values())))
    specs = mapped((list(args), list(kwargs.values())), lambda t: _spec_of(func, t, mesh))
    kinds = dict(zip(kwargs, specs[1], strict=True))
    said = rule_of(func._opname, func._overloadname)
    assert said is not None
    made = said(Call(func._opname, func._overloadname, tuple(specs[0]), kinds, 1))
    assert isinstance(made, Fixed)
    return made
