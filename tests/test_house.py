"""The rules of the house (tests/house/house_rules.py), run over the repository.

Exceptions are listed by name, with the reason. The second half shows that each rule bites.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

import torchferry
from house_rules import LAYERS, LEVEL, RULES, TORCH_FREE
from house_source import PACKAGE, Source, imports

ROOT = Path(__file__).resolve().parents[1]

# ("rule", "path" or "path::qualified.name"): "reason". Ten at most; one that is not needed fails.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("handlers", "src/torchferry/capturer/tracing.py::_trace_once"): (
        "the capturer's wrapper: torch.export lets any exception of the user's code through"
    ),
    ("handlers", "src/torchferry/diagnoser/trial/trial.py::_guarded"): (
        "the trial's wrapper: exporters and users' code raise anything, and that is the verdict"
    ),
    ("handlers", "src/torchferry/exporter/conversion.py::_exported"): (
        "torch.export lets any exception of the user's code through"
    ),
    ("handlers", "src/torchferry/converter/driver.py::Scope._lower"): (
        "the driver's wrapper: an exception of a lowering is told with its node and line"
    ),
    ("handlers", "src/torchferry/exporter/verify/verify.py::try_running"): (
        "a size that torchferry made up may be wrong for the model in any way its code can fail"
    ),
    ("handlers", "src/torchferry/sources/factory.py::_guarded"): (
        "users' factories and models raise anything; it is shown with its place, and chained"
    ),
    ("handlers", "src/torchferry/cli/main.py::main"): (
        "the command line's wrapper, so that exit code 1 means one thing"
    ),
    ("handlers", "src/torchferry/values/kinds.py::attempt"): (
        "code of users' classes raises anything; looking at a value must not end the program"
    ),
    ("prints", "src/torchferry/observer/trace.py::_say"): (
        "the trace of steal_forward is printed where the model runs, as its users know it"
    ),
}

# What `import torchferry` offers. A name is added here, in the changelog and in the docs together.
PUBLIC = {
    "CaptureError",
    "ConversionError",
    "CustomOpStrategy",
    "FerryError",
    "LoweringFailed",
    "Mismatch",
    "MissingLowering",
    "ModelDiagnoseOutput",
    "ModelInputs",
    "Observation",
    "OnnxProgram",
    "OptimizationOptions",
    "RunError",
    "StatusExport",
    "StatusExportCode",
    "UsageError",
    "bypass_export_some_errors",
    "cache_tensors",
    "capture",
    "compare",
    "convert",
    "create_input_tensors_from_onnx_model",
    "create_onnx_model_from_input_tensors",
    "deploy",
    "diagnose",
    "draw_svg",
    "dummy_llm",
    "export",
    "get_tiny_llm",
    "load",
    "lowers",
    "make_dynamic_cache",
    "make_encoder_decoder_cache",
    "make_hybrid_cache",
    "make_mamba_cache",
    "make_sliding_window_cache",
    "make_static_cache",
    "max_diff",
    "observe",
    "onnx_custom_backend",
    "optimize",
    "plot_dot",
    "plot_legend",
    "run",
    "steal_append",
    "steal_forward",
    "string_diff",
    "string_type",
    "to_onnx",
    "torch_export_patches",
    "trace_execution_piece_by_piece",
    "trace_forward_execution",
    "use_dyn_not_str",
    "use_str_not_dyn",
}

# Raised only by a commit that says so and why.
LINES_OF_SRC = 95_650

HEAVY = {"torch", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "transformers", "numpy"}


@cache
def read(*folders: str) -> list[Source]:
    """Every Python file below the folders; a file is parsed once for all rules."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [Source(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in paths]


@pytest.fixture(scope="module")
def modules() -> list[Source]:
    return read(PACKAGE)


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_keeps(rule: str) -> None:
    found, used = [], set()
    for source in read("src", "tests", "benchmarks", "examples"):
        for line, message in RULES[rule](source):
            place = (rule, source.place(line))
            if place in EXCEPTIONS:
                used.add(place)
            else:
                found.append(f"{source.path}:{line}: {message}  [{', '.join(place)}]")
    assert not found, "\n" + "\n".join(found)
    unused = {place for place in EXCEPTIONS if place[0] == rule} - used
    assert not unused, f"exceptions that nothing needs: {unused}"


def test_exceptions_are_few_and_have_reasons() -> None:
    assert len(EXCEPTIONS) <= 10
    assert all(len(reason.split()) >= 4 for reason in EXCEPTIONS.values())
    assert {rule for rule, _ in EXCEPTIONS} <= set(RULES)


def test_the_public_names_are_these() -> None:
    names = sorted(getattr(torchferry, "__all__", []))
    assert names == sorted(PUBLIC)
    assert set(names) <= set(dir(torchferry))


