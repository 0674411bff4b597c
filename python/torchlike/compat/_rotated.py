"""Overlaps of rotated boxes, for torchvision's operator of that name."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch

_EPS = 1e-5


def _corners(boxes: Any) -> Any:
    """The corners of boxes `[..., (x, y, w, h, degrees)]` in order: `[..., 4, 2]`."""
    angle = boxes[..., 4:5] * (math.pi / 180)
    cos, sin = angle.cos() / 2, angle.sin() / 2
    w, h = boxes[..., 2:3], boxes[..., 3:4]
    along = torch.cat((cos * w, -sin * w), -1)
    across = torch.cat((sin * h, cos * h), -1)
    centre = boxes[..., :2]
    return torch.stack(
        (
            centre - along - across,
            centre + along - across,
            centre + along + across,
            centre - along + across,
        ),
        -2,
    )


def _cross(a: Any, b: Any) -> Any:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _inside(points: Any, corners: Any) -> Any:
    """Which points lie in a rectangle, edges included: `[..., P]`."""
    origin = corners[..., :1, :]
    found = []
    for side in (corners[..., 1:2, :] - origin, corners[..., 3:4, :] - origin):
        at = ((points - origin) * side).sum(-1)
        found.append((at >= -_EPS) & (at <= (side * side).sum(-1) + _EPS))
    return found[0] & found[1]


def _crossings(a: Any, b: Any) -> tuple[Any, Any]:
    """Where the edges of two rectangles cross, and whether they do: `[..., 16, 2]` and `[..., 16]`."""
    start, other = a.unsqueeze(-2), b.unsqueeze(-3)
    edge = (a.roll(-1, -2) - a).unsqueeze(-2)
    cut = (b.roll(-1, -2) - b).unsqueeze(-3)
    area = _cross(edge, cut)
    apart = other - start
    safe = area.where(area.abs() > 1e-14, torch.ones_like(area))
    t, u = _cross(apart, cut) / safe, _cross(apart, edge) / safe
    low, high = -_EPS, 1 + _EPS
    met = (area.abs() > 1e-14) & (t > low) & (t < high) & (u > low) & (u < high)
    points = start + edge * t.unsqueeze(-1)
    return points.flatten(-3, -2), met.flatten(-2)


def box_iou_rotated(boxes1: Any, boxes2: Any) -> Any:
    """How much each of N rotated boxes overlaps each of M: `[N, M]`.

    Two rectangles have a convex polygon in common, whose corners are corners of theirs and crossings of their edges:
    in the order of their angles around its middle they give its area.
    """
    dtype = boxes1.dtype
    pairs = len(boxes1), len(boxes2), 5
    one = boxes1.double()[:, None].expand(pairs)
    two = boxes2.double()[None].expand(pairs)
    a, b = _corners(one), _corners(two)
    crossings, met = _crossings(a, b)
    points = torch.cat((crossings, a, b), -2)
    kept = torch.cat((met, _inside(a, b), _inside(b, a)), -1)
    weight = kept.unsqueeze(-1).double()
    middle = (points * weight).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True).clamp(min=1)
    around = (points - middle) * weight
    angle = torch.atan2(around[..., 1], around[..., 0]).masked_fill(~kept, math.inf)
    order = angle.argsort(-1)
    # What does not count stands at the end as the first corner once more, and adds nothing.
    first = order[..., :1].expand_as(order)
    order = torch.where(kept.gather(-1, order), order, first)
    ring = around.gather(-2, order.unsqueeze(-1).expand_as(around))
    shared = _cross(ring, ring.roll(-1, -2)).sum(-1).abs() / 2
    shared = shared.masked_fill(kept.sum(-1) < 3, 0)
    areas = one[..., 2] * one[..., 3], two[..., 2] * two[..., 3]
    overlap = shared / (areas[0] + areas[1] - shared)
    tiny = (areas[0] < 1e-14) | (areas[1] < 1e-14)
    return overlap.masked_fill(tiny, 0).to(dtype)
