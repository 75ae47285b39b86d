"""The matrix of versions: rows, constraints, the table, what counts as a failure."""

import re
import subprocess
from pathlib import Path

import pytest
from tests import matrix
from tests.matrix import LATE, ROOT, Row, constraints, count, merged, names, rows_of, slice_of


def done(status: int, output: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], status, output, "")


def test_every_row_names_a_python_and_pins_something() -> None:
    assert {"torch-2.11", "transformers-4.57.6", "python-3.13", matrix.NEWEST} <= {*names()}
    for name in names():
        text = (ROOT / "environments" / f"{name}.txt").read_text()
        assert re.match(r"# python 3\.1[123]\b", text)
        assert re.search(r"^[a-z]+==", text, re.MULTILINE)
        assert not re.search(r"://|/home|index", text)


def test_the_declared_floors_are_rows() -> None:
    floors = dict(re.findall(r'"(\w+)>=([\d.]+)"', (ROOT / "pyproject.toml").read_text()))
    for library in ("torch", "transformers", "onnxruntime"):
        assert any(name.startswith(f"{library}-{floors[library]}") for name in names())


def test_every_row_has_its_day() -> None:
    seen = {name for day in range(len(names())) for name in rows_of(day)}
    assert seen == {*names()}
    assert all(rows_of(day)[0] == matrix.NEWEST for day in range(3))


def test_a_row_with_tests_of_its_own_runs_those() -> None:
    own = ROOT / "tests" / "field"
    assert matrix.tests_of("field", 0, whole=True) == [own]
    assert {path.parent for path in matrix.tests_of("field", 0, whole=False)} == {own}
    for whole in (True, False):
        others = matrix.tests_of(matrix.NEWEST, 0, whole=whole)
        assert (ROOT / "tests" / "e2e" in others) is whole
        assert any(path.parent.name == "dims" for path in others)


def test_what_a_row_pins_is_not_constrained() -> None:
    known = ["# torch: either", "torch==2.13.0", "huggingface_hub==2.4.0", "numpy==2.4.6"]
    assert constraints(["torch==2.11.0", "huggingface-hub<1"], known) == [known[0], known[3]]


def test_slices_walk_through_a_room(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"test_{name}.py").touch()
    days = [[path.stem for path in slice_of(tmp_path, day)] for day in range(3)]
    assert days == [["test_a", "test_b"], ["test_c", "test_a"], ["test_b", "test_c"]]
    assert slice_of(tmp_path / "none", 1) == []


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("1 failed, 2 passed, 3 skipped in 4.5s", {"passed": 2, "failed": 1, "skipped": 3}),
        ("= 5 passed, 1 deselected, 2 errors in 61.00s (0:01:01) =", {"passed": 5, "failed": 2}),
        ("no tests ran", {}),
    ],
)
def test_counts(line: str, counts: dict[str, int]) -> None:
    assert count(f"...\n{line}\n") == counts


def test_a_crash_and_a_failure_are_red_and_running_out_of_time_is_not() -> None:
    for status, output, ok in (
        (0, "3 passed in 1s", True),
        (LATE, "", True),
        (1, "1 failed, 2 passed in 1s", False),
        (-11, "", False),
    ):
        row = Row("x-1")
        row.add(done(status, output))
        assert row.is_green() is ok
        assert bool(row.why) is (status != 0)
    row.judge("main job", done(2, "torchferry: it | failed"))
    assert not row.is_green()
    assert "main job: torchferry: it / failed" in str(row)


def test_a_row_takes_the_place_of_its_older_one() -> None:
    table = merged("| row |\n", Row("torch-2.11"))
    assert table.count("\n| torch-2.11 |") == 1
    again = Row("torch-2.11", jobs={"main job": "pass"})
    table = merged(merged(merged(table, Row("onnxruntime-1.28")), Row("field")), again)
    lines = table.splitlines()
    names = [line.split("|")[1].strip() for line in lines[2:]]
    assert names == ["field", "onnxruntime-1.28", "torch-2.11"]
    assert "| pass |" in lines[4]
    assert all(line.count("|") == lines[0].count("|") for line in lines)
