"""Processes with unequal numbers of batches: there are no process groups."""

from torchlike import _absent

__all__ = ["Join", "JoinHook", "Joinable"]

Join = _absent.kind(__name__, "Join", "there are no process groups")
JoinHook = _absent.kind(__name__, "JoinHook", "there are no process groups")
Joinable = _absent.kind(__name__, "Joinable", "there are no process groups")
