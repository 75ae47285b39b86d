"""Our lowerings, one file a family, in folders; importing this registers them all."""

from importlib import import_module
from pkgutil import walk_packages

__all__: list[str] = []

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
