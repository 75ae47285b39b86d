"""Lowerings of what computes each element from those at its place."""
