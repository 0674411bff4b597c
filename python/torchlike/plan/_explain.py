"""Where values come from, and which tensors have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchlike import _C
from torchlike.plan._plan import human

_SHOWN = 40


@dataclass(frozen=True)
class Explanation:
    """Where a tensor's values come from, and what becoming real costs."""

    kind: str
    """`real`, `file`, `recipe`, `fake`, `uninitialised` or `none`."""
    nbytes: int
    """Bytes of its storage."""
    files: list[str]
    """Files that becoming real reads, with the bytes."""
    calls: list[str]
    """Calls that it replays, oldest first, with short names for storages."""
    made: int
    """Bytes of host memory that what replaying makes and reads takes at most; kernels may take more while they run."""

    def __str__(self) -> str:
        said = {
            "real": "real: its values are in memory",
            "file": "read from",
            "recipe": f"replayed: {_count(self.calls)}, at most {human(self.made)} of results",
            "fake": "fake: it stands for a tensor and has no values",
            "uninitialised": "uninitialised: nobody has written its memory",
            "none": "nothing is known of its values: it was made on meta; load them, or make it inside meta_init()",
        }[self.kind]
        lines = [f"{human(self.nbytes)}, {said}", *(f"  {f}" for f in self.files)]
        calls = self.calls
        if len(calls) > _SHOWN:
            left = len(calls) - _SHOWN
            calls = [*calls[: _SHOWN // 2], f"... {left} more ...", *calls[-_SHOWN // 2 :]]
        return "\n".join([*lines, *(f"  {c}" for c in calls)])


def _count(calls: list[str]) -> str:
    return f"{len(calls)} call{'s' if len(calls) != 1 else ''}"


def explain(t: Any) -> Explanation:
    """Where a tensor's values come from: memory, a file and the bytes in it, or the recipe that becoming real replays.

    Nothing is read or computed. `print(explain(t))` shows it as lines.
    """
    if not isinstance(t, _C.Tensor):
        raise TypeError(f"explain(): expected a tensor, got {type(t).__name__}")
    plain = t.detach()
    size = plain.untyped_storage().nbytes()
    found = _C._explain(plain)
    if found is not None:
        files, calls, made = found
        return Explanation("recipe" if calls else "file", size, files, calls, made)
    if _C._is_blank(plain):
        return Explanation("uninitialised", size, [], [], 0)
    if plain.is_meta:
        return Explanation("none", size, [], [], 0)
    fake = type(plain).__name__ == "FakeTensor"
    return Explanation("fake" if fake else "real", size, [], [], 0)


def uninitialised(module: Any) -> list[str]:
    """The names of parameters and buffers of a module that nobody has written: `empty`, `to_empty` and meta
    without a source."""
    named = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return [name for name, t in named if t.numel() and explain(t).kind in ("uninitialised", "none")]


def assert_initialized(module: Any) -> None:
    """Raises for a module some of whose tensors nobody has written.

    Raises:
        AssertionError: with the names of all of them.
    """
    names = uninitialised(module)
    if names:
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        raise AssertionError(
            f"nobody has written the values of {len(names)} tensors: {', '.join(names[:20])}{more}"
        )
