"""What a device can do, as JSON files: peaks by type, bandwidth, the cost of starting a kernel; and the
roofline over it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).with_name("profiles")


@dataclass(frozen=True)
class Profile:
    """What a device can do."""

    name: str
    peak: dict[str, float]
    """Floating point operations a second, by the name of a type."""
    bandwidth: float
    """Bytes a second between memory and the chip."""
    launch: float
    """Seconds that starting a kernel costs."""
    efficiency: float
    """The part of the peak that large products reach."""
    source: str = ""

    def seconds(self, flops: int, moved: int, dtype: str) -> float:
        """The time of a kernel by its roofline: of its operations or its bytes, whichever takes longer, and
        its start."""
        peak = self.peak.get(dtype, self.peak["float32"]) * self.efficiency
        return max(flops / peak, moved / self.bandwidth) + self.launch


def names() -> list[str]:
    """The profiles that come with the library."""
    return sorted(p.name.removesuffix(".json") for p in _FOLDER.iterdir())


@functools.cache
def profile(which: str) -> Profile:
    """A profile by its name, or by the path of a JSON file.

    Raises:
        ValueError: if there is none.
    """
    if which.endswith(".json"):
        return Profile(**json.loads(Path(which).read_text()))
    if which not in names():
        raise ValueError(
            f"no profile {which!r}: one of {', '.join(names())}, or the path of a JSON file"
        )
    return Profile(**json.loads((_FOLDER / f"{which}.json").read_text(encoding="utf-8")))
