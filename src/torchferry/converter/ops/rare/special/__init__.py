"""Lowerings of special functions."""
