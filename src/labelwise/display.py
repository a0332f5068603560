"""Display of numbers, shares, durations, times, names and foreign texts in plain text."""

import time

_ZERO_WIDTH_JOINER = "\u200d"  # joins the parts of an emoji


def escape_text(value: object, longest: int | None = None) -> str:
    r"""Show a foreign text on one line, with control characters escaped.

    Args:
        value: The text, or a label.
        longest: Maximum number of characters.

    Example:
        >>> escape_text("ann\x1b[2J\nbob")
        'ann\\x1b[2J bob'
    """
    shown = "".join(
        letter
        if letter.isprintable() or letter == _ZERO_WIDTH_JOINER
        else letter.encode("unicode_escape").decode()
        for letter in " ".join(str(value).split())
    )
    if longest is not None and len(shown) > longest:
        return f"{shown[: longest - 1]}…"
    return shown


def format_person(name: str) -> str:
    """Format the name of an annotator.

    Example:
        >>> format_person("ann"), format_person("")
        ('ann', '(no name)')
    """
    return escape_text(name, 40) or "(no name)"


def format_count(count: int, one: str, several: str = "") -> str:
    """Format a number with its noun.

    Example:
        >>> format_count(1, "label"), format_count(1200, "label")
        ('1 label', '1,200 labels')
    """
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def format_percent(share: float) -> str:
    """Format a share in percent.

    Example:
        >>> format_percent(0.5), format_percent(0.9876)
        ('50.0 %', '98.8 %')
    """
    return f"{100 * share:.1f} %"


def format_duration(seconds: float) -> str:
    """Format a length of time in suitable units.

    Example:
        >>> [format_duration(value) for value in (0.0123, 4.25, 200, 7500)]
        ['0.01 s', '4.2 s', '3 min 20 s', '2 h 05 min']
    """
    if seconds < 60:
        return f"{seconds:.{2 if seconds < 0.1 else 1}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def format_time(at: float) -> str:
    """Format a time stamp in the local time zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"
