"""
Many models, and a cluster
==========================

``torchferry sweep`` exports many models, each in a process of its own: a crash, a hang or a full
memory is a row, not the end. Rows are kept as they come, so that an interrupted sweep goes on
where it was.
"""

# %%
# A sweep
# -------
# ``zoo:NAME`` stands for all states of a family (prefill, decode, empty cache). Your own models
# are named as for ``export``: folders, factories, ``torchvision:NAME``.
#
# ``sh`` runs a command and prints what it prints: :download:`shell.py </_ext/shell.py>`, to be put
# beside this file.

import json
import tempfile
from pathlib import Path

from shell import sh

folder = Path(tempfile.mkdtemp())
sh("torchferry sweep zoo:mlp zoo:lstm --exporter to_onnx -o rows.jsonl", folder)

# %%
# The rows
# --------
# One JSON object a line: the model, the outcome, the largest difference, time and memory.

for line in (folder / "rows.jsonl").read_text("utf-8").splitlines():
    row = json.loads(line)
    print({key: row[key] for key in list(row)[:6]})

# %%
# Going on
# --------
# Run the same command again: what has a row is not done again.

sh("torchferry sweep zoo:mlp zoo:lstm --exporter to_onnx -o rows.jsonl", folder, lines=6)

# %%
# More than one machine
# ---------------------
# ``--jobs N`` runs N processes here; ``--scheduler ADDRESS`` sends the work to a Dask cluster,
# whose workers need torchferry and the models' files. ``--timeout`` and ``--memory`` limit each
# model. The options are in :ref:`the reference <command-sweep>`. ``benchmarks/RESULTS.md`` has a
# sweep over all families of the zoo, and :doc:`/figures` a chart of it.
