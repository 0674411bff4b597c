"""Sizes that may change, and expressions of them."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from typing import Any

from torchlike._C import Tensor
from torchlike.utils import _pytree as pytree

__all__ = ["AdditionalInputs", "Dim", "ShapesCollection", "UserError", "dims"]

_MAX = (1 << 63) - 1


class UserError(RuntimeError):
    """A program cannot be exported as it was asked for."""


class _DimHint:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"DimHint({self._name})"

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        raise NotImplementedError(f"Dim.{self._name}(min=, max=) is not supported; name a Dim")


class Dim:
    """A size that may change.

    Args:
        name: its name; the same object at several places says that the sizes are equal.
        min: the least size.
        max: the greatest size.
    """

    AUTO = _DimHint("AUTO")
    DYNAMIC = _DimHint("DYNAMIC")
    STATIC = _DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low, high = 0 if min is None else min, _MAX if max is None else max
        if high < low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min, self.max = low, high

    def __repr__(self) -> str:
        low = [f"min={self.min}"] if self.min != 2 else []
        high = [f"max={self.max}"] if self.max != _MAX else []
        return f"Dim({', '.join([repr(self.__name__), *low, *high])})"

    def __mul__(self, other: int) -> Any:
        return _DerivedDim(self, other, 0)

    __rmul__ = __mul__

    def __add__(self, other: int) -> Any:
        return _DerivedDim(self, 1, other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Any:
        return _DerivedDim(self, 1, -other)


@dataclass(frozen=True)
class _DerivedDim:
    """A size that another one determines."""

    root: Dim
    factor: int
    offset: int

    def __post_init__(self) -> None:
        if not isinstance(self.factor, int) or self.factor <= 0 or not isinstance(self.offset, int):
            raise NotImplementedError("a Dim can only be multiplied by positive integers")

    @property
    def __name__(self) -> str:
        text = self.root.__name__ if self.factor == 1 else f"{self.factor}*{self.root.__name__}"
        sign = "-" if self.offset < 0 else "+"
        return f"{text} {sign} {abs(self.offset)}" if self.offset else text

    def __repr__(self) -> str:
        return self.__name__

    def __mul__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self.root, self.factor * other, self.offset * other)

    __rmul__ = __mul__

    def __add__(self, other: int) -> _DerivedDim:
        return _DerivedDim(self.root, self.factor, self.offset + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> _DerivedDim:
        return self + -other


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A Dim for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """Says of tensors, wherever they are among the inputs, which of their sizes vary.

    `shapes[x] = {0: Dim("batch")}`, and the collection is what `dynamic_shapes` is.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}

    def __setitem__(self, t: Any, shape: Any) -> None:
        self._known(t)
        known = self._shapes.setdefault(id(t), shape)
        if known != shape:
            raise AssertionError(
                f"Shapes assigned to input do not match: expected {known}, got {shape}"
            )

    def __getitem__(self, t: Any) -> Any:
        self._known(t)
        return self._shapes.setdefault(id(t), {})

    def __len__(self) -> int:
        return len(self._shapes)

    @staticmethod
    def _known(t: Any) -> None:
        if not isinstance(t, Tensor):
            raise AssertionError(
                f"Cannot assign shape to non-tensor or non-_IntWrapper type {type(t)}"
            )

    def dynamic_shapes(
        self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What is said of each input, in the structure of the inputs.

        Raises:
            ValueError: if a tensor that something is said of is not among them.
        """
        seen: set[int] = set()

        def find(leaf: Any) -> Any:
            seen.add(id(leaf))
            return self._shapes.get(id(leaf))

        found = pytree.tree_map(find, _combined(m, args, kwargs))
        if not set(self._shapes) <= seen:
            raise ValueError(
                "Some tensors that were assigned shapes were not found in args. "
                "Maybe such tensors were copied when passing them as args? "
                "Maybe such tensors are contained in classes that were not registered with pytree?"
            )
        return found


class AdditionalInputs:
    """Finds sizes that vary by other inputs, which the program has to be valid for too."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any] | None]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """One more call of the program."""
        if type(args) is not tuple:
            raise AssertionError(f"Representative args {args} must be a tuple")
        if kwargs is not None and type(kwargs) is not dict:
            raise AssertionError(f"Representative kwargs {kwargs} must be None or a dict")
        self._examples.append((args, kwargs))

    def dynamic_shapes(
        self, m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> Any:
        """`Dim.DYNAMIC` for each size that is not the same in all calls, in the structure of the inputs.

        Raises:
            ValueError: if something else than sizes and whole numbers differs.
        """
        first = _combined(m, args, kwargs)
        others = [_combined(m, a, k) for a, k in self._examples]
        return pytree.tree_map(_varying, first, *others)

    def verify(self, ep: Any) -> None:
        """Checks that a program is valid for all calls.

        Raises:
            RuntimeError: with what does not hold.
        """
        from torchlike.export._inputs import check_call

        for args, kwargs in self._examples:
            leaves = ep._leaves(args, kwargs or {})
            spec = ep._signature().in_spec
            check_call(ep.graph_signature, ep.graph, ep._sizes, leaves, spec)


def _plain(tree: Any) -> Any:
    """The same inputs with lists in place of objects of registered classes, as `dynamic_shapes` has them."""

    def one(value: Any) -> Any:
        inside = pytree.tree_flatten(value, is_leaf=lambda t: t is not value)[0]
        return value if any(t is value for t in inside) else [_plain(t) for t in inside]

    return pytree.tree_map(one, tree, is_leaf=lambda t: not isinstance(t, list | tuple | dict))


def _combined(m: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The inputs by the names of their parameters."""
    function = getattr(m, "forward", m)
    return _plain(dict(inspect.signature(function).bind(*args, **(kwargs or {})).arguments))


def _varying(*values: Any) -> Any:
    """What differs among the same input of several calls."""
    if all(isinstance(v, Tensor) for v in values):
        if len({v.dim() for v in values}) > 1:
            shapes = tuple(tuple(v.shape) for v in values)
            raise ValueError(
                f"The following tensors were found to have differing numbers of dimensions: {shapes}"
            )
        sizes = zip(*(v.shape for v in values), strict=True)
        return tuple(Dim.DYNAMIC if len(set(s)) > 1 else None for s in sizes)
    if all(v == values[0] for v in values[1:]):
        return None
    if all(type(v) is int for v in values):
        return Dim.DYNAMIC
    raise ValueError(
        "The following inputs were found to have differing values, "
        f"but they cannot be marked as dynamic: {values}."
    )


@dataclass
class Variable:
    """One size that is varied: its name, its range, and where it stands."""

    name: str
    low: int
    high: int
    example: int
    optional: bool = False  # becomes constant where the program does not allow it to vary


@dataclass(frozen=True)
class Place:
    """A size of an input: `factor * variable + offset`."""

    leaf: int
    dim: int
    variable: str
    factor: int = 1
    offset: int = 0


def _per_leaf(tree: Any, spec: Any, path: str) -> list[Any]:
    """For each leaf of an argument what `dynamic_shapes` says of it."""
    if isinstance(tree, Tensor) or not isinstance(tree, list | tuple | dict):
        return [spec]
    if spec is None:
        return [None] * len(pytree.tree_leaves(tree))
    kind: Any = dict if isinstance(tree, dict) else list | tuple
    if not isinstance(spec, kind):
        raise UserError(
            f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs{path}` is a "
            f"{type(tree)}, but `dynamic_shapes{path}` is a {type(spec)}"
        )
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    if len(spec) != len(keys):
        raise UserError(
            f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs{path}` "
            f"has {len(keys)} elements, but `dynamic_shapes{path}` has {len(spec)} elements"
        )
    found = []
    for key in keys:
        found += _per_leaf(tree[key], spec[key], f"{path}[{key!r}]")
    return found


def specs_of(model: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> list[Any]:
    """For each leaf of the inputs what `dynamic_shapes` says of it.

    Raises:
        UserError: if that does not have the structure of the inputs.
    """
    if isinstance(dynamic_shapes, ShapesCollection | AdditionalInputs):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, kwargs)
    if dynamic_shapes is None:
        return [None] * len(pytree.tree_leaves((args, kwargs)))
    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **kwargs).arguments
    if isinstance(dynamic_shapes, dict):
        extra = [k for k in dynamic_shapes if k not in signature.parameters]
        if extra or not set(bound) <= set(dynamic_shapes) | set():
            missing = list(bound)
            if extra or any(n not in dynamic_shapes for n in missing):
                raise UserError(
                    "When `dynamic_shapes` is specified as a dict, its top-level keys must be the "
                    f"arg names {missing} of `inputs`, but here they are {list(dynamic_shapes)}. "
                    "Alternatively, you could also ignore arg names entirely and specify "
                    "`dynamic_shapes` as a list/tuple matching `inputs`."
                )
        values = [dynamic_shapes[name] for name in bound]
    else:
        values = list(dynamic_shapes)
    if len(values) != len(bound):
        raise UserError(
            "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs` has "
            f"{len(bound)} elements, but `dynamic_shapes` has {len(values)} elements"
        )
    found = []
    for (name, value), spec in zip(bound.items(), values, strict=True):
        found += _per_leaf(_plain(value), spec, f"[{name!r}]")
    return found


