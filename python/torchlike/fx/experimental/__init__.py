"""Passes that PyTorch has under this name."""
