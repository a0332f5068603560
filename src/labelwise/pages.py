"""HTML pages: one Jinja2 environment and one base template for every page that is written.

A page is a template in ``labelwise/templates`` that extends ``base.html``. Values are escaped
automatically, an undefined name is an error, and a page needs no other file: its content
security policy forbids scripts and everything that would have to be loaded.
"""

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from labelwise.errors import require_extra

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render_page(template: str, **data: object) -> str:
    """Render a template with the given values.

    Raises:
        MissingDependency: if jinja2 is not installed.
    """
    return _make_environment().get_template(template).render(**data)


def inline_svg(svg: str, label: str, colours: Mapping[str, str] | None = None) -> "Markup":
    """Prepare an SVG file for a page: drop what precedes ``<svg`` and add a label for readers.

    Args:
        svg: The drawing. It is trusted: texts in it must be escaped already.
        label: Its description for screen readers; escaped here.
        colours: Colours to replace, such as ``{"#010101": "var(--ink)"}``, so that the drawing
            follows the light or dark scheme of the page.
    """
    _make_environment()  # fails with a clear message where jinja2 and markupsafe are missing
    from markupsafe import Markup, escape

    for drawn, shown in (colours or {}).items():
        svg = svg.replace(drawn, shown)
    opening = f'<svg role="img" aria-label="{escape(label)}"'
    return Markup(svg[svg.index("<svg") :].replace("<svg", opening, 1))


@cache
def _make_environment() -> "Environment":
    with require_extra("writing a page needs Jinja2", "demo"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    environment = Environment(
        loader=PackageLoader("labelwise"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["thousands"] = "{:,}".format
    environment.globals["labelwise_version"] = metadata.version("labelwise")
    return environment
