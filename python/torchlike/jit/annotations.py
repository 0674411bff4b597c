"""Types that scripted code names."""

from __future__ import annotations

from typing import Any
from typing import Dict as Dict  # noqa: UP035  (libraries take these from here)
from typing import List as List  # noqa: UP035
from typing import Optional as Optional
from typing import Tuple as Tuple  # noqa: UP035
from typing import Union as Union

from torchlike import _absent


class _BroadcastingListCls:
    """`BroadcastingList2[int]`: a number, or a list of as many."""

    def __getitem__(self, types: Any) -> Any:
        return Any


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingListCls()

globals().update(
    _absent.names(
        __name__,
        "nothing is compiled",
        "ann_to_type try_ann_to_type get_signature get_param_names parse_type_line split_type_line",
    )
)
