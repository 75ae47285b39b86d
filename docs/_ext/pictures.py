"""Take the pictures of the report page that the first guide shows, again.

python docs/_ext/pictures.py

It exports two small models, opens each report in a Chromium without a window, once light and once
dark, and keeps parts of the page as WebP files in docs/_static/report. They are committed: the
build of the site needs no browser.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops

__all__ = ["MODELS", "PICTURES", "SCHEMES", "Picture", "main", "only", "trimmed"]

FOLDER = Path(__file__).resolve().parents[1] / "_static/report"
SCHEMES = {"dark": 0, "light": 1}  # as Chromium numbers them
WIDTH, TALL, SCALE = 760, 1400, 1.5
MARGIN = 12

MODELS = '''
import torch


class Classifier(torch.nn.Module):
    """The mean of what is not padding, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(100, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = torch.nn.Linear(32, 3)

    def forward(self, tokens, mask):
        x = self.layer(self.embed(tokens), src_key_padding_mask=~mask)
        weight = mask.unsqueeze(-1).to(x.dtype)
        return self.head((x * weight).sum(1) / weight.sum(1))


class Mean(torch.nn.Module):
    """Divides by a number that was a size."""

    def forward(self, x):
        return x.sum(0) / len([row for row in range(x.shape[0])])


def good():
    torch.manual_seed(0)
    shapes = [(2, 7), (3, 12)]
    sets = [(torch.randint(0, 100, s), torch.ones(s, dtype=torch.bool)) for s in shapes]
    return Classifier().eval(), sets


def bad():
    return Mean(), [(torch.rand(2, 3),), (torch.rand(4, 3),)]
'''


@dataclass(frozen=True)
class Picture:
    """A part of a report.

    Attributes:
        name: of the file.
        model: the function in `MODELS` whose report it is.
        parts: what is shown of the page, as CSS selects it among the children of ``main``.
    """

    name: str
    model: str
    parts: str


PICTURES = (
    Picture("verdict", "good", "header, #verdict, nav"),
    Picture("dimensions", "good", "#section-1"),
    Picture("outputs", "good", "#section-2"),
    Picture("sizes", "good", "#section-3"),
    Picture("problem", "bad", "header, #verdict, #problems"),
)


def only(page: str, parts: str) -> str:
    """The text of a report that shows some of its parts and nothing else."""
    style = f"<style>main > :not({parts}) {{ display: none }}</style>"
    return page.replace("</head>", f"{style}</head>", 1)


def trimmed(picture: Image.Image) -> Image.Image:
    """Without the empty rows below what is shown; the corner has the color of the page."""
    plain = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    box = ImageChops.difference(picture, plain).getbbox() or (0, 0, *picture.size)
    return picture.crop((0, max(0, box[1] - MARGIN), picture.width, box[3] + MARGIN))


def _report(model: str, folder: Path) -> str:
    (folder / "model.py").write_text(MODELS, "utf-8")
    command = [sys.executable, "-m", "torchferry", "export", f"model.py:{model}", "-o", model]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True)
    out = model if done.returncode == 0 else f"{model}.failed"
    return (folder / out / "report.html").read_text("utf-8").replace(f"{folder}/", "")


def _take_picture(page: Path, scheme: int) -> Image.Image:
    shot = page.with_suffix(".png")
    command = [
        "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={WIDTH},{TALL}",
        f"--force-device-scale-factor={SCALE}", f"--screenshot={shot}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return Image.open(shot).convert("RGB")


def main() -> None:
    """Write all pictures, and say how large they are."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reports = {model: _report(model, folder) for model in ("good", "bad")}
        for picture in PICTURES:
            page = folder / "page.html"
            page.write_text(only(reports[picture.model], picture.parts), "utf-8")
            for scheme, number in SCHEMES.items():
                path = FOLDER / f"{picture.name}-{scheme}.webp"
                trimmed(_take_picture(page, number)).save(path, lossless=True, method=6)
                sys.stdout.write(f"{path.name} {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
