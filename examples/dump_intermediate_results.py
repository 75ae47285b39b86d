"""Store what goes in and out of the parts of a model, read it back, and check an ONNX file by it.

    python examples/dump_intermediate_results.py [FOLDER]

Files are written to FOLDER, the current one by default.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import sys
from pathlib import Path

import torch

import torchferry as tf


def main(folder: Path) -> None:
    """Dump, restore, export, compare."""
    # A decoder of one layer, small enough to be read as a whole.
    model, inputs, dynamic_shapes = tf.dummy_llm(dynamic_shapes=True)
    print(f"type(model)={type(model)}")
    print(f"inputs={tf.string_type(inputs, with_shape=True)}")
    print(f"ds={tf.string_type(dynamic_shapes, with_shape=True)}")

    # These are its parts.
    for name, module in model.named_modules():
        print(f"- {name}: {type(module)}")

    # Every call of the parts named here is printed, and what it is given and returns is stored.
    # With submodules=True, ("model", model) alone would watch them all.
    parts = ("attention", "feed_forward", "norm_1", "norm_2")
    watched = [
        ("model", model),
        ("model.decoder", model.decoder),
        *((f"model.decoder.{part}", model.decoder.get_submodule(part)) for part in parts),
    ]
    dump = folder / "intermediate_results.onnx"
    with tf.steal_forward(watched, dump_file=dump, verbose=1, storage_limit=2**28):
        model(*inputs)

    # The dump is an ONNX model that returns what was stored: viewers show it, any runtime runs
    # it, and this gives the values back. A key is the name of the part, the number of its call,
    # and I for inputs, which are (args, kwargs), or O for outputs.
    saved = tf.create_input_tensors_from_onnx_model(dump)
    for key, value in saved.items():
        print(f"{key} -- {tf.string_type(value, with_shape=True)}")

    # The model in ONNX, with the dimensions dynamic that differ between two calls.
    with tf.observe(model) as seen:
        model(*inputs)
        model(torch.randint(0, 1024, (3, 12)))
    onnx = tf.export(model, seen)
    print(onnx.report.verdict)
    onnx.save(folder / "dummy_llm.onnx")

    # It looks like this; tf.plot_dot draws the same with matplotlib.
    (folder / "dummy_llm.svg").write_text(tf.draw_svg(onnx.model), "utf-8")

    # What was stored tells whether another runtime computes the same.
    args, kwargs = saved["model", 0, "I"]
    difference = tf.max_diff(saved["model", 0, "O"], onnx(*args, **kwargs))
    print(f"largest difference below 1e-5: {difference['abs'] < 1e-5}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
