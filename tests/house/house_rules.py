"""The rules of the house, each a function over one `Source`.

A rule yields ``(line, message)`` for what it finds. tests/test_house.py runs them over the
repository and shows that each of them bites.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator

from house_source import DEFINITIONS, FUNCTIONS, Source, exported, imports

__all__ = ["LAYERS", "LEVEL", "RULES", "TORCH_FREE", "Finding", "Rule"]

# Top to bottom: a room imports rooms of lower lines only, and its own modules.
LAYERS = (
    {"cli", "testing"},
    {"deployer", "fleet"},
    {"exporter"},
    {"report"},
    {"diagnoser", "compiler", "comparer", "sources"},
    {"capturer", "converter", "optimizer", "quantizer", "runner"},
    {"observer", "zoo"},
    {"dumper", "judge"},
    {"values", "dims", "graph"},
    {"seams"},
    {"errors", "config", "notebook", "progress"},
)
LEVEL = {room: -number for number, rooms in enumerate(LAYERS) for room in rooms}
PACKAGE_LEVEL = 1  # __init__.py and __main__.py stand above every room

TORCH_ROOMS = (
    "values", "zoo", "observer", "capturer", "converter", "diagnoser", "compiler", "dumper",
    "comparer", "deployer", "exporter", "fleet", "judge", "seams", "sources",
)  # fmt: skip
# What these load as they are imported, directly or not, must not be torch.
TORCH_FREE = (
    "dims", "graph", "optimizer", "quantizer", "report", "cli", "testing", "errors", "config",
    "notebook", "progress",
)  # fmt: skip
WITHOUT_ONNX = {
    "values", "judge", "dims", "report", "cli", "testing", "errors", "config", "notebook",
    "progress",
}  # fmt: skip
ONNX_ROOMS = tuple(room for room in LEVEL if room not in WITHOUT_ONNX)

# library: (places that may import it anywhere, places that may import it inside functions)
LIBRARIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "torch": (TORCH_ROOMS, ("runner",)),
    "transformers": (
        (), ("values/caches.py", "zoo", "capturer/patching/huggingface.py", "capturer/patches"),
    ),
    "onnxscript": ((), ()),
    "onnx": (ONNX_ROOMS, ()),
    "onnx_ir": (ONNX_ROOMS, ()),
    "onnxruntime": (ONNX_ROOMS, ()),
    "sympy": ((), ()),
}  # fmt: skip

Finding = tuple[int, str]
Rule = Callable[[Source], Iterator[Finding]]


# What stands where -----------------------------------------------------------------------------


def layers(source: Source) -> Iterator[Finding]:
    """A room imports rooms of lower lines only; nothing imports the public face from inside."""
    if not source.in_package:
        return
    if source.inner in ("__init__.py", "__main__.py"):
        level = PACKAGE_LEVEL
    elif source.room in LEVEL:
        level = LEVEL[source.room]
    else:
        yield 1, f"no room is called {source.room}"
        return
    for line, module, _ in imports(source):
        parts = module.split(".")
        if parts[0] != "torchferry" or parts[1:] == ["__version__"]:
            continue
        other = parts[1] if len(parts) > 1 else ""
        if other not in LEVEL:
            yield line, f"imports {module}: import the name from the room it is made in"
        elif other != source.room and LEVEL[other] >= level:
            yield line, f"{source.room} may not import {other}: it is not below"


def libraries(source: Source) -> Iterator[Finding]:
    """A heavy library is imported only where it may be, and lazily where it must be."""
    if not source.in_package:
        return
    for line, module, how in imports(source):
        library = module.split(".")[0]
        if library not in LIBRARIES or how == "typing":
            continue
        anywhere, inside = LIBRARIES[library]
        if source.lies_in(anywhere):
            continue
        if not source.lies_in(inside):
            yield line, f"{source.inner} may not import {library}"
        elif how != "inside":
            yield line, f"{source.inner} may import {library} only inside a function"


def declared(source: Source) -> Iterator[Finding]:
    """Every module says in a literal ``__all__`` what it offers, and what it says exists."""
    if not source.in_package or source.inner in ("__init__.py", "__main__.py"):
        return
    docstring_only = len(source.tree.body) == 1 and ast.get_docstring(source.tree) is not None
    if ast.get_docstring(source.tree) is None:
        yield 1, "no module docstring"
    names = exported(source.tree)
    if names is None:
        if not docstring_only:
            yield 1, "no literal __all__"
        return
    bound = {node.name for node in source.nodes if isinstance(node, DEFINITIONS)}
    bound |= {node.id for node in source.nodes if isinstance(node, ast.Name)}
    bound |= {(a.asname or a.name) for a in source.nodes if isinstance(a, ast.alias)}
    yield from ((1, f"__all__ names {name}, which is not here") for name in set(names) - bound)


def documented(source: Source) -> Iterator[Finding]:
    """Every public class and function has a docstring; its functions are annotated whole."""
    if not source.in_package:
        return
    names = exported(source.tree) or []
    for node in source.tree.body:
        if not isinstance(node, DEFINITIONS) or node.name not in names:
            continue
        public = [n for n in node.body if isinstance(n, FUNCTIONS) and not n.name.startswith("_")]
        for item in [node, *(public if isinstance(node, ast.ClassDef) else [])]:
            decorators = {ast.unparse(d).split(".")[-1] for d in item.decorator_list}
            if not decorators & {"overload", "setter"} and ast.get_docstring(item) is None:
                yield item.lineno, f"{item.name} has no docstring"
            if isinstance(item, FUNCTIONS):
                arguments = [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]
                arguments += [a for a in (item.args.vararg, item.args.kwarg) if a]
                bare = [a.arg for a in arguments if a.annotation is None]
                bare = [name for name in bare if name not in ("self", "cls")]
                bare += ["return"] if item.returns is None else []
                if bare:
                    yield item.lineno, f"{item.name}: no annotation for {', '.join(bare)}"


# Sizes -----------------------------------------------------------------------------------------


def sizes(source: Source) -> Iterator[Finding]:
    """File 400 lines, class 250 lines or 15 methods, function 50 lines, line 99 columns."""
    if len(source.lines) > 400:
        yield 1, f"{len(source.lines)} lines, more than 400"
    for number, line in enumerate(source.lines, 1):
        if len(line) > 99:
            yield number, f"{len(line)} columns, more than 99"
    for node in source.nodes:
        if not isinstance(node, DEFINITIONS):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        most = 250 if isinstance(node, ast.ClassDef) else 50
        if length > most:
            yield node.lineno, f"{node.name} has {length} lines, more than {most}"
        if isinstance(node, ast.ClassDef):
            # Dunders are the language's names, not more to learn: a number type has a dozen.
            named = [child.name for child in node.body if isinstance(child, FUNCTIONS)]
            methods = sum(not name.startswith("__") for name in named)
            if methods > 15:
                yield node.lineno, f"{node.name} has {methods} methods, more than 15"


# Bans ------------------------------------------------------------------------------------------


def names(source: Source) -> Iterator[Finding]:
    """Nothing is called helper, utils, common, misc, base or _impl: such names say nothing."""
    for part in source.path.removesuffix(".py").split("/"):
        plain = part.strip("_").removeprefix("test_")
        if plain in {"helper", "helpers", "util", "utils", "common", "misc", "base", "impl"}:
            yield 1, f"{part} says nothing about what is in it"
        elif part.endswith("_impl"):
            yield 1, f"{part}: name it for what it does"
    for node in source.nodes:
        if isinstance(node, DEFINITIONS) and node.name.endswith("_impl"):
            yield node.lineno, f"{node.name}: name it for what it does"


def prints(source: Source) -> Iterator[Finding]:
    """Only cli and report write to the terminal; the rest logs."""
    if not source.in_package or source.room in ("cli", "report"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write"):
            yield node.lineno, f"{ast.unparse(node.func)} outside cli and report"


def environment(source: Source) -> Iterator[Finding]:
    """Only config.py reads environment variables."""
    if not source.in_package or source.inner == "config.py":
        return
    for node in source.nodes:
        named = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        taken = [a.name for a in node.names] if isinstance(node, ast.ImportFrom) else []
        from_os = isinstance(node, ast.ImportFrom) and node.module == "os"
        if named in ("os.environ", "os.getenv", "os.putenv") or (
            from_os and {"environ", "getenv", "putenv"} & set(taken)
        ):
            yield node.lineno, "environment variables are read in config.py only"


def is_broad(kind: ast.expr) -> bool:
    """Whether an except clause names what every exception is."""
    return ast.unparse(kind).split(".")[-1] in ("Exception", "BaseException")


def handlers(source: Source) -> Iterator[Finding]:
    """No bare or broad except, unless it only cleans up and raises again."""
    for node in source.nodes if source.in_package else ():
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            last = node.body[-1]
            raised_again = isinstance(last, ast.Raise) and last.exc is None
            if any(kind is None or is_broad(kind) for kind in kinds) and not raised_again:
                yield node.lineno, "an except that catches everything"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            yield from ((a.lineno, "suppress is too broad") for a in node.args if is_broad(a))


def pickles(source: Source) -> Iterator[Finding]:
    """Nothing is ever unpickled: torch.load only with weights_only=True."""
    unsafe = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
    for line, module, _ in imports(source):
        # The exception alone is harmless: torch.load(weights_only=True) raises it.
        if module.split(".")[0] in unsafe and module != "pickle.UnpicklingError":
            yield line, f"{module}: loading a file must not run code"
        if module == "torch.load":
            yield line, "write torch.load(...), so that its arguments can be checked"
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if given.get("weights_only") != "True":
                yield node.lineno, "torch.load without weights_only=True"


# Of the standard library, documented by torch in spite of its name, of users' classes of patches.
PUBLIC = {"_exit", "_getframe", "_replace", "_fields", "_check", "_PATCHES_", "_PATCHED_CLASS_"}
# Without an underscore, and yet no version promises them.
UNSTABLE = ("torch.fx.experimental", "onnxruntime.capi", "transformers.exporters",
            "onnxscript", "torch.export.exported_program")  # fmt: skip
ACCESS = ("getattr", "setattr", "hasattr")
LIBRARY_NAMES = ("torch", "torchvision", "transformers", "onnxruntime", "onnxscript", "onnx")


def seams(source: Source) -> Iterator[Finding]:
    """Private names of other libraries stand in the room seams only, as strings too.

    Names of modules are seen where they are imported or reached from an import, attributes of
    objects where the file itself does not define them. Operators of torch.ops may be private:
    they are looked up by `torchferry.seams.operators`. What patches replace is a string with a
    probe of its own.
    """
    if not source.in_package or source.room == "seams":
        return
    for line, module, _ in imports(source):
        if _is_private(module):
            yield line, f"{module}: take it from torchferry.seams"
    bound = {name: module for _, module, name in _bindings(source)}
    own, patches = _defined(source), source.lies_in(("capturer/patches",))
    for node in source.nodes:
        name = ""
        if isinstance(node, ast.Attribute):
            name = _private_attribute(node, bound, own)
        elif isinstance(node, ast.Constant) and not patches:
            text = str(node.value)
            name = text if re.fullmatch(r"\w+(\.\w+)+", text) and _is_private(text) else ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ACCESS:
            asked = node.args[1]
            text = str(asked.value) if isinstance(asked, ast.Constant) else ""
            name = f".{text}" if _is_foreign(text, own) else ""
        if name:
            yield node.lineno, f"{name}: reach it through torchferry.seams"


def _private_attribute(node: ast.Attribute, bound: dict[str, str], own: set[str]) -> str:
    """The private name of another library that an attribute is; empty if it is none."""
    root, _, rest = _chain(node).partition(".")
    path = f"{bound.get(root, '')}.{rest}"
    if path.split(".", maxsplit=1)[0] in LIBRARY_NAMES and _is_private(path):
        return path
    if path.startswith(("torchferry.seams.operators", "torch.ops")) or root in ("self", "cls"):
        return ""
    return f".{node.attr}" if _is_foreign(node.attr, own) else ""


def _bindings(source: Source) -> Iterator[tuple[int, str, str]]:
    """Line, dotted path and local name of everything that a file imports."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield node.lineno, alias.name if alias.asname else top, alias.asname or top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}", alias.asname or alias.name


