"""Texts as tokens."""

import pytest

from torchferry.deployer.prove.corpus import calibration_rows, evaluation_rows, prompts
from torchferry.deployer.write.huggingface import read_tokenizer
from torchferry.errors import UsageError


def test_texts_are_cut_to_what_the_model_takes(llama_folder):
    tokenizer = read_tokenizer(str(llama_folder))
    rows = evaluation_rows(tokenizer, 99, 64)
    assert len(rows) == 8
    assert all(1 < row.shape[1] <= 64 and row.shape[0] == 1 for row in rows)
    seen = calibration_rows(tokenizer, 99, 64, None)
    assert sum(row.shape[1] for row in seen) > 1400


def test_calibration_and_evaluation_share_no_sentence():
    from torchferry.deployer.prove.corpus import _read

    texts = [{s.strip() for s in _read(name).split(".") if s.strip()}
             for name in ("calibration.txt", "evaluation.txt")]  # fmt: skip
    assert texts[0].isdisjoint(texts[1])


def test_without_a_tokenizer_tokens_are_random_and_the_same_each_time():
    first, second = (evaluation_rows(None, 99, 64) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert not (first[0] == calibration_rows(None, 99, 64, None)[0]).all()
    assert all(set(row[0].tolist()) <= set(range(99)) for row in first)
    one, three = prompts(None, 99, 5)
    assert 5 not in one.input_ids
    assert three.input_ids.shape == (3, 7)


def test_a_text_needs_a_tokenizer_and_utf_8(llama_folder, tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="needs a tokenizer, and the model has none"):
        calibration_rows(None, 99, 64, file)
    tokenizer = read_tokenizer(str(llama_folder))
    for path in (file, tmp_path):
        with pytest.raises(UsageError, match="cannot read --calibrate"):
            calibration_rows(tokenizer, 99, 64, path)
    file.write_text("The lamp must burn until dawn . " * 100)
    assert calibration_rows(tokenizer, 99, 64, file)[0].shape == (1, 64)
