import collections
import ctypes
import dataclasses
import shutil
import threading
from typing import Any, NamedTuple

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from torchferry.dumper.store import (
    create_input_tensors_from_onnx_model,
    create_onnx_model_from_input_tensors,
    open_dump,
    read_dump,
    read_entries,
)
from torchferry.errors import UsageError
from torchferry.values import flatten, make_dynamic_cache, map_leaves, path_text, string_type

FORMATS = ("dump.onnx", "dump.safetensors", "dump")
KEYS = [("model", 0, "I"), "mask"]

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
    torch.float8_e5m2, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
    torch.int4, torch.uint4,
]  # fmt: skip
ARRAY_DTYPES = [
    np.dtype(name)
    for name in ("?", "i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c8", "<c16", "S3")
] + [
    np.dtype("<M8[ms]"),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.int4),
    np.dtype(ml_dtypes.uint4),
]
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


def tensor_of(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A tensor of any dtype made of random bits, NaN payloads among them."""
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(
        0, 2 if dtype is torch.bool else 256, count, np.uint8
    )
    storage = torch.from_numpy(raw).untyped_storage()
    strides = torch.empty(shape, device="meta").stride()
    return torch.empty(0, dtype=dtype).set_(storage, 0, shape, strides)


def array_of(dtype: np.dtype, shape: tuple[int, ...], seed: int) -> np.ndarray:
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 256, count, np.uint8)
    return np.frombuffer(raw.tobytes(), dtype).reshape(shape).copy()


def views_of(x: Any) -> list[Any]:
    """The same memory in other ways."""
    found = [x, x, x[None]]
    if x.ndim == 2:
        found.append(x.T)
    if x.ndim and x.shape[0] > 1:
        found += [x[1:], x[::2], x[0]]
    if isinstance(x, np.ndarray):
        return found + ([x[::-1]] if x.ndim else [])
    found.append(x.expand(2, *x.shape))
    if x.is_contiguous() and x.element_size() == 4 and x.dtype is not torch.float32:
        found.append(x.view(torch.float32))
    if x.is_complex():
        found.append(x.conj())
    if x.is_floating_point() and x.dtype in (torch.float32, torch.bfloat16):
        found += [torch.nn.Parameter(x), x.clone().requires_grad_()]
    return found


plain = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers()
    | st.text(max_size=4) | st.sampled_from([torch.float16, torch.device("cuda:1")])
    | st.integers(0, 9).map((10**4400).__add__) | st.floats(width=32).map(np.float32)
)  # fmt: skip


def bytes_in(value: onnxruntime.OrtValue) -> bytes:
    size = value.tensor_size_in_bytes()
    return ctypes.string_at(value.data_ptr(), size) if size else b""


class Slot:
    """Stands for one of the tensors of an example."""

    def __init__(self, number: int) -> None:
        self.number = number


class Example:
    """A value; it is not printed with its elements, which PyTorch cannot for all dtypes."""

    def __init__(self, seeds: list[Any], skeleton: Any, others: list[Slot]) -> None:
        made = [
            tensor_of(*seed) if isinstance(seed[0], torch.dtype) else array_of(*seed)
            for seed in seeds
        ]
        views = [view for x in made for view in views_of(x)]

        def fill(leaf: Any) -> Any:
            return views[leaf.number % len(views)] if isinstance(leaf, Slot) else leaf

        self.value = map_leaves(fill, [skeleton, others])

    def __repr__(self) -> str:
        return string_type(self.value, with_shape=True)


keys = st.text(max_size=3) | st.integers() | st.tuples(st.text(max_size=2), st.integers(0, 3))
skeletons = st.recursive(
    plain | st.builds(Slot, st.integers(0, 30)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=2).map(collections.OrderedDict)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
        | st.tuples(inner, inner).map(lambda pair: Record(*pair))
    ),
    max_leaves=10,
)
seeds = st.tuples(st.sampled_from([*DTYPES, *ARRAY_DTYPES]), shapes, st.integers(0, 2**32))
slots = st.lists(st.builds(Slot, st.integers(0, 30)), min_size=1, max_size=4)
examples = st.builds(Example, st.lists(seeds, min_size=1, max_size=3), skeletons, slots)


@pytest.mark.parametrize("name", FORMATS)
@given(first=examples, second=examples)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_value_comes_back(name, first, second, tmp_path, same_bits):
    first, second = first.value, second.value
    path = tmp_path / name
    shutil.rmtree(path, ignore_errors=True)
    with open_dump(path) as dump:
        dump.add(KEYS[0], first)
        dump.add(KEYS[1], second)
    read = read_dump(path)
    assert list(read) == [KEYS[0], KEYS[1]]
    assert same_bits(first, read[KEYS[0]])
    assert same_bits(second, read[KEYS[1]])
    assert [key for key, _ in read_entries(path)] == list(read)


@given(example=examples)
@settings(max_examples=60, deadline=None)
def test_any_value_is_a_model_that_runs(example, same_bits, bits_of):
    value = example.value
    model = create_onnx_model_from_input_tensors(value)
    assert same_bits(value, create_input_tensors_from_onnx_model(model))
    if model.graph.output:
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        found = session.run_with_ort_values(None, {})
        assert [tuple(output.shape()) for output in found] == [
            tuple(dim.dim_value for dim in output.type.tensor_type.shape.dim)
            for output in model.graph.output
        ]
        outputs = {o.name: v for o, v in zip(model.graph.output, found, strict=True)}
        for path, leaf in flatten(value)[0]:
            output = outputs.get(path_text(path))
            if isinstance(leaf, torch.Tensor) and output is not None:
                assert bytes_in(output) == bits_of(leaf)[-1], path


@pytest.mark.parametrize("name", FORMATS)
def test_a_cache_and_an_output_of_transformers(name, tmp_path, same_bits):
    from transformers.modeling_outputs import CausalLMOutputWithPast

    cache = make_dynamic_cache([(torch.rand(1, 2, 3, 4), torch.rand(1, 2, 3, 4))])
    value = CausalLMOutputWithPast(logits=torch.rand(1, 3, 9), past_key_values=cache)
    with open_dump(tmp_path / name) as dump:
        dump.add("out", value)
    again = read_dump(tmp_path / name)["out"]
    assert type(again) is CausalLMOutputWithPast
    assert type(again.past_key_values) is type(cache)
    assert same_bits(value, again)
    assert again.past_key_values.get_seq_length() == 3


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_read_can_be_changed_alone(name, tmp_path):
    x = torch.zeros(300)
    with open_dump(tmp_path / name) as dump:
        dump.add("a", [x, x[1:]])
        dump.add("b", x)
    read = read_dump(tmp_path / name)
    read["a"][0].fill_(1)
    assert read["a"][1].eq(1).all()
    assert read["b"].eq(0).all()
    read["b"][0] = 3
    assert x[0] == 0


@pytest.mark.parametrize("name", FORMATS)
def test_shared_memory_is_written_once(name, tmp_path):
    x = torch.rand(1000)
    with open_dump(tmp_path / name) as dump:
        assert dump.add("a", [x, x, x[:10], x.view(10, 100).T, x.expand(5, 1000)]) == 4000
        assert dump.add("b", [torch.zeros(1).expand(10**9), torch.zeros(0, 3)]) == 4
        assert dump.add("c", x[:500]) == 2000
    files = [tmp_path / name, *tmp_path.rglob("*_data"), *tmp_path.rglob("*.safetensors")]
    assert sum(file.stat().st_size for file in {*files} if file.is_file()) < 20_000
    assert read_dump(tmp_path / name)["b"][0].shape == (10**9,)


WRONG = [
    (torch.nn.Linear(1, 1), r"a Linear Linear\(...\) is no tensor"),
    ({1, 2}, r"a set \{int,int\} is no tensor"),
    (torch.zeros(2, device="meta"), "T1s2 is on device meta"),
    (torch.eye(2).to_sparse(), "of layout torch.sparse_coo"),
    (np.array([None]), "of dtype object"),
    (np.zeros(1, [("x", "i4")]), "of dtype"),
    (np.ma.array([1], mask=[True]), "a MaskedArray"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_cannot_be_stored_is_named(wrong, message):
    with pytest.raises(UsageError, match=rf"model\.1 of the value: .*{message}"):
        create_onnx_model_from_input_tensors({"model": [0, wrong]})


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_that_cannot_be_stored_leaves_the_rest_whole(name, tmp_path):
    with open_dump(tmp_path / name) as dump:
        dump.add("first", torch.ones(500))
        with pytest.raises(UsageError, match="y of the value of 'bad'"):
            dump.add("bad", {"x": torch.ones(500), "y": object()})
        dump.add("last", 1)
    read = read_dump(tmp_path / name)
    assert list(read) == ["first", "last"]
    assert read["first"].eq(1).all()


def test_keys_are_checked(tmp_path):
    with open_dump(tmp_path / "x.safetensors") as dump:
        dump.add(("a", 1), 1)
        for key in (1, None, ["a"], ("a", 1.0), ("a", True), ("a", ("b",))):
            with pytest.raises(UsageError, match="no key of a dump"):
                dump.add(key, 1)
        with pytest.raises(UsageError, match="already"):
            dump.add(("a", 1), 1)


def test_keys_inside_values_are_checked(tmp_path):
    class Text(str):
        pass

    for key in (Text("x"), frozenset(), float("nan")):
        with pytest.raises(UsageError, match="cannot store the value"):
            create_onnx_model_from_input_tensors({key: 1})


def test_a_class_that_cannot_be_found_again_is_refused_when_written():
    @dataclasses.dataclass
    class Local:
        x: int

    with pytest.raises(UsageError, match="Local is not found"):
        create_onnx_model_from_input_tensors(Local(1))


def test_a_value_that_contains_itself():
    value = []
    value.append(value)
    with pytest.raises(UsageError, match="contains itself"):
        create_onnx_model_from_input_tensors(value)


@pytest.mark.parametrize("name", FORMATS[:2])
def test_a_file_is_replaced_when_it_is_whole(name, tmp_path):
    path = tmp_path / name
    with open_dump(path) as dump:
        dump.add("x", torch.zeros(1000))
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt), open_dump(path) as dump:  # noqa: PT012  # one block
        dump.add("y", torch.ones(1000))
        assert path.read_bytes() == before
        raise KeyboardInterrupt
    assert read_dump(path)["x"].eq(0).all()
    assert not list(tmp_path.glob(".torchferry*"))
    with open_dump(path) as dump:
        dump.add("y", torch.ones(1000))
    assert read_dump(path)["y"].eq(1).all()
    assert not list(tmp_path.glob(".torchferry*"))


def test_what_cannot_be_written(tmp_path):
    for path in (tmp_path / "no/x.onnx", tmp_path / "no/x.safetensors", tmp_path / "no/x"):
        with pytest.raises(UsageError, match="cannot write"), open_dump(path):
            pass
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UsageError, match="it is a folder"), open_dump(tmp_path / "folder.onnx"):
        pass


def test_what_is_not_there(tmp_path):
    for name in FORMATS:
        with pytest.raises(UsageError, match="there is no file"):
            read_dump(tmp_path / name)
    (tmp_path / "x.pt").write_bytes(b"PK")
    with pytest.raises(UsageError, match="no dump: give"):
        read_dump(tmp_path / "x.pt")


@pytest.mark.parametrize("name", FORMATS)
def test_threads(name, tmp_path):
    with open_dump(tmp_path / name) as dump:
        threads = [
            threading.Thread(
                target=lambda n=n: [dump.add((n, i), torch.full((300,), n)) for i in range(20)]
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read = read_dump(tmp_path / name)
    assert len(read) == 80
    assert all(tensor.eq(key[0]).all() for key, tensor in read.items())


def test_a_whole_value_and_a_dictionary_of_keys(tmp_path):
    path = tmp_path / "x.onnx"
    create_onnx_model_from_input_tensors((torch.ones(2000), 3), path)
    assert (tmp_path / "x.onnx_data").stat().st_size == 8000
    assert create_input_tensors_from_onnx_model(path)[1] == 3
    assert list(read_dump(path)) == [()]
    create_onnx_model_from_input_tensors({("m", 0, "I"): ((), {})}, path)
    assert create_input_tensors_from_onnx_model(path) == {("m", 0, "I"): ((), {})}
    assert read_dump(path) == dict(read_entries(path)) == {("m", 0, "I"): ((), {})}
    with open_dump(path) as dump:
        dump.add("a", 1)
    assert create_input_tensors_from_onnx_model(str(path)) == {"a": 1}


def test_a_model_apart_from_its_data(tmp_path):
    model = create_onnx_model_from_input_tensors(torch.ones(2000), tmp_path / "x.onnx")
    with pytest.raises(UsageError, match="give the path"):
        create_input_tensors_from_onnx_model(model)
    (tmp_path / "x.onnx_data").unlink()
    with pytest.raises(UsageError, match=r"x\.onnx_data"):
        read_dump(tmp_path / "x.onnx")


def test_a_tensor_that_requires_grad_and_a_parameter_after_reading():
    x = torch.nn.Parameter(torch.ones(2))
    read = create_input_tensors_from_onnx_model(create_onnx_model_from_input_tensors([x, x]))
    assert read[0] is read[1]
    read[0].sum().backward()
    assert read[0].grad.tolist() == [1, 1]


def test_wrong_sources():
    for source in (3, None, b"x.onnx"):
        with pytest.raises(UsageError, match="takes a path or an onnx"):
            create_input_tensors_from_onnx_model(source)