def test_the_layers_name_each_room_once() -> None:
    rooms = [room for line in LAYERS for room in line]
    assert len(rooms) == len(set(rooms)) == len(LEVEL)


def test_the_architecture_page_names_every_room(modules: list[Source]) -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    rooms = {m.room for m in modules} & set(LEVEL)
    assert not {room for room in rooms if f"`{room}`" not in page}


def twin(source: Source) -> str:
    """The path of the test file of a module."""
    folder, _, name = source.inner.rpartition("/")
    return "/".join(part for part in ("tests", folder, f"test_{name}") if part)


def test_every_module_has_a_test_twin(modules: list[Source]) -> None:
    exempt = ("__init__.py", "__main__.py")
    twins = {m.path: twin(m) for m in modules if not m.path.endswith(exempt)}
    missing = {path: test for path, test in twins.items() if not (ROOT / test).is_file()}
    assert not missing, "\n".join(f"{path}: no {test}" for path, test in missing.items())


def test_rooms_stay_small(modules: list[Source]) -> None:
    assert Counter(m.path.rpartition("/")[0] for m in modules).most_common(1)[0][1] <= 25
    total = sum(len(m.lines) for m in modules)
    assert total <= LINES_OF_SRC, f"src has {total} lines, more than the budget of {LINES_OF_SRC}"
    lengths = defaultdict(list)
    for m in modules:
        if not m.path.endswith("__init__.py"):
            lengths[m.room].append(len(m.lines))
    # One file has no median worth the name; its own limit holds.
    medians = {r: statistics.median(v) for r, v in lengths.items() if len(v) > 1}
    assert not {room: median for room, median in medians.items() if median > 200}


def loading_torch(modules: list[Source]) -> dict[str, str]:
    """Modules that load torch as they are imported: name to what they load it through."""
    named = {m.path.removeprefix("src/").removesuffix(".py").replace("/", "."): m for m in modules}
    named = {name.removesuffix(".__init__"): m for name, m in named.items()}
    loads: dict[str, set[str]] = {}
    for name, source in named.items():
        top = {module for _, module, how in imports(source) if how == "top"}
        # Importing a.b.c imports a and a.b first; the last part may be a name and no module.
        loads[name] = {
            ".".join(parts[:count])
            for parts in (module.split(".") for module in {*top, name})
            for count in range(1, len(parts) + 1)
        } - {name}
    through = {name: "torch" for name, seen in loads.items() if "torch" in seen}
    grown = True
    while grown:
        new = {
            name: min(seen & through.keys())
            for name, seen in loads.items()
            if name not in through and seen & through.keys()
        }
        through |= new
        grown = bool(new)
    return through


def test_rooms_without_torch_do_not_load_it_through_others(modules: list[Source]) -> None:
    found = {
        name: through
        for name, through in loading_torch(modules).items()
        if name.split(".")[1] in TORCH_FREE
    }
    assert not found, "\n".join(f"{name} loads torch through {by}" for name, by in found.items())


@pytest.mark.parametrize("module", ["torchferry", "torchferry.cli.main"])
def test_starting_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# The rules themselves --------------------------------------------------------------------------

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 50
LONG_CLASS = "class A:\n" + "    x = 1\n" * 250
MANY_METHODS = "class A:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(16))
LAZY = "def f():\n    import {0}\n"
TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {0}\n"
DOCUMENTED = '"""D."""\n__all__ = ["f"]\n'
TRY = "try:\n    pass\n"

