"""Types of values, for annotations in generated code."""

from __future__ import annotations

from typing import Any

from torchlike.fx.proxy import Proxy


def annotate(val: Any, type: Any) -> Any:
    """Notes the type of a traced value; any other value comes back as it is."""
    if isinstance(val, Proxy):
        if val.node.type:
            raise RuntimeError(
                "Tried to annotate a value that already had a type on it! "
                f"Existing type is {val.node.type} and new type is {type}. This could happen if you "
                "tried to annotate a function parameter value (in which case you should use the type "
                "slot on the function signature) or you called annotate on the same value twice"
            )
        val.node.type = type
    return val