def symbols_of(model: Any, args: Any, kwargs: Any, places: list[Place]) -> dict[str, str]:
    """Names of symbols by variable: numbers made of where a size comes from, so that they stay from run to run."""
    if not places:
        return {}
    bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    sources = [
        f"L[{name!r}]{pytree.keystr(path)}"
        for name, value in bound.items()
        for path, _ in pytree.tree_leaves_with_path(value)
    ]
    taken: set[int] = set()
    found: dict[str, list[str]] = {}
    for place in sorted(places, key=lambda p: (p.leaf, p.dim)):
        source = f"{sources[place.leaf]}.size()[{place.dim}]"
        number = int(hashlib.sha256(source.encode()).hexdigest(), 16) % 100
        while number in taken:
            number += 1
        taken.add(number)
        # one that follows from another has no name
        whole = (place.factor, place.offset) == (1, 0)
        found.setdefault(place.variable, []).append(("s" if whole else "t") + str(number))
    return {name: "s" + min(known)[1:] for name, known in found.items()}


def variables_of(leaves: list[Any], specs: list[Any]) -> tuple[dict[str, Variable], list[Place]]:
    """The sizes that are to vary, and where they stand.

    Raises:
        UserError: if an example contradicts what is said of it.
    """
    variables: dict[str, Variable] = {}
    places: list[Place] = []
    for i, (leaf, spec) in enumerate(zip(leaves, specs, strict=True)):
        if isinstance(leaf, int | float) and spec not in (None, Dim.STATIC, Dim.AUTO):
            raise NotImplementedError(
                f"export: an input that is a number, {leaf}, cannot vary: it becomes part of the "
                "program; give a tensor"
            )
        if spec is None or not isinstance(leaf, Tensor):
            continue
        if not isinstance(spec, dict | list | tuple):
            raise UserError(
                f"Unexpected input tensor shape {spec!r} (expected either a list/tuple of dimensions, or a dict "
                "mapping indices to dimensions, where each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or "
                "Dim.DYNAMIC)"
            )
        items = spec.items() if isinstance(spec, dict) else enumerate(spec)
        for dim, wanted in items:
            if wanted is None or wanted is Dim.STATIC:
                continue
            size = leaf.shape[dim]
            if isinstance(wanted, int):
                if wanted != size:
                    raise UserError(
                        f"Static shape constraint of {wanted} does not match input size of {size}"
                    )
                continue
            places.append(_place(variables, i, dim % leaf.dim(), size, wanted))
    return variables, places


