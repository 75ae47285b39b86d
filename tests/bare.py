"""Install a wheel into a bare environment outside the repository, and use it there.

``python -m tests.bare WHEEL``: what the package forgets to ship or to depend on fails here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
USE = """
from pathlib import Path
import torch, torchferry

assert "site-packages" in torchferry.__file__, torchferry.__file__
program = torchferry.load("out")
x = torch.randn(1, 16)
assert torch.isfinite(program(x)).all()
print(torchferry.__version__, len(torchferry.__all__), "names")
for name in torchferry.__all__:
    getattr(torchferry, name)
"""


def use(wheel: Path) -> None:
    """Install the wheel and run the command, an export, and every public name.

    Raises:
        CalledProcessError: one of them failed.
    """
    with tempfile.TemporaryDirectory(prefix="torchferry-bare-") as folder:

        def call(*command: str | Path) -> None:
            subprocess.run(command, cwd=folder, check=True)

        call(sys.executable, "-m", "venv", "env")
        python = Path(folder) / "env" / "bin" / "python"
        install = (python, "-m", "pip", "install", "-q", "-c", CONSTRAINTS)
        call(*install, f"{wheel.resolve()}[hf,dask,plot]")
        command = python.with_name("torchferry")
        call(command, "--version")
        call(command, "export", "zoo:mlp", "-o", "out")
        call(command, "inspect", "out/model.onnx")
        call(python, "-c", USE)


if __name__ == "__main__":
    use(Path(sys.argv[1]))
