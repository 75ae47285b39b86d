from __future__ import annotations

from torchferry import zoo
from torchferry.capturer.patches.sliding_window import sliding_layers
from torchferry.exporter.trials import possible_inputs
from torchferry.observer import Observation


def test_a_window_that_is_not_full_is_tried_with_as_many_tokens_as_there_were():
    entry = zoo.build("mistral", state="decode-full-window")
    seen = Observation.from_inputs(entry.model, [((), one) for one in entry.input_sets])
    (mask,) = set(seen.dynamic_names) - {"batch_size", "sequence_length"}
    sizes = {"batch_size": 2, "sequence_length": 3, mask: 50}
    found, inputs = possible_inputs(seen, sizes)
    assert found == sizes
    (layer, _) = sliding_layers(inputs[1])
    assert layer.cumulative_length == 47  # as the mask has it, and not as it was recorded
    assert possible_inputs(seen, {**sizes, mask: 9})[1] is None  # its window is always full
