"""What `import torchlike` brings with it: only what every program uses."""

import subprocess
import sys

SCRIPT = """
import sys
before = set(sys.modules)
import torchlike
print(*sorted(set(sys.modules) - before))
"""


def test_little_is_imported_with_the_package():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    found = set(done.stdout.split())
    assert "torchlike.nn.functional" in found
    heavy = {"numpy", "multiprocessing", "socket", "inspect", "dataclasses", "json", "asyncio"}
    assert heavy & found == set()
