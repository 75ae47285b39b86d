"""Control flow that torch.export cannot follow, written anew in the methods of a model.

Read `rewriting` (when and what for), then `rewrite` (one function), `control_flow` and
`recurrence` (its ifs and loops), `dispatch` (what the new code calls).
"""
