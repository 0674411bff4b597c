"""The functions of the package, where PyTorch defines them."""

import torchlike.distributed as _package

globals().update(
    {name: value for name, value in vars(_package).items() if not name.startswith("__")}
)

__all__ = [*_package.__all__]
