from torchlike.nn import functional, init
from torchlike.nn.module import Module
from torchlike.nn.parameter import Buffer, Parameter
