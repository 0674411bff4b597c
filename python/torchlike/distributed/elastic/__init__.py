"""Processes that may come and go: there are no process groups."""
