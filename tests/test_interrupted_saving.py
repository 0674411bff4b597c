"""Saving that is cut short: full disks, killed processes, files that cannot all be open."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import kill_during_save
import torchlike as torch


def test_a_full_disk_leaves_the_old_file(tmp_path: pathlib.Path) -> None:
    code = """
import resource, signal, sys
import torchlike as torch
from torchlike import safetensors, serialization
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
path, kind = sys.argv[1:]
state = {"x": torch.ones(100_000)}
try:
    if kind == "save":
        torch.save(state, path)
    elif kind == "shards":
        safetensors.save_file({**state, "y": torch.ones(9)}, path, max_shard_size=10)
    else:
        safetensors.save_file(state, path)
except OSError as e:
    print("OSError", e)
"""
    for kind, name in [("save", "a.pt"), ("file", "a.safetensors"), ("shards", "b.safetensors")]:
        path = tmp_path / name
        path.write_bytes(b"old")
        command = [sys.executable, "-c", code, str(path), kind]
        out = subprocess.check_output(command, text=True)
        assert out.startswith("OSError") and "cannot save" in out, out
        assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "a.safetensors", "b.safetensors"]


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors", "model.safetensors.index"])
def test_killed_while_saving(name: str) -> None:
    changed, _ = kill_during_save.run(6, name, seed=1)
    assert changed > 0


def test_more_shards_than_a_process_may_have_open(tmp_path):
    code = """
import resource, sys
import torchlike as torch
from torchlike import safetensors
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
state = {f"x{i}": torch.full((2,), float(i)) for i in range(320)}
safetensors.save_file(state, sys.argv[1], max_shard_size=8)
"""
    path = tmp_path / "many.safetensors"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    got = torch.load(tmp_path / "many.safetensors.index.json")
    assert len(os.listdir(tmp_path)) == 321
    assert all(got[f"x{i}"].tolist() == [i, i] for i in range(320))
