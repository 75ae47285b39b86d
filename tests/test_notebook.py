from __future__ import annotations

from typing import Any

import pytest
import torch

import torchferry as tf
from torchferry.notebook import table_html


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """The pieces of HTML of values of the API, by their class."""
    model = torch.nn.Linear(4, 2).eval()
    sets = [(torch.rand(2, 4),), (torch.rand(5, 4),)]
    with tf.observe(model) as seen:
        for one in sets:
            model(*one)
    program = tf.export(model, seen, progress=False)
    values: list[Any] = [
        seen,
        program,
        program.report,
        tf.trace_execution_piece_by_piece(model, sets),
        tf.max_diff({"a<b": torch.ones(2)}, {"a<b": torch.zeros(2)}),
    ]
    return {type(value).__name__: value._repr_html_() for value in values}


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Report", ['data-verdict="ok"', "Dynamic dimensions", "batch_size"]),
        ("Observation", ["Observation(Linear: 2 calls)", "<td", "batch_size, 4"]),
        ("OnnxProgram", ["OnnxProgram(", "input", 'data-verdict="ok"', "✓"]),
        ("ModelDiagnoseOutput", ["ModelDiagnoseOutput(Linear)", "&lt;OK-2i-0&gt;"]),
        ("Discrepancy", ["a&lt;b", "1.0"]),
    ],
)
def test_values_show_themselves(shown: dict[str, str], name: str, texts: list[str]) -> None:
    for text in texts:
        assert text in shown[name]
    assert "color:inherit" in shown[name].replace(" ", "")  # light and dark, as the page around it


def test_an_observation_without_calls_shows_that() -> None:
    with tf.observe(torch.nn.Linear(4, 2)) as seen:
        pass
    assert "Observation(Linear: 0 calls)" in seen._repr_html_()


def test_long_tables_are_cut_and_say_so() -> None:
    page = table_html("t", ("n",), [(n,) for n in range(250)])
    assert "<td" in page
    assert "… and 50 more rows" in page
    assert ">249<" not in page
