"""The base template and the functions that render pages."""

import re
import sys
from importlib import resources

import jinja2
import pytest

from labelwise import pages
from labelwise.errors import MissingDependency
from labelwise.pages import inline_svg, render_page

FILES = resources.files("labelwise")


@pytest.fixture
def templates(monkeypatch):
    """Render these templates next to the real ones."""
    extra = {}
    environment = pages._make_environment()
    loaders = [jinja2.DictLoader(extra), environment.loader]
    monkeypatch.setattr(environment, "loader", jinja2.ChoiceLoader(loaders))
    return extra


def read_colours(css):
    """The custom properties of both schemes, except those that only the labelling page uses."""
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    found = [dict(re.findall(r"--([a-z-]+): ([^;]+);", block)) for block in blocks]
    own = {"shadow", "point"}
    return [{name: value for name, value in block.items() if name not in own} for block in found]


def test_pages_have_the_colours_of_the_labelling_page():
    base = read_colours((FILES / "templates/base.html").read_text())
    page = read_colours((FILES / "web/page/style.css").read_text())
    assert base == page and len(base[1]) >= 12


def test_values_are_escaped_and_undefined_names_fail(templates):
    templates["page.html"] = (
        '{% extends "base.html" %}{% from "parts.html" import table, tiles %}'
        "{% block title %}{{ name }}{% endblock %}"
        "{% block main %}{{ table([name], [[name, name]]) }}{{ tiles([(name, name, name)]) }}"
        "{% endblock %}"
    )
    text = render_page("page.html", name="<img src=x onerror=alert(1)>")
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    assert "<img" not in text and text.count("&lt;img src=x") == 7
    with pytest.raises(jinja2.UndefinedError):
        render_page("page.html")


def test_a_page_loads_nothing():
    text = (FILES / "templates/base.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"<script|<link|src=|url\(|@import", text)


def test_a_drawing_is_labelled_and_takes_the_colours_of_the_page(templates):
    templates["page.html"] = '{% from "parts.html" import figure %}{{ figure(svg, caption) }}'
    svg = inline_svg(
        '<?xml?>\n<svg><path fill="#010101"/></svg>', '"<b>', {"#010101": "var(--ink)"}
    )
    text = render_page("page.html", svg=svg, caption="<i>")
    assert '<svg role="img" aria-label="&#34;&lt;b&gt;"><path fill="var(--ink)"/></svg>' in text
    assert "<figcaption>&lt;i&gt;</figcaption>" in text


def test_without_jinja2_the_extra_is_named(monkeypatch):
    pages._make_environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=r"Jinja2 .*labelwise\[demo\]"):
        render_page("base.html")
