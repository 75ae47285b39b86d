import inspect

import pytest

from torchferry import errors


def test_every_error_is_a_ferry_error_and_drawn_in_the_tree():
    members = inspect.getmembers(errors, inspect.isclass)
    classes = [c for _, c in members if c.__module__ == errors.__name__]
    assert {c.__name__ for c in classes} == set(errors.__all__)
    for cls in classes:
        assert issubclass(cls, errors.FerryError)
        assert cls.__name__ in errors.__doc__


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("no such file"), 2),
        (errors.CaptureError("failed"), 3),
        (errors.ConversionError("no form"), 3),
        (errors.RunError("cannot load"), 4),
        (errors.Mismatch("differs", worst=None), 1),
    ],
)
def test_exit_codes(error, code):
    assert error.exit_code == code
    assert str(error)


def test_errors_say_where():
    capture = errors.CaptureError("failed", [("strict", "no"), ("non-strict", "neither")])
    assert capture.attempts == (("strict", "no"), ("non-strict", "neither"))
    conversion = errors.ConversionError("no form", node="add_1", source_line="model.py:3")
    assert (conversion.node, conversion.source_line) == ("add_1", "model.py:3")
    assert errors.RunError("failed", node="MatMul_2").node == "MatMul_2"
