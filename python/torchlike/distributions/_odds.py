"""What distributions share that take a probability, or its log odds."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
)


class Odds:
    """A probability or its log odds: whichever is given, the other follows."""

    total_count: Any
    _param: Any

    def _take(self, probs: Any, logits: Any, total_count: Any = None) -> Any:
        """Takes what is given, broadcast with counts if there are any; the shape of the batch.

        Raises:
            ValueError: if both or none are given.
        """
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        given = probs if probs is not None else logits
        if total_count is None:
            (value,) = broadcast_all(given)
        else:
            total_count, value = broadcast_all(total_count, given)
            self.total_count = total_count.type_as(value)
        setattr(self, "logits" if probs is None else "probs", value)
        self._param = value
        alone = total_count is None and isinstance(given, int | float)
        return torchlike.Size() if alone else value.size()

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> Any:
        """Log odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._param.size()
