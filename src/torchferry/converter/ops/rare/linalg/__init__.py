"""Lowerings of linear algebra beyond products."""
