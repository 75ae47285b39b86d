from __future__ import annotations

import errno
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers

import torchferry as tf
from families import slow_among
from torchferry.errors import CaptureError, UsageError
from torchferry.exporter.deliver import deliver
from torchferry.report.model import Report
from torchferry.sources.checkpoint import load_checkpoint
from torchferry.values.clone import clone

CODE = """
import operator

import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 128)
    def forward(self, x, most=99):
        if x.shape[0] > most:
            raise ValueError(f"{most} rows at most,\\nnot more")
        return self.linear(x)

class Small(nn.Module):
    def forward(self, x):
        return x * 2

class Fixes(nn.Module):
    def forward(self, x):
        return x + torch.arange(operator.index(x.shape[0]))[:, None]

class Decides(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            self.seen = True
        return x * 2

class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
    def forward(self, x):
        self.n += 1
        return x * self.n

SETS = [(torch.rand(3, 4),), (torch.rand(5, 4),)]
def model(): return Model(), SETS
def small(): return Small(), SETS
def fixes(): return Fixes(), SETS
def counts(): return Counts(), SETS
def decides(): return Decides(), SETS
def raises(): return Model(), [(x, 4) for x, in SETS]
"""


@pytest.fixture(autouse=True)
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    Path("delivered.py").write_text(CODE)
    yield Path("out")
    for name in ("delivered", "torchferry_user_delivered"):
        sys.modules.pop(name, None)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder except the code."""
    files = [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    named = {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}
    return {name: data for name, data in named.items() if name != "delivered.py"}


def earlier(out: Path) -> dict[str, bytes]:
    """What an earlier export left there."""
    out.mkdir()
    (out / "model.onnx").write_bytes(b"earlier model")
    (out / "report.html").write_bytes(b"earlier report")
    return content(out)


def test_a_good_export_is_a_folder_with_the_model_and_the_page(out: Path) -> None:
    report = deliver("delivered:model", out)
    assert report.ok, report.problems
    assert {p.name for p in out.iterdir()} == {"model.onnx", "model.onnx_data", "report.html"}
    assert {p.name for p in Path().iterdir()} - {"__pycache__"} == {"out", "delivered.py"}
    page = (out / "report.html").read_text()
    assert report.verdict.replace("'", "&#39;") in page
    assert tf.load(out)(torch.rand(2, 4)).shape == (2, 128)
    assert report.next_steps[0] == "look at out/report.html"
    assert "load" in report.next_steps[1]


def test_a_model_without_large_weights_is_one_file(out: Path) -> None:
    assert deliver("delivered:small", out).ok
    assert {p.name for p in out.iterdir()} == {"model.onnx", "report.html"}


def test_every_step_is_told_and_in_the_report(out: Path) -> None:
    told: list[str] = []
    report = deliver("delivered:small", out, progress=told.append, opset=18)
    assert told[:3] == ["load model", "observe", "infer shapes"]
    assert told[-1] == "verify"
    assert [step["name"] for step in report.data["steps"]] == told
    assert report.data["model"]["opset"] == 18


def test_an_earlier_export_is_replaced_on_demand(out: Path) -> None:
    before = earlier(out)
    with pytest.raises(UsageError, match="out exists; give --force"):
        deliver("delivered:small", out)
    assert content(out) == before
    assert deliver("delivered:small", out, replace=True).ok
    assert set(content(out)) == {"model.onnx", "report.html"}
    assert content(out)["model.onnx"] != before["model.onnx"]


def test_a_failed_check_goes_beside_and_leaves_the_earlier_export(out: Path) -> None:
    before = earlier(out)
    report = deliver("delivered:fixes", out, replace=True)
    assert not report.ok
    assert content(out) == before
    assert set(content(Path("out.failed"))) == {"model.onnx", "report.html"}
    assert report.next_steps == (
        "look at out.failed/report.html",
        "the model that failed is kept in out.failed; out was not touched",
    )
    assert not deliver("delivered:fixes", out, replace=True).ok  # the second failure replaces it
    assert set(content(Path())) == {
        "out/model.onnx", "out/report.html", "out.failed/model.onnx", "out.failed/report.html",
    }  # fmt: skip


def test_a_capture_that_fails_leaves_nothing(out: Path) -> None:
    with pytest.raises(CaptureError, match="cannot capture Decides"):
        deliver("delivered:decides", out)
    assert content(Path()) == {}
    assert not out.exists()


def test_a_forward_that_raises_is_told_with_the_input_set_and_the_line(out: Path) -> None:
    before = earlier(out)
    line = CODE.splitlines().index(
        '            raise ValueError(f"{most} rows at most,\\nnot more")'
    )
    with pytest.raises(UsageError) as caught:
        deliver("delivered:raises", out, replace=True)
    assert str(caught.value) == (
        "delivered:raises, run on input set 2 of 2, ((T1s5x4,int),{}), raised ValueError: "
        f"4 rows at most, not more\n  at {Path('delivered.py').resolve()}:{line + 1}"
    )
    assert content(Path()) == {f"out/{name}": data for name, data in before.items()}


@pytest.mark.parametrize("options", [{"opset": 7}, {"target": "tpu"}, {"exporter": "x"}])
def test_options_are_checked_before_the_model_is_loaded(
    out: Path, options: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match="choose one"):
        deliver("no:such_model", out, **options)  # type: ignore[arg-type]  # on purpose


def test_a_foreign_folder_in_the_place_of_the_failed_one_is_kept(out: Path) -> None:
    Path("out.failed").mkdir()
    Path("out.failed/thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"out\.failed holds thesis\.txt"):
        deliver("delivered:small", out)
    assert content(Path()) == {"out.failed/thesis.txt": b"mine"}


def test_an_accident_leaves_nothing(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = importlib.import_module("torchferry.exporter.export")
    monkeypatch.setattr(walk.io, "save", lambda model, path, **others: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        deliver("delivered:small", out)
    assert content(Path()) == {}


def test_the_report_is_plain_data(out: Path) -> None:
    report = deliver("delivered:small", out)
    assert isinstance(report, Report)
    assert report.title == "export delivered:small"
    assert report.data["checks"][0]["sizes"] == {"batch_size": 3}


# Weights that are referred to --------------------------------------------------------------------


def saved(kind: str, **options: object) -> Path:
    """A folder as ``save_pretrained`` makes it."""
    sizes = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
             "num_hidden_layers": 2, "num_attention_heads": 4}  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "bert":
            model = transformers.BertModel(transformers.BertConfig(**sizes))
        else:
            config = transformers.LlamaConfig(
                **sizes, num_key_value_heads=2, tie_word_embeddings=kind == "tied"
            )
            model = transformers.LlamaForCausalLM(config)
    model.to(torch.bfloat16 if kind == "bf16" else torch.float32)
    model.save_pretrained(kind, **options)
    return Path(kind)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", slow_among(["llama", "tied", "bf16", "bert"], ["tied", "bf16"]))
def test_weights_of_a_checkpoint_are_referred_to(out: Path, kind: str) -> None:
    folder = saved(kind, max_shard_size="40KB" if kind == "llama" else "5GB")
    files = {p.name: p for p in folder.glob("*.safetensors")}
    assert len(files) == 1 if kind != "llama" else len(files) >= 3
    report = deliver(str(folder), out, weights="reference")
    assert report.ok, report.problems
    written = {p.name for p in out.iterdir()}
    assert written - {"model.onnx_data"} == {"model.onnx", "report.html", *files}
    assert all((out / name).samefile(path) for name, path in files.items())
    weights = report.data["weights"]
    assert set(weights["referred"]) == set(files)
    assert set(weights["copied"]) <= {"embeddings.position_ids", "embeddings.token_type_ids"}
    stored = sum(path.stat().st_size for path in files.values())
    assert sum(weights["referred"].values()) > 0.9 * stored - 20_000  # headers, small ones

    ids = torch.tensor([[5, 9, 2, 7, 1], [3, 8, 8, 4, 6]])
    given = {"input_ids": ids, "attention_mask": torch.ones(2, 12 if kind != "bert" else 5).long()}
    if kind == "bert":
        given["token_type_ids"] = torch.zeros_like(ids)
    else:
        past = [(torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)) for _ in range(2)]
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        given["position_ids"] = torch.arange(7, 12).expand(2, 5)
        given["cache"] = tf.make_dynamic_cache([(k.to(dtype), v.to(dtype)) for k, v in past])
    model = load_checkpoint(folder)
    got = tf.load(out)(**clone(given))
    with torch.no_grad():
        expected = model(**clone(given))
    difference = tf.max_diff(expected[0], got[0])
    assert difference.abs < (0.05 if kind == "bf16" else 1e-5)
    assert difference.reason is None


def test_an_unverified_export_runs_nothing_and_says_so(out: Path) -> None:
    folder = saved("tied")
    told: list[str] = []
    report = deliver(str(folder), out, weights="reference", check=False, progress=told.append)
    assert report.ok
    assert "NOT VERIFIED" in report.verdict
    assert "NOT VERIFIED" in (out / "report.html").read_text()
    assert not {"observe", "load", "verify"} & set(told)
    ids = torch.tensor([[5, 9, 2]])
    cache = tf.make_dynamic_cache([(torch.zeros(1, 2, 0, 8), torch.zeros(1, 2, 0, 8))] * 2)
    got = tf.load(out)(
        input_ids=ids, attention_mask=torch.ones(1, 3, dtype=torch.int64),
        position_ids=torch.arange(3)[None], cache=cache,
    )  # fmt: skip
    with torch.no_grad():
        expected = load_checkpoint(folder)(ids).logits
    assert tf.max_diff(expected, got.logits).abs < 1e-5


def test_an_unverified_export_may_copy(out: Path) -> None:
    report = deliver("delivered:model", out, check=False)
    assert report.ok
    assert "weights" not in report.data
    x = torch.rand(7, 4)
    assert tf.load(out)(x).shape == (7, 128)
    fixed = deliver("delivered:fixes", Path("other"), check=False)
    assert not fixed.ok
    assert Path("other.failed/model.onnx").exists()


def test_referring_again_replaces_the_links_and_keeps_the_checkpoint(out: Path) -> None:
    folder = saved("bert")
    before = content(folder)
    for replace in (False, True):
        assert deliver(str(folder), out, weights="reference", check=False, replace=replace).ok
    assert content(folder) == before
    assert (folder / "model.safetensors").stat().st_nlink == 2


def test_what_cannot_be_referred_to_is_refused_before_any_work(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved("bert")
    began: list[str] = []
    for options, told in (
        ({"dtype": "fp16"}, "leave out --dtype fp16"),
        ({"exporter": "onnx_dynamo"}, "needs exporter to_onnx"),
    ):
        with pytest.raises(UsageError, match=told):
            deliver(str(folder), out, weights="reference", progress=began.append, **options)
    with pytest.raises(UsageError, match=r"needs a Hugging Face model folder.*'zoo:mlp' is none"):
        deliver("zoo:mlp", out, weights="reference")

    def refuses(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr("torchferry.graph.reference.os.link", refuses)
    with pytest.raises(UsageError, match=r"on another file system.*--weights copy"):
        deliver(str(folder), out, weights="reference", progress=began.append)
    assert not began
    assert not out.exists()


def test_lifted_state_begins_as_the_model_was_loaded(out: Path) -> None:
    report = deliver("delivered:counts", out, state="lift", progress=False)
    assert report.ok, report.problems
    program = tf.load(out)
    assert program.state == {"n": torch.tensor(0)}
    assert program(torch.ones(1, 4)).tolist() == [[1] * 4]
    refused = deliver("delivered:counts", out, replace=True, progress=False)
    assert any('state="lift"' in problem for problem in refused.problems)
