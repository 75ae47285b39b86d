"""Check a built site: links, anchors, sizes, and that a page loads nothing from elsewhere.

python docs/_ext/links.py docs/_build/html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

__all__ = ["MAX_BYTES", "check", "main"]

MAX_BYTES = 1_000_000  # of a page
_LOADING = {"img": "src", "script": "src", "iframe": "src", "source": "src", "audio": "src"}


@dataclass
class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes that matter; the parser calls this."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(found["href"])
        elif found.get(_LOADING.get(tag, "")):
            self.loads.append(found[_LOADING[tag]])


def check(site: Path) -> Iterator[str]:
    """Yield one sentence for each fault of a site.

    Args:
        site: the folder with ``index.html``.
    """
    paths = sorted(site.rglob("*.html"))
    pages = {path.resolve(): _read(path) for path in paths}
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if path.stat().st_size > MAX_BYTES:
            yield f"{name} has {path.stat().st_size} bytes, more than {MAX_BYTES}"
        for link in page.loads:
            if urlsplit(link).scheme in ("http", "https") or link.startswith("//"):
                yield f"{name} loads {link} from another site"
            elif not urlsplit(link).scheme and not _target(path, link).exists():
                yield f"{name} loads {link}, which is not there"
        for link in page.links:
            yield from (f"{name}: {said}" for said in _broken(path, link, pages))


def _broken(path: Path, link: str, pages: dict[Path, Page]) -> Iterator[str]:
    if urlsplit(link).scheme:
        return
    plain, anchor = urldefrag(link)
    target = _target(path, plain) if plain else path
    if not target.exists():
        yield f"{link} is not there"
    elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
        yield f"{link}: the page has no such anchor"


def _target(path: Path, link: str) -> Path:
    target = (path.parent / unquote(urlsplit(link).path)).resolve()
    return target / "index.html" if target.is_dir() else target


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def main() -> None:
    """Print the faults; exit 1 if there are any."""
    faults = list(check(Path(sys.argv[1])))
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    sys.stdout.write(f"{len(faults)} faults in {sys.argv[1]}\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
