"""The examples run, and print what their users expect: names, notation, shapes, sizes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints; it must exit 0 and warn of nothing."""
    command = [sys.executable, "-W", "error::FutureWarning", str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_order(text: str, expected: list[str]) -> str:
    """The first of the expected lines that does not follow those before it; empty if all do."""
    rest = iter(text.splitlines())
    return next((line for line in expected if line not in rest), "")


def test_an_expected_line_that_is_missing_or_too_early_is_found() -> None:
    assert in_order("a\nb\nc", ["a", "c"]) == ""
    assert in_order("a\nb\nc", ["b", "a"]) == "a"
    assert in_order("a\nb\nc", ["b", "d"]) == "d"


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text("utf-8")
    missing = [path.name for path in EXAMPLES.glob("*.py") if f'run("{path.name}"' not in here]
    assert missing == []


def part(name: str, title: str) -> list[str]:
    """What is printed for a part whose one argument and result are hidden states."""
    return [
        f"+{name} -- stolen forward for class {title} -- iteration 0",
        "  <- args=(T1s2x30x16,) --- kwargs={}",
        "  -> T1s2x30x16",
        f"-{name}.",
        f"-- stores key=('{name}', 0), size 3Kb -- T1s2x30x16",
    ]


@pytest.mark.slow
def test_dump_intermediate_results(tmp_path: Path) -> None:
    printed = run("dump_intermediate_results.py", tmp_path)
    names = ("norm_1", "attention", "norm_2", "feed_forward")
    titles = ("LayerNorm", "MultiAttentionBlock", "LayerNorm", "FeedForward")
    outer = [part("model.decoder", "DecoderLayer"), part("model", "LLM")]
    expected = [
        "type(model)=<class 'torchferry.zoo.dummy_llm.LLM'>",
        "inputs=(T7s2x30,)",
        "ds=dict(input_ids:{0:Dim(batch),1:Dim(length)})",
        "- embedding.pe: <class 'torch.nn.modules.sparse.Embedding'>",
        "- decoder.attention.attention.1.value: <class 'torch.nn.modules.linear.Linear'>",
        outer[1][0],
        "  <- args=(T7s2x30,) --- kwargs={}",
        *outer[0][:2],
        *(
            line
            for name, title in zip(names, titles, strict=True)
            for line in part(f"model.decoder.{name}", title)
        ),
        *outer[0][2:],
        *outer[1][2:],
        "-- gather stored 12 objects, size=0 Mb",
        "-- dumps stored objects",
        "-- done dump stored objects",
        "('model', 0, 'I') -- ((T7s2x30,),{})",
        "('model.decoder', 0, 'I') -- ((T1s2x30x16,),{})",
        *(
            f"('model.decoder.{name}', 0, '{side}') -- {value}"
            for name in names
            for side, value in (("I", "((T1s2x30x16,),{})"), ("O", "T1s2x30x16"))
        ),
        "('model.decoder', 0, 'O') -- T1s2x30x16",
        "('model', 0, 'O') -- T1s2x30x16",
        "largest difference below 1e-5: True",
    ]
    assert in_order(printed, expected) == ""
    assert {path.suffix for path in tmp_path.iterdir()} == {".onnx", ".onnx_data", ".svg"}
    assert "LayerNormalization" in (tmp_path / "dummy_llm.svg").read_text("utf-8")


def hints(*axes: int) -> str:
    inside = ", ".join(f"{axis}: DimHint(DYNAMIC)" for axis in axes)
    return f"{{{inside}}}"


def test_export_dynamic_cache(tmp_path: Path) -> None:
    printed = run("export_dynamic_cache.py", tmp_path)
    static, args, kwargs, both, cache = printed.split("--- ")[1:]
    assert 'x: "f32[5, 6]", y: "f32[1, 6]"' in static
    assert "Range constraints: {}" in static
    one_line = re.compile(r"\s+")
    x, y = hints(0, 1), hints(1)
    shapes = {args: f"(({x}, {y}), {{}})", kwargs: f"((), {{'x': {x}, 'y': {y}}})"}
    for text, expected in shapes.items():
        assert expected in one_line.sub(" ", text)
    assert f"(({x},), {{'y': {y}}})" in one_line.sub(" ", both)
    assert f"((), {{'x': {x}, 'y': {y}}})" in one_line.sub(" ", both)
    for text in (args, kwargs, both):
        assert re.search(r'x: "f32\[(s\d+), (s\d+)\]", y: "f32\[1, \2\]"', text)
    inside = "key_cache=#2[T1s2x4x3x7,T1s2x4x3x7], value_cache=#2[T1s2x4x3x7,T1s2x4x3x7]"
    described = f"DynamicCache({inside})"
    assert in_order(cache, [described, f"({described},T1s1x1x1x7)"]) == ""
    layer = hints(0, 2, 3)
    expected = f"(([[{layer}, {layer}], [{layer}, {layer}]], {hints(3)}), {{}})"
    assert expected in one_line.sub(" ", cache)
    shape = r'"f32\[(s\d+), 4, (s\d+), (s\d+)\]"'
    assert re.search(rf'cache_key_cache_0: {shape},.* z: "f32\[1, 1, 1, \3\]"', cache)


@pytest.mark.slow  # `make demo` of the README does the same
def test_export_tiny_llm(tmp_path: Path) -> None:
    printed = run("export_tiny_llm.py", tmp_path)
    statistics = re.compile(r"\[-?[\d.e-]+,-?[\d.e-]+:A-?[\d.e-]+\]")
    lines = [statistics.sub("[...]", line) for line in printed.splitlines()]
    empty = "DynamicCache(key_cache=#0[], value_cache=#0[])"
    assert lines[0].startswith(f"<- ((),dict(input_ids:T7s1x8[...],cache:{empty},")
    assert lines[1] == (
        "-> CausalLMOutputWithPast(logits:T1s1x1x32000[...],cache:DynamicCache("
        "key_cache=#1[T1s1x1x8x96[...]], value_cache=#1[T1s1x1x8x96[...]]))"
    )
    assert printed.count("<- ((),dict(") == 4
    assert "use_cache:bool=True" in lines[2]
    prefill = "DynamicCache(key_cache=#1[T1s1x1x8x96], value_cache=#1[T1s1x1x8x96])"
    before = "DynamicCache(key_cache=#1[T1s2x1x30x96], value_cache=#1[T1s2x1x30x96])"
    after = "DynamicCache(key_cache=#1[T1s2x1x33x96], value_cache=#1[T1s2x1x33x96])"
    rest = "input_ids:T7s2x3,attention_mask:T7s2x33,position_ids:T7s2x3"
    expected = [
        "-- prompt T7s1x8",
        "-- answer T7s1x12",
        "+ -- stolen forward for class LlamaForCausalLM -- iteration 0",
        f"  -> CausalLMOutputWithPast(logits:T1s1x1x32000,cache:{prefill})",
        "-.",
        "+ -- stolen forward for class LlamaForCausalLM -- iteration 1",
        f"input type before dict({rest},past_key_values:{before})",
        f"input type after- dict({rest},cache:{after})",
        f"result type CausalLMOutputWithPast(logits:T1s2x3x32000,cache:{after})",
        f"dict({rest},past_key_values:{before})",
        "{'attention_mask': {0: 'batch', 1: 'cache+seq'},",
        " 'input_ids': {0: 'batch', 1: 'seq_length'},",
        " 'past_key_values': [[{0: 'batch', 2: 'cache_length'}],",
        "                     [{0: 'batch', 2: 'cache_length'}]],",
        " 'position_ids': {0: 'batch', 1: 'seq_length'}}",
        "It worked:",
    ]
    assert in_order("\n".join(lines), expected) == ""
    assert re.search(r"^  input_ids: \[s\d+, s\d+\]$", printed, re.MULTILINE)
    assert re.search(r"^  cache_key_cache_0: \[s\d+, 1, s\d+, 96\]$", printed, re.MULTILINE)
    assert re.search(r"3 outputs equal PyTorch's at \d+ sets of sizes", lines[-1])


@pytest.mark.parametrize("name", [path.name for path in EXAMPLES.glob("*.py")])
def test_an_example_says_how_it_is_run(name: str) -> None:
    assert f"python examples/{name}" in (EXAMPLES / name).read_text("utf-8")


def test_diagnose_piece_by_piece(tmp_path: Path) -> None:
    printed = run("diagnose_piece_by_piece.py", tmp_path)
    expected = [
        ">>> __main__: Model",
        "  DS=(({0: DimHint(DYNAMIC)},), {'mask': {0: DimHint(DYNAMIC)}})",
        "  < (T1s2x3,)",
        "<<<",
        "__main__       Model    FAIL -- step=EXPORT, reason='because of block.flip'",
        "......linear   Linear   <OK-2i-0>",
        "__main__       Model    OK_CHILDC -- ExportedProgram",
        "..head         Linear   OK -- ExportedProgram",
        "status: OK_CHILDC - because of block.flip",
    ]
    assert in_order(printed, expected) == ""
    assert "diag_lib.C_Model_block_flip" in printed
    assert "`if x.sum() > 0:`. A value of a tensor decides" in printed


@pytest.mark.slow
def test_compile_llama(tmp_path: Path) -> None:
    printed = run("compile_llama.py", tmp_path, "--warmup", "1", "-N", "2")
    assert printed.count("below 1e-3: True") == 3
    names = ("eager", "default", "default+onnxruntime+experimental")
    assert all(f"│ {name}" in printed for name in names)
    assert (tmp_path / "compile_llama.svg").is_file() or "####" in printed
