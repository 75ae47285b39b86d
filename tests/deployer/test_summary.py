"""The report of a deployment."""

from pathlib import Path

from torchferry.deployer.layout import GRAPHS
from torchferry.deployer.prove.proof import Proof, Run
from torchferry.deployer.prove.reference import Agreement
from torchferry.deployer.summary import report
from torchferry.deployer.write.build import Built
from torchferry.exporter.steps import Steps


def test_a_runtime_that_is_missing_is_on_the_verdict_and_a_fault_fails_it():
    built = Built(sizes={"fp32": 2048})
    seen = {"fp32": Agreement(9, 1.0, -1e-9, 5.0, 5.0, 0.0)}
    runs = [
        Run("onnxruntime", GRAPHS[0], "1.32", True),
        Run("genai", GRAPHS[0], "", None, "get it"),
    ]
    good = report("m", GRAPHS[:1], built, Proof(runs, seen), out=Path("out"), steps=Steps(False))
    assert good.ok
    assert good.verdict == (
        "m as fp32 runs in onnxruntime 1.32; not installed here, and not tried: genai"
    )
    assert good.next_steps == ("look at out/report.html; out/README.md says how to run it",)
    text = str(good)
    assert "not run: get it" in text
    assert "100.0 %" in text
    bad = [*runs, Run("optimum", GRAPHS[0], "0.1", False, "batch 0, row 0: 1 for 2")]
    failed = report("m", GRAPHS[:1], built, Proof(bad, seen), out=Path("out"), steps=Steps(False))
    assert not failed.ok
    assert failed.verdict == "1 problem with m"
    assert "out.failed" in failed.next_steps[0]


def test_the_page_shows_what_each_weight_costs(deployed):
    out, _ = deployed
    page = (out / "report.html").read_text()
    for text in (
        "What 4 bits cost",
        "KL divergence of one weight",
        "o_proj",
        "What is left of the loss at each size",
        "Dynamic dimensions (fp16)",
    ):
        assert text in page
    assert len(page) < 300_000
