"""Sphinx configuration of the documentation site; `make docs` builds it."""

import importlib.metadata
import logging
import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
logging.getLogger("labelwise").setLevel(logging.WARNING)

project = "labelwise"
author = "The labelwise authors"
copyright = author  # the name that Sphinx reads
version = release = importlib.metadata.version("labelwise")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
maximum_signature_line_length = 80  # longer ones have one argument per line
autodoc_member_order = "bysource"
# One backtick in a docstring marks a name in the code, which need not have a page.
default_role = "literal"
smartquotes = False  # --option keeps its dashes

# Formulas are MathML, so that the site loads nothing from other servers.
html_math_renderer = "mathml"
html_css_files = ["gallery.css"]
html_static_path = ["static"]
html_theme = "furo"
html_title = f"labelwise {version}"
html_baseurl = ""
html_theme_options = {"navigation_with_keys": True}


def write_math(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula as MathML."""
    display = isinstance(node, nodes.math_block)
    text = node.astext()
    if display and ("\\\\" in text or "&" in text):
        text = f"\\begin{{aligned}}{text}\\end{{aligned}}"
    # Parentheses grow by themselves in MathML, and docutils knows only some of the dots.
    text = re.sub(r"\\[bB]ig[lr]?(?![a-zA-Z])", "", text).replace("\\dots", "\\ldots")
    formula = latex2mathml.tex2mathml(text, as_block=display)
    translator.body.append(f"<div class='math'>{formula}</div>" if display else formula)
    raise nodes.SkipNode


def write_generated_pages(app: Sphinx) -> None:
    """Write the strategies, the command line and the notebooks as pages before they are read."""
    import command_reference
    import gallery
    import notebooks

    folder = HERE / "generated"
    folder.mkdir(exist_ok=True)
    gallery.write_pages(folder)
    pages = {"command_line": command_reference.describe_commands()}
    for notebook in sorted((HERE / "notebooks").glob("*.ipynb")):
        pages[notebook.stem] = notebooks.render_notebook(notebook, folder)
    for name, text in pages.items():
        gallery.write_if_changed(folder / f"{name}.md", text)


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas and the generated pages."""
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("builder-inited", write_generated_pages)
