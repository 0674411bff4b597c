"""Integers as expressions of sizes, found from their values."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement

Monomial = tuple[str, ...]
_LARGEST_DIVISOR = 64


@dataclass(frozen=True)
class Expr:
    """A sum of products of sizes with whole factors, or `(size + shift) // divisor` times a factor, plus a number."""

    terms: tuple[tuple[Monomial, int], ...]
    constant: int
    quotient: tuple[str, int, int, int] | None = None  # size, shift, divisor, factor

    def __str__(self) -> str:
        parts = ["*".join([*([str(f)] if f != 1 else []), *names]) for names, f in self.terms]
        if self.quotient is not None:
            name, shift, divisor, factor = self.quotient
            inner = f"({name} + {shift})" if shift else name
            parts.append(
                f"({inner}//{divisor})" if factor == 1 else f"{factor}*({inner}//{divisor})"
            )
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)

    def at(self, sizes: dict[str, int]) -> int:
        """The value for these sizes."""
        total = self.constant
        for names, factor in self.terms:
            for name in names:
                factor *= sizes[name]
            total += factor
        if self.quotient is not None:
            name, shift, divisor, factor = self.quotient
            total += factor * ((sizes[name] + shift) // divisor)
        return total

    def sympy(self, symbols: dict[str, str]) -> str:
        """The expression as `sympy.srepr` writes it, which archives have."""

        def symbol(name: str) -> str:
            return f"Symbol('{symbols[name]}', positive=True, integer=True)"

        parts = []
        for names, factor in self.terms:
            factors = [f"Integer({factor})"] if factor != 1 else []
            factors += [symbol(n) for n in names]
            parts.append(factors[0] if len(factors) == 1 else f"Mul({', '.join(factors)})")
        if self.quotient is not None:
            name, shift, divisor, factor = self.quotient
            inner = symbol(name) if not shift else f"Add({symbol(name)}, Integer({shift}))"
            text = f"FloorDiv({inner}, Integer({divisor}))"
            parts.append(text if factor == 1 else f"Mul(Integer({factor}), {text})")
        if self.constant or not parts:
            parts.append(f"Integer({self.constant})")
        return parts[0] if len(parts) == 1 else f"Add({', '.join(parts)})"


def fit(points: list[dict[str, int]], values: list[int]) -> Expr | int | None:
    """The simplest expression that has these values at these points; None if there is none."""
    if len(set(values)) == 1:
        return values[0]
    names = list(points[0])
    linear: list[Monomial] = [(n,) for n in names]
    products = linear + list(combinations_with_replacement(names, 2))
    for basis in (linear, products):
        found = _solve(basis, points, values)
        if found is not None:
            return found
    return _quotient(points, values)


def _solve(basis: list[Monomial], points: list[dict[str, int]], values: list[int]) -> Expr | None:
    """Whole factors of the basis, by elimination; every point has to fit."""
    rows = []
    for point, value in zip(points, values, strict=True):
        row = [Fraction(1)]
        for names in basis:
            product = Fraction(1)
            for name in names:
                product *= point[name]
            row.append(product)
        rows.append([*row, Fraction(value)])
    count = len(basis) + 1
    pivots: list[int] = []
    for column in range(count):
        at = next((i for i in range(len(pivots), len(rows)) if rows[i][column]), None)
        if at is None:
            continue
        rank = len(pivots)
        rows[rank], rows[at] = rows[at], rows[rank]
        head = rows[rank][column]
        rows[rank] = [x / head for x in rows[rank]]
        for i, row in enumerate(rows):
            if i != rank and row[column]:
                scale = row[column]
                rows[i] = [a - scale * b for a, b in zip(row, rows[rank], strict=True)]
        pivots.append(column)
    if any(row[-1] for row in rows[len(pivots) :]):
        return None
    # with fewer points than unknowns nothing would have been checked
    if len(pivots) >= len(points):
        return None
    factors = [Fraction(0)] * count
    for i, column in enumerate(pivots):
        factors[column] = rows[i][-1]
    if any(f.denominator != 1 for f in factors):
        return None
    terms = tuple((m, int(f)) for m, f in zip(basis, factors[1:], strict=True) if f)
    return Expr(terms, int(factors[0]))


def _quotient(points: list[dict[str, int]], values: list[int]) -> Expr | None:
    """`factor * ((size + shift) // divisor) + constant`, of one size."""
    for name in points[0]:
        sizes = [p[name] for p in points]
        by_size: dict[int, set[int]] = {}
        for size, value in zip(sizes, values, strict=True):
            by_size.setdefault(size, set()).add(value)
        if len(by_size) < 4 or any(len(v) > 1 for v in by_size.values()):
            continue
        for divisor in range(2, _LARGEST_DIVISOR):
            for shift in range(divisor):
                steps = [(s + shift) // divisor for s in sizes]
                found = _line(steps, values)
                if found is not None:
                    return Expr((), found[1], (name, shift, divisor, found[0]))
    return None


def _line(xs: list[int], ys: list[int]) -> tuple[int, int] | None:
    """The whole factor and constant of a line through all points."""
    pairs = sorted(set(zip(xs, ys, strict=True)))
    if len(pairs) < 3:
        return None
    (x0, y0), (x1, y1) = pairs[0], pairs[-1]
    if x1 == x0 or (y1 - y0) % (x1 - x0):
        return None
    factor = (y1 - y0) // (x1 - x0)
    constant = y0 - factor * x0
    return (factor, constant) if all(y == factor * x + constant for x, y in pairs) else None


def sample_sizes(low: int, high: int, example: int, count: int) -> list[int]:
    """Sizes within a range, the example first, without common factors as far as there are any."""
    low = max(low, 2)
    wanted = [example] if example >= 2 else []
    # a program that is another one at small or large sizes should show it
    far = min(high, max(4 * example + 1, 67))
    near = [low, far, example + 1, 2 * example + 1, example + 2, example + 3, example - 1]
    for size in [*near, *range(low, min(high, low + 64) + 1)]:
        if len(wanted) >= count:
            break
        if low <= size <= high and size not in wanted:
            wanted.append(size)
    return wanted
