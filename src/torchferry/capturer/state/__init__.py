"""What a model keeps from call to call: found, refused by name, or lifted.

Read `state` (what a forward changes), `variables` (which of it counts), `lift` (as arguments and
results).
"""
