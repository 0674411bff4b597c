"""Helpers for several processes: none."""
