"""Control flow that torch.export cannot follow, written anew in the methods of a model.

Read `rewriting` (when and what for), then `rewrite` (one function), `control_flow`,
`recurrence` and `steps` (its ifs and loops as calls), `dispatch` (what the new code calls),
`subgraph` (functions as graphs within a graph), `loop` and `walk` (loops over a size, and the
lists that they fill).
"""
