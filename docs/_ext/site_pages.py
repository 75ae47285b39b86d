"""The Sphinx extension of the site: parts of pages that are written from the code.

``.. generated:: NAME [argument …]`` stands for the text that `PAGES` has by that name. The default
role shows names between backticks: a link for a public name, code for any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import commands
import figures
import files
import notation
import operators
import patches
import public_names
import rules
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

import messages

__all__ = ["PAGES", "setup"]

PAGES: dict[str, Callable[..., str]] = {
    "api": public_names.api,
    "coverage": operators.coverage_text,
    "commands": commands.text,
    "errors": messages.text,
    "figures": figures.text,
    "files": files.text,
    "notation": notation.text,
    "operators": operators.text,
    "patches": patches.text,
    "rules": rules.text,
}


class Generated(SphinxDirective):
    """Text of a function of `PAGES`, parsed as if it stood in the page."""

    has_content = False
    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Parse the text; it may hold headings."""
        self.env.note_reread()  # the code may have changed, and the page has not
        name, *rest = self.arguments
        text = PAGES[name](*(rest[0].split() if rest else ()))
        parsed: list[nodes.Node] = self.parse_text_to_nodes(text, allow_section_headings=True)
        return parsed


class Public(SphinxRole):
    """A public name as a link to its entry; anything else as code."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Make the link."""
        text = self.text
        code = nodes.literal(text, text)
        target = public_names.full_name(text)
        if not target:
            return [code], []
        link = addnodes.pending_xref(
            self.rawtext, code, refdomain="py", reftype="obj", reftarget=target,
            refexplicit=True, refwarn=False,
        )  # fmt: skip
        return [link], []


def drop_folder(app: Sphinx, page: str, source: list[str]) -> None:
    """Show the files of examples without the folder in which this site is built."""
    if page.startswith("auto_"):
        for folder in (f"{app.srcdir}/", f"{app.srcdir.parent}/"):
            source[0] = source[0].replace(folder, "")


def give_levels(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _doctree: Any
) -> None:
    """Give the captions of the navigation, which are headings, a level: readers of screens ask."""
    tree = "furo_navigation_tree"
    context[tree] = str(context.get(tree, "")).replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def keep_first_line(
    _app: Sphinx, what: str, _name: str, _value: Any, _options: Any, lines: list[str]
) -> None:
    """Keep napoleon from taking what stands before a colon for the type of a property."""
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the role."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("generated", Generated)
    app.add_role("public", Public())
    app.add_object_type("message", "message", "pair: %s; message", objname="message")
    app.connect("source-read", drop_folder)
    app.connect("html-page-context", give_levels, priority=900)  # after the theme
    app.connect("autodoc-process-docstring", keep_first_line, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
