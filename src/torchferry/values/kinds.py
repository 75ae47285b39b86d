"""Which classes hold other values, and how each is taken apart and put together again.

One table serves everything in this room: flatten, clone, max_diff, string_type and the
registration with PyTorch's pytrees. A class is looked up along its MRO; an entry may name its
class as ``"module:qualname"``, so that classes of a library are known before it is imported.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from torchferry.errors import UsageError

__all__ = [
    "MAPPING",
    "MODULES_A_FILE_MAY_NAME",
    "Kind",
    "Parts",
    "attempt",
    "attributes_of",
    "class_name",
    "find_class",
    "find_class_here",
    "find_kind",
    "imported_classes",
    "register",
]

Parts = tuple[dict[Hashable, Any], Hashable]
"""Children by key, and what else rebuilds the value: hashable, compared with ``==``."""

Unflatten = Callable[[Any, dict[Hashable, Any], Any], Any]
Describe = Callable[[Any, Callable[[Any], str]], str]


@dataclasses.dataclass(frozen=True)
class Kind:
    """How one class of containers is taken apart and put together.

    Attributes:
        flatten: ``flatten(value) -> (children by key, context)``.
        unflatten: ``unflatten(cls, children by key, context) -> value``; the same keys in the
            same order. It must not compute with the children: they may be anything.
        describe: ``describe(value, render) -> str`` for `string_type`; ``render`` prints a child.
        pytree: whether `register_pytrees` registers the class with PyTorch; not for classes that
            PyTorch knows, or that register themselves.
        attributes: whether a value may have attributes besides its children, of which ``flatten``
            does not tell: those of a subclass of ``dict``. See `attributes_of`.
    """

    flatten: Callable[[Any], Parts]
    unflatten: Unflatten
    describe: Describe | None = None
    pytree: bool = True
    attributes: bool = False


_KINDS: dict[type[Any] | str, Kind] = {}
# Classes of functions, which no module holds, by name; the process that has them finds them.
_LOCAL: WeakValueDictionary[str, type[Any]] = WeakValueDictionary()
_FOUND: dict[type[Any], Kind | None] = {}  # what find_kind answered before

# Classes made from a file may come from here without being imported before.
_LIBRARIES = ("builtins", "collections", "torch", "transformers")
MODULES_A_FILE_MAY_NAME = (
    r"transformers\.(?:cache_utils|modeling_outputs|models\.\w+\.modeling_\w+)"
)
"""Pattern of the modules that are imported because a file names a class of theirs."""


def register(
    cls: type[Any] | str,
    *,
    flatten: Callable[[Any], Parts],
    unflatten: Unflatten,
    describe: Describe | None = None,
    pytree: bool = True,
) -> None:
    """Teach torchferry a container class; its subclasses are covered too.

    Args:
        cls: the class, or its name as ``"module:qualname"`` when it may not be imported yet.
        flatten: see `Kind`.
        unflatten: see `Kind`.
        describe: see `Kind`; without it the class prints as ``ClassName(key:child,...)``.
        pytree: see `Kind`.

    Raises:
        UsageError: no class or name of one, a name without a colon, what is no function, or the
            class has an entry already.

    >>> class Box:
    ...     def __init__(self, x):
    ...         self.x = x
    >>> register(
    ...     Box,
    ...     flatten=lambda box: ({"x": box.x}, None),
    ...     unflatten=lambda cls, children, context: cls(children["x"]),
    ... )
    >>> find_kind(Box).flatten(Box(3))
    ({'x': 3}, None)
    """
    if not isinstance(cls, type) and not (isinstance(cls, str) and ":" in cls):
        raise UsageError(f"register({cls!r}): give a class, or its name as 'module:qualname'")
    if not callable(flatten) or not callable(unflatten):
        raise UsageError(f"register({cls!r}): flatten and unflatten are functions")
    if cls in _KINDS:
        raise UsageError(f"register({cls!r}): this class is registered already")
    _KINDS[cls] = Kind(flatten, unflatten, describe, pytree)
    _FOUND.clear()


def find_kind(cls: type[Any]) -> Kind | None:
    """The entry of a class: of itself or the nearest base, else as a dataclass or a mapping.

    ``None`` says that its values are leaves.
    """
    if cls not in _FOUND:
        if len(_FOUND) > 1000:  # classes made on the fly must not be kept for ever
            _FOUND.clear()
        _FOUND[cls] = _search(cls)
    return _FOUND[cls]


def _search(cls: type[Any]) -> Kind | None:
    for base in cls.__mro__:
        kind = _KINDS.get(base) or _KINDS.get(class_name(base))
        if kind is not None:
            return _NAMED_TUPLE if kind is _TUPLE and hasattr(cls, "_fields") else kind
    if dataclasses.is_dataclass(cls):
        return _DATACLASS
    return MAPPING if issubclass(cls, Mapping) else None


def imported_classes() -> list[type[Any]]:
    """Every registered class that is imported and that pytrees must be told about.

    Subclasses included, as pytrees look at the exact class; base classes first.
    """
    found: dict[type[Any], None] = {}

    def add(cls: type[Any]) -> None:
        kind = find_kind(cls)
        if cls not in found and kind is not None and kind.pytree:
            found[cls] = None
            for subclass in cls.__subclasses__():
                add(subclass)

    for entry, kind in _KINDS.items():
        cls = _resolve(entry) if isinstance(entry, str) else entry
        if cls is not None and kind.pytree:
            add(cls)
    return list(found)


def class_name(cls: type[Any]) -> str:
    """``"module:qualname"``.

    >>> class_name(OrderedDict)
    'collections:OrderedDict'
    """
    name = f"{cls.__module__}:{cls.__qualname__}"
    if "<locals>" in name:
        _LOCAL[name] = cls
    return name


def find_class(name: str) -> type[Any]:
    """The container class that a file names, without running anything the file says.

    Only classes this table knows are given back: registered ones, tuples with names, dataclasses
    (in modules that are imported, or in PyTorch and transformers), and other collections of
    PyTorch, transformers and Python itself.

    Args:
        name: as `class_name` gives it.

    Raises:
        UsageError: there is no such class, or it is none of those.
    """
    top = name.partition(".")[0].partition(":")[0]
    module = name.partition(":")[0]
    if re.fullmatch(MODULES_A_FILE_MAY_NAME, module):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UsageError(f"class {name} is not found: {error}") from error
    cls = _resolve(name)
    if cls is None:
        raise UsageError(f"class {name} is not found; import the module that defines it first")
    kind = find_kind(cls)
    allowed = cls in _KINDS or top in _LIBRARIES or dataclasses.is_dataclass(cls)
    if kind is None or not (allowed or kind.pytree or kind is _NAMED_TUPLE):
        raise UsageError(
            f"class {name} may not be made from a file; "
            "if it holds tensors, teach it with torchferry.values.kinds.register"
        )
    return cls


def find_class_here(name: str) -> type[Any]:
    """`find_class`, of classes of functions too, as long as this process has them.

    Raises:
        UsageError: see `find_class`.
    """
    return _LOCAL[name] if name in _LOCAL else find_class(name)


def _resolve(name: str) -> type[Any] | None:
    module, _, qualname = name.partition(":")
    value: Any = sys.modules.get(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, type) else None


def attempt(action: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
    """What ``action(*args)`` gives, and ``None``; or ``None``, and what it raises.

    For the code of classes that torchferry does not know: it may raise anything, and looking at a
    value must not end the program that made it. No memory and no stack left are not caught.
    """
    try:
        return action(*args), None
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # noqa: BLE001  (the wrapper around users' classes, see above)
        return None, error


def attributes_of(value: Any, kind: Kind, told: Collection[Hashable]) -> dict[str, Any]:
    """What stands in the dictionary and the slots of a container beside its children.

    Args:
        value: a container.
        kind: its entry.
        told: the keys of its children.

    Returns:
        nothing for kinds that tell of everything, as those of caches.
    """
    if not kind.attributes or type(value) in _PLAIN:
        return {}
    # Python's own, as a class may define another for pickle. It is a dictionary, or that and the
    # one of the slots.
    state: Any = object.__getstate__(value)
    if _is_its_own_dictionary(value) or state is None:
        return {}
    parts = state if isinstance(state, tuple) else (state,)
    found = {name: item for part in parts if part for name, item in part.items()}
    known = told if kind is _DATACLASS or kind is _MODEL_OUTPUT else ()
    return {name: item for name, item in found.items() if name not in known}


def _is_its_own_dictionary(value: Any) -> bool:
    return getattr(value, "__dict__", None) is value


# Neither __init__ nor another __new__ runs when these are put together: they may want other
# arguments, compute, add what was not there, or refuse what is not a tensor.


def _flatten_tuple(value: Any) -> Parts:
    return dict(enumerate(tuple.__iter__(value))), None


def _unflatten_tuple(cls: Any, children: dict[Hashable, Any], _: Any) -> Any:
    try:
        return tuple.__new__(cls, children.values())
    except TypeError:  # torch.Size and torch.return_types are made in C
        return cls(tuple(children.values()))


def _flatten_list(value: Any) -> Parts:
    return dict(enumerate(list.__iter__(value))), None


def _unflatten_list(cls: Any, children: dict[Hashable, Any], _: Any) -> Any:
    value = list.__new__(cls)
    list.extend(value, children.values())
    return value


_SELF = "its own __dict__"  # d.x is d["x"]: the context of a dictionary made so


def _flatten_dict(value: Any) -> Parts:
    items = (OrderedDict if isinstance(value, OrderedDict) else dict).items(value)
    return dict(items), _SELF if _is_its_own_dictionary(value) else None


def _unflatten_dict(cls: Any, children: dict[Hashable, Any], context: Any) -> Any:
    base: Any = OrderedDict if issubclass(cls, OrderedDict) else dict
    value = base.__new__(cls)
    for key, child in children.items():
        base.__setitem__(value, key, child)
    if context == _SELF:
        value.__dict__ = value
    return value


def _flatten_default_dict(value: Any) -> Parts:
    return dict(dict.items(value)), value.default_factory


def _unflatten_default_dict(cls: Any, children: dict[Hashable, Any], factory: Any) -> Any:
    value = defaultdict.__new__(cls)
    defaultdict.__init__(value, factory, children)
    return value


def _flatten_mapping(value: Any) -> Parts:
    return dict(value.items()), None


def _unflatten_mapping(cls: Any, children: dict[Hashable, Any], _: Any) -> Any:
    # Where such a class keeps its items is not known: it has to take them, as they are.
    value, error = attempt(cls, children)
    again = {} if error else dict(value.items())
    same = all(again.get(key) is child for key, child in children.items())
    if error or again.keys() != children.keys() or not same:
        reason = f": {error!r}" if error else ""
        raise ValueError(f"{cls.__name__}(items) does not give those items{reason}")
    return value


def _flatten_dataclass(value: Any) -> Parts:
    # A field without a default that __init__ does not set may have no value.
    fields = dataclasses.fields(value)
    return {f.name: getattr(value, f.name) for f in fields if hasattr(value, f.name)}, None


def _unflatten_dataclass(cls: Any, children: dict[Hashable, Any], _: Any) -> Any:
    value = cls.__new__(cls)
    for name, child in children.items():
        object.__setattr__(value, str(name), child)
    return value


def _flatten_model_output(value: Any) -> Parts:
    # A field that is None is absent from the mapping: so transformers registers it with pytrees.
    return dict(value.items()), None


def _unflatten_model_output(cls: Any, children: dict[Hashable, Any], _: Any) -> Any:
    # Its __post_init__ would unpack a first field that is a list of pairs or a dictionary.
    value = cls.__new__(cls)
    OrderedDict.__init__(value)
    for field in dataclasses.fields(cls):
        object.__setattr__(value, field.name, None)
    for name, child in children.items():
        OrderedDict.__setitem__(value, str(name), child)
        object.__setattr__(value, str(name), child)
    return value


_PLAIN = (tuple, list, dict, OrderedDict, defaultdict)
_TUPLE = Kind(_flatten_tuple, _unflatten_tuple, pytree=False, attributes=True)
_NAMED_TUPLE = Kind(_flatten_tuple, _unflatten_tuple, pytree=False, attributes=True)
_LIST = Kind(_flatten_list, _unflatten_list, pytree=False, attributes=True)
_DICT = Kind(_flatten_dict, _unflatten_dict, pytree=False, attributes=True)
MAPPING = Kind(_flatten_mapping, _unflatten_mapping, pytree=False, attributes=True)
"""The entry of mappings of any other class: where they keep their items is not known."""
_DATACLASS = Kind(_flatten_dataclass, _unflatten_dataclass, attributes=True)
_MODEL_OUTPUT = Kind(_flatten_model_output, _unflatten_model_output, pytree=False, attributes=True)
_KINDS[tuple] = _TUPLE
_KINDS[list] = _LIST
_KINDS[dict] = _DICT
_KINDS[defaultdict] = Kind(
    _flatten_default_dict, _unflatten_default_dict, pytree=False, attributes=True
)
_KINDS["transformers.utils.generic:ModelOutput"] = _MODEL_OUTPUT
