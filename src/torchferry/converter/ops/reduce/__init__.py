"""Lowerings of what makes one element of many, along axes or in stretches of them."""
