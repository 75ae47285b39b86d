import hashlib
import json

import pytest

from torchferry.dumper.document import DOCUMENT, Source, properties, read_records
from torchferry.errors import UsageError


def source(metadata):
    return Source("here", metadata, lambda name, count: None)


def test_there_and_back():
    assert read_records(source(properties([{"key": "a"}]))) == ([{"key": "a"}], False)
    assert read_records(source(properties([{"key": ()}], whole=True))) == ([{"key": []}], True)
    assert read_records(source(properties([]))) == ([], False)


def test_other_files():
    with pytest.raises(UsageError, match="here is no dump of torchferry"):
        read_records(source({"format": "pt"}))


def test_a_changed_text():
    metadata = properties([{"key": "a"}])
    metadata[DOCUMENT] = metadata[DOCUMENT].replace('"a"', '"b"')
    with pytest.raises(UsageError, match="damaged: its description"):
        read_records(source(metadata))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"version": 3}', "version 3, written by a later torchferry; install that"),
        ('{"version": 1}', "version 1, written by an earlier torchferry; .* write the dump again"),
        ('{"version": "x"}', "version x, written by a later"),
        ("[" * 5000, "damaged"),
        ("null", "damaged"),
        (json.dumps({"version": 2, "whole": True, "entries": []}), "no list of entries"),
        (json.dumps({"version": 2, "whole": False, "entries": {}}), "no list of entries"),
    ],
)
def test_texts_with_a_right_sum(document, message):
    metadata = {
        DOCUMENT: document,
        f"{DOCUMENT}.sha256": hashlib.sha256(document.encode()).hexdigest(),
    }
    with pytest.raises(UsageError, match=message):
        read_records(source(metadata))
