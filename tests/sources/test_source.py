from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.source import Source, load_source
from torchferry.values import cache_pairs, flatten
from torchferry.zoo.inputs.text import cache_name
from versions import cache_in

CODE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.dropout = nn.Dropout(0.5)
    def forward(self, x, index=None):
        return self.dropout(self.linear(x))

def plain(): return Model()
def with_inputs(): return Model(), [(torch.zeros(2, 4),), (torch.zeros(3, 4),)]
def with_one(): return {"model": Model(), "inputs": {"x": torch.zeros(2, 4)}}

def inputs():
    return [{"x": torch.ones(5, 4), "index": torch.arange(3)}, {"x": torch.ones(6, 4)}]
def one(): return [(torch.ones(2, 4),)]
def wrong(): return [(torch.ones(2, 4),), {"mask": torch.ones(2)}]
def tensors(): return torch.ones(2, 4)
"""


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = set(sys.modules)
    Path("mine.py").write_text(CODE)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("mine", "torchferry_user_")):
            del sys.modules[name]


def run(source: Source, number: int = 0) -> Any:
    args, kwargs = source.input_sets[number]
    with torch.no_grad():
        return source.model(*args, **kwargs)


def floating_dtypes(source: Source) -> set[torch.dtype]:
    leaves, _ = flatten(source.input_sets)
    return {v.dtype for _, v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point()}


@pytest.fixture
def checkpoint(user_folder: Path) -> Path:
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    with torch.random.fork_rng():
        transformers.LlamaForCausalLM(config).save_pretrained(user_folder / "llama")
    return user_folder / "llama"


@pytest.fixture
def program(user_folder: Path) -> Path:
    exported = torch.export.export(
        nn.Linear(4, 2), (torch.zeros(3, 4),), dynamic_shapes=({0: torch.export.Dim("b")},)
    )
    torch.export.save(exported, user_folder / "model.pt2")
    return user_folder / "model.pt2"


def test_a_model_of_the_zoo_runs_without_a_warning() -> None:
    source = load_source("zoo:tiny-llm")
    assert source.title == "zoo:tiny-llm"
    assert source.program is None
    assert [list(kwargs) for _, kwargs in source.input_sets] == [
        ["input_ids", "attention_mask", "position_ids", cache_name(source.model)]
    ] * 3
    assert run(source).logits.shape == (2, 3, 32000)


def test_a_factory_is_put_in_eval_mode() -> None:
    source = load_source("mine:with_inputs")
    assert not source.model.training
    assert [args[0].shape[0] for args, _ in source.input_sets] == [2, 3]
    assert torch.equal(run(source), run(source))


def test_a_hugging_face_folder_gets_inputs_of_its_class(checkpoint: Path) -> None:
    source = load_source(str(checkpoint))
    assert isinstance(source.model, transformers.LlamaForCausalLM)
    assert len(source.input_sets) == 3
    assert torch.isfinite(run(source).logits).all()


def test_a_pt2_file_brings_its_program_and_example(program: Path) -> None:
    source = load_source(str(program))
    assert isinstance(source.program, torch.export.ExportedProgram)
    assert [args[0].shape for args, _ in source.input_sets] == [(3, 4)]
    assert run(source).shape == (3, 2)


def test_a_pt2_file_without_an_example_needs_inputs(program: Path) -> None:
    exported = torch.export.load(program)
    exported.example_inputs = None
    torch.export.save(exported, program)
    with pytest.raises(UsageError, match="--inputs"):
        load_source(str(program))
    Path("mine.py").write_text("import torch\ndef one(): return [(torch.ones(7, 4),)]\n")
    assert run(load_source(str(program), inputs="mine.py:one")).shape == (7, 2)


def test_inputs_replace_those_of_the_model() -> None:
    source = load_source("mine:with_inputs", inputs="mine.py:inputs")
    assert [list(kwargs) for _, kwargs in source.input_sets] == [["x", "index"], ["x"]]
    assert run(source).shape == (5, 2)


@pytest.mark.parametrize(
    ("text", "inputs", "message"),
    [
        ("mine:with_one", None, "mine:with_one gave 1 input set, and 2 or more"),
        ("mine:plain", "mine.py:one", "--inputs mine.py:one gave 1 input set, and 2 or more"),
        (
            "mine:plain",
            "mine.py:tensors",
            r"--inputs mine.py:tensors gave T1s2x4; expected a list",
        ),
        ("mine:plain", "mine.py:wrong", r"do not fit Model.forward: missing a required.*'x'"),
        ("mine:plain", None, "no inputs are known for Model.*"),
    ],
)
def test_inputs_that_do_not_do_are_told(text: str, inputs: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_source(text, inputs=inputs)


def test_that_a_model_came_in_training_mode_is_known() -> None:
    Path("modes.py").write_text(
        "import torch\n"
        "def training(): return torch.nn.Linear(4, 2), [{'input': torch.ones(2, 4)}]\n"
        "def made(): return training()[0].eval(), training()[1]\n"
        "def exported():\n"
        "    model, sets = made()\n"
        "    return torch.export.export(model, (), sets[0]).module(), sets\n"
    )
    for name, training in (("training", True), ("made", False), ("exported", False)):
        source = load_source(f"modes.py:{name}", least=1)
        assert source.training is training
        assert not source.model.training or name == "exported"  # which has no modes


def test_one_set_is_enough_where_it_is_said_to_be() -> None:
    assert len(load_source("mine:with_one", least=1).input_sets) == 1


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_a_dtype_casts_weights_and_floating_inputs(name: str, dtype: torch.dtype) -> None:
    source = load_source("mine:plain", inputs="mine.py:inputs", dtype=name)
    assert {p.dtype for p in source.model.parameters()} == {dtype}
    assert floating_dtypes(source) == {dtype}
    assert source.input_sets[0][1]["index"].dtype == torch.int64
    assert run(source).dtype == dtype


def test_a_dtype_casts_the_cache_and_keeps_the_rotary_frequencies() -> None:
    plain = load_source("zoo:tiny-llm")
    source = load_source("zoo:tiny-llm", dtype="bf16")
    (key, _), *_ = cache_pairs(cache_in(source.input_sets[0][1]))
    assert key.dtype == torch.bfloat16
    rotary: Any = source.model.get_submodule("model.rotary_emb")
    expected: Any = plain.model.get_submodule("model.rotary_emb")
    assert torch.equal(rotary.inv_freq, expected.inv_freq)
    logits = run(source).logits
    assert logits.dtype == torch.bfloat16
    assert (logits.float() - run(plain).logits).abs().max() < 0.2


def test_an_exported_program_keeps_its_dtype(program: Path) -> None:
    with pytest.raises(UsageError, match="keeps its dtypes; leave out --dtype"):
        load_source(str(program), dtype="fp16")


def test_an_unknown_dtype_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="no dtype 'int8'; give one of fp32, fp16, bf16"):
        load_source("zoo:mlp", dtype="int8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zoo:tiny-lm", "did you mean tiny-llm"),
        ("zoo:", "the zoo has no model ''"),
        ("absent.pt2", "there is no file absent.pt2"),
        ("absent/folder", "there is no file or folder 'absent/folder'.*downloads nothing"),
        ("org/model", "there is no file or folder 'org/model'"),
        ("tiny-llm", "there is no file or folder 'tiny-llm'.*did you mean zoo:tiny-llm"),
        ("", "there is no file or folder ''"),
        ("https://example.com/m", "there is no file or folder 'https://example.com/m'"),
        ("mine.py", "is no model that torchferry reads; give zoo:NAME"),
        ("hub:model", "there is no module 'hub'"),
        (".", "has no config.json"),
    ],
)
def test_what_stands_for_nothing_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        load_source(text)
    assert len(str(raised.value).splitlines()) == 1


def test_weights_are_mapped_and_nothing_is_run_on_demand(user_folder: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained("saved")
    source = load_source("saved", mapped=True, run=False)
    (file,) = source.files
    address = next(source.model.parameters()).data_ptr()
    assert file.address <= address < file.address + file.size
    tokens = [kwargs["input_ids"] for _, kwargs in source.input_sets]
    assert all(int(ids.min()) >= 0 and int(ids.max()) < 50 for ids in tokens)
    assert load_source("saved").files == ()
    with pytest.raises(UsageError, match=r"'mine:with_inputs' is none: use --weights copy"):
        load_source("mine:with_inputs", mapped=True)
