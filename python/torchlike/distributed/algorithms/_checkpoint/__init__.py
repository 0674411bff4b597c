"""Checkpoints of activations for sharded models."""
