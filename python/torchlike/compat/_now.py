"""Its import makes `import torch` give torchlike: for processes that nobody has told yet."""

from torchlike.compat import install_as_torch

install_as_torch()
