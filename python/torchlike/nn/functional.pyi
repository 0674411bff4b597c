# The functions are made from the op table when the module loads.
from typing import Any

from torchlike.nn._compositions import _canonical_mask as _canonical_mask
from torchlike.nn._compositions import _none_or_dtype as _none_or_dtype
from torchlike.nn._compositions import gumbel_softmax as gumbel_softmax
from torchlike.nn._compositions import multi_head_attention_forward as multi_head_attention_forward
from torchlike.nn._compositions import (
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)

def __getattr__(name: str) -> Any: ...
