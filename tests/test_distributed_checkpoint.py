"""Checkpoints that several ranks write and read: by one process, by all ranks of a `local` world, by two processes."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
import torchlike.distributed.checkpoint as dcp
from test_gloo import played
from torchlike import nn
from torchlike.distributed.checkpoint import filesystem, format_utils, state_dict
from torchlike.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torchlike.distributed.device_mesh import init_device_mesh
from torchlike.distributed.tensor import Replicate, Shard, distribute_tensor
from torchlike.distributed.tensor.placement_types import _StridedShard

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(autouse=True)
def no_world() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def some() -> dict[str, Any]:
    return {
        "a": torch.arange(6.0).view(2, 3),
        "nested": {"list": [1, torch.ones(3)], "plain": [1, 2], "text": "x"},
        "part": torch.arange(8, dtype=torch.bfloat16)[1:7:2],
        "turned": torch.arange(6).view(2, 3).t(),
        "empty": torch.zeros(0, 3),
        "one": torch.tensor(3.0),
    }


def emptied(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: emptied(v) for k, v in values.items()}
    if isinstance(values, list):
        return [emptied(v) for v in values]
    return torch.full_like(values, 7) if isinstance(values, torch.Tensor) else None


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


def test_what_is_saved_is_loaded_in_place(tmp_path: Path) -> None:
    metadata = dcp.save(some(), checkpoint_id=tmp_path)
    assert metadata.planner_data["nested.list.1"] == ("nested", "list", 1)
    assert isinstance(metadata.state_dict_metadata["nested.plain"], dcp.BytesStorageMetadata)
    out = emptied(some())
    kept = out["a"]
    dcp.load(out, checkpoint_id=tmp_path)
    assert alike(out, some()) and out["a"] is kept
    assert alike(torch.load(tmp_path), some())
    assert alike(_load_state_dict_from_keys(checkpoint_id=tmp_path), some())
    found = _load_state_dict_from_keys({"nested.list", "one"}, checkpoint_id=tmp_path)
    assert alike(found, {"nested": {"list": some()["nested"]["list"]}, "one": some()["one"]})


def test_metadata_are_read_as_they_were_written(tmp_path: Path) -> None:
    metadata = dcp.save(some(), checkpoint_id=tmp_path)
    read = dcp.FileSystemReader(tmp_path).read_metadata()
    assert read.storage_meta is not None and read.storage_meta.load_id
    read.storage_meta.load_id = None
    assert read == metadata and read.version == "1.0.0"


@pytest.mark.parametrize("name", ["os.system", "torchlike.load", "torch.load"])
def test_metadata_run_nothing(tmp_path: Path, name: str) -> None:
    module, _, function = name.rpartition(".")
    text = f"c{module}\n{function}\n(S'touch {tmp_path}/ran'\ntR.".encode()
    assert pickle.loads(b"cos\ngetcwd\n)R.")  # such a pickle runs in Python
    (tmp_path / ".metadata").write_bytes(text)
    with pytest.raises(dcp.CheckpointException):
        dcp.load({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_tensors_on_meta_become_real(tmp_path: Path) -> None:
    dcp.save({"w": torch.arange(4.0)}, checkpoint_id=tmp_path)
    out = {"w": torch.empty(4, device="meta")}
    dcp.load(out, checkpoint_id=tmp_path)
    assert out["w"].tolist() == [0, 1, 2, 3]


def refused(f: Callable[[], Any]) -> str:
    with pytest.raises(dcp.CheckpointException) as e:
        f()
    return str(e.value)


@pytest.mark.parametrize(("start", "length"), [(0, 1 << 62), (-1, 4), (0, -1), (1 << 40, 1)])
@pytest.mark.parametrize("value", [torch.ones(4), "words"], ids=["tensor", "object"])
def test_places_outside_of_a_file_are_refused(
    tmp_path: Path, value: Any, start: int, length: int
) -> None:
    metadata = dcp.save({"w": value}, checkpoint_id=tmp_path)
    for place in metadata.storage_data.values():
        place.offset, place.length = start, length
    (tmp_path / ".metadata").write_bytes(filesystem.dumped(metadata))
    with pytest.raises(dcp.CheckpointException):
        dcp.load({"w": value}, checkpoint_id=tmp_path)


def test_what_does_not_fit_is_an_error(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(4)}, checkpoint_id=tmp_path)
    load = lambda given, **how: dcp.load(given, checkpoint_id=tmp_path, **how)  # noqa: E731
    assert "Missing key in checkpoint state_dict: v." in refused(lambda: load({"v": 1}))
    assert "Size mismatch between saved" in refused(lambda: load({"w": torch.ones(2, 2)}))
    assert "expected BytesStorageMetadata" in refused(lambda: load({"w": 1}))
    out = {"v": 1, "w": torch.zeros(4)}
    load(out, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert out["v"] == 1 and out["w"].tolist() == [1] * 4
    writer = dcp.FileSystemWriter(tmp_path, overwrite=False)
    assert "Checkpoint already exists" in refused(lambda: dcp.save({}, storage_writer=writer))
    with pytest.raises(RuntimeError, match="`checkpoint_id` must be specified"):
        dcp.save({})
    with pytest.raises(RuntimeError, match="Cannot detect which StorageReader"):
        dcp.save({}, checkpoint_id="s3://bucket/x")
    (tmp_path / "__0_0.distcp").write_bytes(b"short")
    assert "__0_0.distcp" in refused(lambda: load({"w": torch.zeros(4)}))
    (tmp_path / ".metadata").unlink()
    assert "No such file" in refused(lambda: load({"w": torch.zeros(4)}))
    with pytest.raises(ValueError, match=r"duplicated flatten key a\.b"):
        raise_inner(lambda: dcp.save({"a.b": 1, "a": {"b": 2}}, checkpoint_id=tmp_path))


def raise_inner(f: Callable[[], Any]) -> None:
    try:
        f()
    except dcp.CheckpointException as e:
        raise e.failures[0][0] from None


def test_several_files_and_threads(tmp_path: Path) -> None:
    many = {f"t{i}": torch.full((i + 1,), float(i)) for i in range(9)} | {"n": 3}
    writer = dcp.FileSystemWriter(tmp_path, thread_count=3)
    dcp.save(many, storage_writer=writer)
    assert len(list(tmp_path.glob("__0_*.distcp"))) == 3 and alike(torch.load(tmp_path), many)
    writer = dcp.FileSystemWriter(tmp_path / "b", single_file_per_rank=False, sync_files=False)
    dcp.save(many, storage_writer=writer)
    assert len(list((tmp_path / "b").glob("*.distcp"))) == 10
    assert alike(torch.load(tmp_path / "b"), many)


def test_a_copy_is_saved_while_the_program_goes_on(tmp_path: Path) -> None:
    values = {"w": torch.zeros(1000), "n": [1]}
    done = dcp.async_save(values, checkpoint_id=tmp_path)
    values["w"].fill_(1)
    values["n"].append(2)
    done.result()
    assert alike(torch.load(tmp_path), {"w": torch.zeros(1000), "n": [1]})


def test_objects_with_states_are_asked(tmp_path: Path) -> None:
    a, b = nn.Linear(2, 3), nn.Linear(2, 3)
    dcp.save({"model": a, "epoch": 4}, checkpoint_id=tmp_path)
    found = {"model": b, "epoch": 0}
    dcp.load(found, checkpoint_id=tmp_path)
    assert torch.equal(a.weight, b.weight) and found["epoch"] == 4


def test_files_of_one_process_and_back(tmp_path: Path) -> None:
    torch.save(some(), tmp_path / "one.pt")
    format_utils.torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "many")
    format_utils.dcp_to_torch_save(tmp_path / "many", tmp_path / "again.pt")
    assert alike(torch.load(tmp_path / "again.pt"), some())


class Halved(dcp.DefaultSavePlanner):
    """Writes halves of tensors."""

    def transform_object(self, write_item: Any, object: Any) -> Any:
        made = super().transform_object(write_item, object)
        return made / 2 if isinstance(made, torch.Tensor) else made


def test_planners_may_change_what_is_written(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path, planner=Halved())
    assert torch.load(tmp_path)["w"].tolist() == [0.5] * 3


PLACED = [
    [Replicate(), Replicate()],
    [Shard(0), Replicate()],
    [Replicate(), Shard(1)],
    [Shard(0), Shard(1)],
    [Shard(1), Shard(0)],
    [Shard(0), Shard(0)],
    # The second dimension cuts first, and leaves less than one row for each rank of the first.
    [_StridedShard(0, split_factor=2), Shard(0)],
]


@pytest.mark.parametrize("before", PLACED, ids=str)
def test_pieces_are_cut_anew(tmp_path: Path, before: Any) -> None:
    dist.init_process_group("local", rank=0, world_size=6)
    mesh = init_device_mesh("cpu", (3, 2), mesh_dim_names=("a", "b"))
    whole = torch.arange(7.0 * 5).view(7, 5)
    dcp.save({"w": distribute_tensor(whole, mesh, before)}, checkpoint_id=tmp_path)
    assert torch.equal(torch.load(tmp_path)["w"], whole)
    for after in PLACED:
        out = {"w": distribute_tensor(torch.zeros(7, 5), mesh, after)}
        dcp.load(out, checkpoint_id=tmp_path)
        assert torch.equal(out["w"].full_tensor(), whole), after
    plain = {"w": torch.zeros(7, 5)}
    dcp.load(plain, checkpoint_id=tmp_path)
    assert torch.equal(plain["w"], whole)


def test_pieces_that_are_no_boxes_are_refused(tmp_path: Path) -> None:
    dist.init_process_group("local", rank=0, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    t = distribute_tensor(torch.arange(12.0), mesh, [_StridedShard(0, split_factor=3)])
    assert torch.equal(t.full_tensor(), torch.arange(12.0))
    with pytest.raises(dcp.CheckpointException, match="is no box of it"):
        dcp.save({"w": t}, checkpoint_id=tmp_path)


def model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def step(net: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    net(torch.arange(8.0).view(2, 4)).pow(2).sum().backward()
    optimizer.step()


PROGRAM = """
    from torchlike import nn
    from torchlike.distributed import checkpoint as dcp
    from torchlike.distributed.checkpoint import state_dict
    from torchlike.distributed.fsdp import fully_shard
    begin()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    fully_shard(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    x = torch.arange(8.).view(2, 4)
    def step():
        optimizer.zero_grad()
        net(x).pow(2).sum().backward()
        optimizer.step()
    folder = os.path.dirname(path)
"""


def test_two_processes_and_one_go_on_from_each_others(tmp_path: Path) -> None:
    body = """
    step()
    state = dict(zip(("model", "optimizer"), state_dict.get_state_dict(net, optimizer)))
    dcp.save(state, checkpoint_id=folder + "/two")
    step()
    full = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
    whole = state_dict.get_model_state_dict(net, options=full)
    assert bool(whole) == (rank == 0)
    if rank == 0:
        torch.save(whole, folder + "/after.pt")
    dist.destroy_process_group()
    """
    played(tmp_path, PROGRAM + body)
    net = model(1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    names = ("model", "optimizer")
    state = dict(zip(names, state_dict.get_state_dict(net, optimizer), strict=True))
    dcp.load(state, checkpoint_id=tmp_path / "two")
    state_dict.set_state_dict(
        net,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    assert optimizer.state[net[0].weight]["step"] == 1
    step(net, optimizer)
    after = torch.load(tmp_path / "after.pt")
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, after[name], rtol=1e-6, atol=1e-7)

    state = dict(zip(names, state_dict.get_state_dict(net, optimizer), strict=True))
    dcp.save(state, checkpoint_id=tmp_path / "one")
    step(net, optimizer)
    torch.save(net.state_dict(), tmp_path / "last.pt")
    body = """
    for options in (None, state_dict.StateDictOptions(flatten_optimizer_state_dict=True)):
        made = state_dict.get_state_dict(net, optimizer, options=options)
        state = dict(zip(("model", "optimizer"), made))
        if options is None:
            dcp.load(state, checkpoint_id=folder + "/one")
        state_dict.set_state_dict(net, optimizer, model_state_dict=state["model"],
                                  optim_state_dict=state["optimizer"], options=options)
    step()
    last = torch.load(folder + "/last.pt")
    for name, p in net.state_dict().items():
        torch.testing.assert_close(p.full_tensor(), last[name], rtol=1e-6, atol=1e-7)

    options = state_dict.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    both = state_dict.get_state_dict(net, optimizer, options=state_dict.StateDictOptions(full_state_dict=True))
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    given = both if rank == 0 else ({}, {})
    state_dict.set_state_dict(net, optimizer, model_state_dict=given[0], optim_state_dict=given[1], options=options)
    for name, p in net.state_dict().items():
        assert torch.equal(p.full_tensor(), both[0][name]), name
    for name, p in net.named_parameters():
        assert torch.equal(optimizer.state[p]["exp_avg"].full_tensor(), both[1]["state"][name]["exp_avg"])
    try:
        dcp.load({"w": torch.ones(2)} if rank else {}, checkpoint_id=folder + "/one")
    except dcp.CheckpointException as e:
        assert "RANK 1" in str(e) and "Missing key" in str(e), str(e)
    else:
        raise AssertionError("nothing was refused")
    dist.destroy_process_group()
    """
    shutil.rmtree(tmp_path / "store", ignore_errors=True)
    (tmp_path / "store").unlink(missing_ok=True)
    played(tmp_path, PROGRAM + body)


def test_states_by_name(tmp_path: Path) -> None:
    net = model()
    net[2].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(
        [{"params": net[0].parameters(), "lr": 0.5}, {"params": net[2].parameters()}],
        lr=0.1,
        momentum=0.9,
    )
    state = state_dict.get_optimizer_state_dict(net, optimizer)
    assert state["param_groups"][0]["params"] == ["0.weight", "0.bias"]
    assert state["state"]["2.weight"]["momentum_buffer"].shape == (3, 6)
    options = state_dict.StateDictOptions(
        ignore_frozen_params=True, flatten_optimizer_state_dict=True
    )
    assert "2.bias" not in state_dict.get_model_state_dict(net, options=options)
    part = state_dict.StateDictOptions(keep_submodule_prefixes=False)
    found = state_dict.get_model_state_dict(net, submodules={net[2]}, options=part)
    assert list(found) == ["weight", "bias"]
    with pytest.raises(RuntimeError, match="none of the model's"):
        state_dict.get_optimizer_state_dict(net[0], optimizer)
    sent = state_dict.StateDictOptions(broadcast_from_rank0=True)
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        state_dict.get_model_state_dict(net, options=sent)
    wrapped = nn.Module()
    wrapped._orig_mod = net
    assert list(state_dict.get_model_state_dict(wrapped)) == list(net.state_dict())


def test_names_of_files_stay_in_the_folder(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(3)}, checkpoint_id=tmp_path / "a")
    (tmp_path / "b").mkdir()
    metadata = dcp.FileSystemReader(tmp_path / "a").read_metadata()
    for place in metadata.storage_data.values():
        place.relative_path = "../a/" + place.relative_path
    (tmp_path / "b" / ".metadata").write_bytes(filesystem.dumped(metadata))
    said = refused(lambda: dcp.load({"w": torch.zeros(3)}, checkpoint_id=tmp_path / "b"))
    assert "is not a file of the folder" in said
