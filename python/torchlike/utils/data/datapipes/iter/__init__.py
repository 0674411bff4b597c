"""Pipes that are gone through."""

from torchlike.utils.data.datapipes.iter import combinatorics
