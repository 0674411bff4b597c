"""Engines of quantised computation: none."""

from __future__ import annotations

engine = "none"
supported_engines = ["none"]
