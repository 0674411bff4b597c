"""Memory that nobody has written."""

import sys
import types

from torchlike import _settings


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether new elements that nobody wrote are no numbers, or the largest ones.

        So they are while deterministic algorithms are asked for (`use_deterministic_algorithms`): reading them shows.

        Raises:
            RuntimeError: if what is set is no truth value.
        """
        return _settings.fills_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        _settings.fill_memory(mode)


sys.modules[__name__].__class__ = _Deterministic
