"""The functions behind torch's private names, and what they do where a name is gone."""

import warnings

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.seams import pytorch, table
from torchferry.seams.pytorch import pytree

aten = torch.ops.aten


@pytest.fixture
def hide(monkeypatch):
    """``hide(name)``: names of torch, and attributes of objects, that a later version lacks."""
    real = table.find.__wrapped__

    def hide_one(name):
        attribute = name.rsplit(".", 1)[-1]

        def find(asked):
            if asked == name:
                raise LookupError(name)
            return real(asked)

        def read(value, asked, *default):
            return (
                default[0] if asked == attribute and default else getattr(value, asked, *default)
            )

        monkeypatch.setattr(table, "find", find)
        monkeypatch.setattr(pytorch, "getattr", read, raising=False)

    return hide_one


def exported():
    size = torch.export.Dim("n", min=2)
    model = torch.nn.Linear(3, 2)
    return torch.export.export(model, (torch.ones(4, 3),), dynamic_shapes=({0: size},))


def test_schemas_and_names_of_overloads(hide):
    assert pytorch.schema_of(aten.add.Tensor).name == "aten::add"
    assert pytorch.schema_of(torch.add) is None
    assert pytorch.overload_name(aten.add.Tensor) == "Tensor"
    assert pytorch.overload_name(aten.relu_.default) == "default"
    hide("torch.ops.aten.relu.default._schema")
    assert pytorch.schema_of(torch.add) is None
    with pytest.raises(UsageError, match=r"has no .*_schema, which .* the arguments of operators"):
        pytorch.schema_of(aten.add.Tensor)


def test_conditions_are_never_dropped(hide):
    program = exported()
    assert isinstance(pytorch.guards_of(program), list)
    pytorch.set_guards(program, ["True"])
    assert pytorch.guards_of(program) == ["True"]
    hide("torch.export.ExportedProgram._guards_code")
    with pytest.raises(UsageError, match="the conditions of a captured program"):
        pytorch.guards_of(program)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_number_for_shared_memory(hidden, hide):
    if hidden:
        hide("torch.UntypedStorage._cdata")
    x, other = torch.ones(4), torch.ones(4)
    number = pytorch.storage_number(x.untyped_storage())
    assert number == pytorch.storage_number(x[1:].untyped_storage())
    assert number == pytorch.storage_number(x.view(2, 2).untyped_storage())
    assert number != pytorch.storage_number(other.untyped_storage())


def test_writes_are_counted_or_all_tensors_count_as_written(hide):
    x = torch.ones(2)
    before = pytorch.version_of(x)
    assert pytorch.version_of(x) == before
    x.add_(1)
    assert pytorch.version_of(x) != before
    hide("torch.Tensor._version")
    assert pytorch.version_of(x) != pytorch.version_of(x)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_parameter_of_a_class_of_the_users(hidden, hide):
    class Own(torch.nn.Parameter):
        pass

    if hidden:
        hide("torch.Tensor._make_subclass")
    made = pytorch.make_subclass(Own, torch.arange(3.0), True)
    assert (type(made), made.requires_grad, made.tolist()) == (Own, True, [0, 1, 2])


def test_views_that_schemas_do_not_tell(hide):
    assert pytorch.may_decompose(aten.reshape.default)
    assert not pytorch.may_decompose(aten.relu.default)
    hide("torch.ops.aten.relu.default._can_decompose")
    assert pytorch.may_decompose(aten.relu.default)


def test_state_and_hooks_of_modules(hide):
    model = torch.nn.BatchNorm1d(2)
    model.register_forward_pre_hook(lambda *_: None, with_kwargs=True)
    assert set(pytorch.buffers_of(model)) == {"running_mean", "running_var", "num_batches_tracked"}
    assert set(pytorch.parameters_of(model)) == {"weight", "bias"}
    assert set(pytorch.modules_of(torch.nn.Sequential(model))) == {"0"}
    (before, hooks, keywords), (after, none, _) = pytorch.hooks_of(model)
    assert (before, after) == ("register_forward_pre_hook", "register_forward_hook")
    assert len(hooks) == 1
    assert set(hooks) == set(keywords)
    assert not none
    assert pytorch.has_hooks(model)
    assert not pytorch.has_hooks(torch.nn.ReLU())


@pytest.mark.parametrize("name", ["", "_buffers", "_parameters", "_modules"])
def test_what_modules_hold_has_a_public_way_too(name, hide):
    model = torch.nn.BatchNorm1d(2)
    kept = model.running_mean
    if name:
        hide(f"torch.nn.Module.{name}")
    assert pytorch.buffers_of(model)["running_mean"] is kept
    assert pytorch.parameters_of(model)["weight"] is model.weight
    assert pytorch.modules_of(torch.nn.Sequential(model))["0"] is model
    pytorch.set_buffer(model, "running_mean", kept + 1)
    assert model.running_mean.tolist() == [1, 1]
    assert "running_mean" in model.state_dict()


def test_hooks_of_every_module_are_seen():
    with torch.nn.modules.module.register_module_forward_hook(lambda *_: None):
        assert pytorch.has_hooks(torch.nn.ReLU())
    assert not pytorch.has_hooks(torch.nn.ReLU())


def test_autocast_of_any_device():
    assert not pytorch.any_autocast()
    for kind in ("cpu", "cuda"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cuda may not be there
            with torch.autocast(kind, dtype=torch.bfloat16):
                assert pytorch.any_autocast() == torch.is_autocast_enabled(kind)
    assert not pytorch.any_autocast()


def test_boxed_functions_and_tensors_of_torch_func():
    def call(args):
        return args

    assert not pytorch.is_boxed(call)
    pytorch.mark_boxed(call)
    assert pytorch.is_boxed(call)
    assert not pytorch.is_functorch_tensor(torch.ones(2))
    seen = torch.vmap(lambda x: x * pytorch.is_functorch_tensor(x) * pytorch.is_inside_functorch())
    assert seen(torch.ones(2)).tolist() == [1, 1]
    assert not pytorch.is_inside_functorch()


def test_the_module_within_a_compiled_one():
    model = torch.nn.ReLU()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of itself as it loads the compiler
        compiled = torch.compile(model, backend="eager")
    assert pytorch.original_of(compiled) is model
    assert pytorch.original_of(model) is None


def test_operators_and_loops():
    assert "aten::add.Tensor" in pytorch.operator_names()
    scan, loop = pytorch.scan_operator(), pytorch.while_loop_operator()
    last, rows = scan(lambda c, x: (c + x, c * 1), torch.zeros(1), torch.ones(3, 1))
    assert (last.item(), rows.flatten().tolist()) == (3, [0, 1, 2])
    assert loop(lambda x: x.sum() < 3, lambda x: (x + 1,), (torch.zeros(1),))[0].item() == 3
    assert pytorch.decomposition_table()


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("torch.fx.experimental._config.patch", lambda: pytorch.size_oblivious(True)),
        (
            "torch._functorch.config.patch",
            lambda: pytorch.patch_functorch(fake_tensor_propagate_real_tensors=True),
        ),
        ("torch._C._jit_onnx_log", pytorch.onnx_log_off),
    ],
)
def test_a_setting_that_is_gone_is_not_set(name, block, hide):
    with block():
        pass
    hide(name)
    with block():
        assert torch.ones(2).sum() == 2


def test_the_log_of_torch_onnx_comes_back():
    before = torch._C._jit_onnx_log
    with pytorch.onnx_log_off():
        assert torch._C._jit_onnx_log is not before
    assert torch._C._jit_onnx_log is before


def test_trees_are_torchs():
    assert pytree is torch.utils._pytree
