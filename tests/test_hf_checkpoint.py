"""Checkpoints as safetensors: whole or of every rank, put together, read in pieces, and as numbers of blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
import torchlike.distributed.checkpoint as dcp
from torchlike.distributed.checkpoint._consolidate_hf_safetensors import (
    consolidate_safetensors_files,
    consolidate_safetensors_files_on_every_rank,
)
from torchlike.distributed.checkpoint.staging import (
    AsyncStager,
    BlockingAsyncStager,
    DefaultStager,
    StagingOptions,
)
from torchlike.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from torchlike.distributed.device_mesh import init_device_mesh
from torchlike.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torchlike.safetensors import load_file, safe_open, save_file

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
PLACES = "DCP_SHARDING_INFO"


@pytest.fixture(autouse=True)
def no_world() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def some() -> dict[str, Any]:
    return {
        "a.weight": torch.arange(24.0).view(6, 4),
        "b": torch.arange(5, dtype=torch.bfloat16),
        "one": torch.tensor(3),
        "none": torch.zeros(0, 2),
    }


def emptied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.full_like(t, 7) for name, t in values.items()}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def sharded(shape: tuple[int, ...], placements: Any) -> tuple[Any, Any]:
    """A tensor, and it on a mesh of four ranks of this process."""
    dist.init_process_group("local", world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))
    whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
    return whole, distribute_tensor(whole, mesh, placements)


@pytest.mark.parametrize("numbers", [None, {"a.weight": 2, "b": 1, "one": 2, "none": 3}])
def test_whole_tensors_and_their_index(tmp_path: Path, numbers: Any) -> None:
    state = some()
    writer = dcp.HuggingFaceStorageWriter(str(tmp_path), fqn_to_index_mapping=numbers)
    dcp.save(state, storage_writer=writer)
    last = 3 if numbers else 1
    files = {n: f"model-{numbers[n] if numbers else 1:05}-of-{last:05}.safetensors" for n in state}
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == files
    assert index["metadata"] == {"total_size": sum(t.nbytes for t in state.values())}
    assert same(torch.load(tmp_path), state)
    found = emptied(state)
    dcp.load(found, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path), thread_count=2))
    assert same(found, state)
    with safe_open(tmp_path / files["b"]) as file:
        assert json.loads(file.metadata()[PLACES])["b"] == {"saved_offsets": [0]}
        assert file.metadata()["DCP_VERSION"] == "1.0"


def test_what_safetensors_cannot_hold_is_refused(tmp_path: Path) -> None:
    def save(state: dict[str, Any], **options: Any) -> None:
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path), **options))

    with pytest.raises(dcp.CheckpointException, match="'step' is none"):
        save({"step": 3})
    with pytest.raises(dcp.CheckpointException, match="fqn_to_index_mapping has no 'b'"):
        save({"b": torch.ones(2)}, fqn_to_index_mapping={"a": 1})
    _, cut = sharded((6, 4), [Shard(0), Replicate()])
    with pytest.raises(dcp.CheckpointException, match="'cut' is a piece of a tensor; save_dist"):
        save({"cut": cut})
    with pytest.raises(NotImplementedError, match="HuggingFaceStorageWriter as safetensors"):
        dcp.FileSystemWriter(
            tmp_path, serialization_format=dcp.filesystem.SerializationFormat.SAFETENSORS
        )


PLACEMENTS = [
    [Shard(0), Shard(1)],
    [Shard(1), Replicate()],
    [Replicate(), Shard(0)],
    [Replicate(), Replicate()],
]


@pytest.mark.parametrize("placements", PLACEMENTS)
def test_pieces_of_every_rank(tmp_path: Path, placements: Any) -> None:
    whole, cut = sharded((7, 6), placements)
    state = {"cut": cut, "plain": torch.arange(3)}
    writer = dcp.HuggingFaceStorageWriter(str(tmp_path), save_distributed=True)
    dcp.save(state, storage_writer=writer)
    assert all(p.name.startswith("shard-0000") for p in tmp_path.iterdir())
    loaded = torch.load(tmp_path, map_location="meta")
    assert torch.equal(torch.materialize(loaded["cut"][2:5, 1:]), whole[2:5, 1:])
    assert same(torch.load(tmp_path), {"cut": whole, "plain": torch.arange(3)})
    # Cut in another way, and not at all.
    reader = dcp.HuggingFaceStorageReader(str(tmp_path))
    other = distribute_tensor(torch.zeros(7, 6), cut.device_mesh, [Shard(1), Shard(0)])
    found = {"cut": other, "plain": torch.zeros(3, dtype=torch.int64)}
    dcp.load(found, storage_reader=reader)
    assert torch.equal(found["cut"].full_tensor(), whole)
    single = {"cut": torch.zeros(7, 6)}
    dcp.load(single, storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path)))
    assert torch.equal(single["cut"], whole)


def test_pieces_are_put_together(tmp_path: Path) -> None:
    whole, cut = sharded((8, 6), [Shard(0), Shard(1)])
    numbers = {"cut": 2, "plain": 1}
    writer = dcp.HuggingFaceStorageWriter(
        str(tmp_path / "one"),
        numbers,
        save_distributed=True,
        enable_consolidation=True,
        thread_count_consolidation=2,
    )
    dcp.save({"cut": cut, "plain": torch.ones(3)}, storage_writer=writer)
    want = {"cut": whole, "plain": torch.ones(3)}
    assert same(torch.load(tmp_path / "one"), want)
    index = json.loads((tmp_path / "one" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == whole.nbytes + 12
    assert set(index["weight_map"].values()) == {
        f"model-0000{i}-of-00002.safetensors" for i in (1, 2)
    }
    pieces = str(tmp_path / "one" / "sharded")
    (tmp_path / "two").mkdir()
    consolidate_safetensors_files_on_every_rank(pieces, str(tmp_path / "two"), numbers)
    assert same(torch.load(tmp_path / "two"), want)
    with pytest.raises(torch.CheckpointError, match="has no tensor 'other'"):
        consolidate_safetensors_files(pieces, str(tmp_path / "two"), {"other": 1})
    # A writer that is given another folder writes there.
    dcp.save({"cut": cut}, checkpoint_id=tmp_path / "three", storage_writer=_plain(writer))
    assert same(torch.load(tmp_path / "three"), {"cut": whole})


def _plain(writer: Any) -> Any:
    writer.fqn_to_index_mapping = None
    return writer


def piece(path: Path, at: Any, tensor: Any) -> None:
    save_file({"t": tensor}, path, {PLACES: json.dumps({"t": {"saved_offsets": at}})})


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([[1], torch.ones(2)], "overlap"),
        ([[3], torch.ones(2)], "do not cover it: 4 elements"),
        ([[2, 0], torch.ones(2)], "2 offsets of a piece of shape"),
        ([[2], torch.ones(2, dtype=torch.int32)], "another one of float32 and"),
        ([[-2], torch.ones(2)], "does not say where it belongs"),
        ([[2**63 - 1], torch.ones(2)], "an offset overflows"),
        ([[2**62], torch.ones(2)], "is impossible"),
        ([None, torch.ones(2)], "does not say where it belongs"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(tmp_path: Path, second: Any, message: str) -> None:
    piece(tmp_path / "a.safetensors", [0], torch.zeros(2))
    piece(tmp_path / "b.safetensors", *second)
    with pytest.raises(torch.CheckpointError, match=message):
        torch.load(tmp_path)


def test_files_that_do_not_say_where_they_belong(tmp_path: Path) -> None:
    piece(tmp_path / "a.safetensors", [0], torch.zeros(2))
    save_file({"t": torch.ones(2)}, tmp_path / "b.safetensors")
    with pytest.raises(torch.CheckpointError, match=r"b.safetensors' does not say where its tens"):
        torch.load(tmp_path)
    save_file({"t": torch.ones(2)}, tmp_path / "b.safetensors", {PLACES: "{"})
    with pytest.raises(torch.CheckpointError, match="is not JSON"):
        torch.load(tmp_path)
    with pytest.raises(torch.CheckpointError, match="is not JSON"):
        dcp.HuggingFaceStorageReader(str(tmp_path)).read_metadata()
    piece(tmp_path / "b.safetensors", [-1], torch.ones(2))
    with pytest.raises(torch.CheckpointError, match="does not say where tensor 't' belongs"):
        dcp.HuggingFaceStorageReader(str(tmp_path)).read_metadata()
    # The same piece of two ranks is one.
    piece(tmp_path / "b.safetensors", [0], torch.zeros(2))
    assert same(torch.load(tmp_path), {"t": torch.zeros(2)})


def quantised(tmp_path: Path) -> tuple[Any, Any]:
    """Files of a matrix in blocks of 4 and of numbers of four bits, and what they stand for."""
    torch.manual_seed(0)
    weight = torch.randint(-9, 9, (10, 7)).to(torch.float8_e4m3fn)
    scale = torch.rand(3, 2)
    grown = scale.repeat_interleave(4, 0)[:10].repeat_interleave(4, 1)[:, :7]
    blocks = torch.randint(0, 256, (2, 3, 4, 2), dtype=torch.uint8)
    exponents = torch.randint(120, 130, (2, 3, 4), dtype=torch.uint8)
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    numbers = torch.zeros(2, 3, 16)
    for i, j, g, b in torch.cartesian_prod(*map(torch.arange, blocks.shape)).tolist():
        for nibble, bits in enumerate((int(blocks[i, j, g, b]) & 15, int(blocks[i, j, g, b]) >> 4)):
            number = table[bits & 7] * (-1 if bits & 8 else 1)
            numbers[i, j, 4 * g + 2 * b + nibble] = number * 2.0 ** (int(exponents[i, j, g]) - 127)
    files = [
        {"m.weight": weight, "e_blocks": blocks, "plain": torch.ones(2)},
        {"m.weight_scale_inv": scale, "e_scales": exponents},
    ]
    names = {}
    for i, tensors in enumerate(files):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        save_file(tensors, tmp_path / file)
        names.update(dict.fromkeys(tensors, file))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return weight.float() * grown, numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_are_read_as_numbers(tmp_path: Path, dtype: Any) -> None:
    matrix, numbers = quantised(tmp_path)
    reader = dcp.QuantizedHuggingFaceStorageReader(str(tmp_path), 2, dtype, block_size=4)
    found = {
        "m.weight": torch.zeros(10, 7, dtype=dtype),
        "e_blocks": torch.zeros(2, 3, 16, dtype=dtype),
        "plain": torch.zeros(2),
    }
    dcp.load(found, storage_reader=reader)
    assert torch.equal(found["m.weight"], matrix.to(dtype))
    assert torch.equal(found["e_blocks"], numbers.to(dtype))
    assert torch.equal(found["plain"], torch.ones(2))


def test_pieces_of_blocks(tmp_path: Path) -> None:
    matrix, numbers = quantised(tmp_path)
    dist.init_process_group("local", world_size=3)
    mesh = init_device_mesh("cpu", (3,))
    found = {
        "m.weight": distribute_tensor(torch.zeros(10, 7), mesh, [Shard(1)]),
        "e_blocks": distribute_tensor(torch.zeros(2, 3, 16), mesh, [Shard(2)]),
    }
    reader = dcp.QuantizedHuggingFaceStorageReader(str(tmp_path), block_size=4)
    dcp.load(found, storage_reader=reader)
    assert torch.equal(found["m.weight"].full_tensor(), matrix)
    assert torch.equal(found["e_blocks"].full_tensor(), numbers)


def test_copies_that_are_saved_later(tmp_path: Path) -> None:
    class Slow(DefaultStager):
        """Copies when it is told to."""

        def __init__(self) -> None:
            self.later: Future[Any] = Future()

        def stage(self, state_dict: Any, **kwargs: Any) -> Any:
            return self.later

    stager = Slow()
    assert isinstance(stager, AsyncStager)
    made = dcp.async_save({"x": torch.ones(2)}, checkpoint_id=tmp_path / "a", async_stager=stager)
    assert isinstance(made, AsyncSaveResponse)
    assert not made.staging_completion.done()
    stager.later.set_result({"x": torch.full((2,), 5.0)})
    assert made.staging_completion.result() is None
    made.upload_completion.result()
    assert same(torch.load(tmp_path / "a"), {"x": torch.full((2,), 5.0)})
    failed = Slow()
    made = dcp.async_save({}, checkpoint_id=tmp_path / "b", async_stager=failed)
    assert isinstance(made, AsyncSaveResponse)
    failed.later.set_exception(ValueError("no memory"))
    with pytest.raises(ValueError, match="no memory"):
        made.staging_completion.result()
    with pytest.raises(ValueError, match="no memory"):
        made.upload_completion.result()


def test_stagers_copy() -> None:
    state = {"x": torch.ones(2), "n": [1, torch.zeros(3)]}
    stager = BlockingAsyncStager(cache_staged_state_dict=True)
    first = stager.stage(state)
    state["x"].fill_(2)
    assert first["x"].tolist() == [1, 1]
    second = stager.stage(state)
    assert second["x"] is first["x"]
    assert second["x"].tolist() == [2, 2]
    with pytest.raises(ValueError, match="Unexpected value type <class 'object'>"):
        BlockingAsyncStager(type_check=True).stage({"x": object()})
    plain = DefaultStager(StagingOptions(False, True, True, False))
    later = plain.stage(state)
    assert isinstance(later, Future)
    assert later.result()["x"].is_shared()
    plain.close()
    with pytest.raises(AssertionError, match="accelerator is available"):
        DefaultStager(StagingOptions(False, False, False, True))


@pytest.mark.filterwarnings("ignore:Detected an existing checkpoint")
def test_writers_stage_themselves(tmp_path: Path) -> None:
    writer = dcp.FileSystemWriter(tmp_path / "a", cache_staged_state_dict=True)
    dist.init_process_group("local", world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    cut = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
    first = dcp.async_save({"cut": cut}, storage_writer=writer)
    first.result()
    kept = writer.state_dict_cache
    assert kept is not None
    assert isinstance(kept["cut"], DTensor)
    cut.fill_(9)
    dcp.async_save({"cut": cut}, storage_writer=writer).result()
    assert writer.state_dict_cache["cut"]._locals[0] is kept["cut"]._locals[0]
    assert torch.equal(load_file_of(tmp_path / "a")["cut"], cut.full_tensor())


def load_file_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(folder)
    return loaded


def test_consolidated_files_are_plain(tmp_path: Path) -> None:
    piece(tmp_path / "a.safetensors", [0], torch.zeros(2))
    piece(tmp_path / "b.safetensors", [2], torch.ones(3))
    (tmp_path / "out").mkdir()
    consolidate_safetensors_files(str(tmp_path), str(tmp_path / "out"), {"t": 1}, num_threads=3)
    file = tmp_path / "out" / "model-00001-of-00001.safetensors"
    assert load_file(file)["t"].tolist() == [0, 0, 1, 1, 1]
    with safe_open(file) as found:
        assert found.metadata() == {"format": "pt"}
