"""Trees of containers: taking them apart into leaves and a structure, and putting them together again."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import TYPE_CHECKING, Any

from torchlike.utils._pytree_nodes import (
    BUILTIN_TYPES,
    STANDARD_DICT_TYPES,
    SUPPORTED_NODES,
    GetAttrKey,
    MappingKey,
    NodeDef,
    SequenceKey,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    node_type,
    register_constant,
    register_dataclass,
    register_pytree_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "BUILTIN_TYPES",
    "SUPPORTED_NODES",
    "GetAttrKey",
    "LeafSpec",
    "MappingKey",
    "NodeDef",
    "PyTree",
    "SequenceKey",
    "TreeSpec",
    "is_namedtuple",
    "is_namedtuple_class",
    "is_namedtuple_instance",
    "is_structseq",
    "is_structseq_class",
    "is_structseq_instance",
    "key_get",
    "keystr",
    "register_constant",
    "register_dataclass",
    "register_pytree_node",
    "tree_all",
    "tree_all_only",
    "tree_any",
    "tree_any_only",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_is_leaf",
    "tree_iter",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_",
    "tree_map_only",
    "tree_map_only_",
    "tree_map_with_path",
    "tree_structure",
    "tree_unflatten",
    "treespec_dumps",
    "treespec_leaf",
    "treespec_loads",
    "treespec_pprint",
]

PyTree = Any
Context = Any


class TreeSpec:
    """The structure of a tree: the type of a node, what it needs besides its children, and theirs."""

    __slots__ = ("_children", "context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self._children = children_specs
        self.num_children: int = len(children_specs)
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children_specs)
        leaves = sum(c.num_leaves for c in children_specs)
        self.num_leaves: int = 1 if type is None else leaves

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The structures of the children."""
        return self._children

    def children(self) -> list[TreeSpec]:
        """The structures of the children, in a list of its own."""
        return list(self._children)

    def child(self, index: int) -> TreeSpec:
        """The structure of one child."""
        return self._children[index]

    def is_leaf(self) -> bool:
        """True for a leaf."""
        return self.type is None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (
            self.type is other.type
            and self.context == other.context
            and self._children == other._children
        )

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(self._children)))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = ""
        if self._children:
            pad = " " * (indent + 2)
            texts = [c.__repr__(indent + 2) for c in self._children]
            inner = f",\n{pad}".join(texts)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inner}])"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves."""
        values = leaves if isinstance(leaves, list | tuple) else list(leaves)
        if len(values) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(values)} but the spec refers "
                f"to a pytree that holds {self.num_leaves} items ({self})."
            )
        return self._build(iter(values))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        children = [c._build(leaves) for c in self._children]
        return SUPPORTED_NODES[self.type].unflatten_fn(children, self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` that stand where this structure has leaves.

        Raises:
            ValueError: if the tree does not begin like this structure.
        """
        found: list[Any] = []
        self._collect(tree, found)
        return found

    def _collect(self, tree: Any, found: list[Any]) -> None:
        if self.type is None:
            found.append(tree)
            return
        kind = node_type(tree)
        dicts = self.type in STANDARD_DICT_TYPES and kind in STANDARD_DICT_TYPES
        if kind is not self.type and not dicts:
            raise ValueError(
                f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}."
                if kind is not None
                else f"Expected a node of type {self.type!r}, but got a leaf {tree!r}."
            )
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if len(children) != self.num_children:
            raise ValueError(
                f"Node arity mismatch; expected {self.num_children}, but got {len(children)}."
            )
        if dicts:
            self._check_keys(tree)
            children = [tree[k] for k in _dict_keys(self)]
        elif context != self.context and self.type is not deque:
            raise ValueError(
                f"Node context mismatch for custom node type {self.type!r}: "
                f"expected {self.context!r}, but got {context!r}."
            )
        for spec, child in zip(self._children, children, strict=True):
            spec._collect(child, found)

    def _check_keys(self, tree: Any) -> None:
        expected, got = set(_dict_keys(self)), set(tree)
        if expected != got:
            raise ValueError(
                f"Node keys mismatch; missing key(s): {sorted(expected - got, key=repr)}, "
                f"extra key(s): {sorted(got - expected, key=repr)}."
            )


def _dict_keys(spec: TreeSpec) -> Any:
    return spec.context[1] if spec.type is defaultdict else spec.context


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


_LEAF = LeafSpec()
PyTreeSpec = TreeSpec


def treespec_leaf() -> LeafSpec:
    """The structure of a leaf."""
    return _LEAF


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """True if the object is no node: its type is not registered, or `is_leaf` says so."""
    return (is_leaf is not None and is_leaf(tree)) or node_type(tree) is None


def _flatten(tree: Any, leaves: list[Any], is_leaf: Any) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else node_type(tree)
    if kind is None:
        leaves.append(tree)
        return _LEAF
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree from left to right, and its structure."""
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure with new leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of "
            f"TreeSpec but got item of type {type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree: Any, is_leaf: Any = None) -> Iterable[Any]:
    """The leaves, one after another."""
    kind = None if is_leaf is not None and is_leaf(tree) else node_type(tree)
    if kind is None:
        yield tree
        return
    for child in SUPPORTED_NODES[kind].flatten_fn(tree)[0]:
        yield from tree_iter(child, is_leaf)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """The leaves as a list."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Any = None) -> TreeSpec:
    """The structure alone."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """The tree with `func` applied to each leaf, and to what stands there in the other trees."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves] + [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(*row) for row in zip(*columns, strict=True)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """As `tree_map`, for what `func` does; the tree comes back as it is."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves] + [spec.flatten_up_to(r) for r in rests]
    for row in zip(*columns, strict=True):
        func(*row)
    return tree


def _chosen(types: Any) -> Callable[[Any], bool]:
    if isinstance(types, type | tuple) or not callable(types):
        return lambda x: isinstance(x, types)
    return types


def map_only(types: Any, /) -> Any:
    """A decorator: the function applies to leaves of these types, others stay."""
    chosen = _chosen(types)
    return lambda func: lambda x: func(x) if chosen(x) else x


def tree_map_only(types: Any, /, func: Any, tree: Any, is_leaf: Any = None) -> Any:
    """As `tree_map`, for leaves of some types only."""
    return tree_map(map_only(types)(func), tree, is_leaf=is_leaf)


def tree_map_only_(types: Any, /, func: Any, tree: Any, is_leaf: Any = None) -> Any:
    """As `tree_map_`, for leaves of some types only."""
    return tree_map_(map_only(types)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """True if all leaves are as the predicate wants."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """True if some leaf is as the predicate wants."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(types: Any, /, pred: Any, tree: Any, is_leaf: Any = None) -> bool:
    """As `tree_all`, for leaves of some types only."""
    return all(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, types))


def tree_any_only(types: Any, /, pred: Any, tree: Any, is_leaf: Any = None) -> bool:
    """As `tree_any`, for leaves of some types only."""
    return any(pred(x) for x in tree_iter(tree, is_leaf) if isinstance(x, types))


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Any = None) -> Any:
    """Leaves for a structure, one leaf standing for all below it; None if the tree does not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = node_type(tree)
    if treespec.is_leaf() or kind is not treespec.type:
        return None
    children, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        below = _broadcast_to_and_flatten(child, spec, is_leaf)
        if below is None:
            return None
        found += below
    return found


def _get_node_type(tree: Any) -> Any:
    """The type by which a node is taken apart."""
    return node_type(tree)


# paths ---------------------------------------------------------------------------------------


def tree_leaves_with_path(tree: Any, is_leaf: Any = None) -> list[tuple[Any, Any]]:
    """The leaves with their paths, each a tuple of keys."""
    return list(_paths((), tree, is_leaf))


def tree_flatten_with_path(
    tree: Any, is_leaf: Any = None
) -> tuple[list[tuple[Any, Any]], TreeSpec]:
    """The leaves with their paths, and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def _paths(path: tuple[Any, ...], tree: Any, is_leaf: Any) -> Iterator[tuple[Any, Any]]:
    kind = None if is_leaf is not None and is_leaf(tree) else node_type(tree)
    if kind is None:
        yield path, tree
        return
    keyed = SUPPORTED_NODES[kind].flatten_with_keys_fn
    if keyed is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {kind}. "
            "Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in keyed(tree)[0]:
        yield from _paths((*path, key), child, is_leaf)


def tree_map_with_path(func: Any, tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """As `tree_map`; the function gets the path first."""
    leaves, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(r) for r in rests]
    rows = zip(leaves, *columns, strict=True)
    return spec.unflatten([func(path, leaf, *others) for (path, leaf), *others in rows])


def keystr(kp: Iterable[Any]) -> str:
    """A path as Python would write it: `[0]['x'].y`."""
    return "".join(str(k) for k in kp)


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """What stands at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


# text ----------------------------------------------------------------------------------------


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """The structure as JSON."""
    from torchlike.utils import _pytree_json

    return _pytree_json.dumps(treespec, protocol)


def treespec_loads(serialized: str) -> TreeSpec:
    """The structure of a JSON text."""
    from torchlike.utils import _pytree_json

    return _pytree_json.loads(serialized)


def treespec_pprint(treespec: TreeSpec) -> str:
    """The tree with `*` in the place of the leaves."""

    class Star(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "*"

    return repr(treespec.unflatten([Star("*")] * treespec.num_leaves))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of the arguments of a call."""
    leaves: list[Any] = []
    for tree in (*args, *kwargs.values()):
        leaves += tree_leaves(tree)
    return leaves


def _register_pytree_node(cls: type, *args: Any, **kwargs: Any) -> None:
    """The old name of `register_pytree_node`; what was registered before gives way."""
    warnings.warn(
        "`torch.utils._pytree._register_pytree_node` is deprecated. "
        "Please use `torch.utils._pytree.register_pytree_node` instead.",
        FutureWarning,
        stacklevel=2,
    )
    if SUPPORTED_NODES.pop(cls, None) is not None:
        warnings.warn(
            f"{cls} is already registered as pytree node. Overwriting the previous registration.",
            stacklevel=2,
        )
    register_pytree_node(cls, *args, **kwargs)


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Says under which name structures with a named tuple are stored."""
    from torchlike.utils import _pytree_json

    _pytree_json.TUPLES[cls] = serialized_type_name


_is_leaf = tree_is_leaf


# The functions of Python's own containers, under the names by which other code takes them.
for _kind, _name in (
    (dict, "dict"),
    (list, "list"),
    (tuple, "tuple"),
    (OrderedDict, "ordereddict"),
    (defaultdict, "defaultdict"),
    (deque, "deque"),
    (namedtuple, "namedtuple"),
):
    _node = SUPPORTED_NODES[_kind]
    globals()[f"_{_name}_flatten"] = _node.flatten_fn
    globals()[f"_{_name}_unflatten"] = _node.unflatten_fn
    globals()[f"_{_name}_flatten_with_keys"] = _node.flatten_with_keys_fn
