"""Exchange of memory by DLPack: with its own tensors and with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import torchlike as torch


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 5)])
def test_memory_is_shared_by_dlpack(version):
    t = torch.arange(6.0).reshape(2, 3).T
    capsule = t.__dlpack__(max_version=version)
    assert ("dltensor_versioned" in repr(capsule)) == (version is not None and version >= (1, 0))
    back = torch.from_dlpack(capsule)
    assert back.data_ptr() == t.data_ptr() and torch.equal(back, t) and back.stride() == t.stride()
    with pytest.raises(RuntimeError, match="only once"):
        torch.from_dlpack(capsule)


def test_copies_and_devices_are_as_asked():
    t = torch.arange(3.0)
    assert torch.from_dlpack(t, copy=True).data_ptr() != t.data_ptr()
    assert torch.from_dlpack(t, copy=False).data_ptr() == t.data_ptr()
    assert torch.from_dlpack(t.__dlpack__(copy=True)).data_ptr() != t.data_ptr()
    assert torch.from_dlpack(t.__dlpack__(dl_device=(1, 0), copy=False)).data_ptr() == t.data_ptr()
    assert t.__dlpack_device__() == (1, 0) and t.to_device("cpu") is t
    with pytest.raises(BufferError, match="without copying"):
        t.__dlpack__(dl_device=(2, 0), copy=False)
    with pytest.raises(BufferError, match="kind 99"):
        t.__dlpack__(dl_device=(99, 0))
    with pytest.raises(BufferError):
        torch.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError):
        torch.ones(2, device="meta").__dlpack__()


def test_numpy_and_tensors_exchange_memory():
    a = np.arange(4.0)
    t = torch.from_dlpack(a)
    t[0] = 7
    assert a[0] == 7 and np.from_dlpack(t)[0] == 7
    a.flags.writeable = False
    # What must not be written is copied.
    kept = torch.from_dlpack(a)
    kept[0] = 1
    assert a[0] == 7
