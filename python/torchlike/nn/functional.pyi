# The functions are made from the op table when the module loads.
from typing import Any

from torchlike.nn._compositions import *

def __getattr__(name: str) -> Any: ...
