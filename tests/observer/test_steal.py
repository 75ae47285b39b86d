from __future__ import annotations

import copy
import threading
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from torchferry.dumper.store import read_dump
from torchferry.errors import UsageError
from torchferry.observer.steal import steal_forward
from torchferry.observer.storage import steal_append
from torchferry.values import make_dynamic_cache, string_type
from torchferry.zoo.dummy_llm import dummy_llm


class Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return x * scale


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.again = torch.nn.ModuleList([self.inner, torch.nn.ReLU()])

    def forward(self, x: torch.Tensor, *, depth: int = 0) -> torch.Tensor:
        if depth:
            return self(x, depth=depth - 1) + 1
        return self.again[1](self.inner(x))

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


PAGE = """\
+model -- stolen forward for class LLM -- iteration 0
  <- args=(T7s2x30,) --- kwargs={}
+model.decoder -- stolen forward for class DecoderLayer -- iteration 0
  <- args=(T1s2x30x16,) --- kwargs={}
+model.decoder.norm_1 -- stolen forward for class LayerNorm -- iteration 0
  <- args=(T1s2x30x16,) --- kwargs={}
  -> T1s2x30x16
-model.decoder.norm_1.
-- stores key=('model.decoder.norm_1', 0), size 3Kb -- T1s2x30x16
  -> T1s2x30x16
-model.decoder.
-- stores key=('model.decoder', 0), size 3Kb -- T1s2x30x16
  -> T1s2x30x16
-model.
-- stores key=('model', 0), size 3Kb -- T1s2x30x16
-- gather stored 6 objects, size=0 Mb
-- dumps stored objects
-- done dump stored objects
"""


@pytest.mark.parametrize("name", ["dump.onnx", "dump.safetensors", "folder"])
def test_the_trace_and_the_dump_are_those_of_the_page(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model, inputs = dummy_llm()
    watched = [
        ("model", model),
        ("model.decoder", model.decoder),
        ("model.decoder.norm_1", model.decoder.norm_1),
    ]
    with steal_forward(watched, dump_file=tmp_path / name, verbose=1):
        expected = model(*inputs)
    assert capsys.readouterr().out == PAGE
    stored = read_dump(tmp_path / name)
    assert [
        f"{key} -- {string_type(value, with_shape=True)}" for key, value in stored.items()
    ] == [
        "('model', 0, 'I') -- ((T7s2x30,),{})",
        "('model.decoder', 0, 'I') -- ((T1s2x30x16,),{})",
        "('model.decoder.norm_1', 0, 'I') -- ((T1s2x30x16,),{})",
        "('model.decoder.norm_1', 0, 'O') -- T1s2x30x16",
        "('model.decoder', 0, 'O') -- T1s2x30x16",
        "('model', 0, 'O') -- T1s2x30x16",
    ]
    args, kwargs = stored["model.decoder", 0, "I"]
    assert torch.equal(stored["model", 0, "O"], expected)
    assert torch.equal(model.decoder(*args, **kwargs), expected)


def test_one_module_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    with steal_forward(Inner()) as given:
        pass
    assert given is None
    model = Inner()
    with steal_forward(model):
        model(torch.zeros(2))
        model(torch.zeros(3), scale=3.0)
    assert lines(capsys) == [
        "+ -- stolen forward for class Inner -- iteration 0",
        "  <- args=(T1s2,) --- kwargs={}",
        "  -> T1s2",
        "-.",
        "+ -- stolen forward for class Inner -- iteration 1",
        "  <- args=(T1s3,) --- kwargs=dict(scale:float)",
        "  -> T1s3",
        "-.",
    ]


@pytest.mark.parametrize(
    ("wrap", "expected"),
    [
        (lambda m: m, ["", "inner", "again.1"]),
        (lambda m: ("m", m), ["m", "m.inner", "m.again.1"]),
        (lambda m: [m], ["", "inner", "again.1"]),
        (lambda m: (m, Inner()), ["0", "0.inner", "0.again.1"]),
        (lambda m: [("m", m), ("mine", m.inner)], ["m", "mine", "m.again.1"]),
        (lambda m: m.named_modules(), ["", "inner", "again.1"]),
    ],
)
def test_names_of_submodules(
    wrap: Any, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    model = Outer()
    with steal_forward(wrap(model), submodules=True):
        model(torch.zeros(2))
    entered = [line for line in lines(capsys) if line.startswith("+")]
    assert [line[1:].split(" --")[0] for line in entered] == expected
    assert all("forward" not in vars(module) for module in model.modules())


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ([], {}, "takes a module"),
        (None, {}, "takes a module"),
        ("model", {}, "takes a module"),
        ([("m", Inner()), 3], {}, "takes a module"),
        ([("m", Inner()), ("m", Inner())], {}, "two modules are called 'm'"),
        ([("m.inner", Inner()), ("m", Outer())], {"submodules": True}, "are called 'm.inner'"),
        ([("a", MODEL := Inner()), ("b", MODEL)], {}, "Inner is given twice, as 'a' and 'b'"),
        (Inner(), {"method_name": "fit"}, "Inner has no method 'fit'"),
        (Inner(), {"fprint": "shape"}, "fprint is no function but str"),
        (Inner(), {"dump_file": "d", "storage_limit": "1"}, "is a number of bytes, not '1'"),
        (Inner(), {"dump_file": "d", "dump_drop": 3}, "dump_drop takes names"),
    ],
)
def test_wrong_modules_are_refused(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message), steal_forward(model, **options):
        pytest.fail("it must not start")
    assert "forward" not in vars(MODEL)


