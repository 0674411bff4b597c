"""What a program's calls cost, step by step: a table, or a file for `chrome://tracing`."""

from torchlike.profiler import itt as itt
from torchlike.profiler import profiler as profiler
from torchlike.profiler.profiler import *
from torchlike.profiler.profiler import kineto_available as kineto_available
