"""Sphinx's settings; `make docs` builds the site."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# The examples run in processes of their own, a core each.
CORES = len(os.sched_getaffinity(0))
PATHS = [str(HERE / "_ext"), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ |= {"PYTHONPATH": os.pathsep.join(PATHS), "MPLBACKEND": "agg", "HF_HUB_OFFLINE": "1"}
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # of files that an example writes
# torch 2.13 says this of its own run_decompositions; no page is about it.
os.environ["PYTHONWARNINGS"] = "ignore:`isinstance(treespec:FutureWarning"
os.environ.setdefault("OMP_NUM_THREADS", "1")

from inventory import write_inventory  # noqa: E402  (it lies in the folder of the line above)
from sphinx_gallery.sorting import FileNameSortKey  # noqa: E402  (as above)

import torchferry  # noqa: E402  (as above)

project = "torchferry"
author = copyright = "The torchferry authors"  # noqa: A001  (Sphinx's own name)
version = release = torchferry.__version__
language = "en"

extensions = [
    "myst_parser",
    "site_pages",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "_ext",
    "GALLERY_HEADER.rst",
    "*/GALLERY_HEADER.rst",
    "gallery",
    "guides",
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions

# Examples: scripts that the build runs ----------------------------------------------------------

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": ["guides", "gallery", "../examples"],
    "gallery_dirs": ["auto_guides", "auto_gallery", "auto_examples"],
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(^|/)_",
    "within_subsection_order": FileNameSortKey,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib\.",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "plot_gallery": True,
    "min_reported_time": 20,
    "image_scrapers": ("matplotlib",),
    "thumbnail_size": (320, 224),
    "write_computation_times": False,
    "parallel": CORES,
}

# Reference --------------------------------------------------------------------------------------

default_role = "public"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
napoleon_use_ivar = True
add_module_names = False
nitpicky = True
nitpick_ignore_regex = [
    # Classes of the package's own that a signature names and that are not public.
    (r"py:.*", r"torchferry\..*"),
    # Names in signatures that have no page in the inventories of docs/inventories.
    (r"py:.*", r"(ir|onnx_ir|onnx|onnxruntime|torch|transformers|collections|np|numpy|PIL)\..*"),
    (r"py:class", r"[A-Za-z]\w*"),
    (r"py:class", r"(tuple|list|dict)\[.*"),  # of which napoleon splits the text
    (r"py:.*", r"(optional|\.\.\.|inspect\..*|types\..*|RuleBroke)"),
]
intersphinx_mapping = {
    name: (url, write_inventory(HERE / "inventories" / f"{name}.txt", HERE / "_build/inventories"))
    for name, url in (
        ("python", "https://docs.python.org/3/"),
        ("torch", "https://docs.pytorch.org/docs/stable/"),
        ("onnx_ir", "https://onnx.ai/ir-py/"),
        ("onnxruntime", "https://onnxruntime.ai/docs/api/python/"),
        ("transformers", "https://huggingface.co/docs/transformers/"),
    )
}

# The site ---------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"torchferry {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {"navigation_with_keys": True}
pygments_style = "default"
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
