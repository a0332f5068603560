"""The pages against the code: parts taken from it, examples, links."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import labelwise
from labelwise.cli import run

ROOT = Path(__file__).resolve().parent.parent
UPDATE = runpy.run_path(str(ROOT / "docs" / "update.py"))
PAGES = UPDATE["pages"]()


def blocks(text, language):
    """The fenced blocks of a language, without those that are included files."""
    written = UPDATE["MARKED"].sub("", text)
    return re.findall(rf"```{language}\n(.*?)```", written, re.S)


def named(pages):
    return [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in pages]


@pytest.mark.parametrize("page", named(PAGES))
def test_what_a_page_takes_from_the_code_is_up_to_date(page):
    text = page.read_text()
    assert UPDATE["updated"](text) == text, f"run make docs to update {page.name}"


def read_protocol_numbers():
    """All whole numbers in the protocols: what the pages may say about a set-up."""
    folder = ROOT / "src" / "labelwise" / "benchmark" / "protocols"
    text = "".join(path.read_text() for path in folder.glob("*.toml"))
    return {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)}


@pytest.mark.parametrize("page", named(sorted((ROOT / "docs" / "results").glob("papers*.md"))))
def test_measured_numbers_of_the_papers_are_computed_from_their_lines(page):
    """Numbers outside the generated parts describe a set-up: none is measured."""
    text = UPDATE["MARKED"].sub("", page.read_text())
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)  # commands, names, targets of links
    assert "±" not in prose
    numbers = re.findall(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", prose)
    known = read_protocol_numbers()
    for number in (number.rstrip(",") for number in numbers):
        value = float(number.replace(",", ""))
        year = 1990 < value < 2030 and "," not in number
        assert value <= 20 or year or value in known or number in SET_UP, f"{page.name}: {number}"
        assert value in {int(value)} or number in SET_UP, f"{page.name}: {number} looks measured"


SET_UP = {
    "0.1.0",
    "0.1",
    "1e-4",
    "1e8",
    "0.2",
    "95",
    "50",
    "60,000",
    "84",
    "2,048",
    "18,000",
    "6,500",
}
"""Further numbers that describe a set-up: options, levels of tests, sizes of data and layers."""


def test_the_page_on_adding_a_strategy_holds_the_tested_files():
    text = (ROOT / "docs" / "adding_a_strategy.md").read_text()
    for path in ("examples/far_from_mean.py", "tests/test_far_from_mean.py"):
        assert (ROOT / path).read_text() in text


def test_the_readme_lists_every_strategy_with_what_it_is_good_for():
    text = (ROOT / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", text, re.M))
    assert rows == {name: entry.good_for for name, entry in labelwise.strategies().items()}


def test_the_example_of_the_readme_is_short():
    (example,) = blocks((ROOT / "README.md").read_text(), "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_the_example_of_the_readme_ends_with_70_labels_that_teach_the_network(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks((ROOT / "README.md").read_text(), "python")
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)
    labelled, images, digits = names["labelled"], names["images"], names["digits"]
    assert len(labelled) == len(np.unique(labelled)) == 70
    assert (names["learner"].predict(images) == digits).mean() > 0.6


def test_the_example_of_the_readme_needs_no_torch(tmp_path):
    (example,) = blocks((ROOT / "README.md").read_text(), "python")
    code = f"{example}\nimport sys\nassert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


WITH_CODE = [page for page in PAGES if blocks(page.read_text(), "(?:python|console)")]


@pytest.mark.parametrize("page", named(WITH_CODE))
def test_the_examples_of_a_page_run_in_order_in_an_empty_folder(
    page, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = UPDATE["MARKED"].sub("", page.read_text())
    for language, block in re.findall(r"```(python|console)\n(.*?)```", text, re.S):
        if language == "python":
            exec(compile(block, page.name, "exec"), names)
            continue
        for line in block.splitlines():
            assert line.startswith("$ labelwise ")
            assert run(shlex.split(line)[2:]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", named(PAGES))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http", "generated/")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_description_on_pypi_has_no_link_into_the_repository():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / project["readme"]).read_text()
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)", text)
    assert not [target for target in targets if not "".join(target).startswith("https://")]
    extras = set(re.findall(r"labelwise\[([a-z]+)\]", text))
    assert extras <= project["optional-dependencies"].keys()


def test_the_architecture_page_names_functions_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.py): (?:\w+\.)?(\w+)`", text)
    assert len(named) >= 8
    for path, name in named:
        source = (ROOT / "src" / "labelwise" / path).read_text()
        assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b", source, re.M), (path, name)


def test_the_site_builds_without_a_warning(tmp_path):
    """Also checks that every page is in a table of contents and every cross-reference resolves.

    The build runs the notebooks and converts every formula, and fails where one of them does.
    """
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    source = tmp_path / "docs"  # a copy: the build writes generated pages next to the others
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("generated", "_build"))
    done = subprocess.run(
        [*command, str(source), str(tmp_path / "site")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    gallery = (site / "generated" / "strategies.html").read_text()
    assert all(f'alt="{name}"' in gallery for name in labelwise.strategies())
    for notebook in ("select_and_train", "compare_strategies"):
        assert "Figure of the cell above" in (site / "generated" / f"{notebook}.html").read_text()
    loaded = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="https?:')
    assert not [page.name for page in site.rglob("*.html") if loaded.search(page.read_text())]
