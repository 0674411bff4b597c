"""The old way of writing operators in Python; `torch.library` is the way."""

from torchlike import _absent
from torchlike.library import get_ctx as get_ctx
from torchlike.library import infer_schema as infer_schema

globals().update(
    _absent.names(
        __name__,
        "use torch.library.custom_op",
        "custom_op impl impl_abstract impl_backward impl_save_for_backward",
    )
)
