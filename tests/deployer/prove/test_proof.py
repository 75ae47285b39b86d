"""Verdicts on tokens and distributions: each can fail, and says where."""

import pytest

from torchferry.deployer.layout import GRAPHS
from torchferry.deployer.prove.proof import Proof, Run, compare_tokens, describe_runs
from torchferry.deployer.prove.reference import Agreement, Generated

RIVALS = [[{7: 0.0, 5: 0.5}], [{8: 0.0, 3: 0.001, 6: 0.5}], [{9: 0.0, 5: 0.5}]]
WANTED = Generated([[[1, 2, 7, 8, 9]]], [RIVALS])


@pytest.mark.parametrize(
    ("tokens", "same", "note"),
    [([1, 2, 7, 8, 9], True, ""),
     ([1, 2, 7, 3, 4], True, "batch 0, row 0, new token 1: a tie, 0.001 apart"),
     ([1, 2, 7, 6, 4], False, "batch 0, row 0, new token 1: 6 for 8"),  # not one of the tie
     ([1, 2, 7, 4, 4], False, "batch 0, row 0, new token 1: 4 for 8"),
     ([1, 2, 5, 8, 9], False, "batch 0, row 0, new token 0: 5 for 7"),
     ([1, 2, 7, 8, 5], False, "batch 0, row 0, new token 2: 5 for 9"),
     ([1, 2, 7, 8], False, "batch 0, row 0, new token -3: 4 tokens, 5 expected"),
     ([1, 3, 7, 8, 9], False, "batch 0, row 0, new token -1: 5 tokens, 5 expected")],
)  # fmt: skip
def test_tokens_are_equal_but_for_ties(tokens, same, note):
    assert compare_tokens(Generated([[tokens]], []), WANTED, 0.01) == (same, note)


def test_a_difference_or_a_distance_is_a_problem_and_a_missing_runtime_is_none():
    far = Agreement(10, 0.5, 2.0, 9.0, 8.0, 1.0)
    proof = Proof(
        [Run("genai", GRAPHS[0], "1", False, "other tokens"),
         Run("optimum", GRAPHS[0], "", None, "install it"),
         Run("onnxruntime", GRAPHS[0], "1", True)],
        {"int4": far},
    )  # fmt: skip
    first, second = proof.problems
    assert first == (
        "genai does not run onnx/model.onnx as it should: other tokens; to publish the folder for "
        "the others leave genai out of --for"
    )
    assert second.startswith("int4 is 2 from PyTorch, where 1 is the most")
    assert Proof([], {"fp32": Agreement(1, 1, float("nan"), 1, 1, 1)}).problems
    strict = Proof([], {"int4": Agreement(1, 1, 0.2, 1, 1, 1)}, {"int4": 0.1})
    assert "where 0.1 is the most" in strict.problems[0]
    assert describe_runs(proof)["runs"][1]["same"] is None
    assert set(Agreement.limits) == {graph.name for graph in GRAPHS}
