"""Lowerings of the layers of neural networks."""
