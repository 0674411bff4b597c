"""XNNPACK: not used."""

from __future__ import annotations

enabled = False
