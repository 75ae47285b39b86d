"""Identical layers are traced once.

Read `repeat` (which layers, and the walk), `note` (what one does), `replay` (the next one beside
it), `stamp` (copies in the program).
"""
