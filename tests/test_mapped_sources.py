"""Memory that shows a file: on meta it keeps the file as its source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import torchlike as torch
from torchlike import UntypedStorage

FLOATS = torch.arange(12, dtype=torch.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "floats"
    path.write_bytes(FLOATS.numpy().tobytes())
    return path


def mapped(file: Path) -> UntypedStorage:
    return UntypedStorage.from_file(str(file), shared=False, nbytes=os.path.getsize(file))  # type: ignore[attr-defined, no-any-return]


def test_what_is_mapped_comes_back_from_its_file(file: Path) -> None:
    part = mapped(file)[8:40]  # type: ignore[index]
    shown = torch.asarray(part, dtype=torch.float32).view(2, 4)
    assert shown.untyped_storage().data_ptr() == part.data_ptr()
    meta = shown.to("meta")
    assert meta.is_meta and "bytes 8..40" in str(torch.plan.explain(meta))
    assert torch.materialize(meta).tolist() == FLOATS[2:10].view(2, 4).tolist()
    assert torch.equal(torch.materialize(shown[1].to("meta")), FLOATS[6:10])
    assert torch.equal(torch.materialize(shown.t().to("meta")), FLOATS[2:10].view(2, 4).t())


def test_casts_on_the_way_are_done_when_it_becomes_real(file: Path) -> None:
    shown = torch.asarray(mapped(file), dtype=torch.float32)
    meta = shown.to(device="meta", dtype=torch.bfloat16)
    assert meta.dtype == torch.bfloat16 and torch.equal(torch.materialize(meta), FLOATS.bfloat16())
    four = shown.view(1, 3, 2, 2).to("meta", memory_format=torch.channels_last)
    assert four.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(torch.materialize(four), FLOATS.view(1, 3, 2, 2))
    copied = shown.to("meta", copy=True)
    assert torch.equal(torch.materialize(copied), FLOATS)


def test_what_was_written_or_is_not_dense_has_no_file_behind_it(file: Path) -> None:
    storage = mapped(file)
    shown = torch.asarray(storage, dtype=torch.float32)
    part = torch.asarray(storage[0:16], dtype=torch.float32)  # type: ignore[index]
    with pytest.raises(RuntimeError, match="has no source"):
        torch.materialize(shown[::2].to("meta"))
    shown.add_(1)
    for written in (shown, part):
        with pytest.raises(RuntimeError, match="has no source"):
            torch.materialize(written.to("meta"))
    by_data = torch.asarray(mapped(file), dtype=torch.float32)
    torch.nn.Parameter(by_data).data.mul_(2)
    with pytest.raises(RuntimeError, match="has no source"):
        torch.materialize(by_data.to("meta"))
    assert FLOATS.numpy().tobytes() == file.read_bytes() and part.tolist() == [1, 2, 3, 4]
    plain = torch.ones(3).to("meta")
    with pytest.raises(RuntimeError, match="has no source"):
        torch.materialize(plain)


def test_a_file_that_changed_is_an_error(file: Path) -> None:
    meta = torch.asarray(mapped(file), dtype=torch.float32).to("meta")
    file.write_bytes(b"\0" * 60)
    with pytest.raises(RuntimeError, match="its size was 48 bytes and is 60"):
        torch.materialize(meta)


def test_loaded_by_mapping(tmp_path: Path) -> None:
    weight = torch.randn(4, 5)
    torch.save({"w": weight, "v": weight[1:3]}, tmp_path / "w.pt")
    loaded = torch.load(tmp_path / "w.pt", mmap=True)
    for name, wanted in (("w", weight), ("v", weight[1:3])):
        assert torch.equal(torch.materialize(loaded[name].to("meta")), wanted)


def test_parts_of_storages_share_their_memory() -> None:
    whole = torch.arange(4, dtype=torch.int64)
    part = whole.untyped_storage()[8:24]
    assert part.nbytes() == 16 and not whole.untyped_storage().resizable()
    torch.asarray(part).mul_(10)
    assert whole.tolist() == [0, 10, 20, 3]
    del whole
    assert torch.asarray(part).tolist() == [10, 20]
    assert part[3:1].nbytes() == 0
    with pytest.raises(RuntimeError, match="step of 2"):
        part[0:8:2]
    with pytest.raises(NotImplementedError, match="Not available for 'meta'"):
        torch.empty(4, device="meta").untyped_storage()[0:8]


def test_storages_as_arrays_are_taken_as_they_lie() -> None:
    bytes_of = torch.tensor([1.0, 2.0]).untyped_storage()
    assert torch.asarray(bytes_of).tolist() == [4611686019492741120]
    assert torch.asarray(bytes_of, dtype=torch.float32).tolist() == [1, 2]
    typed = torch.tensor([1.0, 2.0]).storage()
    assert torch.asarray(typed).data_ptr() == typed.data_ptr()
    with pytest.raises(
        RuntimeError, match="Expected a Storage of type Double or an UntypedStorage, but got Float"
    ):
        torch.asarray(typed, dtype=torch.float64)
