"""Tensors of different sizes in one: they can be loaded, not computed with."""

from torchlike import _absent

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]

globals().update(
    _absent.names(__name__, "nested tensors are not computed with; pad them", " ".join(__all__))
)
