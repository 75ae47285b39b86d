"""
In a test suite, and before a commit
====================================

An export that works today should work tomorrow. Three checks: an assertion for pytest, a
comparison for an ONNX file that is in the repository, and a hook for pre-commit.
"""

# %%
# assert_exports
# --------------
# ``torchferry.testing.assert_exports`` exports, verifies and returns the program. It is a plugin
# of pytest, found by itself.

import tempfile
from pathlib import Path

import torch

from torchferry.testing import assert_exports

folder = Path(tempfile.mkdtemp())
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).eval()
sets = [(torch.rand(2, 8),), (torch.rand(5, 8),)]
program = assert_exports(model, sets, dynamic=["batch_size"], folder=folder)
program(torch.rand(3, 8)).shape

# %%
# A failure reads like the report. ``dynamic`` names the dimensions that must be verified: one
# that somebody fixes later fails the test with the line that did it.


class Scaled(torch.nn.Module):
    """Divides by a number that was a size."""

    def forward(self, x):
        return x / len([row for row in range(x.shape[0])])


try:
    assert_exports(Scaled(), sets, dynamic=["batch_size"], rewrite=False, folder=folder)
except AssertionError as error:
    print("\n".join(str(error).splitlines()[:12]))

# %%
# In CI give ``pytest --torchferry-artifacts FOLDER`` and upload the folder: it has the report as
# a page, text and JSON for each test, and the model of those that failed.

print(sorted(path.name for path in folder.iterdir()))

# %%
# A file in the repository
# ------------------------
# ``torchferry export MODEL --check FILE`` exports nothing. It runs the file beside the model as
# it is now, at recorded sizes and at others. The exit code is 1 if they differ.
#
# ``sh`` runs a command and prints what it prints: :download:`shell.py </_ext/shell.py>`, to be put
# beside this file.

from shell import sh

(folder / "net.py").write_text(
    """
import torch

def make(scale=1.0):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        model[2].bias *= scale
    return model.eval(), [(torch.rand(2, 8),), (torch.rand(5, 8),)]

def changed():
    return make(1.1)
""",
    "utf-8",
)
sh("torchferry export net.py:make -o net", folder, lines=1)
code = sh("torchferry export net.py:make --check net/model.onnx", folder)
assert code == 0

# %%
# After a change of the weights:

code = sh("torchferry export net.py:changed --check net/model.onnx", folder)
assert code == 1

# %%
# Before a commit
# ---------------
# As a hook of pre-commit, in ``.pre-commit-config.yaml``:
#
# .. code-block:: yaml
#
#    - repo: local
#      hooks:
#        - id: onnx
#          name: the ONNX file is the model
#          entry: torchferry export net.py:make --check net/model.onnx
#          language: system
#          pass_filenames: false
#          files: ^(net\.py|net/.*)$
