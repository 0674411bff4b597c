"""A file that lets one process work while others wait."""

from __future__ import annotations

import os
import time
import warnings

__all__ = ["FileBaton"]


class FileBaton:
    """Held by the process that could make a file.

    Args:
        lock_file_path: the file.
        wait_seconds: how often those who wait look.
        warn_after_seconds: after how long they say that they still wait.
    """

    def __init__(
        self,
        lock_file_path: str,
        wait_seconds: float = 0.1,
        warn_after_seconds: int | None = None,
    ) -> None:
        self.lock_file_path = lock_file_path
        self.wait_seconds = wait_seconds
        self.warn_after_seconds = warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Makes the file; False if there is one."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Waits until there is no such file."""
        began, told = time.monotonic(), False
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            late = self.warn_after_seconds
            if late is not None and not told and time.monotonic() - began > late:
                told = True
                warnings.warn(
                    f"Waited on lock file '{self.lock_file_path}' for {late} seconds.", stacklevel=2
                )

    def release(self) -> None:
        """Takes the file away."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        os.remove(self.lock_file_path)
