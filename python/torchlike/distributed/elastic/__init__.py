"""Processes that may come and go: nothing connects processes yet."""
