"""Processes with unequal numbers of batches: nothing connects processes yet."""

from torchlike import _absent

__all__ = ["Join", "JoinHook", "Joinable"]

Join = _absent.kind(__name__, "Join", "nothing connects processes yet")
JoinHook = _absent.kind(__name__, "JoinHook", "nothing connects processes yet")
Joinable = _absent.kind(__name__, "Joinable", "nothing connects processes yet")
