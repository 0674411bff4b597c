"""Sizes at the ends of what numbers and memory hold: refused before anything is allocated, or right."""

import numpy as np
import pytest

import torchlike as torch
from torchlike.nn import functional as F


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty(2**40, device="meta").unbind(),
        lambda: torch.empty(2**40, device="meta").split(1),
        lambda: torch.empty(0).chunk(2**40),
        lambda: torch.empty(4, device="meta").tensor_split(2**62),
        lambda: torch.unbind_copy(torch.empty(2**60, device="meta")),
        lambda: torch.combinations(torch.empty(2**31, device="meta")),
        lambda: torch.combinations(torch.empty(200), 100),
    ],
)
def test_lists_that_no_memory_holds_are_refused(call):
    with pytest.raises(MemoryError, match="not fit into memory"):
        call()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_sizes_that_no_number_holds_are_refused(device):
    one = torch.empty(1, device=device)
    count, bytes_ = "numel: integer multiplication overflow", "Storage size calculation overflowed"
    for message, call in (
        (count, lambda: one.expand(2**40, 2**40)),
        (count, lambda: one.expand(2**50)[None, :, None].expand(3, -1, 2**20)),
        (count, lambda: one.as_strided((2**40, 2**40), (0, 0))),
        (count, lambda: torch.empty_strided((2**40, 2**40), (0, 0), device=device)),
        (bytes_, lambda: torch.empty(2**40, 2**40, 0, device=device)),
        ("overflow", lambda: torch.block_diag(*[one.expand(2**61, 1)] * 5)),
        (bytes_, lambda: F.unfold(torch.empty(1, 4, 9, 9, device=device), 2, padding=2**62)),
        ("overflow", lambda: torch.pdist(torch.empty(2**32 + 1, 0, device=device))),
        ("overflow", lambda: torch.tril_indices(2**40, 2**40, device=device)),
        ("overflow", lambda: torch.empty(8, 2, device=device).unfold(0, 0, 2**63 - 1)),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    assert torch.empty(2**62, 2, 0, device=device).numel() == 0


@pytest.mark.parametrize("rows", range(5))
@pytest.mark.parametrize("columns", range(5))
def test_triangles_have_as_many_places_as_they_are_made_of(rows, columns):
    for offset in range(-6, 7):
        pairs = np.argwhere(np.tri(rows, columns, offset))
        assert torch.tril_indices(rows, columns, offset).T.tolist() == pairs.tolist()
        pairs = np.argwhere(1 - np.tri(rows, columns, offset - 1))
        assert torch.triu_indices(rows, columns, offset).T.tolist() == pairs.tolist()
    assert torch.tril_indices(2**30, 2**29, device="meta").shape == (2, 2**57 + 2**58 + 2**28)


def test_powers_are_products_in_order():
    x = torch.tensor([1.1, -3.3, 7.7])
    columns = torch.cat([torch.ones(3, 1), x[:, None].expand(3, 19).cumprod(1)], 1)
    assert torch.vander(x, 20).equal(columns.flip(1))
    assert torch.vander(x, 20, increasing=True).equal(columns)
    assert torch.vander(torch.empty(1, device="meta"), 2**40).shape == (1, 2**40)


def test_generators_go_far_at_once():
    following = []
    for parts in ([2**40], [2**39, 2**39]):
        torch.manual_seed(3)
        with torch.meta_init():
            for n in parts:
                torch.rand(n)
        following.append(torch.rand(3))
    assert following[0].equal(following[1])


def test_images_without_channels_have_the_strides_of_their_format():
    for shape, strides in (((2, 0, 3, 4), (0, 1, 0, 0)), ((2, 3, 3, 0), (0, 1, 0, 3))):
        x = torch.empty(shape)
        for made in (
            torch.empty(shape, memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
            x.to(torch.int8, memory_format=torch.channels_last),
        ):
            assert made.stride() == strides


def test_strides_of_single_elements_need_not_be_even():
    pairs = torch.arange(10.0).as_strided((1, 2), (7, 1))
    assert torch.view_as_complex(pairs).stride() == (3,)
    with pytest.raises(RuntimeError, match="stride divisible by 2"):
        torch.view_as_complex(torch.empty(10).as_strided((2, 2), (7, 1)))


def test_plans_count_more_bytes_than_64_bits_say():
    with torch.device("meta"):
        layers = torch.nn.Sequential(*[torch.nn.Linear(2**30, 2**30, bias=False) for _ in range(8)])
    made = torch.plan(layers, torch.empty(4, 2**30, device="meta"))
    assert "33554432.00 TiB" in str(made)
