"""Passes over graphs: their base class, running many, and choosing parts of a graph."""

from torchlike.fx.passes.infra import pass_manager
