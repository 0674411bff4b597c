"""Quantisation of graphs, which is not there; the operators that such graphs are made of are."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__, "models are quantised as they are, not as graphs", "convert fuse prepare"
    )
)
