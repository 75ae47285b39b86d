from __future__ import annotations

from pathlib import Path

from torchferry.errors import CaptureError
from torchferry.exporter.components import deliver_components
from torchferry.report.model import Report

OUT = Path("out")


def deliver(model: str, out: Path) -> Report:
    assert out == OUT / model.rpartition(":")[2]
    if model.endswith("vae"):
        raise CaptureError("no way\nmore of it")
    ok = not model.endswith("unet")
    return Report(
        model, ok=ok, verdict=f"{model} is {ok}", problems=() if ok else ("height is 8",)
    )


def test_all_components_make_one_report() -> None:
    report = deliver_components("folder", OUT, ["text_encoder", "text_encoder_2"], deliver)
    assert report.ok
    assert report.verdict == "2 components exported"
    assert report.problems == ()
    assert list(report.data["components"]) == ["text_encoder", "text_encoder_2"]


def test_a_component_that_fails_does_not_stop_the_others() -> None:
    report = deliver_components("folder", OUT, ["vae", "unet", "text_encoder"], deliver)
    assert not report.ok
    assert report.verdict == "1 component exported; vae, unet failed"
    assert report.problems == ("vae: no way", "unet: height is 8")
    assert report.data["components"]["vae"] == {"kind": "refused", "error": "no way\nmore of it"}
