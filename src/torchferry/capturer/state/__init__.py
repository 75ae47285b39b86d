"""State that a model keeps between calls: found, refused by name, or lifted.

Read `state` (what a forward changes), `variables` (which of it counts), `lift` (as arguments and
results).
"""
