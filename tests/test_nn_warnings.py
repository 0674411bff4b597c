"""What losses, activations and layers say beside their results, in PyTorch's words."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn import functional as F

ones = torch.ones
long = torch.ones(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"size_average": True}, "mean"),
        ({"size_average": False}, "sum"),
        ({"reduce": False}, "none"),
    ],
)
def test_old_flags_of_losses(flags: dict[str, bool], word: str) -> None:
    text = f"please use reduction='{word}' instead"
    for loss in (
        F.mse_loss,
        F.l1_loss,
        F.smooth_l1_loss,
        F.binary_cross_entropy,
        F.soft_margin_loss,
    ):
        with pytest.warns(UserWarning, match=text):
            loss(ones(2), ones(2), **flags)
    with pytest.warns(UserWarning, match=text):
        F.cross_entropy(ones(2, 2), long, **flags)
    with pytest.warns(UserWarning, match=text):
        F.margin_ranking_loss(ones(2), ones(2), ones(2), **flags)


def test_other_words_of_losses() -> None:
    with pytest.warns(UserWarning, match="reduction='elementwise_mean' is deprecated"):
        F.mse_loss(ones(2), ones(2), reduction="elementwise_mean")
    with pytest.warns(UserWarning, match="'batchmean' divides only by the batch size"):
        F.kl_div(ones(2, 2), ones(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.kl_div(ones(2, 2), ones(2, 2), reduction="batchmean")
        F.mse_loss(ones(2), ones(2), reduction="sum")
    with pytest.raises(ValueError, match="Invalid reduction mode: elementwise_mean"):
        F.mse_loss(ones(2), ones(2), reduction="elementwise_mean", weight=ones(2))


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_losses_of_other_sizes_are_means_over_all_that_is_compared(name: str) -> None:
    loss = getattr(F, name)
    x = torch.tensor([[0.3], [1.0]], dtype=torch.float64, requires_grad=True)
    y = torch.arange(20, dtype=torch.float64).view(2, 10) / 10
    with pytest.warns(
        UserWarning, match=r"target size \(torch.Size\(\[2, 10\]\)\) that is different"
    ):
        made = loss(x, y)
    whole = loss(x.expand(2, 10), y)
    assert torch.equal(made, whole)
    grads = [torch.autograd.grad(v, x)[0] for v in (made, whole)]
    assert torch.allclose(*grads)


def test_dimensions_that_nobody_names() -> None:
    for name, layer in (
        ("softmax", nn.Softmax()),
        ("softmin", nn.Softmin()),
        ("log_softmax", nn.LogSoftmax()),
    ):
        text = f"Implicit dimension choice for {name} has been deprecated"
        for call in (getattr(F, name), layer):
            with pytest.warns(UserWarning, match=text):
                call(ones(2, 2))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: F.dropout2d(ones(2, 2)), "dropout2d: Received a 2-D input to dropout2d"),
        (lambda: F.dropout2d(ones(2, 2, 2)), "assuming that channel-wise 1D dropout behavior"),
        (lambda: F.dropout3d(ones(2, 2)), r"optional batch dimension \(i.e. 4D or 5D inputs\)"),
        (lambda: F.upsample(ones(1, 1, 2), 4), r"`nn.functional.upsample` is deprecated"),
        (
            lambda: F.upsample_nearest(ones(1, 1, 2), scale_factor=2),
            "`nn.functional.upsample_nearest`",
        ),
        (lambda: F.upsample_bilinear(ones(1, 1, 2, 2), 4), "`nn.functional.upsample_bilinear`"),
        (
            lambda: F.grid_sample(ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2)),
            "align_corners=False since",
        ),
        (lambda: F.affine_grid(ones(1, 2, 3), [1, 1, 2, 2]), "align_corners=False since 1.3.0"),
        (lambda: F.affine_grid(ones(1, 2, 3), [1, 1, 1, 2], True), "for unit-size grids"),
        (lambda: nn.NLLLoss2d(), "`NLLLoss2d` has been deprecated"),
    ],
)
def test_calls_that_say_something(call: Any, text: str) -> None:
    with pytest.warns(Warning, match=text):
        call()


def test_bags_with_their_arguments_in_the_older_order() -> None:
    table, rows = torch.arange(8.0).view(4, 2), torch.tensor([[0, 2]])
    with pytest.warns(
        UserWarning, match="Argument order of nn.functional.embedding_bag was changed"
    ):
        made = F.embedding_bag(table, rows)
    assert made.tolist() == [[2.0, 3.0]]


def test_the_last_bag_goes_on_to_the_end() -> None:
    table, rows, starts = (
        torch.arange(8.0).view(4, 2),
        torch.tensor([0, 1, 2]),
        torch.tensor([0, 2, 2]),
    )
    ends: dict[str, Any] = {"include_last_offset": True, "mode": "sum"}
    assert F.embedding_bag(rows, table, starts, **ends).tolist() == [[2.0, 4.0], [0.0, 0.0]]
    made = F.embedding_bag(rows, table.double(), starts, **ends)
    assert made.tolist() == [[2.0, 4.0], [4.0, 5.0]]
    with pytest.raises(RuntimeError, match=r"Index 1 of input takes value 9 .* \[0, 4\)"):
        F.embedding_bag(torch.tensor([0, 9]), table, torch.tensor([0]))
    with pytest.raises(RuntimeError, match="found idx to be -1"):
        F.embedding_bag(torch.tensor([-1]), table, torch.tensor([0]), mode="max")


def test_poolings_of_nothing_and_to_one() -> None:
    assert nn.AdaptiveAvgPool2d(2)(ones(1, 0, 4, 4)).shape == (1, 0, 2, 2)
    assert nn.AdaptiveAvgPool1d(2)(ones(0, 4)).shape == (0, 2)
    with pytest.raises(RuntimeError, match=r"adaptive_max_pool1d\(\): .* dimension 1 being empty"):
        nn.AdaptiveMaxPool1d(2)(ones(1, 0, 4))
    image = ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert F.adaptive_avg_pool2d(image, 1).stride() == (3, 1, 3, 3)
    assert nn.FractionalMaxPool2d(2, output_size=0)(ones(1, 4, 4)).shape == (1, 0, 0)
    with pytest.raises(RuntimeError, match="pool time 3 too large relative to input time 4"):
        nn.FractionalMaxPool3d(3, output_size=2)(ones(1, 1, 4, 4, 4))
    with pytest.raises(RuntimeError, match=r"with dimension 1 being empty."):
        nn.FractionalMaxPool2d(2, output_size=2)(ones(1, 0, 4, 4))
