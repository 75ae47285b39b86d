import collections
import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from torchferry.values.caches import (
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_static_cache,
)
from torchferry.values.describe import string_type

T = torch.arange(6.0).reshape(2, 3)
PAIR = (torch.zeros(2, 4, 3, 7), torch.zeros(2, 4, 3, 7))
NAN, INF = float("nan"), float("inf")

# value, plain, with_shape, with_shape and with_min_max; None: not said
ROWS = [
    (T, "T1r2", "T1s2x3", "T1s2x3[0.0,5.0:A2.5]"),
    (torch.tensor(3.5), "T1r0", "T1s", "T1s=3.5"),
    (torch.tensor(True), "T9r0", "T9s", "T9s=True"),
    (torch.zeros(0, 3), "T1r2", "T1s0x3", "T1s0x3[empty]"),
    (torch.tensor([True, False]), "T9r1", "T9s2", "T9s2[False,True:A0.5]"),
    (torch.arange(8), "T7r1", "T7s8", "T7s8[0,7:A3.5]"),
    (torch.tensor([1.0, 2.0, NAN]), "T1r1", "T1s3", "T1s3[1.0,2.0:A1.5N1nans]"),
    (torch.tensor([NAN, NAN]), "T1r1", "T1s2", "T1s2[N2nans]"),
    (torch.tensor(NAN), "T1r0", "T1s", "T1s=nan"),
    (torch.tensor([1.0, INF]), "T1r1", "T1s2", "T1s2[1.0,inf:Ainf]"),
    (torch.tensor([3 + 4j]), "T14r1", "T14s1", "T14s1[5.0,5.0:A5.0]"),
    (torch.nn.Parameter(T), "T1r2", "T1s2x3", "T1s2x3[0.0,5.0:A2.5]"),
    (T.numpy(), "A1r2", "A1s2x3", "A1s2x3[0.0,5.0:A2.5]"),
    (T.numpy()[::-1], "A1r2", "A1s2x3", "A1s2x3[0.0,5.0:A2.5]"),
    (np.float32(2.5), "A1r0", "A1s", "A1s=2.5"),
    (np.zeros(2, ml_dtypes.bfloat16), "A16r1", "A16s2", "A16s2[0.0,0.0:A0.0]"),
    (np.array(["a", "b"]), "A8r1", "A8s2", "A8s2"),
    (np.array([None]), "A0r1", "A0s1", "A0s1"),
    (
        np.array([2**63], np.uint64),
        "A13r1",
        "A13s1",
        f"A13s1[{2**63},{2**63}:A{2.0**63}]",
    ),
    (None, "None", "None", "None"),
    (True, "bool", "bool", "bool=True"),
    (3, "int", "int", "int=3"),
    (2.5, "float", "float", "float=2.5"),
    ("text", "str", "str", "str"),
    (1j, "complex", "complex", "complex"),
    (slice(1), "slice", "slice", "slice"),
    (torch.float32, "dtype(torch.float32)", "dtype(torch.float32)", "dtype(torch.float32)"),
    (collections.OrderedDict, *["type(OrderedDict)"] * 3),
    (torch.nn.Linear(2, 3), *["Linear(...)"] * 3),
    ((T, 3, None), "(T1r2,int,None)", "(T1s2x3,int,None)", "(T1s2x3[0.0,5.0:A2.5],int=3,None)"),
    ((T,), "(T1r2,)", "(T1s2x3,)", "(T1s2x3[0.0,5.0:A2.5],)"),
    ((), "()", "()", "()"),
    ([T, T], "#2[T1r2,T1r2]", "#2[T1s2x3,T1s2x3]", None),
    ([], "#0[]", "#0[]", "#0[]"),
    ({1}, "{int}", "{int}", "{int=1}"),
    (frozenset({1, "a"}), "{int,str}", "{int,str}", "{int=1,str}"),
    ({"y": T, "z": None}, "dict(y:T1r2,z:None)", "dict(y:T1s2x3,z:None)", None),
    ({1: T}, "{1:T1r2}", "{1:T1s2x3}", "{1:T1s2x3[0.0,5.0:A2.5]}"),
    ({(1, "a"): 2}, "{(1, 'a'):int}", "{(1, 'a'):int}", "{(1, 'a'):int=2}"),
    ({}, "{}", "{}", "{}"),
    (collections.OrderedDict(a=T), "OrderedDict(a:T1r2)", "OrderedDict(a:T1s2x3)", None),
    (make_dynamic_cache([]), *["DynamicCache(key_cache=#0[], value_cache=#0[])"] * 3),
    (torch.export.Dim("b"), *["Dim(b)"] * 3),
    (2 * torch.export.Dim("b"), *["Dim(2*b)"] * 3),
    (torch.export.Dim.DYNAMIC, *["DYNAMIC"] * 3),
    (torch.export.Dim.AUTO, *["AUTO"] * 3),
    (object(), *["object(...)"] * 3),
]


