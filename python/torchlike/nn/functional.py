"""Functions of neural networks: the C functions of the op table, and the few compositions."""

from torchlike import _C
from torchlike._namespace import fill
from torchlike.nn._compositions import *  # noqa: F403

fill(globals(), _C, "_nn")
