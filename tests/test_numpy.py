"""Memory exchanged with NumPy."""

import gc

import numpy as np
import pytest

import torchlike as torch

TYPES = ["?", "u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("dtype", TYPES)
def test_both_are_the_same_memory(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = torch.from_numpy(array.T)
    back = tensor.numpy()
    assert back.dtype == array.dtype and back.strides == array.T.strides
    assert tensor.shape == (3, 2) and tensor.stride() == (1, 3)
    back[0, 0] = 1
    assert array[0, 0] == 1 and np.array_equal(back, array.T)


def test_arrays_keep_tensors_and_tensors_keep_arrays():
    array = torch.full((1000,), 7.0).numpy()
    tensor = torch.from_numpy(np.full(1000, 8.0))
    gc.collect()
    assert (array == 7).all() and (tensor == 8).all()


def test_numpy_is_given_what_it_asks_for_a_copy_or_not():
    tensor = torch.zeros(3)
    for make in (np.array, lambda t: np.array(t, "f4"), lambda t: t.__array__(copy=True)):
        make(tensor)[0] = 5
        assert tensor.tolist() == [0, 0, 0]
    for make in (np.asarray, lambda t: np.asarray(t, copy=False), lambda t: t.__array__("f4")):
        make(tensor)[0] += 1
    assert tensor.tolist() == [3, 0, 0]
    assert np.asarray(tensor, "i4").tolist() == [3, 0, 0]
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        np.asarray(tensor, "i4", copy=False)


def test_empty_arrays_and_single_numbers():
    assert torch.zeros(0, 2, dtype=torch.bool).numpy().shape == (0, 2)
    assert torch.from_numpy(np.zeros((0, 3), "c8")).dtype == torch.complex64
    assert torch.tensor(2.5).numpy().item() == torch.from_numpy(np.array(2.5)).item() == 2.5


def test_what_has_no_tensor_says_so():
    for dtype in ("U3", "O", "V4", "M8[s]"):
        with pytest.raises(TypeError, match=r"can't convert np.ndarray of type numpy\."):
            torch.from_numpy(np.zeros(2, dtype))
    for value in (np.datetime64("2020-01-01"), np.longdouble(1), np.zeros(1, [("a", "i4")])):
        with pytest.raises(TypeError, match=r"can't convert np.ndarray of type numpy\."):
            torch.tensor(value)
    with pytest.raises(ValueError, match="byte order"):
        torch.from_numpy(np.zeros(2, ">f4"))
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(np.arange(3)[::-1])
    with pytest.raises(ValueError, match="multiple of the element byte size"):
        torch.from_numpy(np.zeros(2, [("a", "f4"), ("b", "i2")])["a"])


def test_a_subclass_cannot_show_other_memory():
    class Lying(np.ndarray):
        @property
        def __array_struct__(self):
            return np.zeros(1000).__array_struct__

    tensor = torch.from_numpy(np.arange(3.0).view(Lying))
    assert tensor.tolist() == [0.0, 1.0, 2.0]
