"""How the commands of a campaign put amounts, times and other people's texts into words."""

import sys
import time
from typing import Any

_JOINER = "\u200d"  # holds the parts of an emoji together


def safe(value: object, longest: int | None = None) -> str:
    r"""A text from outside on one line, unable to steer the terminal.

    Args:
        value: the text, or a label.
        longest: cut it to so many letters.

    Example:
        >>> safe("ann\x1b[2J\nbob")
        'ann\\x1b[2J bob'
    """
    text = " ".join(str(value).split())
    shown = "".join(letter if _prints(letter) else _escaped(letter) for letter in text)
    if longest is not None and len(shown) > longest:
        return f"{shown[: longest - 1]}…"
    return shown


def _prints(letter: str) -> bool:
    return letter.isprintable() or letter == _JOINER


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def person(name: str) -> str:
    """An annotator's name as it is printed.

    Example:
        >>> person("ann"), person("")
        ('ann', '(no name)')
    """
    return safe(name, 40) or "(no name)"


def many(count: int, one: str, several: str = "") -> str:
    """A number with its noun.

    Example:
        >>> many(1, "label"), many(1200, "label"), many(2, "batch", "batches")
        ('1 label', '1,200 labels', '2 batches')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def formula_note(out: object, formulas: int, remedy: str = "for one, add --spreadsheet") -> None:
    """Say that a .csv file holds texts which spreadsheet programs would compute."""
    if formulas:
        texts = many(formulas, "text begins", "texts begin")
        print(
            f"note: {texts} like a formula in {out}; a spreadsheet program would compute "
            f"{'it' if formulas == 1 else 'them'}: {remedy}",
            file=sys.stderr,
        )


def percent(share: float) -> str:
    """A share in percent.

    Example:
        >>> percent(0.5), percent(0.9876)
        ('50.0 %', '98.8 %')
    """
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """A length of time, in the units that suit it.

    Example:
        >>> duration(4.25), duration(200), duration(7500)
        ('4.2 s', '3 min 20 s', '2 h 05 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def clock(at: float) -> str:
    """A time as the user's own clock shows it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def print_lines(lines: list[tuple[str, str]]) -> None:
    """Print names and what belongs to them, in two columns."""
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print(f"{name:<{width}}  {value}".rstrip())


def measured(metrics: dict[str, Any]) -> tuple[str, float] | None:
    """The name and the value of what a training measured, or None where nothing was.

    Example:
        >>> measured({"accuracy": 0.9, "loss": 0.2}), measured({"mse": 2.0}), measured({})
        (('accuracy', 0.9), ('mse', 2.0), None)
    """
    for name in ("accuracy", "mse"):
        if metrics.get(name) is not None:
            return name, float(metrics[name])
    return None


def learned(trained: Any) -> int:
    """How many labels a model was trained on, those that it was measured on left out."""
    return int(trained.metrics.get("training_labels", trained.labels))
