"""Processes started together."""
