"""A picture of a pipeline: a row for each rank, a box for each action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlike.plan._picture import started
from torchlike.plan._plan import duration

if TYPE_CHECKING:
    from torchlike.plan._pipeline import Pipeline

WIDTH, ROW, LEFT, TOP = 1100, 26, 60, 34
_LIGHT = {"F": 62, "B": 45, "I": 45, "W": 78}


def svg(pipeline: Pipeline) -> str:
    """Hues are stages; forwards are light, backwards dark, gradients of parameters alone pale. What is empty waits."""
    title = f"{pipeline.schedule}: {pipeline.seconds * 1e3:,.2f} ms, {pipeline.bubble:.1%} waiting"
    parts = [started(LEFT + WIDTH + 20, TOP + ROW * pipeline.ranks + 10, title)]
    names = range(pipeline.ranks)
    parts += [f'<text x="8" y="{TOP + ROW * rank + 16}">rank {rank}</text>' for rank in names]
    each = WIDTH / pipeline.seconds if pipeline.seconds else 0.0
    for rank, action, start, end in pipeline.ran:
        wide = (end - start) * each
        x, y = LEFT + start * each, TOP + ROW * rank
        hue = 360 * action.stage // len(pipeline.stages)
        parts.append(
            f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{ROW - 4}" stroke="#fff" stroke-width="0.5" '
            f'fill="hsl({hue},55%,{_LIGHT[action.kind]}%)"><title>{action}: {duration(start)} to {duration(end)}'
            "</title></rect>"
        )
        if wide > 16:
            parts.append(
                f'<text x="{x + wide / 2:.1f}" y="{y + 15}" text-anchor="middle" font-size="10">'
                f"{action.microbatch}</text>"
            )
    return "".join(parts) + "</svg>"
