from __future__ import annotations

import pytest
import transformers

from torchferry.zoo.families import FAMILIES
from torchferry.zoo.family import Family
from torchferry.zoo.states import TASKS, states_of

ROWS = [row for row in FAMILIES.values() if isinstance(row, Family)]


def test_the_classes_that_find_a_model_exist() -> None:
    for task in TASKS.values():
        assert all(hasattr(transformers, auto) for auto in task.autos)


def test_every_task_is_some_family_s() -> None:
    assert {task for row in ROWS for task in row.tasks} == set(TASKS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_task_of_a_family_has_a_state(row: Family) -> None:
    assert all(states_of(row, task) for task in row.tasks)


def test_a_state_is_offered_to_those_who_have_it() -> None:
    speech = "automatic-speech-recognition"
    assert states_of(FAMILIES["whisper"], speech) == ("decode", "prefill", "encoder")
    assert states_of(FAMILIES["wav2vec2"], speech) == ("plain",)
    assert "decode-full-window" in states_of(FAMILIES["gemma2"], "text-generation")
    assert "decode-full-window" not in states_of(FAMILIES["gemma"], "text-generation")
