"""The layers, in the files where PyTorch has them."""

from torchlike.nn.modules import (
    activation,
    adaptive,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    lazy,
    linear,
    linear_cross_entropy_options,
    loss,
    module,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
    utils,
)
from torchlike.nn.modules.activation import *
from torchlike.nn.modules.adaptive import *
from torchlike.nn.modules.batchnorm import *
from torchlike.nn.modules.channelshuffle import *
from torchlike.nn.modules.container import *
from torchlike.nn.modules.conv import *
from torchlike.nn.modules.distance import *
from torchlike.nn.modules.dropout import *
from torchlike.nn.modules.flatten import *
from torchlike.nn.modules.fold import *
from torchlike.nn.modules.instancenorm import *
from torchlike.nn.modules.linear import *
from torchlike.nn.modules.linear_cross_entropy_options import *
from torchlike.nn.modules.loss import *
from torchlike.nn.modules.module import Module
from torchlike.nn.modules.normalization import *
from torchlike.nn.modules.padding import *
from torchlike.nn.modules.pixelshuffle import *
from torchlike.nn.modules.pooling import *
from torchlike.nn.modules.rnn import *
from torchlike.nn.modules.sparse import *
from torchlike.nn.modules.transformer import *
from torchlike.nn.modules.upsampling import *

__all__ = ["Module"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += batchnorm.__all__
__all__ += channelshuffle.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += instancenorm.__all__
__all__ += linear.__all__
__all__ += linear_cross_entropy_options.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pixelshuffle.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += sparse.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__
