"""A search along a line for a point that satisfies the strong Wolfe conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Point(NamedTuple):
    """A place on the line: how far, the loss, the gradient, and the gradient along the line."""

    t: Any
    loss: Any
    grad: Any
    slope: Any


def _cubic_interpolate(a: Point, b: Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two points with their slopes is least, within bounds."""
    low, high = bounds or ((a.t, b.t) if a.t <= b.t else (b.t, a.t))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    left, right = (a, b) if a.t <= b.t else (b, a)
    least = right.t - (right.t - left.t) * (
        (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2)
    )
    return min(max(least, low), high)


class WolfeSearch:
    """One search: ``evaluate(t)`` gives the loss and the gradient at a distance from the start."""

    def __init__(
        self,
        evaluate: Callable[[Any], tuple[Any, Any]],
        direction: Any,
        start: Point,
        c1: float = 1e-4,
        c2: float = 0.9,
    ) -> None:
        self.evaluate, self.direction, self.start = evaluate, direction, start
        self.c1, self.c2 = c1, c2
        self.evaluations = 0

    def at(self, t: Any) -> Point:
        """The point at a distance."""
        loss, grad = self.evaluate(t)
        self.evaluations += 1
        return Point(t, loss, grad, grad.dot(self.direction))

    def too_high(self, point: Point) -> bool:
        """The loss has not fallen as the slope promised."""
        return bool(point.loss > self.start.loss + self.c1 * point.t * self.start.slope)

    def flat(self, point: Point) -> bool:
        """The slope is small enough to stop."""
        return bool(abs(point.slope) <= -self.c2 * self.start.slope)

    def run(self, t: Any, tolerance_change: float = 1e-9, max_ls: int = 25) -> Point:
        """The best point found, starting with distance ``t``."""
        bracket, rounds = self._bracket(t, max_ls)
        if len(bracket) == 1:
            return bracket[0]
        return self._narrow(bracket, rounds, tolerance_change, max_ls)

    def _bracket(self, t: Any, max_ls: int) -> tuple[list[Point], int]:
        """Two points with a good one between them, or one that is good itself, and how many steps it took."""
        before, point = self.start._replace(t=0), self.at(t)
        for rounds in range(max_ls):
            if self.too_high(point) or (rounds > 1 and point.loss >= before.loss):
                return [before, point], rounds
            if self.flat(point):
                return [point], rounds
            if point.slope >= 0:
                return [before, point], rounds
            bounds = (point.t + 0.01 * (point.t - before.t), point.t * 10)
            before, point = point, self.at(_cubic_interpolate(before, point, bounds))
        return [self.start._replace(t=0), point], max_ls

    def _narrow(
        self, bracket: list[Point], rounds: int, tolerance_change: float, max_ls: int
    ) -> Point:
        """A good point between two others, or the best one found."""
        size = self.direction.abs().max()
        low, high = bracket if bracket[0].loss <= bracket[1].loss else bracket[::-1]
        stuck = False
        while rounds < max_ls and not abs(high.t - low.t) * size < tolerance_change:
            t, stuck = _within(low, high, stuck)
            point = self.at(t)
            rounds += 1
            if self.too_high(point) or point.loss >= low.loss:
                low, high = (low, point) if low.loss <= point.loss else (point, low)
                continue
            if self.flat(point):
                return point
            if point.slope * (high.t - low.t) >= 0:
                high = low
            low = point
        return low


def _within(low: Point, high: Point, stuck: bool) -> tuple[Any, bool]:
    """The next distance to try, kept off the ends if the last one was near them too."""
    t = _cubic_interpolate(low, high)
    least, most = min(low.t, high.t), max(low.t, high.t)
    margin = 0.1 * (most - least)
    if not min(most - t, t - least) < margin:
        return t, False
    if not (stuck or t >= most or t <= least):
        return t, True
    return (most - margin if abs(t - most) < abs(t - least) else least + margin), False
