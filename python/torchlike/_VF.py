"""The functions of the module root under the name at which PyTorch keeps those of its core: `_VF.lstm`."""

import torchlike
from torchlike import _functions

_made = {n: getattr(torchlike, n) for n in torchlike.__all__}
_made |= {n: getattr(_functions, n) for n in vars(_functions)["__all__"]}
__all__ = [n for n, v in _made.items() if callable(v) and not isinstance(v, type)]
globals().update((n, _made[n]) for n in __all__)


def __dir__() -> list[str]:
    return __all__
