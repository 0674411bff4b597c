"""What the core warns of, as PyTorch does, and how often."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import torchlike as torch

MASK = torch.tensor([1, 0], dtype=torch.uint8)


def expanded() -> torch.Tensor:
    return torch.zeros(2).expand(2, 2)


CASES: list[tuple[Any, str]] = [
    (lambda: torch.ones(1).std(), r"std\(\): degrees of freedom is <= 0"),
    (lambda: torch.var_mean(torch.ones(2, 1), 1), r"var_mean\(\): degrees of freedom"),
    (lambda: torch.ones(()).var(0), r"var\(\): degrees of freedom"),
    (lambda: torch.ones(1, dtype=torch.complex64).float(), "discards the imaginary part"),
    (lambda: torch.ones(1).copy_(torch.ones(1, dtype=torch.complex64)), "discards the imag"),
    (lambda: torch.ones(2)[MASK], "indexing with dtype torch.uint8"),
    (lambda: torch.ones(2)[MASK * 0], "indexing with dtype torch.uint8"),
    (lambda: torch.where(MASK, 1.0, 0.0), "where received a uint8 condition"),
    (lambda: torch.ones(2, 2, 2).T, "The use of `x.T` on tensors of dimension other than 2"),
    (lambda: torch.ones(()).mT, "Tensor.mT is deprecated on 0-D"),
    (lambda: torch.ones(()).H, "Tensor.H is deprecated on 0-D"),
    (lambda: torch.meshgrid(torch.ones(2)), "required to pass the indexing argument"),
    (lambda: torch.range(0, 3), "torch.range is deprecated"),
    (lambda: torch.arange(3, out=torch.ones(2)), "The number of elements in the out tensor"),
    (lambda: torch.ones(2).random_(0, 2**30), r"to - 1 is out of bounds \[-\(2\^24\)"),
    (lambda: expanded().index_put_((torch.tensor([0]),), torch.ones(2)), "Use of index_put_"),
    (lambda: expanded().index_fill_(0, torch.tensor([0]), 1.0), "Use of index_fill_ on exp"),
    (lambda: expanded().masked_fill_(torch.tensor([True, False]), 1.0), "Use of masked_fill_"),
    (
        lambda: torch.zeros(2).scatter_(0, torch.tensor([0]), torch.ones(1), reduce="add"),
        "The reduce argument of torch.scatter",
    ),
    (
        lambda: torch.zeros(2).index_reduce(0, torch.tensor([0]), torch.ones(1), "prod"),
        "is in beta",
    ),
    (
        lambda: torch.nn.functional.conv1d(
            torch.ones(1, 1, 4), torch.ones(1, 1, 2), padding="same"
        ),
        "zero-padded copy",
    ),
    (lambda: torch.ones(2).resize(1, 2), "non-inplace resize is deprecated"),
    (lambda: torch.ones(2).new_tensor(torch.ones(2)), "To copy construct from a tensor"),
    (lambda: torch.ones(2).is_pinned("cpu"), "'device' of Tensor.is_pinned"),
    (lambda: torch.set_default_tensor_type(torch.FloatTensor), "set_default_tensor_type"),
    (lambda: float(torch.tensor(1.0, requires_grad=True)), "with requires_grad=True to a scalar"),
    (lambda: torch.tensor([np.ones(2)]), "list of numpy.ndarrays is extremely slow"),
    (lambda: torch.as_tensor(np.broadcast_to(np.ones(1), (2,))), "NumPy array is not writable"),
    (lambda: torch.frombuffer(b"ab", dtype=torch.uint8), "buffer is not writable"),
    (lambda: torch.ones(2, 2)[[[0, 1], [0, 0]]], "non-tuple sequence"),
    (
        lambda: torch.ones(1, requires_grad=True).sum().backward(create_graph=True),
        "will create a reference cycle",
    ),
    (lambda: torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.quint8), "deprecated"),
    (
        lambda: torch.searchsorted(torch.arange(4.0)[::2], torch.ones(1)),
        "boundary tensor is non-contiguous",
    ),
]


@pytest.mark.parametrize(("call", "text"), CASES)
def test_told(call: Any, text: str) -> None:
    with pytest.warns((UserWarning, DeprecationWarning), match=text):
        call()


def test_once_unless_always() -> None:
    torch.set_warn_always(False)
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                torch.meshgrid(torch.ones(2))
                torch.ones(2).add_(2, torch.ones(2))
        assert len(told) <= 2
    finally:
        torch.set_warn_always(True)


def test_old_overloads_are_told_of_each_time_if_asked() -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="This overload of add_ is deprecated"):
            torch.ones(2).add_(2, torch.ones(2))


def test_a_warning_as_an_error_is_the_calls() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            torch.ones(1).std()
        assert torch.ones(2).std() == 0


def test_expanded_tensors_are_written() -> None:
    with pytest.warns(UserWarning, match="Use of masked_fill_"):
        t = expanded().masked_fill_(torch.tensor([True, False]), 3.0)
    assert t.tolist() == [[3.0, 0.0], [3.0, 0.0]]


def test_frequencies_say_how_many_they_are() -> None:
    for f, n in ((torch.fft.fftfreq, 10), (torch.fft.rfftfreq, 6)):
        out = torch.zeros(3)
        with pytest.warns(UserWarning, match=f"computed number of elements {n}. "):
            f(10, out=out)
        assert torch.equal(out, f(10))
