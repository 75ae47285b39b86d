"""Operators in the place of modules, and models with those left out."""