def _place(variables: dict[str, Variable], leaf: int, dim: int, size: int, wanted: Any) -> Place:
    if isinstance(wanted, _DimHint):
        # sizes that are equal in the example are taken to be equal
        name = f"_{wanted._name.lower()}_{size}"
        variables.setdefault(name, Variable(name, 2, _MAX, size, wanted is Dim.AUTO))
        return Place(leaf, dim, name)
    root, factor, offset = wanted, 1, 0
    if isinstance(wanted, _DerivedDim):
        root, factor, offset = wanted.root, wanted.factor, wanted.offset
    if not isinstance(root, Dim):
        raise UserError(
            f"Unexpected dimension mapped to index {dim} in input tensor shape {{{dim}: {wanted!r}}} (expected None, "
            f"an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC,  but got {wanted!r} instead)"
        )
    example, rest = divmod(size - offset, factor)
    if wanted is root and not root.min <= example <= root.max:
        from torchlike.fx.experimental.symbolic_shapes import ConstraintViolationError

        high = "int_oo" if root.max == _MAX else root.max
        raise ConstraintViolationError(f"{size} not in range [{max(root.min, 2)}, {high}]")
    if rest or not root.min <= example <= root.max:
        raise UserError(
            f"Expected input dim {dim} of size {size} to be {wanted.__name__} with {root!r}"
        )
    known = variables.setdefault(
        root.__name__, Variable(root.__name__, root.min, root.max, example)
    )
    if (known.low, known.high) != (root.min, root.max):
        same = Dim(root.__name__, min=known.low, max=known.high)
        raise UserError(
            f"Found different definitions {same!r} and {root!r} for the same symbolic dimension {root!r}!"
        )
    if known.example != example:
        raise UserError(
            f"Constraints violated ({root.__name__})! Two sizes are said to be {root.__name__}, but are "
            f"{known.example} and {example} in the example"
        )
    return Place(leaf, dim, root.__name__, factor, offset)
