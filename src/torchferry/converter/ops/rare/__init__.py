"""Operators that few models need; a newcomer can skip this folder."""
