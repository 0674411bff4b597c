"""Where arguments are sizes of the whole, for which pieces have to be told their own."""

from __future__ import annotations

MADE: dict[str, tuple[int, ...]] = {
    "new_empty": (1,),
    "new_full": (1,),
    "new_ones": (1,),
    "new_zeros": (1,),
    "new_empty_strided": (1, 2),
}
"""What makes a tensor like another: which argument is the shape of the result, and which its strides."""

_RESIZED = [
    f"upsample_{m}_backward" for m in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
]
_RESIZED += [
    f"{m}{n}d_backward" for m in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
]
_RESIZED += ["_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward"]
_SHAPES = {
    **MADE,
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "expand", "view_copy", "expand_copy"), (1,)
    ),
    **dict.fromkeys(("slice_backward", "select_backward", "unfold_backward"), (1,)),
    **dict.fromkeys(_RESIZED, (2,)),
}

GROUPED = {"native_group_norm": 3, "native_group_norm_backward": 5}
"""Where the numbers of examples, of channels and of elements of a channel stand."""


def sizes_in(name: str) -> tuple[int, ...]:
    """Which arguments of an operator are the shape of its result, and the strides."""
    return _SHAPES.get(name, ())
