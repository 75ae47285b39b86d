import resource
import signal
import struct
import zlib

import numpy as np
import pytest

from torchferry.dumper.part import PartFile, checksum, read_bytes, read_head, remove
from torchferry.errors import UsageError


def test_a_file_appears_when_it_is_renamed(tmp_path):
    path = tmp_path / "x"
    part = PartFile(path)
    assert part.append(b"abc") == (0, checksum(b"abc"))
    large = np.random.default_rng(0).bytes(5 * 2**20 + 3)
    assert part.append(memoryview(large), unit=64) == (64, checksum(large))
    assert part.end == 64 + len(large)
    assert not path.exists()
    part.close()
    part.rename()
    part.discard()
    assert path.read_bytes() == b"abc" + bytes(61) + large
    assert list(tmp_path.iterdir()) == [path]


def test_the_checksum_is_what_it_says():
    data = np.random.default_rng(0).bytes(2**17 + 21)
    assert checksum(data[:65535]) == zlib.crc32(data[:65535])
    text = data[2**17 :]
    rows = [struct.unpack_from("<512Q", data, start) for start in range(0, 2**17, 4096)]
    text += b"".join(struct.pack("<Q", sum(row) % 2**64) for row in rows)
    rows = [struct.unpack_from("<1024I", data, start) for start in range(0, 2**17, 4096)]
    for column in range(1024):
        numbers = (row[column] * 0x9E3779B9**power for power, row in enumerate(rows, 1))
        text += struct.pack("<I", sum(numbers) % 2**32)
    assert checksum(memoryview(data)) == zlib.crc32(text)


@pytest.mark.parametrize("kind", ["numbers", "signs", "masks", "floats"])
def test_the_checksum_tells_the_order(kind):
    chance = np.random.default_rng(1)
    words = {
        "numbers": np.arange(2**17),
        "signs": chance.choice([-1.0, 1.0], 2**17),  # which differ in the highest bit alone
        "masks": chance.integers(0, 2, 2**17),
        "floats": chance.standard_normal(2**18).astype(np.float32).view(np.int64),
    }[kind]
    right = checksum(words.tobytes())
    for _ in range(300):
        start = int(chance.integers(2**17 - 64))
        count = int(chance.choice([2, 8, 64]))
        changed = words.copy()
        chance.shuffle(changed[start : start + count])
        here, there = (int(n) for n in chance.integers(2**17, size=2))
        exchanged = words.copy()
        exchanged[[here, there]] = exchanged[[there, here]]
        for other in (changed, exchanged):
            assert (checksum(other.tobytes()) == right) == bool((other == words).all())
    square = words.reshape(256, 512).copy()
    square[:2, :2] = [[1, 0], [0, 1]]
    right = checksum(square.tobytes())
    square[:2, :2] = [[0, 1], [1, 0]]  # rows and columns add up to the same
    assert checksum(square.tobytes()) != right


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 200_003])
def test_the_checksum_tells_changes(size):
    chance = np.random.default_rng(size)
    data = chance.bytes(size)
    right = checksum(data)
    for _ in range(100):
        place, length = int(chance.integers(size)), int(chance.integers(1, 2000))
        bit = bytes([data[place] ^ (1 << int(chance.integers(8)))])
        assert checksum(data[:place] + bit + data[place + 1 :]) != right
        assert checksum(data[:place]) != right
        assert checksum(data[:place] + data[place + 1 :]) != right
        zeros = bytes(len(data[place : place + length]))
        assert checksum(data[:place] + zeros + data[place + length :]) != right
        if size > 2**16:
            moved = data[length:] + data[:length]
            assert checksum(moved) != right


def test_discard_leaves_nothing(tmp_path):
    part = PartFile(tmp_path / "x")
    part.append(b"abc")
    part.discard()
    part.discard()
    assert not list(tmp_path.iterdir())


def test_first_last_and_cut(tmp_path):
    old, part = PartFile(tmp_path / "y"), PartFile(tmp_path / "x")
    old.skip(4)
    old.append(b"data, and more")
    old.cut(8)
    old.put_first(b"head")
    old.append(b"!")
    part.append(b"<")
    part.copy_from(old, 4)
    part.append(b">")
    for file in (old, part):
        file.close()
        file.rename()
    assert (tmp_path / "y").read_bytes() == b"headdata!"
    assert (tmp_path / "x").read_bytes() == b"<data!>"


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write .*/no/x: No such file"):
        PartFile(tmp_path / "no/x")
    with pytest.raises(UsageError, match="it is a folder"):
        PartFile(tmp_path)


def test_a_full_disk(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    part = PartFile(tmp_path / "x")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(UsageError, match=r"cannot write .*x: File too large"):
            part.append(bytes(2**20))
        part.discard()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


def test_reading(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert bytes(read_bytes(path, 2, 3).tolist()) == b"234"
    assert read_bytes(path, 10, 0).numel() == 0
    assert read_head(path, 4) == b"0123"
    assert read_head(path, 99) == b"0123456789"
    # No memory is asked for before the file is known to have the bytes.
    for offset, count in ((8, 3), (11, 0), (-1, 2), (0, 2**60), (0, -1)):
        with pytest.raises(UsageError, match="cut short"):
            read_bytes(path, offset, count)
    with pytest.raises(UsageError, match="cannot read"):
        read_bytes(tmp_path / "no", 0, 1)
    with pytest.raises(UsageError, match="no file"):
        read_head(tmp_path / "no", 1)


def test_removing(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x")
    remove(path)
    remove(path)
    assert not path.exists()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot remove"):
        remove(tmp_path / "folder")
