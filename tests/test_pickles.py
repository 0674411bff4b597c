"""Plain pickles go both ways: what PyTorch wrote is read, and what is written calls only what PyTorch has.

`python tests/test_pickles.py` by a Python with PyTorch records `data/plain.pkl` anew.
"""

from __future__ import annotations

import copy
import pickle
import pickletools
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parent / "data" / "plain.pkl"


def values(torch: Any) -> dict[str, Any]:
    """One of each kind of thing that has a pickle of its own."""
    base = torch.arange(6.0).view(2, 3)
    layer, recurrent = torch.nn.Linear(1, 1), torch.nn.GRU(1, 1)
    noted = torch.nn.Parameter(torch.ones(1))
    noted.note = "kept"
    with torch.no_grad():
        for p in (*layer.parameters(), *recurrent.parameters()):
            p.fill_(0.5)
    ones, grid = torch.ones(2), torch.ones(2, 2)
    return {
        "view": base[:, 1:],
        "bfloat16": ones.bfloat16(),
        "uint16": torch.tensor([3]).to(torch.uint16),
        "conj": torch.tensor([1 + 2j]).conj(),
        "needs_grad": torch.ones(2, requires_grad=True),
        "meta": torch.empty(2, 3, device="meta"),
        "layer": layer,
        "recurrent": recurrent,
        "noted": noted,
        "coo": torch.eye(2).to_sparse(),
        "csr": torch.eye(2).to_sparse_csr(),
        "csc": torch.eye(2).to_sparse_csc(),
        "quantized": torch.quantize_per_tensor(ones, 0.5, 0, torch.qint8),
        "by_channel": torch.quantize_per_channel(
            grid, ones, torch.zeros(2, dtype=torch.long), 0, torch.quint8
        ),
        "result": torch.max(grid, 1),
        "layout": torch.strided,
        "dtype": torch.float32,
        "storage": ones.untyped_storage(),
    }


def same(made: dict[str, Any], torch: Any) -> None:
    """Whether these are the values."""
    wanted = values(torch)
    assert made.keys() == wanted.keys()
    for name, value in wanted.items():
        got = made[name]
        if name == "storage":
            assert got.nbytes() == value.nbytes() == 8  # a typed one, in PyTorch too
            continue
        assert type(got) is type(value), name
        if isinstance(value, torch.nn.Module):
            x = torch.ones(2, 1)
            a, b = got(x), value(x)
            assert torch.equal(*(v[0] if isinstance(v, tuple) else v for v in (a, b))), name
            assert list(got.state_dict()) == list(value.state_dict())
            assert [n for n, _ in got.named_parameters()] == [
                n for n, _ in value.named_parameters()
            ]
        elif not isinstance(value, torch.Tensor):
            parts = zip(got, value, strict=True) if name == "result" else ()
            assert all(torch.equal(a, b) for a, b in parts) if name == "result" else got is value
        else:
            assert (got.dtype, got.layout, got.shape, got.device, got.requires_grad) == (
                value.dtype,
                value.layout,
                value.shape,
                value.device,
                value.requires_grad,
            ), name
            if name in ("view", "conj"):
                assert got.stride() == value.stride() and got.is_conj() == value.is_conj()
                assert got.storage_offset() == value.storage_offset()
            if not value.is_meta:
                dense = [t.dequantize() if t.is_quantized else t.to_dense() for t in (got, value)]
                assert torch.equal(*dense), name
    assert made["noted"].note == "kept"


def called(written: bytes) -> set[str]:
    """The functions and classes inside `torch` that a pickle of the second protocol refers to."""
    found = [str(arg) for op, arg, _ in pickletools.genops(written) if op.name == "GLOBAL"]
    names = {name.replace("torchlike", "torch") for name in found}
    return {name for name in names if name.startswith("torch.")}


def test_pickles_of_pytorch_are_read() -> None:
    from test_compat import installed

    installed(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import pickle, torch
        import test_pickles as t
        t.same(pickle.loads(t.FILE.read_bytes()), torch)
        written = pickle.dumps(t.values(torch), 2)
        assert b"torchlike" not in written
        t.same(pickle.loads(written), torch)
        """,
        str(Path(__file__).parent),
    )


def test_pickles_call_what_pytorch_has() -> None:
    import torchlike

    written = pickle.dumps(values(torchlike), 2)
    same(pickle.loads(written), torchlike)
    # the form of the newest types, which takes all
    assert called(written) - called(FILE.read_bytes()) <= {"torch._utils _rebuild_tensor_v3"}


def test_copies_can_still_become_real() -> None:
    import torchlike
    from torchlike import nn

    torchlike.manual_seed(0)
    wanted = nn.Linear(2, 2)
    torchlike.manual_seed(0)
    with nn.utils.meta_init():
        made = nn.Linear(2, 2)
    weight = copy.copy(made.weight)
    assert torchlike.equal(torchlike.materialize(weight), wanted.weight)
    again = copy.deepcopy(made)
    torchlike.materialize(again)
    assert torchlike.equal(again.weight, wanted.weight)


def test_classes_of_results_are_there_before_any_result() -> None:
    import torchlike

    assert isinstance(torchlike.ones(2, 2).kthvalue(1, 0), torchlike.return_types.kthvalue)
    assert torchlike.return_types.linalg_lu.__match_args__ == ("P", "L", "U")
    assert not hasattr(torchlike.return_types, "no_such_operator")


def test_classes_of_results_take_a_sequence() -> None:
    """They are no named tuples, which are made of their items one by one."""
    import torchlike

    kind = torchlike.return_types.max
    assert not hasattr(kind, "_fields") and kind([1, 2]).indices == 2
    match torchlike.ones(1, 2).max(1):
        case kind(values, indices):
            assert values.item() == 1 and indices.item() == 0
    for given, text in (
        ((1,), "requires a sequence"),
        (((1, 2, 3),), "takes a 2-sequence"),
        (((1, 2), 3), "takes a dict"),
    ):
        with pytest.raises(TypeError, match=text):
            kind(*given)


def test_pickling_tells_nothing() -> None:
    """The storage of old in a tensor's pickle is no reason to warn of it."""
    import torchlike

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = pickle.loads(pickle.dumps(torchlike.arange(3.0)))
    assert x.tolist() == [0, 1, 2]


if __name__ == "__main__":
    import torch

    FILE.write_bytes(pickle.dumps(values(torch), 2))
    sys.stdout.write(f"wrote {FILE}\n")
