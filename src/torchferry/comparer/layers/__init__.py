"""A layer at a time, each kind of layer once.

Read `by_layers`, then `alike` (which are the same), `part` (one of a program, asked again).
"""