BREAKING = [
    ("layers", "values/flatten.py", "from torchferry.converter.driver import x"),
    ("layers", "values/flatten.py", "from torchferry import converter"),
    ("layers", "values/flatten.py", "import torchferry.dims.dim"),
    ("layers", "values/flatten.py", LAZY.format("torchferry.zoo")),
    ("layers", "values/flatten.py", TYPING.format("torchferry.zoo")),
    ("layers", "values/flatten.py", "from ..zoo import x"),
    ("layers", "values/__init__.py", "from ..zoo import x"),
    ("layers", "exporter/walk.py", "importlib.import_module('torchferry.cli.main')"),
    ("layers", "cli/main.py", "import torchferry"),
    ("layers", "cli/main.py", "from torchferry import export"),
    ("layers", "errors.py", "from torchferry.config import Config"),
    ("layers", "kitchen/sink.py", "x = 1"),
    ("libraries", "dims/dim.py", "import torch"),
    ("libraries", "dims/dim.py", LAZY.format("sympy")),
    ("libraries", "graph/io.py", "from torch import Tensor"),
    ("libraries", "runner/reference.py", "import torch.nn"),
    ("libraries", "__init__.py", "import torch"),
    ("libraries", "values/caches.py", "import transformers"),
    ("libraries", "exporter/walk.py", LAZY.format("transformers")),
    ("libraries", "converter/driver.py", "import onnxscript"),
    ("libraries", "values/describe.py", LAZY.format("onnx")),
    ("libraries", "zoo/a.py", "if not TYPE_CHECKING:\n    import transformers"),
    ("declared", "values/a.py", '"""D."""\nx = 1'),
    ("declared", "values/a.py", "x = 1\n__all__ = ['x']"),
    ("declared", "values/a.py", '"""D."""\nx = 1\n__all__ = sorted(globals())'),
    ("declared", "values/a.py", '"""D."""\nx = 1\n__all__ = ["y"]'),
    ("documented", "values/a.py", DOCUMENTED + "def f() -> None: ..."),
    ("documented", "values/a.py", DOCUMENTED + 'def f(x) -> None:\n    """D."""'),
    ("documented", "values/a.py", DOCUMENTED + 'def f(*x: int, **y: int):\n    """D."""'),
    ("documented", "values/a.py", DOCUMENTED + "class f:\n    x = 1"),
    ("documented", "a.py", DOCUMENTED + 'class f:\n    """D."""\n    def g(self) -> int: ...'),
    ("sizes", "values/a.py", "x = 1\n" * 401),
    ("sizes", "values/a.py", "#" * 100),
    ("sizes", "values/a.py", LONG_FUNCTION),
    ("sizes", "values/a.py", LONG_CLASS),
    ("sizes", "values/a.py", MANY_METHODS),
    ("names", "values/utils.py", ""),
    ("names", "values/_helper.py", ""),
    ("names", "common/a.py", ""),
    ("names", "values/flatten_impl.py", ""),
    ("names", "values/a.py", "def flatten_impl(): ..."),
    ("prints", "values/a.py", "print(1)"),
    ("prints", "values/a.py", "import sys\nsys.stdout.write('x')"),
    ("environment", "values/a.py", "import os\nos.environ['X']"),
    ("environment", "values/a.py", "import os\nos.getenv('X')"),
    ("environment", "values/a.py", "from os import environ"),
    ("handlers", "values/a.py", TRY + "except:\n    pass"),
    ("handlers", "values/a.py", TRY + "except (ValueError, Exception):\n    pass"),
    ("handlers", "values/a.py", TRY + "except BaseException as e:\n    raise X from e"),
    ("handlers", "values/a.py", "with contextlib.suppress(Exception):\n    pass"),
    ("pickles", "values/a.py", "import pickle"),
    ("pickles", "values/a.py", "from pickle import Unpickler, UnpicklingError"),
    ("pickles", "values/a.py", LAZY.format("cloudpickle")),
    ("pickles", "values/a.py", "import torch\ntorch.load('x')"),
    ("pickles", "values/a.py", "import torch\ntorch.load('x', weights_only=False)"),
    ("pickles", "values/a.py", "from torch import load"),
    ("seams", "values/a.py", "from torch._ops import OpOverload"),
    ("seams", "values/a.py", LAZY.format("torch._dynamo")),
    ("seams", "values/a.py", "from torch.utils import _pytree as pytree"),
    ("seams", "values/a.py", "from torch.fx.experimental.proxy_tensor import make_fx"),
    ("seams", "values/a.py", "import torch\nisinstance(x, torch._ops.OpOverload)"),
    ("seams", "values/a.py", "from torch import nn as n\nn.modules.batchnorm._BatchNorm"),
    ("seams", "values/a.py", "import onnxruntime as ort\nort.capi.onnxruntime_pybind11_state"),
    ("seams", "optimizer/a.py", "from onnxscript.rewriter import ort_fusions"),
    ("seams", "values/a.py", "def f(operator):\n    return operator._schema"),
    ("seams", "values/a.py", "def f(operator):\n    return getattr(operator, '_schema', None)"),
    ("seams", "values/a.py", "importlib.import_module('torch._dynamo')"),
    ("seams", "values/a.py", "NAMES = ('torch.fx.experimental.proxy_tensor',)"),
    ("seams", "values/a.py", "def f(module):\n    module._buffers['x'] = 1"),
    ("silenced", "values/a.py", "x = 1  # noqa"),
    ("silenced", "values/a.py", "x = 1  # noqa: E501, F401"),
    ("silenced", "values/a.py", "x = 1  # noqa because it is long"),
    ("silenced", "values/a.py", "x = 1  # type: ignore[misc]"),
    ("silenced", "values/a.py", "x = 1  # type: ignore[misc]  # noqa: E501"),
    ("silenced", "values/a.py", "# noqa: F401\nx = 1  # noqa: E501"),
]

