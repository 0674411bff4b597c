"""Pipes of data: their classes are there to be asked for; none are made."""

from torchlike.utils.data.datapipes import datapipe, iter
