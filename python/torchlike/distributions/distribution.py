"""The base of distributions."""

from __future__ import annotations

import warnings
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.utils import lazy_property

__all__ = ["Distribution"]


class Distribution:
    """Probabilities of values: a batch of distributions (`batch_shape`) of values of shape `event_shape`."""

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Sets whether arguments are checked.

        Raises:
            ValueError: if it is no truth value.
        """
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Any = torchlike.Size([]),
        event_shape: Any = torchlike.Size([]),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            wanted = {}
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
        for name, constraint in wanted.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # made of another parameter
            value = getattr(self, name)
            valid = constraint.check(value)
            if not valid.is_meta and not valid._is_all_true():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                    f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n"
                    f"{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The distribution with a batch of this shape."""
        raise NotImplementedError

    @property
    def batch_shape(self) -> Any:
        """The shape of the batch."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of a value."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """What each parameter may be."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """What values there are."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most likely value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        """Values, or a batch of them, without gradients."""
        with torchlike.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = torchlike.Size()) -> Any:
        """Values that are functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """`n` values."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.",
            FutureWarning,
            stacklevel=2,
        )
        return self.sample(torchlike.Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability or density of values."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The probability of what is not above these values."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The values of these cumulated probabilities."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values there are."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The entropy."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """The exponential of the entropy."""
        return torchlike.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = torchlike.Size()) -> Any:
        if not isinstance(sample_shape, torchlike.Size):
            sample_shape = torchlike.Size(sample_shape)
        return torchlike.Size(sample_shape + self._batch_shape + self._event_shape)

    def _validate_sample(self, value: Any) -> None:
        if not isinstance(value, torchlike.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = len(value.size()) - len(self._event_shape)
        if value.size()[start:] != self._event_shape:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.size()} vs {self._event_shape}."
            )
        actual, expected = value.size(), self._batch_shape + self._event_shape
        for i, j in zip(reversed(actual), reversed(expected), strict=False):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {actual} vs {expected}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        valid = support.check(value)
        if not valid.is_meta and not valid._is_all_true():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method must "
                "also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _expanded(self, cls: Any, batch_shape: Any, _instance: Any, names: Any) -> Any:
        """A distribution of a class with parameters of the batch's shape, of those that this one has."""
        new = self._get_checked_instance(cls, _instance)
        batch_shape = torchlike.Size(batch_shape)
        for name, event_dim in names.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                shape = batch_shape + value.shape[value.dim() - event_dim :]
                setattr(new, name, value.expand(shape))
        parent: Any = super(cls, new)
        parent.__init__(batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        names = [k for k in self.arg_constraints if k in self.__dict__]
        shown = (
            f"{p}: {self.__dict__[p] if self.__dict__[p].numel() == 1 else self.__dict__[p].size()}"
            for p in names
        )
        return f"{self.__class__.__name__}({', '.join(shown)})"
