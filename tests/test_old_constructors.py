"""The old constructors: `Tensor(...)`, `FloatTensor(...)` and `Tensor.new`, by PyTorch 2.13's answers."""

import numpy as np
import pytest

import torchlike as torch


class Own(torch.Tensor):
    @staticmethod
    def __new__(cls, x, *args, **kwargs):
        return super().__new__(cls, x, *args, **kwargs)


def test_tensor_takes_another_as_it_is():
    whole = torch.tensor([[1, 2]])
    for made in (torch.Tensor(whole), torch.Tensor(other=whole), Own(whole)):
        assert made.dtype == torch.int64
        assert made.data_ptr() == whole.data_ptr()
    assert type(Own(whole)) is Own
    assert torch.Tensor(torch.tensor(3)).item() == 3
    assert torch.Tensor(torch.ones(1, device="meta")).is_meta


def test_sizes_data_and_storages():
    assert torch.Tensor().shape == (0,)
    assert torch.Tensor(2, 3).shape == torch.Tensor(size=(2, 3)).shape == (2, 3)
    assert torch.Tensor(torch.Size([4])).shape == (4,)
    for data in ([1, 2.5], (1, 2.5), np.array([1, 2.5])):
        assert torch.Tensor(data).tolist() == torch.Tensor(data=data).tolist() == [1.0, 2.5]
    assert torch.Tensor(range(3)).tolist() == [0, 1, 2]
    real = torch.ones(2)
    assert torch.Tensor(real.untyped_storage()).data_ptr() == real.data_ptr()
    assert torch.FloatTensor(real.untyped_storage()).tolist() == [1, 1]
    assert torch.tensor([1]).new([1.5]).dtype == torch.int64
    assert real.new(3, device="cpu").shape == (3,)


def test_the_default_type_is_that_of_tensor():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.Tensor([1, 2]).dtype == torch.Tensor(2).dtype == torch.float64
        assert torch.FloatTensor([1]).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


REFUSED = {
    "another type": (
        lambda: torch.FloatTensor(torch.ones(1).long()),
        TypeError,
        r"dtype=long int, device=cpu.*",
    ),
    "new of another": (
        lambda: torch.ones(1).new(torch.ones(1).long()),
        TypeError,
        r"^expected TensorOptions\(dtype=float",
    ),
    "a device beside a tensor": (
        lambda: torch.Tensor(torch.ones(1), device="cpu"),
        RuntimeError,
        "Legacy tensor constructor of the form",
    ),
    "another device": (
        lambda: torch.Tensor(2, device="meta"),
        RuntimeError,
        "expects device type: cpu but device type: meta",
    ),
    "text": (lambda: torch.Tensor("a"), TypeError, r"new\(\): invalid data type 'str'"),
    "a number": (
        lambda: torch.Tensor(1.5),
        TypeError,
        r"new\(\): data must be a sequence \(got float\)",
    ),
    "two tensors": (
        lambda: torch.Tensor(torch.ones(1), torch.ones(1)),
        TypeError,
        r"invalid combination of arguments - got \(Tensor, Tensor\)",
    ),
    "a type": (
        lambda: torch.Tensor(2, dtype=torch.int64),
        TypeError,
        "keywords were incorrect: dtype",
    ),
    "a negative size": (lambda: torch.Tensor(-1), RuntimeError, "negative dimension -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("name", ["remainder", "floor_divide", "fmod"])
def test_nothing_is_divided_by_zero(name):
    """Integers of which there are none are divided by zero without an error."""
    divide, none = getattr(torch, name), torch.zeros(3, 0, dtype=torch.int64)
    assert (
        divide(none, 0).shape == divide(none, torch.zeros(3, 1, dtype=torch.int64)).shape == (3, 0)
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(torch.ones(1, dtype=torch.int64), 0)
