"""A layer at a time, each kind of layer once.

Read `by_layers`, then `alike` (which are the same), `stand_in` (weights of those that are not
run), `part` (one of a program, asked again).
"""
