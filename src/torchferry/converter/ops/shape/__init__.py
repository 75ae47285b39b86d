"""Lowerings of what moves elements, repeats them, or gives them other axes."""
