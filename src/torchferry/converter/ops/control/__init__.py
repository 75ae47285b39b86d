"""Lowerings of what runs graphs, and of what only checks."""
