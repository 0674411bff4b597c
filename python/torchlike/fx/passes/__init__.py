"""Passes: functions and classes that look at graphs or change them."""

from torchlike.fx.passes import (
    fake_tensor_prop,
    graph_drawer,
    graph_manipulation,
    infra,
    operator_support,
    param_fetch,
    shape_prop,
    split_module,
    split_utils,
    tools_common,
)
