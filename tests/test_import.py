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


PARTS = """
from torchlike.optim.optimizer import Optimizer
from torchlike.func import grad
from torchlike.utils.data.sampler import Sampler
import torchlike
assert torchlike.optim.Optimizer is Optimizer
assert torchlike.func.grad is grad
assert torchlike.utils.data.Sampler is Sampler
"""


def test_parts_of_packages_that_wait_run_once():
    subprocess.run([sys.executable, "-c", PARTS], check=True)


REACHED = """
import torchlike
for path in (
    "autograd.grad_mode.no_grad", "autograd.profiler_util.FunctionEvent", "monitor.log_event",
    "torch_version.TorchVersion", "fx.experimental.const_fold", "fx.passes.utils.matcher_utils.SubgraphMatcher",
    "nn.parallel.scatter_gather.scatter",
):
    found = torchlike
    for name in path.split("."):
        found = getattr(found, name)
assert not hasattr(torchlike.ao.nn.quantized, "reference")
"""


def test_modules_are_reached_without_being_imported_by_name():
    subprocess.run([sys.executable, "-c", REACHED], check=True)
