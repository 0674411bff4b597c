"""Checkpoints that several processes write: torchlike has none; use `torch.save` and `torch.load`."""

from torchlike import _absent, _lazy

_why = "there are none here: use torch.save and torch.load"
globals().update(
    _absent.names(
        __name__,
        _why,
        "save load async_save save_state_dict load_state_dict FileSystemReader FileSystemWriter "
        "DefaultLoadPlanner DefaultSavePlanner LoadPlanner SavePlanner StorageReader StorageWriter "
        "HuggingFaceStorageReader HuggingFaceStorageWriter",
    )
)
__getattr__ = _lazy.submodules(
    "distributed.checkpoint", "default_planner", "format_utils", "optimizer", "state_dict"
)
