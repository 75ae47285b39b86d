"""Patches in force while a model is exported: what one is, and how they are applied.

The patches themselves stand in `patches`, one file a subject.
"""