KEEPING = [
    ("layers", "exporter/walk.py", "from torchferry.report import text\nimport torchferry.errors"),
    ("layers", "values/flatten.py", "from .clone import clone\nfrom torchferry import values"),
    ("layers", "cli/main.py", "from torchferry import __version__"),
    ("layers", "__main__.py", "from torchferry.cli.main import main"),
    ("libraries", "dims/dim.py", TYPING.format("torch")),
    ("libraries", "runner/reference.py", LAZY.format("torch")),
    ("libraries", "values/caches.py", LAZY.format("transformers.cache_utils")),
    ("libraries", "capturer/patches/attention.py", LAZY.format("transformers")),
    ("libraries", "values/describe.py", "import torch"),
    ("libraries", "dims/dim.py", "import torchvision_like_name"),
    ("declared", "values/__init__.py", '"""Only a docstring."""'),
    ("declared", "values/a.py", '"""D."""\nfrom b import c\n__all__ = ["c"]'),
    ("documented", "values/a.py", DOCUMENTED + "def g(x): ..."),
    ("documented", "a.py", DOCUMENTED + 'class f:\n    """D."""\n    def __init__(self, x): ...'),
    ("sizes", "values/a.py", LONG_FUNCTION.replace("    x = 1\n", "", 1) + "#" * 99),
    ("sizes", "values/a.py", MANY_METHODS.replace("m15", "__add__")),
    ("names", "values/commonality.py", "def implement(): ..."),
    ("prints", "cli/main.py", "print(1)"),
    ("prints", "values/a.py", "fprint(1)\nprint_graph = 1"),
    ("environment", "config.py", "import os\nos.environ['X']"),
    ("handlers", "values/a.py", TRY + "except Exception:\n    clean()\n    raise"),
    ("handlers", "values/a.py", TRY + "except ValueError:\n    pass"),
    ("pickles", "values/a.py", "import torch\ntorch.load('x', weights_only=True)"),
    ("pickles", "values/a.py", "from pickle import UnpicklingError"),
    ("seams", "seams/pytorch.py", "from torch._ops import OpOverload\nOpOverload.x._schema"),
    ("seams", "values/a.py", "from torch.export import Dim\nimport os\nos._exit(1)"),
    ("seams", "values/a.py", "import torch\ntorch.ops.aten._softmax.default, torch._check"),
    ("seams", "values/a.py", "from torchferry.seams.operators import aten\naten._conj.default"),
    ("seams", "capturer/patches/a.py", "SUBJECT = 'torch._shape_as_tensor'"),
    ("seams", "values/a.py", "class A:\n    def f(self, o):\n        self._x = 1\n        o._x"),
    ("seams", "values/a.py", "class A:\n    def f(self):\n        return self._from_mixin.x"),
    ("silenced", "values/a.py", "x = 1  # noqa: E501  # a URL has no line break"),
    ("silenced", "values/a.py", "# The stub says int.\nx = 1  # type: ignore[misc]"),
    ("silenced", "values/a.py", 's = "# noqa"'),
]


@pytest.mark.parametrize(("rule", "path", "text"), BREAKING)
def test_a_rule_bites(rule: str, path: str, text: str) -> None:
    assert list(RULES[rule](Source(PACKAGE + path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), KEEPING)
def test_a_rule_lets_through(rule: str, path: str, text: str) -> None:
    assert list(RULES[rule](Source(PACKAGE + path, text))) == []


def test_every_rule_is_shown_to_bite() -> None:
    assert {rule for rule, _, _ in BREAKING} == set(RULES)


def test_a_place_is_the_innermost_definition() -> None:
    source = Source("a.py", "x = 1\nclass A:\n    def f(self):\n        return 1\ny = 2\n")
    assert [source.place(line) for line in (1, 2, 4, 5)] == [
        "a.py", "a.py::A", "a.py::A.f", "a.py",
    ]  # fmt: skip


def test_torch_is_seen_through_other_modules() -> None:
    texts = {
        "values/__init__.py": "import torch",
        "values/a.py": "x = 1",
        "graph/io.py": "from torchferry.values.a import x",
        "graph/text.py": "def f():\n    import torchferry.values",
        "cli/main.py": "from torchferry.graph import io",
    }
    through = loading_torch([Source(PACKAGE + path, text) for path, text in texts.items()])
    assert set(through) == {
        "torchferry.values", "torchferry.values.a", "torchferry.graph.io", "torchferry.cli.main",
    }  # fmt: skip


def test_a_twin_mirrors_the_path() -> None:
    assert twin(Source(PACKAGE + "values/a.py", "")) == "tests/values/test_a.py"
    assert twin(Source(PACKAGE + "errors.py", "")) == "tests/test_errors.py"
