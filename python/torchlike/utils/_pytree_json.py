"""Structures of trees as JSON, in PyTorch's form."""

from __future__ import annotations

import json
import sys
from collections import defaultdict, namedtuple
from enum import Enum
from typing import Any

from torchlike.utils._pytree import TreeSpec, treespec_leaf
from torchlike.utils._pytree_nodes import SUPPORTED_NODES, is_namedtuple_class

PROTOCOL = 1
#: The names under which classes of named tuples are stored.
TUPLES: dict[Any, str] = {}


def dumps(spec: TreeSpec, protocol: int | None) -> str:
    """`[protocol, node]`.

    Raises:
        TypeError: for what is no structure.
        ValueError: for another protocol.
        NotImplementedError: if a type has no name to be stored under.
    """
    if not isinstance(spec, TreeSpec):
        raise TypeError(
            f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(spec)}."
        )
    if protocol not in (None, PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: {[PROTOCOL]}")
    return json.dumps([PROTOCOL, _node(spec)])


def loads(text: str) -> TreeSpec:
    """The structure of such a text.

    Raises:
        ValueError: if it is of another protocol or names an unknown type.
    """
    protocol, node = json.loads(text)
    if protocol != PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: {[PROTOCOL]}")
    names = {d.serialized_type_name: kind for kind, d in SUPPORTED_NODES.items()}
    return _spec(node, names)


def _node(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    definition = SUPPORTED_NODES[spec.type]
    name = definition.serialized_type_name
    if name is None:
        raise NotImplementedError(
            f"No registered serialization name for {spec.type} found. "
            "Please update your _register_pytree_node call with a `serialized_type_name` kwarg."
        )
    if definition.to_dumpable_context is not None:
        context = json.dumps(definition.to_dumpable_context(spec.context))
    else:
        context = _dump_context(spec)
    return {"type": name, "context": context, "children_spec": [_node(c) for c in spec.children()]}


def _class_name(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _dump_context(spec: TreeSpec) -> str:
    if spec.type is defaultdict:
        factory, keys = spec.context
        made_by = (
            {
                "default_factory_module": factory.__module__,
                "default_factory_name": factory.__qualname__,
            }
            if factory
            else {}
        )
        return json.dumps({**made_by, "dict_context": keys})
    if spec.type is namedtuple:
        return json.dumps(TUPLES.get(spec.context) or _class_name(spec.context))
    try:
        return json.dumps(spec.context, default=_plain)
    except TypeError as e:
        raise TypeError(
            "Unable to serialize context. "
            "Please make the context json dump-able, or register a "
            "custom serializer using _register_pytree_node."
        ) from e


def _plain(value: Any) -> Any:
    """What stands for a member of an enumeration."""
    if isinstance(value, Enum):
        kind = type(value)
        return {
            "__enum__": True,
            "fqn": f"{kind.__module__}:{kind.__qualname__}",
            "name": value.name,
        }
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _member(value: dict[str, Any]) -> Any:
    """The member of an enumeration that was stored, if its class is imported; anything else as it is."""
    if "__enum__" not in value:
        return value
    module, _, path = value["fqn"].partition(":")
    kind: Any = sys.modules.get(module)
    for attribute in path.split("."):
        kind = getattr(kind, attribute, None)
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        raise NotImplementedError(f"Can't load a member of {path}: its class is not imported.")
    return kind[value["name"]]


def _load_context(kind: Any, text: str) -> Any:
    value = json.loads(text, object_hook=_member)
    if kind is defaultdict:
        return [_builtin(value.get("default_factory_name")), value["dict_context"]]
    if kind is namedtuple:
        return _registered_tuple(value)
    return value


def _builtin(name: str | None) -> Any:
    known = {
        "list": list,
        "dict": dict,
        "set": set,
        "int": int,
        "float": float,
        "str": str,
        "tuple": tuple,
    }
    if name is not None and name not in known:
        raise ValueError(f"unknown default factory {name!r} in a structure")
    return known.get(name) if name else None


def _registered_tuple(name: str) -> Any:
    for cls, stored in TUPLES.items():
        if stored == name:
            return cls
    module, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(module), attribute, None)
    if not is_namedtuple_class(found):
        raise NotImplementedError(f"Can't load named tuple {name}: its class is not imported.")
    return found


def _spec(node: dict[str, Any], names: dict[Any, Any]) -> TreeSpec:
    name = node["type"]
    if name is None:
        return treespec_leaf()
    kind = names.get(name)
    if kind is None:
        raise ValueError(f"Deserializing {name} in pytree is not registered.")
    definition = SUPPORTED_NODES[kind]
    if definition.from_dumpable_context is not None:
        context = definition.from_dumpable_context(json.loads(node["context"]))
    else:
        context = _load_context(kind, node["context"])
    return TreeSpec(kind, context, [_spec(c, names) for c in node["children_spec"]])
