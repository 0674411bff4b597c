"""Pictures of a plan on a mesh: which rank has which part of which parameter, and who sends how much to whom."""

from __future__ import annotations

from html import escape
from math import prod
from typing import TYPE_CHECKING

from torchlike.plan._mesh import SHOWN
from torchlike.plan._picture import started
from torchlike.plan._plan import human

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.plan._plan import Plan

ROW, LEFT, TOP, WIDTH, MOST = 14, 360, 34, 512, 60


def sharding(plan: Plan) -> str:
    """A row for each of the largest parameters, a column for each of the first ranks.

    Ranks of one colour have the same part.
    """
    rows = sorted(plan.sharding, key=lambda s: -prod(s.shape))[:MOST]
    ranks = len(rows[0].parts) if rows else 0
    each = WIDTH / max(ranks, 1)
    title = f"Parts of the {len(rows)} largest of {len(plan.sharding)} parameters on ranks 0 to {ranks - 1}"
    parts = [started(LEFT + WIDTH + 20, TOP + ROW * len(rows) + 10, title)]
    for i, row in enumerate(rows):
        y = TOP + ROW * i
        name = f"{row.name} {list(row.shape)} {row.placements}: {human(row.bytes)}"
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 10}" text-anchor="end" textLength="{min(LEFT - 14, 6 * len(name))}" '
            f'lengthAdjust="spacingAndGlyphs">{escape(name)}</text>'
        )
        count = max(row.parts) + 1
        for rank, part in enumerate(row.parts):
            hue = 360 * part // count
            parts.append(
                f'<rect x="{LEFT + each * rank:.1f}" y="{y}" width="{each:.1f}" height="{ROW - 2}" '
                f'fill="hsl({hue},55%,60%)"><title>rank {rank}: part {part} of {count}</title></rect>'
            )
    return "".join(parts) + "</svg>"


def matrix(plan: Plan) -> list[list[int]]:
    """Bytes that the first ranks send to each other in a step.

    What one rank sends is taken for all. Gathers and reductions go round rings, exchanges to all alike: derived from
    the kinds of collectives, not measured.
    """
    sizes = list(plan.mesh.values())
    ranks = min(prod(sizes), SHOWN)
    sent = [[0] * ranks for _ in range(ranks)]
    for (kind, dim), (_, _, wire) in plan.traffic().items():
        if dim not in plan.mesh:
            continue
        at = list(plan.mesh).index(dim)
        step, n = prod(sizes[at + 1 :]), sizes[at]
        for rank in range(ranks):
            own = rank // step % n
            peers = [(own + 1) % n] if kind != "all_to_all" else [i for i in range(n) if i != own]
            for peer in peers:
                to = rank + (peer - own) * step
                if to < ranks:
                    sent[rank][to] += wire // len(peers)
    return sent


def traffic(plan: Plan) -> str:
    """Rows send, columns receive; the darker, the more."""
    sent = matrix(plan)
    return _squares(sent, f"Bytes between ranks 0 to {len(sent) - 1} in a step, on rings")


def _squares(sent: Sequence[Sequence[int]], title: str) -> str:
    each = max(6, min(24, WIDTH // max(len(sent), 1)))
    most = max((n for row in sent for n in row), default=0) or 1
    side = each * len(sent)
    parts = [started(side + 60, TOP + side + 10, title)]
    for i, row in enumerate(sent):
        for j, n in enumerate(row):
            light = 97 - 70 * n // most
            parts.append(
                f'<rect x="{40 + each * j}" y="{TOP + each * i}" width="{each}" height="{each}" stroke="#ddd" '
                f'stroke-width="0.3" fill="hsl(215,60%,{light}%)"><title>{i} to {j}: {human(n)}</title></rect>'
            )
    return "".join(parts) + "</svg>"
