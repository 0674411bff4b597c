"""Overlaps of rotated boxes: known ones, and those of boxes that are turned and moved together."""

import math

import pytest

import torchlike as torch
from torchlike.compat._rotated import box_iou_rotated


def test_known_overlaps():
    boxes = torch.tensor(
        [
            [5.0, 5, 4, 2, 0],
            [5, 5, 4, 2, 90],
            [5, 5, 4, 2, 360],
            [0, 0, 1, 1, 30],
            [5, 5, 0, 0, 0],
            [6, 5, 4, 2, 180],
        ]
    )
    found = box_iou_rotated(boxes, boxes)
    third = 1 / 3
    torch.testing.assert_close(found[0], torch.tensor([1, third, 1, 0, 0, 0.6]))
    torch.testing.assert_close(found, found.T)
    # An octagon is what a square has in common with itself at 45 degrees.
    squares = torch.tensor([[0.0, 0, 2, 2, 0], [0, 0, 2, 2, 45]])
    octagon = 8 * (math.sqrt(2) - 1)
    assert box_iou_rotated(squares[:1], squares[1:]).item() == pytest.approx(
        octagon / (8 - octagon), rel=1e-5
    )
    assert box_iou_rotated(squares, squares[:0]).shape == (2, 0)


def test_overlaps_do_not_change_when_all_is_turned_and_moved():
    generator = torch.Generator().manual_seed(3)
    boxes = torch.rand(12, 5, generator=generator, dtype=torch.float64)
    boxes *= torch.tensor([4.0, 4, 3, 3, 360], dtype=torch.float64)
    want = box_iou_rotated(boxes, boxes)
    turn = 37.0
    cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    moved = boxes.clone()
    moved[:, 0] = boxes[:, 0] * cos + boxes[:, 1] * sin + 3
    moved[:, 1] = boxes[:, 1] * cos - boxes[:, 0] * sin - 1
    moved[:, 4] += turn
    torch.testing.assert_close(box_iou_rotated(moved, moved), want, rtol=1e-4, atol=1e-4)
    assert (want.diagonal() - 1).abs().max() < 1e-6
