"""Initializers beside the parameters they stand for."""
