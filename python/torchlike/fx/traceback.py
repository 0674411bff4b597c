"""Notes that nodes take over while a graph is traced again, and where nodes come from."""

from __future__ import annotations

import contextlib
import copy
import functools
import traceback
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "NodeSource",
    "NodeSourceAction",
    "annotate",
    "annotate_fn",
    "format_stack",
    "get_current_meta",
    "get_current_replay_node",
    "get_graph_provenance_json",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_current_replay_node",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]

_COPIED = (
    "nn_module_stack",
    "torch_fn",
    "source_fn_stack",
    "original_aten",
    "recompute",
    "ac_graph_id",
    "from_node",
    "quantization_tag",
    "_numeric_debug_handle",
    "custom",
    "partitioner_tag",
)
current_meta: dict[str, Any] = {}
current_replay_node: Any = None
should_preserve_node_meta = False


class NodeSourceAction(Enum):
    """What a pass did to make a node of another."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """The node that another one was made of, by which pass, and what that one was made of."""

    def __init__(self, node: Any, pass_name: str = "", action: Any = None) -> None:
        self.pass_name = pass_name
        actions = action if isinstance(action, list) else [action or NodeSourceAction.CREATE]
        self.action: list[NodeSourceAction] = actions
        self.node_info: tuple[str, str, int] | None = None
        self.from_node: list[NodeSource] = []
        if node is not None:
            self.node_info = (node.name, str(node.target), id(node.graph))
            self.from_node = copy.deepcopy(node.meta.get("from_node", []))

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node_info[0] if self.node_info else ""

    @property
    def target(self) -> str:
        """What the node called."""
        return self.node_info[1] if self.node_info else ""

    @property
    def graph_id(self) -> int:
        """Which graph the node was in."""
        return self.node_info[2] if self.node_info else -1

    def _get_action_string(self) -> str:
        return "+".join(a.name.lower() for a in self.action)

    def __repr__(self) -> str:
        return self.print_readable()

    def print_readable(self, indent: int = 0) -> str:
        """The chain of nodes as text."""
        if indent > 9:
            return ""
        text = (
            " " * indent * 4 + f"(name={self.name}, pass_name={self.pass_name}, "
            f"action={self._get_action_string()}, graph_id={self.graph_id})\n"
        )
        return text + "".join(item.print_readable(indent + 1) for item in self.from_node)

    def to_dict(self) -> dict[str, Any]:
        """The chain of nodes as plain data."""
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._get_action_string(),
            "from_node": [n.to_dict() for n in self.from_node],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(repr(self.to_dict()))


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Inside, new nodes take over the notes of the node that is being run."""
    global should_preserve_node_meta, current_meta
    saved = should_preserve_node_meta, current_meta.copy()
    try:
        should_preserve_node_meta = enable
        yield
    finally:
        should_preserve_node_meta, current_meta = saved


def has_preserved_node_meta() -> bool:
    """True inside of `preserve_node_meta()`."""
    return should_preserve_node_meta


def set_stack_trace(stack: list[str]) -> None:
    """The place in the program that new nodes note."""
    if should_preserve_node_meta and stack:
        current_meta["stack_trace"] = "".join(stack)


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Inside, new nodes have these entries in `meta["custom"]`."""
    before = current_meta.get("custom")
    try:
        current_meta["custom"] = {**(before or {}), **annotation_dict}
        yield
    finally:
        if before is None:
            current_meta.pop("custom", None)
        else:
            current_meta["custom"] = before


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Any], Any]:
    """A decorator: `annotate` around every call."""

    def mark(func: Any) -> Any:
        @functools.wraps(func)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return func(*args, **kwargs)

        return annotated

    return mark


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """The number of the backward node that new nodes note."""
    if should_preserve_node_meta:
        stack = current_meta.get("grad_fn_seq_nr", [])
        current_meta["grad_fn_seq_nr"] = [*stack, seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


def reset_grad_fn_seq_nr() -> None:
    """Takes back the last `set_grad_fn_seq_nr`."""
    if not should_preserve_node_meta:
        return
    depth = current_meta.get("in_grad_fn", 0)
    if depth > 1:
        current_meta["in_grad_fn"] = depth - 1
        current_meta["grad_fn_seq_nr"] = current_meta["grad_fn_seq_nr"][:-1]
    else:
        current_meta.pop("in_grad_fn", None)
        current_meta.pop("grad_fn_seq_nr", None)


def format_stack() -> list[str]:
    """Where the program is, or where the node that is being run came from."""
    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """Inside, the notes of this node are those that new nodes take over."""
    global current_meta
    if not should_preserve_node_meta or not node.meta:
        yield
        return
    saved = current_meta
    try:
        current_meta = node.meta.copy()
        current_meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
        yield
    finally:
        current_meta = saved


def get_current_meta() -> dict[str, Any]:
    """The notes that new nodes take over."""
    return current_meta


@contextlib.contextmanager
def set_current_replay_node(node: Any) -> Iterator[None]:
    """Inside, this is the node that is being run again."""
    global current_replay_node
    saved = current_replay_node
    try:
        current_replay_node = node
        yield
    finally:
        current_replay_node = saved


def get_current_replay_node() -> Any:
    """The node that is being run again, or None."""
    return current_replay_node


def get_graph_provenance_json(graph: Any) -> dict[str, Any]:
    """For each call of a graph, what it was made of."""
    return {
        n.name: [source.to_dict() for source in n.meta["from_node"]]
        for n in graph.nodes
        if n.op.startswith("call_") and "from_node" in n.meta
    }


def _copy_current_meta(node: Any) -> None:
    """Gives a new node the notes of the one that is being run."""
    if current_meta.get("stack_trace"):
        node.stack_trace = current_meta["stack_trace"]
    for field in _COPIED:
        if field in current_meta:
            node.meta[field] = copy.copy(current_meta[field])
    if current_meta.get("grad_fn_seq_nr"):
        node.meta["seq_nr"] = current_meta["grad_fn_seq_nr"][-1]


def _user_stack(hidden: tuple[str, ...], forward_only: bool) -> str:
    """The frames of the traced program, from its first `forward` on."""
    frames = [f for f in traceback.extract_stack() if not f.filename.endswith(hidden)]
    names = [f.name for f in frames]
    if forward_only:
        frames = [f for f in frames if f.name == "forward"]
    elif "forward" in names:
        frames = frames[names.index("forward") :]
    else:
        return ""
    return "".join(traceback.format_list(frames)).strip()
