"""The first divergence: how large, in which nodes, by which step."""
