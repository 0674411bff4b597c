"""Processes that may come and go, which torchlike has not."""
