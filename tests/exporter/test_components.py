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


def test_pipelines_find_what_stands_beside_the_models(tmp_path: Path) -> None:
    source, out = tmp_path / "pipe", tmp_path / "out"
    files = """
        model_index.json unet/config.json unet/model.safetensors
        unet/model.safetensors.index.json vae/config.json text_encoder/config.json
        tokenizer/vocab.json tokenizer/merges.txt scheduler/scheduler_config.json
    """
    for name in files.split():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)

    def deliver(model: str, folder: Path) -> Report:
        if model.endswith("text_encoder"):
            raise CaptureError("no way")
        folder.mkdir(parents=True)
        return Report(model, ok=True, verdict="", problems=())

    names = ["unet", "vae_encoder", "vae_decoder", "text_encoder"]
    deliver_components(str(source), out, names, deliver)
    copied = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert copied == {
        "model_index.json", "unet/config.json", "vae_encoder/config.json",
        "vae_decoder/config.json", "tokenizer/vocab.json", "tokenizer/merges.txt",
        "scheduler/scheduler_config.json",
    }  # fmt: skip
    assert (out / "vae_decoder/config.json").read_text() == "vae/config.json"
