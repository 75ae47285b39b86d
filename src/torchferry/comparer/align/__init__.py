"""Which value, node or weight of one side stands for which of the other."""
