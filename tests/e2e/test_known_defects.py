"""What onnx-diagnostic 0.9.3, which people use for this, gets wrong: one test a defect.

The others stand where what they test is tested: tests/observer/test_model_inputs.py (absent and
None arguments, integers, ranks), tests/observer/test_steal.py (signature, nesting, failing calls),
tests/dumper/test_store.py (every value that file format loses).
"""

from __future__ import annotations

import collections
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.dumper import open_dump
from torchferry.observer.storage import Storage
from torchferry.values import (
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_hybrid_cache,
    make_sliding_window_cache,
    make_static_cache,
    string_type,
)

PAIR = (torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor, y: Any = None) -> Any:
        return None if y is None else x * 2


def stored(file: Path, *calls: tuple[Any, ...], model: Any = None) -> dict[Any, Any]:
    model = model or Doubled()
    with tf.steal_forward(model, fprint=None, dump_file=file):
        for call in calls:
            model(*call)
    found: dict[Any, Any] = tf.create_input_tensors_from_onnx_model(file)
    return found


# steal_forward ----------------------------------------------------------------------------------


def test_none_is_stored_and_comes_back(tmp_path: Path) -> None:
    found = stored(tmp_path / "d.onnx", (torch.ones(2), None), (torch.ones(2), 1))
    assert found["", 0, "I"][0][1] is None
    assert found["", 0, "O"] is None
    assert torch.equal(found["", 1, "O"], torch.full((2,), 2.0))


def test_a_name_and_its_module_need_no_list_and_a_refusal_leaves_nothing(tmp_path: Path) -> None:
    wrong: Any = ("m", "no module")
    with pytest.raises(tf.UsageError), tf.steal_forward(wrong):
        pass
    tf.steal_append("x", 1)  # not within a block
    model = Doubled()
    with tf.steal_forward(("m", model), fprint=None, dump_file=tmp_path / "d.onnx"):
        model(torch.ones(1))
    assert ("m", 0, "I") in tf.create_input_tensors_from_onnx_model(tmp_path / "d.onnx")
    assert vars(model).get("forward") is None


def test_the_file_beside_which_the_data_lies_may_be_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "d.onnx").write_text("of someone else")
    monkeypatch.chdir(tmp_path / "here")
    assert stored(tmp_path / "there" / "d.onnx", (torch.ones(2), 1))
    assert (tmp_path / "here" / "d.onnx").read_text() == "of someone else"


def test_inputs_count_against_the_limit_and_nothing_is_said_of_what_is_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Doubled()
    options: dict[str, Any] = {"dump_file": tmp_path / "d.onnx", "storage_limit": 100}
    with tf.steal_forward(model, dump_drop={"y"}, **options):
        model(torch.ones(1), y=torch.ones(10**4))
        model(torch.ones(100))
    found = tf.create_input_tensors_from_onnx_model(tmp_path / "d.onnx")
    assert list(found) == [("", 0, "I"), ("", 0, "O"), ("", 1, "O")]
    assert found["", 0, "I"][1] == {}
    assert "--- y" not in capsys.readouterr().out


def test_a_folder_holds_each_call_when_it_ends_and_memory_holds_none(tmp_path: Path) -> None:
    model = Doubled()
    with tf.steal_forward(model, fprint=None, dump_file=tmp_path / "d", storage_limit=2**30):
        for number in range(1, 4):
            model(torch.ones(100), 1)
            files = [path for path in (tmp_path / "d").iterdir() if path.stat().st_size > 400]
            assert len(files) == 2 * number
    assert not any(isinstance(value, torch.Tensor) for value in vars(Storage).values())


# The file format --------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Named:
    x: Any
    y: Any = None


LOST = {
    "None": None,
    "str": "text",
    "integer keys": {1: torch.ones(1), 2: "b"},
    "a key of digits": {"1": 3},
    "bfloat16": torch.ones(2).bfloat16(),
    "float8": torch.ones(2).to(torch.float8_e4m3fn),
    "uint16": torch.ones(2, dtype=torch.uint16),
    "an encoder-decoder cache": make_encoder_decoder_cache([PAIR], [PAIR]),
    "a static cache": make_static_cache([PAIR], 5),
    "a numpy scalar": np.float32(2.5),
    "an empty tuple": (),
    "an empty dictionary": {"a": {}},
    "an empty list": [[]],
    "a dataclass": Named(torch.ones(2)),
    "a named tuple": Pair(1, torch.ones(1)),
    "a tensor without dimensions": torch.tensor(3.5),
    "an empty tensor": torch.ones(0, 3),
    "a bool, an int and a float": [True, 1, 1.0],
}


