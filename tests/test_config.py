import pytest

from torchferry.config import Config, read_config


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, Config()),
        ({"NO_COLOR": ""}, Config()),
        ({"NO_COLOR": "0"}, Config(no_color=True)),
        ({"TORCHFERRY_DEBUG": "1"}, Config(debug=True)),
        ({"TORCHFERRY_DEBUG": "0"}, Config()),
        ({"TORCHFERRY_DEBUG": ""}, Config()),
    ],
)
def test_reads_what_is_given(environ, expected):
    assert read_config(environ) == expected


def test_reads_the_process_environment_by_default(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("TORCHFERRY_DEBUG", raising=False)
    assert read_config() == Config(no_color=True)


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Config().debug = True
