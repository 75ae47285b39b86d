"""Recipes are data."""

from torchferry.quantizer.recipe import RECIPES


def test_each_recipe_bears_its_name_and_a_kernel_that_exists():
    assert set(RECIPES) == {"int8", "int8-dynamic", "int4", "int4-hqq"}
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert recipe.bits in (4, 8)
        assert recipe.head == 8  # the embedding is read by a look-up that has eight bits
        assert recipe.kernel in ("blocks", "dynamic")
