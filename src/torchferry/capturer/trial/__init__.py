"""Whether a program is right where it was not captured.

Read `trial` (both sides run), `settle` (guards that hold for all sizes but 0 and 1), `reliance`
(what else the code asks of its arguments).
"""
