"""Truth values may be any byte in memory: all but 0 are true, and no kernel may trust them to be 1."""

import numpy as np
import pytest

import torchlike as torch

BYTES = [0, 1, 2, 255, 0, 7]
TRUTH = [b != 0 for b in BYTES]


@pytest.fixture
def odd():
    return torch.tensor(BYTES, dtype=torch.uint8).view(torch.bool)


def test_numbers_and_lists(odd):
    assert odd.tolist() == TRUTH
    assert [bool(x) for x in odd] == TRUTH
    assert odd.to(torch.int32).tolist() == [int(t) for t in TRUTH]
    assert odd.to(torch.float16).tolist() == [float(t) for t in TRUTH]
    assert odd.to(torch.complex64).tolist() == [complex(t) for t in TRUTH]


def test_pointwise(odd):
    ones = torch.tensor(TRUTH)
    assert torch.equal(odd & ones, ones)
    assert (odd == ones).all()
    assert (~odd).tolist() == [not t for t in TRUTH]
    assert (odd ^ ones).tolist() == [False] * len(BYTES)
    assert torch.where(odd, 1, 0).tolist() == [int(t) for t in TRUTH]


def test_places_and_counts(odd):
    places = [i for i, t in enumerate(TRUTH) if t]
    assert odd.nonzero().flatten().tolist() == places
    assert torch.arange(6)[odd].tolist() == places
    assert torch.arange(6).masked_select(odd).tolist() == places
    assert odd.count_nonzero().item() == len(places)
    assert odd.any().item() and not odd.all().item()


def test_order_and_groups(odd):
    assert odd.sort().values.tolist() == [False] * 2 + [True] * 4
    assert odd.unique().tolist() == [False, True]
    assert (
        torch.zeros(6, dtype=torch.bool).scatter_reduce(0, torch.arange(6), odd, "amax").tolist()
        == TRUTH
    )


def test_from_numpy():
    t = torch.from_numpy(np.array(BYTES, dtype=np.uint8).view(np.bool_))
    assert t.tolist() == TRUTH and (t | t).tolist() == TRUTH