def test_any_method_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    model = Outer()
    with steal_forward(model, method_name="shift", submodules=True):
        model.shift(torch.zeros(2))
        model(torch.zeros(2))
    assert lines(capsys) == [
        "+ -- stolen shift for class Outer -- iteration 0",
        "  <- args=(T1s2,) --- kwargs={}",
        "  -> T1s2",
        "-.",
    ]
    assert "shift" not in vars(model)


def test_lists_of_modules_have_no_calls(capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.ModuleList([Inner()])
    with steal_forward(model, submodules=True):
        model[0](torch.zeros(2))
    assert [line for line in lines(capsys) if line.startswith("+")] == [
        "+0 -- stolen forward for class Inner -- iteration 0"
    ]


def test_a_nested_tensor_goes_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    x, mask = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's own, of nested tensors
        expected = model(x, src_key_padding_mask=mask)
        with steal_forward(model, submodules=True, dump_file=tmp_path / "d"):
            got = model(x, src_key_padding_mask=mask)
    assert torch.equal(got, expected)
    assert list(read_dump(tmp_path / "d")) == [("", 0, "I"), ("", 0, "O")]
    skipped = [line for line in lines(capsys) if line.startswith("-- skips key=('layers.")]
    assert len(skipped) == 4


def test_options_of_the_description(capsys: pytest.CaptureFixture[str]) -> None:
    model = Inner()
    x = torch.tensor([0.0, 1.0])
    with steal_forward(model, with_shape=False):
        model(x)
    with steal_forward(model, with_min_max=True, with_device=True):
        model(x)
    with steal_forward(model, fprint=lambda value: type(value).__name__):
        model(x)
    with steal_forward(model, fprint=None, verbose=1):
        model(x)
    assert [line for line in lines(capsys) if line.startswith("  ->")] == [
        "  -> T1r1",
        "  -> CT1s2[0.0,2.0:A1.0]",
        "  -> Tensor",
    ]


def test_recursion_is_nested(capsys: pytest.CaptureFixture[str]) -> None:
    model = Outer()
    with steal_forward(("m", model)):
        model(torch.zeros(1), depth=1)
    assert [line for line in lines(capsys) if line[0] in "+-"] == [
        "+m -- stolen forward for class Outer -- iteration 0",
        "+m -- stolen forward for class Outer -- iteration 1",
        "-m.",
        "-m.",
    ]


def test_a_failing_call_is_not_closed_and_all_is_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Outer()
    x = torch.zeros(1)

    def run() -> None:
        with steal_forward(("m", model), submodules=True, dump_file=tmp_path / "dump"):
            model(x, depth="deep")

    with pytest.raises(TypeError):
        run()
    assert lines(capsys) == [
        "+m -- stolen forward for class Outer -- iteration 0",
        "  <- args=(T1s1,) --- kwargs=dict(depth:str)",
    ]
    assert all("forward" not in vars(module) for module in model.modules())
    assert list(read_dump(tmp_path / "dump")) == [("m", 0, "I")]
    model(x)
    assert lines(capsys) == []


def test_nested_blocks_print_each_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    model = Inner()
    with steal_forward(("a", model)):
        model(torch.zeros(1))
        with steal_forward(("b", model)):
            model(torch.zeros(1))
    entered = [line for line in lines(capsys) if line[0] in "+-"]
    assert [line.split(" -- ")[0] for line in entered] == ["+a", "-a.", "+a", "+b", "-b.", "-a."]
    assert entered[2].endswith("iteration 1")
    assert entered[3].endswith("iteration 0")


def test_inputs_are_stored_as_they_were_before_the_call(tmp_path: Path) -> None:
    class Grow(torch.nn.Module):
        def forward(self, x: torch.Tensor, cache: Any) -> Any:
            x.add_(1)
            cache.update(x, x, 0)
            return cache

    x = torch.zeros(1, 1, 2, 4)
    cache = make_dynamic_cache([(torch.ones(1, 1, 3, 4), torch.ones(1, 1, 3, 4))])
    model = Grow()
    with steal_forward(model, fprint=None, dump_file=tmp_path / "dump.safetensors"):
        result = model(x, cache=cache)
        result.layers[0].keys.zero_()
    stored = read_dump(tmp_path / "dump.safetensors")
    shapes = {key: string_type(value, with_shape=True) for key, value in stored.items()}
    assert shapes == {
        ("", 0, "I"): "((T1s1x1x2x4,),dict(cache:DynamicCache(key_cache=#1[T1s1x1x3x4], "
        "value_cache=#1[T1s1x1x3x4])))",
        ("", 0, "O"): "DynamicCache(key_cache=#1[T1s1x1x5x4], value_cache=#1[T1s1x1x5x4])",
    }
    assert stored["", 0, "I"][0][0].sum() == 0
    assert stored["", 0, "O"].layers[0].keys.sum() == 5 * 4


def test_drop_limit_and_values_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            steal_append("half", x / 2)
            return torch.cat([x, x, x])

    model = Model()
    with steal_forward(
        ("m", model), dump_file=tmp_path / "dump", dump_drop={"mask"}, storage_limit=1200
    ):
        model(torch.zeros(128), mask=torch.zeros(10**6))
        model(torch.zeros(1), mask=torch.zeros(1))
    steal_append("half", 1)
    assert list(read_dump(tmp_path / "dump")) == [
        ("m", 0, "I"), "half", ("m", 1, "I"), "half_1", ("m", 1, "O"),
    ]  # fmt: skip
    said = [line for line in lines(capsys) if line.startswith("--")]
    assert said == ["-- skips key=('m', 0, 'O'), size 1Kb, storage_limit leaves 0Kb -- T1s384"]


def test_threads_count_together_and_keep_their_lines_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Outer()
    with steal_forward(("m", model), submodules=True, dump_file=tmp_path / "dump"):
        threads = [
            threading.Thread(target=lambda: [model(torch.zeros(2)) for _ in range(20)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    printed = lines(capsys)
    assert Counter(line[0] for line in printed) == {"+": 240, "-": 240, " ": 480}
    assert all(
        after == "  <- args=(T1s2,) --- kwargs={}"
        for line, after in pairwise(printed)
        if line.startswith("+")
    )
    stored = read_dump(tmp_path / "dump")
    assert set(stored) == {
        (name, iteration, side)
        for name in ("m", "m.inner", "m.again.1")
        for iteration in range(80)
        for side in "IO"
    }


def test_generate_is_called_as_without(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    options = {"max_new_tokens": 3, "do_sample": True, "pad_token_id": 0}
    passed: list[set[str]] = []
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: passed.append(set(kwargs)), with_kwargs=True
    )
    torch.manual_seed(1)
    expected = model.generate(ids, **options)
    without, passed[:] = copy.copy(passed), []
    torch.manual_seed(1)
    with steal_forward(("m", model), dump_file=tmp_path / "d.onnx"):
        result = model.generate(ids, **options)
    hook.remove()
    assert torch.equal(result, expected)
    assert passed == without
    assert [line for line in lines(capsys) if line.startswith("+")] == [
        f"+m -- stolen forward for class LlamaForCausalLM -- iteration {i}" for i in range(3)
    ]
    stored = read_dump(tmp_path / "d.onnx")
    lengths = [
        value.get_seq_length()
        for i in range(3)
        for values in (stored["m", i, "I"][1], stored["m", i, "O"])
        for value in values.values()
        if isinstance(value, transformers.Cache)
    ]
    # transformers 5.0 gives no cache to the first call, others an empty one.
    assert lengths in ([0, 5, 5, 6, 6, 7], [5, 5, 6, 6, 7])
