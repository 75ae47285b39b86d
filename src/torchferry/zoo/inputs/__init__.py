"""Inputs that fit a model, one file a kind of input: what `torchferry.zoo.states` is made of."""
