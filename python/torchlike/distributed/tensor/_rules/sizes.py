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

RESIZED = [
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "upsample_trilinear3d",
]
"""What gives images another size; their gradients are told that of the images."""

_SHAPES = {
    **MADE,
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "expand", "view_copy", "expand_copy"), (1,)
    ),
    **dict.fromkeys(("slice_backward", "select_backward", "unfold_backward"), (1,)),
    **{n + "_backward": (2,) for n in RESIZED},
}

GROUPED = {"native_group_norm": 3, "native_group_norm_backward": 5}
"""Where the numbers of examples, of channels and of elements of a channel stand."""


def sizes_in(name: str) -> tuple[int, ...]:
    """Which arguments of an operator are the shape of its result, and the strides."""
    return _SHAPES.get(name, ())
