"""Fetched models, under an old name."""

from torchlike.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
