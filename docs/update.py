"""Write what pages take from the code: files, the table of strategies, the representations.

Run: python docs/update.py (make docs does). A page marks such a part with

    <!-- include PATH -->, <!-- strategies -->, <!-- representations -->,
    <!-- frozen overview NAME NAME ... --> or <!-- frozen table NAME -->

and ends it with <!-- end -->. The tests fail while a page differs from what this would write.
"""

import re
from pathlib import Path

import labelwise
from labelwise.benchmark.report.thirds import format_experiment, format_overview, read_frozen
from labelwise.learner import REPRESENTATIONS

ROOT = Path(__file__).resolve().parent.parent
KINDS = r"include \S+|strategies|representations|frozen (?:overview|table)[\w -]+?"
MARKED = re.compile(rf"(<!-- ({KINDS}) -->\n).*?(<!-- end -->)", re.S)


def pages() -> list[Path]:
    """All pages in the repository, README included."""
    docs = ROOT / "docs"
    written = [
        page
        for page in sorted(docs.rglob("*.md"))
        if page.relative_to(docs).parts[0] not in ("generated", "_build")
    ]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *written]


def updated(text: str) -> str:
    """A page's text with all its marked parts as they should be."""
    return MARKED.sub(lambda found: f"{found[1]}\n{_part(found[2])}\n{found[3]}", text)


def _part(mark: str) -> str:
    if mark == "strategies":
        return _strategies()
    if mark == "representations":
        return _representations()
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


def _frozen(form: str, *names: str) -> str:
    """Tables of the frozen feature experiments from their committed lines."""
    folder = ROOT / "docs" / "results" / "frozen"
    found = read_frozen(folder / f"{name}.jsonl.gz" for name in names)
    if form == "overview":
        return format_overview(found)
    return "\n".join(map(format_experiment, found))


def main() -> None:
    """Rewrite the pages that differ."""
    for page in pages():
        text = page.read_text()
        if updated(text) != text:
            page.write_text(updated(text))
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
