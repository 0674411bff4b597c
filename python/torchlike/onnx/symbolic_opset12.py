"""How operators are written in ONNX's operator set 12: they are not."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "torchlike writes no ONNX files",
        "add dropout gather index masked_fill matmul mul reshape select slice softmax squeeze sub transpose "
        "unsqueeze view where",
    )
)
