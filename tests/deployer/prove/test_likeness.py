"""Cosines of vectors, and the sentences that they are taken of."""

import pytest
import torch

from torchferry.deployer.prove.corpus import evaluation_texts
from torchferry.deployer.prove.likeness import Likeness, compare_outputs, text_feeds
from torchferry.deployer.write.huggingface import read_tokenizer


def test_vectors_of_padding_are_not_compared():
    mask = torch.tensor([[0, 1], [1, 1]])
    theirs = {"x": torch.ones(2, 2, 3), "own": torch.zeros(1)}
    ours = {"x": torch.ones(2, 2, 3), "extra": torch.ones(1)}
    ours["x"][0, 0] = -9
    seen = compare_outputs([ours], [theirs], [{"attention_mask": mask}])
    assert (seen.vectors, seen.least, seen.largest) == (3, pytest.approx(1), 0)
    assert compare_outputs([ours], [theirs], [{}]).least == pytest.approx(-1)
    zeros = {"x": torch.zeros(2, 3)}
    assert compare_outputs([zeros], [zeros], [{}]).least == 1  # a Relu gives such


def test_the_main_output_decides_and_nothing_in_common_is_a_fault():
    theirs = {"logits": torch.tensor([[1.0, 0.0]]), "hidden": torch.ones(1, 2)}
    ours = {"logits": torch.tensor([[1.0, 1.0]]), "hidden": torch.ones(1, 2)}
    assert compare_outputs([ours], [theirs], [{}]).least == pytest.approx(0.5**0.5)
    nothing = compare_outputs([{"a": torch.ones(1)}], [theirs], [{}])
    assert not nothing.distance <= Likeness.limits["int8"]


def test_sentences_come_alone_and_side_by_side(llama_folder):
    tokenizer = read_tokenizer(str(llama_folder))
    one, many = text_feeds(tokenizer, evaluation_texts(), ["input_ids", "attention_mask"])
    assert one["input_ids"].shape[0] == 1
    assert many["input_ids"].shape[0] == 6
    assert set(many) == {"input_ids", "attention_mask"}
    names = ["input_ids", "token_type_ids"]  # which this tokenizer does not give
    one, _ = text_feeds(tokenizer, evaluation_texts(), names)
    assert not one["token_type_ids"].any()
    assert one["token_type_ids"].shape == one["input_ids"].shape
