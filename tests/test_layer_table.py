"""Every layer and loss: made and called on the CPU and on meta, which agree on shapes and types.

A row is a name, the arguments that make the layer, and what it is called with: shapes, or shapes with a letter for what
is in them (p between 0 and 1, i indices below 3, b booleans, s signs, d positive numbers).
"""

from __future__ import annotations

import inspect
import pickle

import pytest

import torchlike as torch
from torchlike import nn

IMAGE, VOLUME, LINE = (2, 4, 8, 8), (1, 4, 4, 4, 4), (2, 4, 8)
LAYERS = [
    *((name, (), [LINE]) for name in (
        "ReLU", "ReLU6", "RReLU", "SELU", "CELU", "ELU", "GELU", "GLU", "SiLU", "Mish", "Sigmoid", "Tanh",
        "Softplus", "Softsign", "Tanhshrink", "Hardshrink", "Softshrink", "Hardsigmoid", "Hardswish",
        "Hardtanh", "LeakyReLU", "LogSigmoid", "PReLU", "Identity", "Flatten",
        "Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout",
    )),
    *((name, (1,), [LINE]) for name in ("Softmax", "LogSoftmax", "Softmin")),
    ("Softmax2d", (), [IMAGE]), ("Threshold", (0.5, 1.0), [LINE]),
    ("Dropout2d", (), [IMAGE]), ("Dropout3d", (), [VOLUME]),
    ("Linear", (8, 3), [LINE]), ("LazyLinear", (3,), [LINE]), ("Bilinear", (8, 4, 3), [(5, 8), (5, 4)]),
    *((f"Conv{n}d", (4, 6, 3, 1, 1), [shape]) for n, shape in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"ConvTranspose{n}d", (4, 6, 3, 2), [shape]) for n, shape in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"LazyConv{n}d", (6, 3), [shape]) for n, shape in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"LazyConvTranspose{n}d", (6, 3), [s]) for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"{kind}{n}d", (4,), [s]) for kind in ("BatchNorm", "InstanceNorm")
      for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"Lazy{kind}{n}d", (), [s]) for kind in ("BatchNorm", "InstanceNorm")
      for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    ("SyncBatchNorm", (4,), [IMAGE]), ("LayerNorm", (8,), [LINE]), ("RMSNorm", (8,), [LINE]),
    ("GroupNorm", (2, 4), [IMAGE]), ("LocalResponseNorm", (3,), [IMAGE]), ("CrossMapLRN2d", (3,), [IMAGE]),
    *((f"{kind}{n}d", (2,), [s]) for kind in ("MaxPool", "AvgPool", "AdaptiveMaxPool", "AdaptiveAvgPool")
      for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"LPPool{n}d", (2.0, 2), [s]) for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    ("FractionalMaxPool2d", (2, 3), [IMAGE]), ("FractionalMaxPool3d", (2, 2), [VOLUME]),
    *((f"MaxUnpool{n}d", (2,), [s, ("i", s)]) for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"{kind}Pad{n}d", (1,), [s]) for kind in ("Circular", "Reflection", "Replication", "Zero")
      for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    *((f"ConstantPad{n}d", (1, 2.0), [s]) for n, s in ((1, LINE), (2, IMAGE), (3, VOLUME))),
    ("Unflatten", (1, (2, 2)), [LINE]), ("Fold", ((4, 4), 2), [(1, 4, 9)]), ("Unfold", (2,), [IMAGE]),
    ("ChannelShuffle", (2,), [IMAGE]), ("PixelShuffle", (2,), [IMAGE]), ("PixelUnshuffle", (2,), [IMAGE]),
    ("Upsample", (None, 2), [IMAGE]), ("UpsamplingNearest2d", (4,), [IMAGE]),
    ("UpsamplingBilinear2d", (4,), [IMAGE]),
    ("Embedding", (5, 3), [("i", (2, 4))]), ("EmbeddingBag", (5, 3), [("i", (2, 4))]),
    ("CosineSimilarity", (), [LINE, LINE]), ("PairwiseDistance", (), [(5, 4), (5, 4)]),
    ("RNN", (8, 3), [LINE]), ("GRU", (8, 3), [LINE]), ("LSTM", (8, 3, 2), [LINE]),
    ("RNNCell", (8, 3), [(2, 8)]), ("GRUCell", (8, 3), [(2, 8)]), ("LSTMCell", (8, 3), [(2, 8)]),
    ("MultiheadAttention", (8, 2), [LINE, LINE, LINE]),
    ("TransformerEncoderLayer", (8, 2, 16), [LINE]),
    ("TransformerDecoderLayer", (8, 2, 16), [LINE, LINE]),
    ("Transformer", (8, 2, 1, 1, 16), [LINE, LINE]),
    ("AdaptiveLogSoftmaxWithLoss", (16, 6, [2, 4]), [(5, 16), ("i", (5,))]),
    ("LinearCrossEntropyLoss", (8, 6), [(5, 8), ("i", (5,))]),
]  # fmt: skip
LOSSES = [
    *((name, (), [LINE, LINE]) for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss", "PoissonNLLLoss")),
    ("BCELoss", (), [("p", LINE), ("p", LINE)]), ("BCEWithLogitsLoss", (), [LINE, ("p", LINE)]),
    ("NLLLoss", (), [(5, 4), ("i", (5,))]), ("NLLLoss2d", (), [IMAGE, ("i", (2, 8, 8))]),
    ("CrossEntropyLoss", (), [(5, 4), ("i", (5,))]), ("KLDivLoss", (None, None, "batchmean"), [LINE, ("p", LINE)]),
    ("GaussianNLLLoss", (), [LINE, LINE, ("d", LINE)]),
    ("HingeEmbeddingLoss", (), [LINE, ("s", LINE)]), ("SoftMarginLoss", (), [LINE, ("s", LINE)]),
    ("MultiLabelMarginLoss", (), [(5, 4), ("i", (5, 4))]), ("MultiLabelSoftMarginLoss", (), [(5, 4), ("p", (5, 4))]),
    ("MultiMarginLoss", (), [(5, 4), ("i", (5,))]),
    ("CosineEmbeddingLoss", (), [(5, 4), (5, 4), ("s", (5,))]),
    ("MarginRankingLoss", (), [(5,), (5,), ("s", (5,))]),
    ("TripletMarginLoss", (), [(5, 4)] * 3), ("TripletMarginWithDistanceLoss", (), [(5, 4)] * 3),
    ("CTCLoss", (), [(6, 2, 4), ("c", (2, 3)), ("n", (2, 6)), ("n", (2, 3))]),
]  # fmt: skip
CONTAINERS = [
    "Container",
    "Module",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
]
BASES = [
    "RNNBase",
    "RNNCellBase",
    "TransformerEncoder",
    "TransformerDecoder",
    "LinearCrossEntropyOptions",
]

READ_VALUES = {"AdaptiveLogSoftmaxWithLoss", "CTCLoss", "GaussianNLLLoss"}


def value(what: object) -> torch.Tensor:
    """A tensor of a shape, with what a letter says in it."""
    letter, shape = what if isinstance(what[0], str) else ("", what)
    if letter == "n":  # a count for each sample
        return torch.full(shape[:1], shape[1], dtype=torch.int64)
    if letter in ("i", "c"):
        return torch.randint(int(letter == "c"), 3, shape)
    if letter == "s":
        return torch.randint(0, 2, shape).float() * 2 - 1
    made = torch.rand(shape) if letter else torch.randn(shape)
    return made + 0.1 if letter == "d" else made


def described(result: object) -> object:
    """The shapes and types of all tensors in a result."""
    if isinstance(result, torch.Tensor):
        return tuple(result.shape), result.dtype
    if isinstance(result, (tuple, list)):
        return [described(part) for part in result]
    return result


def make(name: str, args: tuple[object, ...]) -> nn.Module:
    if name == "TransformerEncoderLayer":
        args = (*args, 0.0)
    return getattr(nn, name)(*args)


@pytest.mark.filterwarnings("ignore:dropout1d|enable_nested_tensor|NLLLoss2d")
@pytest.mark.parametrize(
    ("name", "args", "given"), LAYERS + LOSSES, ids=[row[0] for row in LAYERS + LOSSES]
)
@pytest.mark.filterwarnings("ignore:.NLLLoss2d")
def test_meta_agrees_with_the_cpu(name, args, given):
    torch.manual_seed(0)
    inputs = [value(what) for what in given]
    real = make(name, args)(*inputs)
    with torch.device("meta"):
        layer = make(name, args)
    assert all(t.is_meta for t in (*layer.parameters(), *layer.buffers()))
    hollow = [t.to("meta") for t in inputs]
    if name in READ_VALUES:
        with pytest.raises((RuntimeError, NotImplementedError), match="meta tensors have none"):
            layer(*hollow)
    else:
        assert described(layer(*hollow)) == described(real)


@pytest.mark.parametrize(
    ("name", "args", "given"), LAYERS + LOSSES, ids=[row[0] for row in LAYERS + LOSSES]
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor|.NLLLoss2d")
def test_pickles_know_its_file(name, args, given):
    layer = make(name, args)
    assert type(layer).__module__.startswith("torchlike.nn.modules.")
    if not name.startswith("Lazy"):
        again = pickle.loads(pickle.dumps(layer))
        assert type(again) is type(layer)
        assert repr(again) == repr(layer)


def test_every_class_has_a_row():
    rows = {row[0] for row in LAYERS + LOSSES} | set(CONTAINERS) | set(BASES)
    classes = {name for name in nn.modules.__all__ if inspect.isclass(getattr(nn, name))}
    assert rows == classes


def test_stacks_of_transformer_layers():
    x = torch.randn(3, 2, 8)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
    assert decoder(x, encoder(x)).shape == x.shape


def test_bases_of_recurrent_layers():
    assert repr(nn.RNNBase("GRU", 3, 4)) == "RNNBase(3, 4)"
    cell = nn.RNNCellBase(3, 4, True, num_chunks=2)
    assert cell.weight_ih.shape == (8, 3)


def test_options_of_linear_cross_entropy():
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=4, chunking_method="aspect_ratio:2")
    assert options == nn.LinearCrossEntropyOptions(False, 4, "aspect_ratio:2")
    for wrong in (
        {"acc_policy": "x"},
        {"chunking_method": "aspect_ratio:0"},
        {"acc_dtype": 3},
        {"batch_chunk_size": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            nn.LinearCrossEntropyOptions(**wrong)


def test_a_distance_of_ones_own():
    loss = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(-1))
    a, b = torch.zeros(2, 3), torch.ones(2, 3)
    assert loss(a, a, b).item() == 0.0
    assert loss(a, b, a).item() == 4.0


def test_where_pytorch_has_its_layers():
    from torchlike.nn.modules import conv, linear
    from torchlike.nn.modules.activation import MultiheadAttention
    from torchlike.nn.modules.instancenorm import _InstanceNorm

    assert linear.Linear is nn.Linear
    assert nn.Linear.__module__ == "torchlike.nn.modules.linear"
    assert MultiheadAttention.__module__ == "torchlike.nn.modules.activation"
    assert nn.LazyConv2d.__module__ == conv.__name__
    assert issubclass(nn.InstanceNorm1d, _InstanceNorm)
