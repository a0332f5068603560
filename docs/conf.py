"""Sphinx configuration of the documentation site; `make docs` builds it."""

import importlib.metadata
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

project = "labelwise"
author = "The labelwise authors"
copyright = author  # the name that Sphinx reads
version = release = importlib.metadata.version("labelwise")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinxcontrib.mermaid",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# One backtick in a docstring marks a name in the code, which need not have a page.
default_role = "literal"

html_theme = "furo"
html_title = f"labelwise {version}"
html_baseurl = ""
html_theme_options = {"navigation_with_keys": True}


def setup(app: Sphinx) -> None:
    """Generate the gallery and the reference of strategies before the pages are read."""
    import gallery

    app.connect("builder-inited", lambda app: gallery.write_pages(HERE / "generated"))
