"""The words for how a loss is reduced, and the two flags that came before them."""

from __future__ import annotations

__all__ = ["get_enum", "legacy_get_enum", "legacy_get_string"]

_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number by which operators know a reduction."""
    if reduction == "elementwise_mean":
        import warnings

        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=2,
        )
        return _NUMBERS["mean"]
    if reduction not in _NUMBERS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _NUMBERS[reduction]


def legacy_get_string(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> str:
    """What the two old flags mean in words."""
    averaged = size_average is None or size_average
    kept = reduce is not None and not reduce
    word = "none" if kept else "mean" if averaged else "sum"
    if emit_warning:
        import warnings

        warnings.warn(
            "size_average and reduce args will be deprecated, "
            f"please use reduction='{word}' instead.",
            stacklevel=4,
        )
    return word


def legacy_get_enum(
    size_average: bool | None, reduce: bool | None, emit_warning: bool = True
) -> int:
    """What the two old flags mean as a number."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
