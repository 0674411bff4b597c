"""A library's own tests with torchlike in PyTorch's place: `python benches/suites.py --torch PYTHON FOLDER TESTS...`.

FOLDER is an unpacked source archive (`pip download --no-deps --no-binary :all: NAME`). This Python needs torchlike with
its hook (`python -m torchlike.compat`), pytest, and what the library imports; PYTHON the same and PyTorch. Prints how
many tests fail with torchlike, and by name those of them that pass with PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_failed: set[str] = set()


# pytest loads this file as a plugin in the processes that run tests.


def pytest_runtest_logreport(report: Any) -> None:
    """Notes a test that fails."""
    if report.failed:
        _failed.add(report.nodeid)


def pytest_collectreport(report: Any) -> None:
    """Notes a file that cannot be read."""
    if report.failed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: Any) -> None:
    """Writes down what failed."""
    ran = {"failed": sorted(_failed), "ran": session.testscollected}
    Path(os.environ["SUITES_FOUND"]).write_text(json.dumps(ran))


def run(python: str, folder: Path, tests: list[str], limit: int, **more: str) -> dict[str, Any]:
    """What a run of tests wrote down.

    Raises:
        SystemExit: if it took longer than `limit` seconds, or ended before its tests.
    """
    paths = [
        Path(__file__).parent,
        folder,
        folder / "src",
        *os.environ.get("PYTHONPATH", "").split(":"),
    ]
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "found.json"
        path = ":".join(str(p) for p in paths if str(p))
        env = {**os.environ, "PYTHONPATH": path, "SUITES_FOUND": str(found), **more}
        options = ["-p", "suites", "-p", "no:cacheprovider", "-q", "--tb=short", "-o", "addopts="]
        options.append("--continue-on-collection-errors")
        command = [python, "-m", "pytest", *options, *tests]
        try:
            made = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"more than {limit} s") from None
        if not found.exists():
            raise SystemExit(made.stdout[-2000:] + made.stderr[-2000:])
        result: dict[str, Any] = json.loads(found.read_text())
        return result


def main() -> None:
    """Runs the tests, and those that fail once more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", required=True, help="a Python with PyTorch")
    parser.add_argument("--limit", type=int, default=1500, help="seconds that a run may take")
    parser.add_argument("folder", type=Path)
    parser.add_argument("tests", nargs="+")
    given = parser.parse_args()
    folder = given.folder.resolve()
    ours = run(sys.executable, folder, given.tests, given.limit, TORCHLIKE_AS_TORCH="1")
    both: set[str] = set()
    if ours["failed"]:
        theirs = run(given.torch, folder, ours["failed"], given.limit, TORCHLIKE_AS_TORCH="0")
        both = set(theirs["failed"])
    alone = [name for name in ours["failed"] if name not in both]
    print("\n".join(alone))
    print(
        f"SUITE {folder.name}: {ours['ran']} tests, {len(ours['failed'])} fail, {len(alone)} with torchlike alone"
    )


if __name__ == "__main__":
    main()
