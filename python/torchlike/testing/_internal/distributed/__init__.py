"""Worlds of processes for tests."""
