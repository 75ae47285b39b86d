import numpy as np
import pytest
import torch

from torchferry.dumper.memory import BITS, memory_of, pack
from torchferry.errors import UsageError


def packed(*values):
    memories = [memory_of(value, {}) for value in values]
    regions, buffers = pack(memories)
    return regions, buffers, memories


def test_one_alone_is_contiguous():
    x = torch.arange(6.0).reshape(2, 3)
    for value in (x.T, x[:, ::2], x.T.numpy(), x.numpy()[::-1]):
        regions, buffers, _ = packed(value)
        assert regions[0].strides is None
        array = np.asarray(value)
        assert bytes(buffers[0].data) == np.ascontiguousarray(array).tobytes()
        assert buffers[0].shape == array.shape


def test_one_alone_is_not_copied():
    x = torch.arange(6.0)
    _, buffers, _ = packed(x[1:3])
    x[1] = 7
    assert np.frombuffer(buffers[0].data, np.float32).tolist() == [7, 2]


def test_more_elements_than_memory():
    regions, buffers, _ = packed(torch.ones(1, 2).expand(10**6, 2))
    assert len(buffers[0].data) == 8
    assert regions[0].strides == (0, 4)
    regions, buffers, _ = packed(torch.arange(5).unfold(0, 3, 1))
    assert len(buffers[0].data) == 40
    assert regions[0].strides == (8, 8)


def test_views_of_one_storage_are_one_buffer_also_when_they_do_not_overlap():
    x = torch.arange(10)
    regions, buffers, _ = packed(x[2:4], torch.ones(1), x[6:])
    assert [region.buffer for region in regions] == [0, 1, 0]
    assert [region.offset for region in regions] == [0, 0, 32]
    assert len(buffers[0].data) == 64
    assert buffers[0].first == 0


def test_an_array_and_a_tensor_of_one_memory():
    array = np.arange(8, dtype=np.int32)
    regions, buffers, _ = packed(array[2:], torch.from_numpy(array)[:4])
    assert len(buffers) == 1
    assert [region.offset for region in regions] == [8, 0]


def test_an_empty_one_between_others():
    x = torch.arange(4.0)
    regions, buffers, _ = packed(x, x[2:2], x[1:], torch.zeros(0))
    assert [region.buffer for region in regions] == [0, 1, 0, 2]
    assert [len(buffer.data) for buffer in buffers] == [16, 0, 0]


def test_several_dtypes_start_at_multiples_of_their_size():
    x = torch.arange(64, dtype=torch.uint8)
    regions, buffers, _ = packed(x[3:5], x[8:24].view(torch.int64), x[60:])
    assert buffers[0].dtype == BITS
    assert all(region.offset % 8 == 0 for region in regions[1:2])
    start = regions[0].offset
    assert bytes(buffers[0].data)[start : start + 2] == b"\3\4"


def test_unaligned_arrays_keep_their_places_and_unaligned_tensors_are_refused():
    raw = np.arange(16, dtype=np.uint8)
    arrays = [np.ndarray((2,), "<i4", raw, 0), np.ndarray((2,), "<i4", raw, 1)]
    regions, buffers, _ = packed(*arrays)
    assert buffers[0].dtype == BITS
    assert [region.offset for region in regions] == [0, 1]


def test_conjugates_are_written_out():
    regions, buffers, memories = packed(torch.tensor([1 + 2j]).conj())
    assert np.frombuffer(buffers[0].data, np.complex64).tolist() == [1 - 2j]
    assert memories[0].nbytes == 8
    assert regions[0].dtype == "torch.complex64"


def test_what_has_no_plain_memory():
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    for value, message in (
        (torch.ones(1, device="meta"), "device meta"),
        (torch.eye(2).to_sparse(), "sparse_coo"),
        (freed, "freed or resized"),
        (np.array([{}]), "dtype object"),
    ):
        with pytest.raises(UsageError, match=message):
            memory_of(value, {})


def test_nothing():
    assert pack([]) == ([], [])
