from pathlib import Path

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
        ({"TORCHFERRY_CACHE": "0", "CC": ""}, Config(cache="0")),
        ({"XDG_CACHE_HOME": "/x", "CC": "clang"}, Config(xdg_cache_home="/x", compiler="clang")),
    ],
)
def test_reads_what_is_given(environ, expected):
    assert read_config(environ) == expected


def test_reads_the_process_environment_by_default(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("TORCHFERRY_DEBUG", "TORCHFERRY_CACHE", "XDG_CACHE_HOME", "CC"):
        monkeypatch.delenv(name, raising=False)
    assert read_config() == Config(no_color=True)


def test_settings_cannot_be_changed():
    with pytest.raises(AttributeError):
        Config().debug = True


@pytest.mark.parametrize(
    ("config", "folder"),
    [
        (Config(cache="0"), None),
        (Config(cache="/c", xdg_cache_home="/x"), Path("/c")),
        (Config(xdg_cache_home="/x"), Path("/x/torchferry")),
        (Config(), Path.home() / ".cache/torchferry"),
    ],
)
def test_where_the_cache_is(config, folder):
    assert config.cache_folder == folder
