"""Where PyTorch has the functions that flatten state dicts."""

from torchlike.distributed.checkpoint._traverse import flatten_state_dict, unflatten_state_dict

__all__ = ["flatten_state_dict", "unflatten_state_dict"]
