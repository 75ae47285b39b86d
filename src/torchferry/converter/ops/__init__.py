"""Our lowerings, one file a family; importing this registers them all."""

from importlib import import_module
from pkgutil import iter_modules

__all__: list[str] = []

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
