"""Running functions of modules one after the other."""

from __future__ import annotations

import logging
from functools import wraps
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from torchlike.fx.passes.infra.pass_manager import (
    _validate_pass_schedule_constraint,
    this_before_that_pass_constraint,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]

logger = logging.getLogger(__name__)


def inplace_wrapper(fn: Any) -> Any:
    """A pass of a function that changes the module it gets."""

    @wraps(fn)
    def wrapped(gm: Any, *args: Any, **kwargs: Any) -> Any:
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn: Any, level: int = logging.INFO) -> Any:
    """The pass, which writes what it gave to the log."""

    @wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, value)
        return value

    return wrapped


def loop_pass(
    base_pass: Any, n_iter: int | None = None, predicate: Callable[[Any], bool] | None = None
) -> Any:
    """The pass a number of times, or as long as a predicate says."""
    if (n_iter is not None) == (predicate is not None):
        raise AssertionError("Exactly one of `n_iter`or `predicate` must be specified.")

    @wraps(base_pass)
    def looped(source: Any) -> Any:
        if predicate is not None:
            while predicate(source):
                source = base_pass(source)
            return source
        if n_iter is None or n_iter <= 0:
            raise RuntimeError(
                f"loop_pass must be given positive int n_iter (given {n_iter}) "
                f"xor predicate (given {predicate})"
            )
        for _ in range(n_iter):
            source = base_pass(source)
        return source

    return looped


def these_before_those_pass_constraint(these: Any, those: Any) -> Callable[[Any, Any], bool]:
    """A constraint: passes that wrap one function run before those that wrap another."""
    return lambda a, b: unwrap(a) != those or unwrap(b) != these


class PassManager:
    """Runs functions of modules in order."""

    _validated: bool = False

    def __init__(
        self, passes: list[Any] | None = None, constraints: list[Any] | None = None
    ) -> None:
        self.passes: list[Any] = passes or []
        self.constraints: list[Any] = constraints or []

    @classmethod
    def build_from_passlist(cls, passes: list[Any]) -> PassManager:
        """A manager of these passes."""
        return PassManager(passes)

    def add_pass(self, _pass: Any) -> None:
        """Adds a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Any) -> None:
        """Adds a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def remove_pass(self, _passes: list[str]) -> None:
        """Takes passes of these names out."""
        if _passes is not None:
            self.passes = [p for p in self.passes if p.__name__ not in _passes]
            self._validated = False

    def replace_pass(self, _target: Any, _replacement: Any) -> None:
        """Puts another pass in the place of those with the name of one."""
        name = _target.__name__
        self.passes = [_replacement if p.__name__ == name else p for p in self.passes]
        self._validated = False

    def validate(self) -> None:
        """Checks the order of the passes.

        Raises:
            RuntimeError: if a constraint is not kept.
        """
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True

    def __call__(self, source: Any) -> Any:
        self.validate()
        for p in self.passes:
            source = p(source)
        return source
