"""What `importlib.metadata` says of `torch` while torchlike stands for it."""

from __future__ import annotations

from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import torchlike


class Torch(Distribution):
    """A distribution with a name, a version and one package."""

    def read_text(self, filename: str) -> str | None:
        from torchlike.compat import VERSION

        return {
            "METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"
            "Summary: torchlike, in the place of PyTorch\n",
            "top_level.txt": "torch\n",
        }.get(filename)

    def locate_file(self, path: Any) -> Path:
        return Path(torchlike.__file__ or "").parent.parent / path
