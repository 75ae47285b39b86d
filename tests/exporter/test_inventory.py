import json

import pytest
import torch

from torchferry.converter import lowering
from torchferry.exporter.inventory import INVENTORIES
from versions import at_least


@pytest.mark.parametrize("name", sorted(INVENTORIES.keys() - {"environment"}))
def test_what_torchferry_has_can_be_read_and_stored(name):
    report = INVENTORIES[name]()
    assert report.ok
    assert report.data["kind"] == name
    (rows,) = (value for key, value in report.data.items() if key != "kind")
    assert len(report.sections[0].blocks[0].rows) == len(rows) > 3
    json.dumps(report.data)


def test_the_rows_say_what_is_asked():
    ops = {row["operator"]: row for row in INVENTORIES["ops"]().data["operators"]}
    assert ops["aten.add.Tensor"]["by"] == "ours"
    patches = INVENTORIES["patches"]().data["patches"]
    assert all(row["why"] and row["state"] for row in patches)
    subject = "transformers.modeling_rope_utils.dynamic_rope_update"
    (rope,) = (row for row in patches if row["subject"] == subject)
    if rope["state"] == "its source is not the one it was written for":
        assert not at_least("transformers", "5.24")
        return
    assert rope["state"] in ("needed", "hit")
    assert "+    def forward(" in rope["diff"] or "+def forward(" in rope["diff"]
    families = {row["family"] for row in INVENTORIES["zoo"]().data["families"]}
    assert {"llama", "t5", "vit", "lstm"} <= families


def test_operators_that_this_torch_lacks_are_said_to_be_absent(monkeypatch):
    monkeypatch.setitem(lowering._ABSENT, "aten.gone.default", len)
    report = INVENTORIES["ops"]()
    (row,) = (row for row in report.sections[0].blocks[0].rows if row[0] == "aten.gone.default")
    assert row[1].text == f"not in torch {torch.__version__}"
    assert f"{len(lowering.absent())} not in torch {torch.__version__}" in report.verdict


def test_the_forms_of_model_are_listed() -> None:
    report = INVENTORIES["sources"]()
    assert report.ok
    assert {"torchvision:NAME", "a diffusers folder"} <= set(report.data["forms"])
    assert report.verdict == f"MODEL has {len(report.data['forms'])} forms"
