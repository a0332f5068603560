"""Render notebooks: run their cells and write Markdown pages with the outputs.

A cell's output is what it prints, and the value of its last line: a figure, HTML or text. Cells are
plain Python without magics, so neither Jupyter nor a kernel is needed to build the documentation.
"""

import ast
import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure


def render_notebook(notebook: Path, folder: Path) -> str:
    """Run a notebook and describe it in Markdown; figures are saved in the folder."""
    cells = json.loads(notebook.read_text())["cells"]
    names: dict[str, object] = {"__name__": "__main__"}
    parts = []
    for number, cell in enumerate(cells):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += _run_cell(source, names, folder / f"{notebook.stem}-{number}.png")
    return "\n\n".join(parts) + "\n"


def _run_cell(source: str, names: dict[str, object], picture: Path) -> Iterator[str]:
    """Run a cell; yield what it prints and the value of its last line."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    if printed.getvalue():
        yield f"```text\n{printed.getvalue().rstrip()}\n```"
    if isinstance(value, Figure):
        value.savefig(picture, dpi=110)
        yield f"![Figure of the cell above]({picture.name})"
    elif hasattr(value, "_repr_html_"):
        html = value._repr_html_()
        yield "```{raw} html\n" + html + "\n```"
    elif value is not None:
        yield f"```text\n{value!r}\n```"
