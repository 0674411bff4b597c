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


def _origin(ann: Any, bare: Any, name: str) -> Any:
    """What an annotation is a kind of.

    Raises:
        RuntimeError: for the name alone, which says nothing of what is in it.
    """
    if ann is bare:
        text = "a contained type. Please add a contained type, e.g. {0}[int]"
        if name == "Dict":
            text = "contained types. Please add contained type, e.g. {0}[int, int]"
        raise RuntimeError(f"Attempted to use {name} without " + text.format(name))
    return get_origin(ann)


def is_tuple(ann: Any) -> bool:
    """Whether an annotation is a tuple's."""
    return _origin(ann, Tuple, "Tuple") is tuple  # noqa: UP006


def is_list(ann: Any) -> bool:
    """Whether an annotation is a list's."""
    return _origin(ann, List, "List") is list  # noqa: UP006


def is_dict(ann: Any) -> bool:
    """Whether an annotation is a dictionary's."""
    return _origin(ann, Dict, "Dict") is dict  # noqa: UP006


def is_union(ann: Any) -> bool:
    """Whether an annotation allows several types."""
    return _origin(ann, Union, "Union") in (Union, types.UnionType)


def is_optional(ann: Any) -> bool:
    """Whether an annotation allows None beside one type."""
    kinds = get_args(ann)
    _origin(ann, Optional, "Optional")
    return is_union(ann) and len(kinds) == 2 and type(None) in kinds


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
