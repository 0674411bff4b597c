"""Checkpoints of several processes as files of one, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torchlike.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torchlike.distributed.checkpoint.state_dict_loader import _load_state_dict
from torchlike.distributed.checkpoint.state_dict_saver import _save_state_dict

if TYPE_CHECKING:
    import os

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(
    dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]
) -> None:
    """Writes a folder of several processes as one file; for one process alone. `torchlike.convert` does the same with
    one tensor in memory at a time."""
    made: dict[str, Any] = {}
    reader = FileSystemReader(dcp_checkpoint_dir)
    _load_state_dict(made, reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    torch.save(made, torch_save_path)


def torch_save_to_dcp(
    torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]
) -> None:
    """Writes a file as a folder that several processes may load."""
    made = torch.load(torch_save_path, weights_only=False)
    _save_state_dict(made, FileSystemWriter(dcp_checkpoint_dir), no_dist=True)
