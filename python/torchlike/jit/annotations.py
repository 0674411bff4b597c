"""Types that scripted code names."""

from __future__ import annotations

import types
from typing import Any, get_args, get_origin
from typing import Dict as Dict  # noqa: UP035  (libraries take these from here)
from typing import List as List  # noqa: UP035
from typing import Optional as Optional
from typing import Tuple as Tuple  # noqa: UP035
from typing import Union as Union

from torchlike import _absent, _jit_types

_TYPES = [
    "AnyType",
    "ComplexType",
    "DictType",
    "FloatType",
    "IntType",
    "ListType",
    "StringType",
    "TupleType",
]


class _BroadcastingListCls:
    """`BroadcastingList2[int]`: a number, or a list of as many."""

    def __getitem__(self, types: Any) -> Any:
        return Any


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _BroadcastingListCls()


def _origin(ann: Any) -> Any:
    if ann in (list, tuple, dict, list, tuple, dict, Optional, Union):
        raise RuntimeError(
            f"Attempted to use {getattr(ann, '__name__', ann)} without a contained type. Please add a "
            "contained type, e.g. List[int]"
        )
    return get_origin(ann)


def is_tuple(ann: Any) -> bool:
    """Whether an annotation is a tuple's."""
    return _origin(ann) is tuple


def is_list(ann: Any) -> bool:
    """Whether an annotation is a list's."""
    return _origin(ann) is list


def is_dict(ann: Any) -> bool:
    """Whether an annotation is a dictionary's."""
    return _origin(ann) is dict


def is_union(ann: Any) -> bool:
    """Whether an annotation allows several types."""
    return _origin(ann) in (Union, types.UnionType)


def is_optional(ann: Any) -> bool:
    """Whether an annotation allows None beside one type."""
    return is_union(ann) and type(None) in get_args(ann)


TensorType = _jit_types.TensorType
globals().update({k: v for k, v in _jit_types.NAMES.items() if k in _TYPES})
globals().update(
    _absent.names(
        __name__,
        "nothing is compiled",
        "ann_to_type try_ann_to_type get_signature get_param_names parse_type_line split_type_line "
        "check_fn get_type_line try_real_annotations",
    )
)