def _chain(node: ast.expr) -> str:
    """``a.b.c`` of a chain of attributes that begins with a name, else only its attributes."""
    if isinstance(node, ast.Attribute):
        return f"{_chain(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_private(path: str) -> bool:
    """Whether a dotted path of another library has a part that no version promises."""
    library, *parts = path.split(".")
    if library not in LIBRARY_NAMES or path.startswith("torch.ops."):
        return False
    private = [part for part in parts if part.startswith("_") and not part.startswith("__")]
    return bool(set(private) - PUBLIC) or any(f"{path}.".startswith(f"{p}.") for p in UNSTABLE)


def _is_foreign(attribute: str, own: set[str]) -> bool:
    single = attribute.startswith("_") and not attribute.startswith("__")
    return single and attribute != "_" and attribute not in own | PUBLIC


def _defined(source: Source) -> set[str]:
    """Names that a file gives to attributes, functions and classes of its own."""
    found = {node.name for node in source.nodes if isinstance(node, DEFINITIONS)}
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if ast.unparse(node.value) == "self" else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


DIRECTIVE = re.compile(
    r"#\s*(?:(?:ruff:\s*)?noqa(?P<codes>:\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*)?"
    r"|type:\s*ignore(?P<kinds>\[[\w, -]+\])?)"
)


def silenced(source: Source) -> Iterator[Finding]:
    """``noqa`` and ``type: ignore`` name what they silence, and a comment says why."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        match = DIRECTIVE.match(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line = token.start[0]
        if not (match["codes"] or match["kinds"]):
            yield line, f"{token.string}: name the rule it silences"
        before = source.lines[line - 2].strip() if line > 1 else ""
        why_before = before.startswith("#") and not DIRECTIVE.match(before)
        if not why_before and len(re.findall(r"\w{2,}", DIRECTIVE.sub("", token.string))) < 2:
            yield line, f"{token.string}: say why, behind it or in the line above"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        layers, libraries, declared, documented, sizes, names, prints, environment, handlers,
        pickles, seams, silenced,
    )
}  # fmt: skip
