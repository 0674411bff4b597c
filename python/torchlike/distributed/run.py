"""The launcher of the processes of one host: `python -m torchlike.distributed.run --nproc-per-node=2 script.py ...`.

Each process gets its place by the variables that `init_process_group()` reads: `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, ...
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["get_args_parser", "main", "parse_args", "run"]

_POLL = 0.05
_PATIENCE = 10.0


def get_args_parser() -> argparse.ArgumentParser:
    """The options: those of PyTorch's launcher that mean something on one host."""
    parser = argparse.ArgumentParser(
        description="Runs a program in several processes of this host."
    )
    text = {"type": str}
    parser.add_argument("--nnodes", default="1:1", help="hosts; one is supported", **text)  # type: ignore[arg-type]
    parser.add_argument(
        "--nproc-per-node", "--nproc_per_node", default="1", help="processes, or 'cpu', 'auto'"
    )
    parser.add_argument("--node-rank", "--node_rank", type=int, default=0)
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument(
        "--master-port", "--master_port", type=int, default=None, help="a free one by default"
    )
    parser.add_argument("--standalone", action="store_true", help="as it is in any case")
    for name in ("backend", "endpoint", "id", "conf"):
        parser.add_argument(f"--rdzv-{name}", f"--rdzv_{name}", default="")
    parser.add_argument("--max-restarts", "--max_restarts", type=int, default=0)
    parser.add_argument("--role", default="default")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument(
        "--no-python", "--no_python", action="store_true", help="the program is no Python"
    )
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line."""
    return get_args_parser().parse_args(args)


def _count(asked: str) -> int:
    if asked in ("cpu", "auto"):
        return os.cpu_count() or 1
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"Unsupported nproc_per_node value: {asked}")
    return count


def _command(args: argparse.Namespace) -> list[str]:
    """What each process runs; `import torch` gives torchlike there if it does here."""
    from torchlike.compat import installed_as_torch

    program = [args.training_script, *args.training_script_args]
    if args.no_python:
        return program
    own = ["-m", "torchlike"] if installed_as_torch() else []
    return [sys.executable, "-u", *own, *(["-m"] if args.module else []), *program]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _places(args: argparse.Namespace, count: int) -> list[dict[str, str]]:
    """The variables of each process."""
    port = args.master_port if args.master_port is not None else _free_port()
    shared = {
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "ROLE_WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": 1,
        "GROUP_RANK": 0,
        "ROLE_NAME": args.role,
        "MASTER_ADDR": args.master_addr,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": args.max_restarts,
        "TORCHELASTIC_RUN_ID": args.rdzv_id or "none",
    }
    threads = {} if count == 1 or "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": 1}
    own = ({"RANK": i, "LOCAL_RANK": i, "ROLE_RANK": i} for i in range(count))
    return [{k: str(v) for k, v in {**shared, **threads, **place}.items()} for place in own]


def run(args: argparse.Namespace) -> None:
    """Runs the processes; if one fails, the others are ended.

    Raises:
        NotImplementedError: for several hosts, and for restarts.
        ValueError: for a number of processes that is none.
        SystemExit: with the exit code of a process that failed.
    """
    if args.nnodes not in ("1", "1:1") or args.node_rank:
        raise NotImplementedError(
            "torch.distributed.run: --nnodes above 1 is not supported by torchlike, whose gloo connects the processes "
            "of one host"
        )
    if args.max_restarts:
        raise NotImplementedError(
            "torch.distributed.run: --max-restarts is not supported by torchlike"
        )
    command = _command(args)
    began: list[subprocess.Popen[bytes]] = []
    try:
        places = _places(args, _count(args.nproc_per_node))
        began.extend(subprocess.Popen(command, env={**os.environ, **place}) for place in places)
        failed = _first_failure(began)
    finally:
        _end(began)
    if failed is not None:
        rank = began.index(failed)
        print(f"rank {rank} failed with exit code {failed.returncode}", file=sys.stderr)
        sys.exit(failed.returncode if failed.returncode > 0 else 1)


def _first_failure(processes: list[Any]) -> Any:
    """The process that fails first; None once all have ended well."""
    left = list(processes)
    while left:
        for process in list(left):
            code = process.poll()
            if code:
                return process
            if code == 0:
                left.remove(process)
        time.sleep(_POLL)
    return None


def _end(processes: list[Any]) -> None:
    """Ends those that still run, at first politely."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and any(p.poll() is None for p in processes):
        time.sleep(_POLL)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def main(args: Sequence[str] | None = None) -> None:
    """The command line."""
    run(parse_args(args))


if __name__ == "__main__":
    main()
