"""Many models: each export in a process of its own, on one machine or a cluster."""
