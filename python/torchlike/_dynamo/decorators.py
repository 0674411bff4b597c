"""Marks on functions and tensors: nothing is compiled, so they say nothing."""

from __future__ import annotations

from dataclasses import dataclass

from torchlike import _absent
from torchlike._dynamo import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    error_on_graph_break,
    forbid_in_graph,
    graph_break,
    mark_dynamic,
    mark_static,
    mark_static_address,
    maybe_mark_dynamic,
    nonstrict_trace,
    run,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "error_on_graph_break",
    "forbid_in_graph", "graph_break", "mark_dynamic", "mark_static", "mark_static_address", "maybe_mark_dynamic",
    "nonstrict_trace", "run", "set_stance", "substitute_in_graph",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _DimRange:
    """The sizes that a dimension of a tensor may have; files of jagged tensors hold them."""

    dim: int
    min: int | None
    max: int | None


globals().update(
    _absent.names(
        __name__,
        "nothing is compiled",
        "CudagraphOverrideContextManager DynamoConfigPatchProxy ErrorOnGraphBreakDecoratorContextManager allow_c_slot "
        "disable_nested_graph_breaks dont_skip_tracing is_dynamo_disable_recursive leaf_function mark_unbacked "
        "override_cudagraphs override_optimization_hint patch_dynamo_config skip skip_frame step_unsupported",
    )
)
