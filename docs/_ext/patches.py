"""The patches of PyTorch and transformers that a capture applies."""

from __future__ import annotations

from rst import code, heading, prose

from torchferry.capturer.patches import PATCHES
from torchferry.capturer.patching.patch import Patch

__all__ = ["text"]


def text() -> str:
    """Each patch: what it replaces, why, for which versions, and the upstream discussion."""
    return "".join(_entry(patch) for patch in sorted(PATCHES, key=lambda one: one.subject))


def _entry(patch: Patch) -> str:
    link = patch.link
    versions = [
        f"{patch.library} {patch.since} or newer" * bool(patch.since),
        f"until {patch.library} {patch.until}" * bool(patch.until),
    ]
    when = ", ".join(filter(None, versions)) or f"every supported version of {patch.library}"
    rows = [
        ("Why", prose(patch.why)),
        ("Versions", when),
        ("Upstream", f"`{link} <{link}>`__" if "://" in link else prose(link)),
        ("Applied", "from the first attempt: without it the program is wrong at other sizes"
         if patch.silent else "when the unpatched capture fails"),
        ("Still needed", "a probe asks upstream" if patch.probe else "only a model can tell"),
    ]  # fmt: skip
    fields = "".join(f":{name}: {value}\n" for name, value in rows)
    return heading(code(patch.subject), "-", f"patch-{patch.subject.lower()}") + fields + "\n"
