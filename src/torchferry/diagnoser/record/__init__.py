"""The pieces of a model and their calls, as they were seen."""
