"""The text of a reproduction: what all scripts have, and what belongs to an exporter."""

from __future__ import annotations

__all__ = [
    "CHECK",
    "ENTRY",
    "EXPORTS",
    "HEADS",
    "IMPORTS",
    "METHOD",
    "MORE_IMPORTS",
    "SCRIPT",
    "STRICT",
]

SCRIPT = '''"""{title}

{reason}

    python {name}.py
"""

from __future__ import annotations

{imports}


def module(cls, attributes, parameters, buffers, children, training, hooks=()):
    """A module with this state, made without its __init__."""
    made = cls.__new__(cls)
    torch.nn.Module.__init__(made)
    for name, value in attributes.items():
        made.__dict__[name] = value
    for name, value in parameters.items():
        made.register_parameter(name, None if value is None else torch.nn.Parameter(value, False))
    for name, value in buffers.items():
        made.register_buffer(name, value)
    for name, value in children.items():
        made.add_module(name, value)
    for register, hook, with_kwargs in hooks:
        getattr(made, register)(hook, with_kwargs=with_kwargs)
    made.training = training
    return made


def tensors_of(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


{code}


tensors = load_file(Path(__file__).with_suffix(".safetensors"))
model = {model}
{entry}args = {args}
kwargs = {kwargs}
{registered}dynamic_shapes = {shapes}

print(type(model(*copy.deepcopy(args), **copy.deepcopy(kwargs))), flush=True)  # PyTorch runs it
{head}with torch.no_grad(), _config.patch(backed_size_oblivious=True):
{export}
{check}'''

IMPORTS = {
    "import copy", "import torch", "from pathlib import Path", "from torch.export import Dim",
    "from safetensors.torch import load_file", "from torch.fx.experimental import _config",
    "from torch.utils._pytree import tree_leaves",
}  # fmt: skip

OPTIONS = "OPTIONS"
"""Where those of the exporter go."""

_FX = "    program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes"

EXPORTS = {
    "fx": f"{_FX}{OPTIONS})\n    run = program.module()\n",
    "to_onnx": f"{_FX}, strict=False)\n    run = torchferry.to_onnx(program{OPTIONS})\n",
    "onnx_dynamo": f"""    run = torch.onnx.export(
        model, args, kwargs=kwargs, dynamic_shapes=dynamic_shapes, dynamo=True{OPTIONS}
    )
""",
    "torch_script": """    stream = io.BytesIO()
    names = [f"input_{number}" for number in range(len(tensors_of((args, kwargs))))]
    torch.onnx.export(
        Flat(model), (*tensors_of((args, kwargs)),), stream, dynamo=False,
        input_names=names, dynamic_axes=dynamic_shapesOPTIONS,
    )
    session = onnxruntime.InferenceSession(stream.getvalue())


def run(*args, **kwargs):
    feeds = dict(zip(names, tensors_of((args, kwargs))))
    needed = {one.name: feeds[one.name].numpy() for one in session.get_inputs()}
    return [torch.from_numpy(one) for one in session.run(None, needed)]

""",
}
"""Statements that export ``model`` and set ``run``, by exporter."""

HEADS = {
    "torch_script": """

class Flat(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *tensors):
        rest = iter(tensors)
        call = tree_map(lambda x: next(rest) if isinstance(x, torch.Tensor) else x, (args, kwargs))
        return (*tensors_of(self.inner(*call[0], **call[1])),)


""",
}
"""What stands before, for some."""

STRICT = 'warnings.simplefilter("error", torch.jit.TracerWarning)\n'
"""Of what the tracer only warns, the search makes a failure."""

MORE_IMPORTS = {
    "to_onnx": {"import torchferry"},
    "torch_script": {
        "import io", "import onnxruntime", "import warnings",
        "from torch.utils._pytree import tree_map",
    },
}  # fmt: skip

CHECK = """
args = {args}
kwargs = {kwargs}
for _ in range({times}):
    expected = tensors_of(model(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    made = tensors_of(run(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    for right, got in zip(expected, made, strict=True):
        torch.testing.assert_close(got, right, atol={atol!r}, rtol=0.0, equal_nan=True)
"""
"""The call that shows it; half the difference that was seen is allowed.

What changes from call to call may be right once.
"""

METHOD = """

class Method(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.forward = module.{name}


model = Method(model)
"""

ENTRY = """

class Entry(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, {names}):
        return self.module({given})


model = Entry(model)
"""
"""Exporters give arguments by name, and hooks see by position those that they saw so before."""