@pytest.mark.parametrize(("value", "plain", "shape", "min_max"), ROWS)
def test_row(value, plain, shape, min_max):
    assert string_type(value) == plain
    assert string_type(value, with_shape=True) == shape
    if min_max is not None:
        assert string_type(value, with_shape=True, with_min_max=True) == min_max


def test_statistics_without_shape():
    assert string_type(T, with_min_max=True) == "T1r2[0.0,5.0:A2.5]"


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (torch.float32, 1), (torch.uint8, 2), (torch.int8, 3), (torch.uint16, 4),
        (torch.int16, 5), (torch.int32, 6), (torch.int64, 7), (torch.bool, 9),
        (torch.float16, 10), (torch.float64, 11), (torch.uint32, 12), (torch.uint64, 13),
        (torch.complex64, 14), (torch.complex128, 15), (torch.bfloat16, 16),
        (torch.float8_e4m3fn, 17), (torch.float8_e4m3fnuz, 18), (torch.float8_e5m2, 19),
        (torch.float8_e5m2fnuz, 20),
    ],
)  # fmt: skip
def test_every_dtype_has_its_number_and_statistics(dtype, number):
    text = string_type(torch.zeros(3).to(dtype), with_shape=True, with_min_max=True)
    assert text.startswith(f"T{number}s3[")


def test_fake_tensors():
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        symbolic = mode.from_tensor(torch.zeros(5, 3), static_shapes=False)
        fixed = torch.zeros(2, 3)
    assert string_type(fixed) == "F1r2"
    assert string_type(fixed, with_shape=True, with_min_max=True) == "F1s2x3"
    name = str(symbolic.shape[0])
    assert string_type(symbolic, with_shape=True).startswith(f"F1s{name}x")


def test_values_of_onnxruntime_and_onnx():
    value = onnxruntime.OrtValue.ortvalue_from_numpy(T.numpy())
    assert string_type(value) == "OV1r2"
    assert string_type(value, with_shape=True, with_min_max=True) == "OV1s2x3"
    assert string_type(value, with_shape=True, with_device=True) == "COV1s2x3"
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["a", 2])
    assert (string_type(info), string_type(info, with_shape=True)) == ("OT1r2", "OT1sax2")
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None])
    assert string_type(info, with_shape=True) == "OT1s?"
    info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)
    assert string_type(info, with_shape=True) == "OT1r?"
    tensor = onnx.numpy_helper.from_array(T.numpy())
    assert (string_type(tensor), string_type(tensor, with_shape=True)) == ("TP1r2", "TP1s2x3")
    assert string_type(onnx.ModelProto()) == "ModelProto(...)"


def test_device():
    assert string_type(T, with_shape=True, with_device=True) == "CT1s2x3"
    meta = torch.zeros(2, device="meta")
    assert string_type(meta, with_device=True, with_min_max=True) == "MT1r1"


def test_a_long_list():
    assert string_type([T] * 21, with_shape=True) == "#21[T1s2x3,...]"
    assert string_type([T] * 20, with_shape=True).count("T1s2x3") == 20
    assert string_type([1, "a", 2.0, 3], limit=3) == "#4[int,str,float,...]"
    assert string_type([1, 1, "a"], limit=2) == "#3[int,int,...]"


def test_dataclasses_leave_out_none():
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any = None

    assert string_type(Point(T)) == "Point(x:T1r2)"
    assert string_type(Point(None)) == "Point()"


