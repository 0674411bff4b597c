"""The functions of `torch.fft`: the C functions of the op table."""

from typing import TYPE_CHECKING

from torchlike import _C
from torchlike._namespace import fill

if TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any:
        """The functions are put here while the module loads."""


fill(globals(), _C, "_fft")
