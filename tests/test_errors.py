import inspect

import pytest
from tests import messages

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


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("there is no folder 'a'"), "there is no folder {}"),
        (errors.UsageError("no size given for height,\n  width"), "no size given for {}"),
        (errors.RunError("onnxruntime failed: at a node: x"), "onnxruntime failed: {}"),
    ],
)
def test_a_message_has_the_code_of_its_words(error, code):
    assert messages.read_table(messages.TABLE.read_text("utf-8"))[error.code].template == code


def test_other_messages_have_the_code_of_their_class():
    assert errors.UsageError("hm").code == "TF-U"
    assert errors.MissingLowering("1 operator: x", {"x": 1}).code == "TF-O"
    assert errors.LoweringFailed("x").code == "TF-L"
    assert errors.RunError("there is no folder 'a'").code == "TF-R"  # of another class
    assert errors.FerryError("x").code == ""


def test_every_message_has_a_code():
    table = messages.read_table(messages.TABLE.read_text("utf-8"))
    raised = {(one.letter, one.template) for one in messages.sites()}
    listed = {(one.letter, one.template) for one in table.values()}
    assert raised == listed, "run `make messages`"
    assert len(table) == len(listed)


def test_every_place_that_raises_has_a_code_of_its_own():
    bare = [
        f"{file}:{call.lineno}" for file, call, templates in messages.raised() if not templates
    ]
    assert bare == []


SITES = """
def f(x):
    if x:
        raise UsageError(f"cannot read {x}: it is gone")
    said = "nothing is there" if x is None else f"{x} is there"
    raise RunError(said) from None


def g(said):
    raise UsageError(said)


def h(x):
    if words := why(x):
        raise UsageError(words)
    lines = [f"{x} cannot be written:", "because"]
    lines += ["and more"]
    raise RunError("\\n".join(lines) or "no reason at all")


def why(x):
    return "x is too large" if x else ""
"""


def test_sites_are_found_with_what_they_fill_in(tmp_path):
    (tmp_path / "a.py").write_text(SITES)
    assert messages.sites(tmp_path) == [
        messages.Message("U", "a", "cannot read {}: it is gone"),
        messages.Message("R", "a", "nothing is there"),
        messages.Message("R", "a", "{} is there"),
        messages.Message("U", "a", "x is too large"),
        messages.Message("R", "a", "{} cannot be written:{}"),
        messages.Message("R", "a", "no reason at all"),
    ]
    assert [call.lineno for _, call, texts in messages.raised(tmp_path) if not texts] == [10]


def test_codes_stay_with_messages_whose_words_changed_or_that_moved():
    of = messages.Message
    old = {
        "TF-U01": of("U", "a", "cannot read {}: it is gone"),
        "TF-U02": of("U", "a", "the other message"),
        "TF-U03": of("U", "a", "what nobody raises"),
    }
    now = [
        of("U", "a", "cannot read {}: it was removed"),
        of("U", "b", "the other message"),
        of("U", "a", "a new message of another kind, {}"),
    ]
    assert {code: one.template for code, one in messages.update(old, now).items()} == {
        "TF-U01": now[0].template, "TF-U02": now[1].template, "TF-U04": now[2].template
    }  # fmt: skip