def test_model_outputs():
    from transformers.modeling_outputs import CausalLMOutput

    assert string_type(CausalLMOutput(logits=T)) == "CausalLMOutput(logits:T1r2)"


def test_caches():
    two = "#2[T1s2x4x3x7,T1s2x4x3x7]"
    dynamic = f"DynamicCache(key_cache={two}, value_cache={two})"
    assert string_type(make_dynamic_cache([PAIR] * 2), with_shape=True) == dynamic
    assert string_type(make_encoder_decoder_cache([PAIR] * 2, [PAIR] * 2), with_shape=True) == (
        f"EncoderDecoderCache(self_attention_cache={dynamic}, cross_attention_cache={dynamic})"
    )
    assert string_type(make_static_cache([PAIR] * 2), with_shape=True) == (
        f"StaticCache(key_cache={two}, value_cache={two})"
    )


def test_states_of_linear_attention():
    from transformers import cache_utils

    if not hasattr(cache_utils, "LinearAttentionLayer"):
        pytest.skip("transformers before 5.5 has no such layers")
    layer = cache_utils.LinearAttentionLayer()
    layer.update_conv_state(torch.ones(1, 2, 4))
    cache = make_dynamic_cache([])
    cache.layers.append(layer)
    # Which of the two, the tensor or a dictionary of it, is the version's.
    assert string_type(cache) in (
        "DynamicCache(conv_states=#1[{0:T1r3}])", "DynamicCache(conv_states=#1[T1r3])",
    )  # fmt: skip


def test_a_call():
    args, kwargs = (torch.zeros(2, 8),), {"mask": torch.zeros(2, 1)}
    assert string_type((args, kwargs), with_shape=True) == "((T1s2x8,),dict(mask:T1s2x1))"


def test_nothing_raises():
    class Broken(collections.UserDict):
        def __iter__(self):
            raise RuntimeError("no")

    class Hidden:
        def __getattribute__(self, name):
            raise RuntimeError("no")

    endless = [1]
    endless.append(endless)
    assert string_type(Broken(a=1)) == "Broken(...)"
    assert string_type(Hidden()) == "Hidden(...)"
    assert string_type(endless) == "#2[int,...]"
    assert string_type(torch.eye(2).to_sparse(), with_shape=True, with_min_max=True) == "T1s2x2"


def test_data_is_read_only_when_asked():
    class Guarded(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise AssertionError(f"{func} was called")

    guarded = torch.Tensor._make_wrapper_subclass(Guarded, (2, 3))
    assert string_type(guarded, with_shape=True, with_device=True) == "CT1s2x3"


class Broken(collections.abc.Mapping):
    def __init__(self, error):
        self.error = error

    def __getitem__(self, key):
        raise self.error

    def __iter__(self):
        return iter("ab")

    def __len__(self):
        return 2


class OwnError(Exception):
    pass


@pytest.mark.parametrize(
    "error", [FileNotFoundError("x"), AssertionError("x"), OwnError("x"), RecursionError("x")]
)
def test_whatever_a_container_raises(error):
    assert string_type([Broken(error), T]) == "#2[Broken(...),T1r2]"


def test_numbers_too_long_to_be_written():
    assert string_type([10**5000, {10**5000: 1}], with_min_max=True) == "#2[int,{int:int=1}]"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_a_shape():
    x = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert string_type([x], with_shape=True, with_min_max=True) == "#1[Tensor(...)]"


def test_every_container_has_a_limit():
    assert string_type(dict.fromkeys(range(5), T), limit=2) == "{0:T1r2,1:T1r2,...}"
    assert string_type({"a": 1, "b": 2, "c": 3}, limit=2) == "dict(a:int,b:int,...)"
    assert string_type(tuple(range(30))) == "(int,...)"
    assert string_type((1, 2.0, 3), limit=2) == "(int,float,...)"
    assert string_type({1, 2, 3}, limit=2) == "{int,int,...}"
    assert string_type(collections.Counter("abc"), limit=1) == "Counter(a:int,...)"
    assert string_type({"a": 1}, limit=-1) == "dict(...)"
    assert len(string_type(dict.fromkeys(range(20000), T), with_shape=True)) < 400
