"""Weights in few bits: recipes as data over ONNX graphs, streamed from file to file; no torch.

Read `grid` (a matrix on a grid of 4 or 8 bits), `linears` (which products of a graph can be
stored so), `folding` (where factors of their inputs go), `blocks` and `dynamic` (how the two
kernels of onnxruntime want them), `recipe` and `quantize`, which puts them together; `found`
recovers grids that weights lie on already, `gptq`, `scaling` and `choice` make better ones of
calibration data; `static` is for convolutions.
"""

from torchferry.quantizer.grid import Grid, round_to_grid
from torchferry.quantizer.quantize import Quantized, quantize_file
from torchferry.quantizer.recipe import RECIPES, Recipe

__all__ = ["RECIPES", "Grid", "Quantized", "Recipe", "quantize_file", "round_to_grid"]
