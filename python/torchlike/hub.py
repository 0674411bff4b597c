"""Models that a folder's `hubconf.py` offers, and files fetched once into a cache.

Folders are local: nothing is fetched from GitHub, as what a repository says would then be run unseen.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import os
import re
import sys
import tempfile
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import torchlike
from torchlike import _naming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

ENV_TORCH_HOME = "TORCH_HOME"
ENV_XDG_CACHE_HOME = "XDG_CACHE_HOME"
DEFAULT_CACHE_DIR = "~/.cache"
VAR_DEPENDENCY = "dependencies"
MODULE_HUBCONF = "hubconf.py"
READ_DATA_CHUNK = 128 * 1024
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")

_dir: str | None = None


class _Bar:
    """A bar of progress that shows nothing, where the package that draws one is not installed."""

    def __init__(self, *args: Any, total: int | None = None, **_: Any) -> None:
        self.total = total
        self.n = 0

    def update(self, n: int) -> None:
        """Counts."""
        self.n += n

    def close(self) -> None:
        """Ends."""

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def __getattr__(name: str) -> Any:
    """`tqdm`: the package's bar of progress, or one that shows nothing."""
    if name != "tqdm":
        raise AttributeError(f"module '{_naming.shown}.hub' has no attribute '{name}'")
    try:
        from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return _Bar
    return tqdm


def _get_torch_home() -> str:
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.getenv(ENV_TORCH_HOME, os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder for what is fetched: `$TORCH_HOME/hub`, `$XDG_CACHE_HOME/torch/hub` or `~/.cache/torch/hub`."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets the folder for what is fetched."""
    global _dir
    _dir = os.path.expanduser(d)


def _no_github(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"torch.hub.{what} from GitHub is not supported by torchlike: check the repository out and "
        "load it with torch.hub.load(folder, model, source='local')"
    )


@contextlib.contextmanager
def _on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _import_module(name: str, path: str) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _entry(module: ModuleType, model: Any) -> Any:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    wanted = getattr(module, VAR_DEPENDENCY, None)
    missing = [name for name in wanted or () if find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def load(
    repo_or_dir: Any,
    model: Any,
    *args: Any,
    source: str = "github",
    trust_repo: Any = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls the function `model` of a folder's `hubconf.py`, and returns what it returns.

    Raises:
        NotImplementedError: if the source is not local.
        RuntimeError: if the folder has no such function, or needs packages that are not installed.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise _no_github("load")
    folder = os.path.realpath(os.path.expanduser(repo_or_dir))
    with _on_path(folder):
        module = _import_module(MODULE_HUBCONF, os.path.join(folder, MODULE_HUBCONF))
        return _entry(module, model)(*args, **kwargs)


def list(
    github: Any,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
    verbose: bool = True,
) -> builtins.list[str]:
    """The functions that a repository of GitHub offers: not supported."""
    raise _no_github("list")


def help(
    github: Any,
    model: Any,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
) -> str:
    """The docstring of a function that a repository of GitHub offers: not supported."""
    raise _no_github("help")


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Fetches a file whole, or not at all.

    Raises:
        RuntimeError: if its SHA-256 does not begin with `hash_prefix`.
    """
    from urllib.request import Request, urlopen

    target = Path(dst).expanduser()
    digest = hashlib.sha256()
    with urlopen(Request(url, headers={"User-Agent": "torch.hub"})) as source:
        handle, name = tempfile.mkstemp(
            prefix=target.name + ".", suffix=".partial", dir=target.parent
        )
        try:
            with os.fdopen(handle, "wb") as out:
                while block := source.read(READ_DATA_CHUNK):
                    out.write(block)
                    digest.update(block)
            if hash_prefix is not None and digest.hexdigest()[: len(hash_prefix)] != hash_prefix:
                raise RuntimeError(
                    f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")'
                )
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """What a fetched file holds; a file that is in the folder already is not fetched again."""
    if os.getenv("TORCH_MODEL_ZOO"):
        import warnings

        warnings.warn(
            "TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME instead", stacklevel=2
        )
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress=progress)
    return torchlike.load(path, map_location=map_location, weights_only=weights_only)
