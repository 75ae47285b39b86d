from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchferry.errors import UsageError
from torchferry.sources.package import call_package, import_package, unknown_name


def test_a_package_is_imported() -> None:
    assert import_package("json.decoder", "a test").__name__ == "json.decoder"


@pytest.mark.parametrize("name", ["no_such_package", "no_such_package.models"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        import_package(name, "kind:NAME")
    assert str(raised.value) == (
        "kind:NAME needs no-such-package, which is not installed: pip install no-such-package"
    )


def test_a_package_that_fails_on_import_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text("import missing_dependency_of_it")
    (tmp_path / "built_for_another.py").write_text("raise RuntimeError('operator nms is gone')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(UsageError, match=r"cannot be imported \(No module named 'missing_depend"):
        import_package("broken_package", "kind:NAME")
    with pytest.raises(UsageError, match=r"cannot be imported \(operator nms is gone\): pip inst"):
        import_package("built_for_another", "kind:NAME")


def test_what_a_package_raises_is_one_sentence() -> None:
    def refuse() -> None:
        raise KeyError("no\nsuch entry")

    with pytest.raises(UsageError, match=r"^kind:a cannot be loaded: KeyError: .*such entry'$"):
        call_package("kind:a", refuse)
    assert call_package("kind:a", lambda: 3) == 3


def test_an_error_of_ours_passes() -> None:
    def refuse() -> None:
        raise UsageError("say this")

    with pytest.raises(UsageError, match=r"^say this$"):
        call_package("kind:a", refuse)


def test_an_unknown_name_comes_with_the_closest() -> None:
    known = ["resnet18", "resnet34", "vit"]
    said = str(unknown_name("zoo", "resnet19", known))
    assert said.startswith("zoo has no model 'resnet19'; did you mean zoo:resnet18 or zoo:resnet")
    assert str(unknown_name("zoo", "qqqq", known)).endswith("; zoo.list_models() lists them")
