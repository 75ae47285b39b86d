from collections import Counter

from torchferry.converter import lowering
from torchferry.converter.coverage import coverage


def test_every_overload_has_a_row():
    rows = {row.operator: row for row in coverage()}
    assert len(rows) > 1000
    added = rows["aten.add.Tensor"]
    assert (added.by, added.complex) == ("ours", True)
    assert added.place.startswith("arithmetic.")
    assert rows["aten.linalg_eig.default"].by == "none"
    assert not any(name.endswith(".out") for name in rows)
    assert "aten.add_.Tensor" not in rows


def test_an_operator_that_this_torch_lacks_has_a_row(monkeypatch):
    monkeypatch.setitem(lowering._ABSENT, "aten.gone.default", test_all_kinds_are_met)
    (row,) = (row for row in coverage() if row.operator == "aten.gone.default")
    assert (row.by, row.place) == ("absent", "test_coverage.test_all_kinds_are_met")


def test_all_kinds_are_met():
    counts = Counter(row.by for row in coverage() if row.by != "absent")
    assert set(counts) == {"ours", "decomposed", "borrowed", "none"}
    assert counts["ours"] > 400
