"""A graph module as a Python package."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import nn as _nn
from torchlike.fx._names import _custom_builtins
from torchlike.fx.graph_module import _addindent

if TYPE_CHECKING:
    import os

# a table of layers that are imported when they are asked for, of which type checkers know nothing
nn: Any = _nn

_BY_REPR = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
)  # fmt: skip


def write(module: Any, folder: str | os.PathLike[str], name: str) -> None:
    """Writes the source, the state, and children that a line of source does not make."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    torchlike.save(module.state_dict(), folder / "state_dict.pt")
    body = ["        super().__init__()"]
    pickled = []
    for key, child in module.named_children():
        if type(child) in _BY_REPR:
            body.append(f"        setattr(self, {key!r}, {child!r})")
            continue
        path = folder / f"{key}.pt"
        torchlike.save(child, path)
        pickled.append(key)
        shown = repr(child).replace("\r", " ").replace("\n", " ")
        loaded = f"torch.load(r'{path}', weights_only=False)"
        body.append(f"        setattr(self, {key!r}, {loaded}) # {shown}")
    for key, buffer in module._buffers.items():
        if buffer is not None:
            body.append(f"        self.register_buffer({key!r}, {_empty(buffer)})")
    for key, param in module._parameters.items():
        if param is not None:
            body.append(f"        setattr(self, {key!r}, torch.nn.Parameter({_empty(param)}))")
    body.append(f"        self.load_state_dict(torch.load(r'{folder / 'state_dict.pt'}'))")
    root = torchlike.__name__
    head = ["", f"import {root}", *(v.import_str for v in _custom_builtins.values())]
    head += ["", f"from {root}.nn import *", f"class {name}(torch.nn.Module):"]
    head += ["    def __init__(self):"]
    text = "\n".join([*head, *body]) + "\n" + _addindent(module.code, 4) + "\n"
    (folder / "module.py").write_text(text)
    (folder / "__init__.py").write_text("from .module import *")
    if pickled:
        warnings.warn(
            "Was not able to save the following children modules as reprs -"
            f"saved as pickled files instead: {pickled}",
            stacklevel=3,
        )


def _empty(tensor: Any) -> str:
    return f"torch.empty({list(tensor.shape)}, dtype={tensor.dtype})"
