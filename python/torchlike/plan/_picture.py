"""Pictures of a plan: the memory of a device over the step, by class; and a page of them."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from torchlike.plan._plan import CLASSES, human

if TYPE_CHECKING:
    from torchlike.plan._plan import Plan

WIDTH, HEIGHT, LEFT, TOP, LEGEND = 860, 300, 90, 30, 40
COLOURS = ("#4477aa", "#88ccee", "#aaaaaa", "#ddcc77", "#cc6677", "#117733", "#dddddd")
_POINTS = 800


def started(width: int, height: int, title: str) -> str:
    """The beginning of a picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><text x="8" y="16" font-size="12">{escape(title)}</text>'
    )


def _thinned(columns: list[list[int]]) -> list[tuple[int, ...]]:
    """At most so many moments of a timeline; of each stretch that with the highest sum."""
    rows = list(zip(*columns, strict=True))
    if len(rows) <= _POINTS:
        return rows
    cuts = [i * len(rows) // _POINTS for i in range(_POINTS + 1)]
    return [max(rows[a:b], key=sum) for a, b in pairwise(cuts)]


def svg(plan: Plan, device: str) -> str:
    """The memory of a device over the step as stacked areas."""
    timeline = plan.timeline(device)
    rows = _thinned([timeline[name] for name in CLASSES])
    top = max((sum(r) for r in rows), default=0) or 1
    steps = max(len(rows), 1)

    def x(i: int) -> float:
        return LEFT + WIDTH * i / steps

    def y(n: float) -> float:
        return TOP + HEIGHT * (1 - n / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + LEGEND}" '
        f'font-family="sans-serif" font-size="12">',
        f'<text x="{LEFT}" y="18">{escape(device)}: peak {human(plan.peak[device].bytes)} over {plan.steps:,} steps'
        "</text>",
    ]
    base = [0] * len(rows)
    for k, name in enumerate(CLASSES):
        if not any(r[k] for r in rows):
            continue
        upper = [b + r[k] for b, r in zip(base, rows, strict=True)]
        edge = [f"{x(i + d):.1f},{y(n):.1f}" for i, n in enumerate(upper) for d in (0, 1)]
        back = [f"{x(i + d):.1f},{y(n):.1f}" for i, n in enumerate(base) for d in (0, 1)]
        parts.append(
            f'<polygon fill="{COLOURS[k]}" points="{" ".join(edge + back[::-1])}"><title>{name}</title></polygon>'
        )
        base = upper
    for fraction in (0, 0.5, 1):
        at = y(top * fraction)
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#888" stroke-width="0.5"/>'
        )
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{human(top * fraction)}</text>'
        )
    for k, name in enumerate(CLASSES):
        at = LEFT + k * WIDTH / len(CLASSES)
        parts.append(
            f'<rect x="{at:.0f}" y="{TOP + HEIGHT + 14}" width="10" height="10" fill="{COLOURS[k]}"/>'
            f'<text x="{at + 14:.0f}" y="{TOP + HEIGHT + 23}">{name}</text>'
        )
    return "".join(parts) + "</svg>"


def page(plan: Plan) -> str:
    """One page with the report and a picture for each device."""
    drawn = [svg(plan, d) for d in plan.devices]
    if plan.mesh:
        from torchlike.plan._mesh_picture import sharding, traffic

        drawn += [sharding(plan), traffic(plan)]
    pictures = "<br>\n".join(drawn)
    return (
        '<!doctype html><html><head><meta charset="utf-8"><title>Plan</title></head><body>'
        f"{pictures}<pre>{escape(str(plan))}</pre></body></html>"
    )
