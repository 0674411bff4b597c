"""Optimizers: what makes parameters better by their gradients."""

from typing import TYPE_CHECKING

from torchlike import _lazy
from torchlike.optim._adafactor import Adafactor
from torchlike.optim._muon import Muon
from torchlike.optim._stateless import swap_in_optimizer_params_and_state
from torchlike.optim.adadelta import Adadelta
from torchlike.optim.adagrad import Adagrad
from torchlike.optim.adam import Adam
from torchlike.optim.adamax import Adamax
from torchlike.optim.adamw import AdamW
from torchlike.optim.asgd import ASGD
from torchlike.optim.lbfgs import LBFGS
from torchlike.optim.nadam import NAdam
from torchlike.optim.optimizer import Optimizer
from torchlike.optim.radam import RAdam
from torchlike.optim.rmsprop import RMSprop
from torchlike.optim.rprop import Rprop
from torchlike.optim.sgd import SGD
from torchlike.optim.sparse_adam import SparseAdam

if TYPE_CHECKING:
    from torchlike.optim import lr_scheduler, swa_utils
else:
    lr_scheduler = _lazy.module("torchlike.optim.lr_scheduler")
    swa_utils = _lazy.module("torchlike.optim.swa_utils")
    # What loading these adds is here from the start: programs go through the package's names meanwhile.
    _lr_base = _lazy.module("torchlike.optim._lr_base")
    _lr_combined = _lazy.module("torchlike.optim._lr_combined")
    _lr_cycles = _lazy.module("torchlike.optim._lr_cycles")
    _lr_plateau = _lazy.module("torchlike.optim._lr_plateau")

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
    "swap_in_optimizer_params_and_state",
]

for _cls in (Adafactor, Muon):
    _cls.__module__ = __name__
