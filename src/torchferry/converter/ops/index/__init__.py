"""Lowerings of what finds, sorts, takes and replaces elements."""
