"""Nested Python values: tensors inside tuples, dictionaries, dataclasses and caches."""

# Importing caches, even for its names alone, is what makes the caches known to the other modules.
from torchferry.values.caches import (
    CacheTensors,
    cache_pairs,
    cache_tensors,
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_hybrid_cache,
    make_mamba_cache,
    make_sliding_window_cache,
    make_static_cache,
)
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.difference import Discrepancy, max_diff, string_diff, worst
from torchferry.values.flatten import (
    LEAF,
    Path,
    Structure,
    flatten,
    map_leaves,
    path_text,
    register_pytrees,
    structure_from_json,
    structure_to_json,
    unflatten,
)
from torchferry.values.kinds import register

__all__ = [
    "LEAF",
    "CacheTensors",
    "Discrepancy",
    "Path",
    "Structure",
    "cache_pairs",
    "cache_tensors",
    "clone",
    "flatten",
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_hybrid_cache",
    "make_mamba_cache",
    "make_sliding_window_cache",
    "make_static_cache",
    "map_leaves",
    "max_diff",
    "path_text",
    "register",
    "register_pytrees",
    "string_diff",
    "string_type",
    "structure_from_json",
    "structure_to_json",
    "unflatten",
    "worst",
]
