"""A job once for each seam, in a process in which that seam is hidden.

``python future.py JOB NAMES...`` prints a JSON line for each argument, which may be several names
with commas between: how the job ended (right, said, raw), and what was said. The libraries are
imported once; each argument has a fork of that process, which has not yet imported torchferry's
rooms, as much is decided when they are.
"""

import contextlib
import io
import json
import logging
import os
import sys
import traceback
import warnings

import onnxruntime  # noqa: F401  # once, for every fork
import onnxscript  # noqa: F401  # once, for every fork
import torch
import torch.onnx

from torchferry.errors import FerryError
from torchferry.seams import table

_find = table.find.__wrapped__


def hide(names):
    """From now on torchferry does not find the names, nor attributes that they end in."""
    attributes = {name.rsplit(".", 1)[-1] for name in names}

    def find(asked):
        if any(f"{asked}.".startswith(f"{name}.") for name in names):
            raise LookupError(asked)
        return _find(asked)

    def read(value, asked, *default):
        hidden = asked in attributes and default
        return default[0] if hidden else getattr(value, asked, *default)

    table.find = find
    with contextlib.suppress(FerryError):  # what the import raises is the job's to meet
        from torchferry.seams import huggingface, ort, pytorch

        for module in (pytorch, ort, huggingface):
            module.getattr = read


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(4), torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x, more):
        y = torch.relu(self.linear(self.norm(x))) * self.scale
        return torch.cat([y, more["y"]]), y.sum(dim=-1)


def export():
    """Convert with a dynamic size, run at others, and compare with PyTorch."""
    import torchferry

    model = Model().eval()
    sets = [(torch.randn(n, 4), {"y": torch.randn(2, 3)}) for n in (3, 5, 1)]
    with torch.no_grad():
        program = torchferry.to_onnx(model, sets[0], dynamic_shapes=({0: "n"}, {"y": {}}))
        for one in sets:
            torch.testing.assert_close(program(*one), model(*one))


def compile_():
    """The model through the torch.compile backend; the log tells of graphs that stay in eager."""
    import torchferry

    log = io.StringIO()
    logging.getLogger("torchferry").addHandler(logging.StreamHandler(log))
    model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    with torch.no_grad():
        compiled = torch.compile(model, backend=torchferry.onnx_custom_backend)
        torch.testing.assert_close(compiled(x), model(x))
    if log.getvalue():
        raise FerryError(log.getvalue().strip())


def attempt(names, job):
    try:
        hide(names)
        with contextlib.redirect_stdout(io.StringIO()):
            job()
    except FerryError as error:
        return "said", str(error)
    except Exception as error:  # noqa: BLE001  # anything raw is what the test looks for
        cause = error
        while cause is not None and not isinstance(cause, FerryError):
            cause = cause.__cause__ or cause.__context__
        return ("said", str(cause)) if cause else ("raw", traceback.format_exc()[-2000:])
    return "right", ""


def main():
    warnings.simplefilter("ignore")
    jobs = {"export": export, "compile": compile_}
    job, *names = sys.argv[1:]
    for name in names:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            end, said = attempt(name.split(","), jobs[job])
            sys.stdout.write(json.dumps({"name": name, "end": end, "said": said}) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.stdout.write(json.dumps({"name": name, "end": "crash", "said": str(status)}))
            sys.stdout.write("\n")


if __name__ == "__main__":
    main()
