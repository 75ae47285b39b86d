"""Lowerings on complex numbers: float tensors with a last axis of two."""