@pytest.mark.parametrize("what", LOST)
@pytest.mark.parametrize("name", ["d.onnx", "d.safetensors"])
def test_what_its_files_lose(what: str, name: str, tmp_path: Path) -> None:
    value = LOST[what]
    with open_dump(tmp_path / name) as dump:
        dump.add("value", value)
    found = tf.create_input_tensors_from_onnx_model(tmp_path / name)["value"]
    options = {"with_shape": True, "with_min_max": True}
    assert string_type(found, **options) == string_type(value, **options)
    assert type(found) is type(value)
    assert tf.max_diff(value, found)["abs"] == 0


def test_strides_aliases_and_requires_grad_come_back(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    value = [x.T, x, x.clone().requires_grad_()]
    with open_dump(tmp_path / "d.onnx") as dump:
        dump.add("value", value)
    turned, again, leaf = tf.create_input_tensors_from_onnx_model(tmp_path / "d.onnx")["value"]
    assert turned.stride() == (1, 3)
    assert turned.data_ptr() == again.data_ptr()
    assert leaf.requires_grad


# Caches -----------------------------------------------------------------------------------------


def test_caches_it_cannot_make_any_more() -> None:
    static = make_static_cache([PAIR], 5)
    sliding = make_sliding_window_cache([PAIR], 3)
    hybrid = make_hybrid_cache([PAIR, PAIR], ["full_attention", "sliding_attention"], 3)
    lengths = [[layer.keys.shape[2] for layer in cache.layers]
               for cache in (static, sliding, hybrid)]  # fmt: skip
    assert lengths == [[5], [2], [3, 2]]


def test_keys_of_other_layers_are_said_once() -> None:
    text = string_type(make_sliding_window_cache([PAIR], 3), with_shape=True)
    assert text == "DynamicCache(key_cache=#1[T1s1x2x2x4], value_cache=#1[T1s1x2x2x4])"


# Input sets and observing -----------------------------------------------------------------------


def test_an_empty_first_call_is_no_obstacle_and_not_what_is_exported() -> None:
    class Cached(nn.Module):
        def forward(self, x: torch.Tensor, cache: Any) -> torch.Tensor:
            return x + sum(layer.keys.sum() for layer in cache.layers if layer.keys is not None)

    def cache(length: int) -> Any:
        return make_dynamic_cache([(torch.ones(2, 1, length, 4),) * 2])

    model = Cached().eval()
    with tf.observe(model) as seen:
        model(torch.ones(2, 5), make_dynamic_cache([]))
        model(torch.ones(2, 1), cache(5))
        model(torch.ones(2, 3), cache(6))
    assert seen.best is seen.calls[2]
    given = tf.ModelInputs(model, [(call.args, call.kwargs) for call in seen.calls])
    assert "T1s2x1x0x4" in string_type(given.optional["cache"], with_shape=True)


def test_inputs_of_other_sizes_are_made_where_an_argument_is_none() -> None:
    class Either(nn.Module):
        def forward(self, x: torch.Tensor, y: Any, z: list[Any]) -> torch.Tensor:
            return x

    model = Either()
    with tf.observe(model) as seen:
        model(torch.ones(2, 3), None, [torch.ones(2), None])
        model(torch.ones(4, 3), None, [torch.ones(4), None])
        model(torch.ones(5, 3), torch.ones(5), [None, torch.ones(5)])
    _, kwargs = seen.inputs_at(dict.fromkeys(seen.dynamic_names, 7))
    assert kwargs["x"].shape == (7, 3)


def test_relations_between_sizes_are_found() -> None:
    sets = [{"x": torch.ones(b, s), "mask": torch.ones(b, p + s), "cache": torch.ones(b, p)}
            for b, s, p in ((2, 3, 7), (4, 5, 6))]  # fmt: skip

    class Model(nn.Module):
        def forward(self, x: Any, mask: Any, cache: Any) -> Any:
            return x

    named = tf.ModelInputs(Model(), sets).guess_dynamic_shapes(auto="d_")[1]
    assert named["mask"] == {0: named["x"][0], 1: f"{named['cache'][1]} + {named['x'][1]}"}


def test_a_constant_that_is_forwards_default_is_one_and_another_is_told() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, scale: float = 2.0, mode: str = "a") -> torch.Tensor:
            return x * scale

    model = Scaled().eval()
    with tf.observe(model) as seen:
        model(torch.ones(2), 2.0)
        model(torch.ones(3))
    constants = {a.name: a.value for a in seen.arguments if a.dtype is None}
    assert constants == {"scale": 2.0}
    with tf.observe(model) as seen:
        model(torch.ones(2), 3.0)
        model(torch.ones(3))
    with pytest.raises(tf.UsageError, match=r"argument scale is 3\.0 in one call and 2\.0"):
        _ = seen.arguments
