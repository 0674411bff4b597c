"""Running passes one after the other, as often as they change something."""

from __future__ import annotations

import inspect
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Any

from torchlike.fx.graph_module import GraphModule
from torchlike.fx.passes.infra.pass_base import PassResult
from torchlike.nn import Module

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn: Any) -> Any:
    """A pass of a function that gives a module, or changes the one it gets."""
    if fn is None:
        return None

    @wraps(fn)
    def wrapped(gm: Module) -> PassResult | None:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        if isinstance(result, PassResult):
            return result
        return PassResult(result, True) if isinstance(result, Module) else None

    if not inspect.isfunction(fn):
        wrapped.__name__ = type(fn).__name__
    return wrapped


def _validate_pass_schedule_constraint(constraint: Any, passes: list[Any]) -> None:
    for i, a in enumerate(passes):
        for j, b in enumerate(passes[i + 1 :]):
            if not constraint(a, b):
                raise RuntimeError(
                    f"pass schedule constraint violated. Expected {a} before {b} "
                    f"but found {a} at index {i} and {b} at index {j} in pass list."
                )


def _topological_sort_passes(passes: list[Any], constraints: list[Any]) -> list[Any]:
    """The passes in an order that the constraints allow."""
    if not constraints:
        return passes
    behind: dict[Any, list[Any]] = {p: [] for p in passes}
    waiting = dict.fromkeys(passes, 0)
    for a in passes:
        for b in passes:
            if a is not b and any(not allowed(a, b) for allowed in constraints):
                behind[b].append(a)
                waiting[a] += 1
    ready = deque(p for p in passes if not waiting[p])
    found = []
    while ready:
        p = ready.popleft()
        found.append(p)
        for after in behind[p]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    left = [p for p in passes if waiting[p]]
    if left:
        raise RuntimeError(f"Circular dependency detected within the following passes: {left}")
    return found


def this_before_that_pass_constraint(this: Any, that: Any) -> Callable[[Any, Any], bool]:
    """A constraint: one pass runs before another one."""
    return lambda a, b: a != that or b != this


class PassManager:
    """Runs passes in order.

    Args:
        passes: take a module and give a `PassResult`.
        constraints: say of two passes whether the first may run before the second.
        steps: how often all are run; they stop earlier once nothing changes.
        run_checks_after_each_pass: the check runs after every pass.
        suppress_check_failures: accepted.
    """

    steps: int = 1
    _validated: bool = False

    def __init__(
        self,
        passes: list[Any] | None = None,
        constraints: list[Any] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ) -> None:
        self.passes: list[Any] = passes or []
        self.constraints: list[Any] = constraints or []
        if steps:
            self.steps = steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures

    def add_pass(self, _pass: Any) -> None:
        """Adds a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Any) -> None:
        """Adds a constraint."""
        self.constraints.append(constraint)
        self._validated = False

    def validate_constraints(self) -> None:
        """Checks the order of the passes.

        Raises:
            RuntimeError: if a constraint is not kept.
        """
        if not self._validated:
            for constraint in self.constraints:
                _validate_pass_schedule_constraint(constraint, self.passes)
            self._validated = True

    def solve_constraints(self) -> None:
        """Orders the passes as the constraints say."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def add_checks(self, check: Any) -> None:
        """Chooses the check, a function of a module."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError("PassManager check function should only take in one variable, a module")
        self.__dict__["check"] = check

    def check(self, module: Module) -> None:
        """Checks a module; the one here accepts all."""

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            modified = False
            for i, fn in enumerate(self.passes):
                module, now = self._run(fn, i, module)
                modified = modified or now
            changed = changed or modified
            if not modified:
                break
        return PassResult(module, changed)

    def _run(self, fn: Any, i: int, module: Module) -> tuple[Module, bool]:
        name = _name(fn)
        try:
            result = fn(module)
            if not isinstance(result, PassResult) and not hasattr(result, "graph_module"):
                raise TypeError(
                    f"The result of the pass {name} should be type PassResult."
                    "Please wrap it with pass_result_wrapper()"
                )
            if isinstance(result.graph_module, GraphModule):
                result.graph_module.recompile()
            if self.run_checks_after_each_pass:
                self.check(result.graph_module)
        except Exception as e:
            before = [_name(p) for p in self.passes[:i]]
            raise Exception(
                f"An error occurred when running the '{name}' pass after the following passes: "
                f"{before}"
            ) from e
        return result.graph_module, result.modified


def _name(fn: Any) -> str:
    return fn.__name__ if inspect.isfunction(fn) else type(fn).__name__
