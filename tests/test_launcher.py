"""Processes of one host, started by `torchlike.distributed.run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchlike.distributed import launch, run

PROGRAM = """
import os, sys
import {torch} as torch
import {torch}.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1) * (1 + dist.get_rank())
dist.all_reduce(t)
assert int(os.environ["LOCAL_RANK"]) == dist.get_rank() and dist.is_torchelastic_launched()
with open(sys.argv[1] + os.environ["RANK"], "w") as f:
    f.write(str(t.item()) + " " + str(dist.get_world_size()) + " " + str(torch.float32))
dist.destroy_process_group()
"""


def launched(
    *args: str, module: str = "torchlike.distributed.run"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *module.split(), *args], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("as_torch", [False, True])
def test_two_processes_meet(tmp_path: Path, as_torch: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(torch="torch" if as_torch else "torchlike"))
    how = "-m torchlike -m torch.distributed.run" if as_torch else "-m torchlike.distributed.launch"
    done = launched(
        "--standalone", "--nproc-per-node=2", str(script), str(tmp_path / "out"), module=how
    )
    assert done.returncode == 0, done.stderr
    kind = "torch.float32" if as_torch else "torchlike.float32"
    assert [(tmp_path / f"out{i}").read_text() for i in (0, 1)] == [f"3.0 2 {kind}"] * 2


def test_a_process_that_fails_ends_the_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\nif os.environ['RANK'] == '1':\n    sys.exit(5)\ntime.sleep(100)\n"
    )
    done = launched("--nproc-per-node=2", str(script), module="-m torchlike.distributed.run")
    assert done.returncode == 5 and "rank 1 failed with exit code 5" in done.stderr


def test_what_one_host_cannot_do() -> None:
    options = run.parse_args(["--nproc-per-node", "3", "-m", "pkg", "--own", "x"])
    assert options.module and options.training_script_args == ["--own", "x"]
    assert "nproc" in run.get_args_parser().format_help() and launch.launch is run.main
    for given in (["--nnodes=2"], ["--max-restarts=1"], ["--node-rank=1"]):
        with pytest.raises(NotImplementedError, match="not supported by torchlike"):
            run.main([*given, "x.py"])
    with pytest.raises(ValueError, match="Unsupported nproc_per_node value: gpu"):
        run.run(run.parse_args(["--nproc-per-node=gpu", "x.py"]))
    with pytest.raises(SystemExit):
        run.main(["--no-python", "false"])
