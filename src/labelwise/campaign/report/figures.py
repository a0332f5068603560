"""The pictures of a campaign's report, as SVG that the page's colours paint, light or dark.

Every text that goes in is escaped. The pictures need no script and no file beside them.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WIDTH = 480.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 16.0, 14.0, 44.0
_HEIGHT = 270.0
_ROW = 26.0
_LONGEST = 16  # letters of a name beside a bar
_LETTER = 9.0  # the room that one takes, on a small screen


@dataclass(frozen=True)
class Point:
    """A measurement after a training.

    Attributes:
        labels: how many labels the model was trained on.
        value: what was measured.
        low: the lower end of its interval, or None.
        high: the upper end of its interval, or None.
    """

    labels: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bar:
    """A named amount.

    Attributes:
        name: beside the bar.
        amount: its length, at least 0.
        note: after the bar.
    """

    name: str
    amount: float
    note: str


def text(value: object) -> str:
    """A value as text that HTML and SVG show as it is.

    Example:
        >>> text("<b>&")
        '&lt;b&gt;&amp;'
    """
    return html.escape("".join(_visible(letter) for letter in str(value)))


def percent(share: float) -> str:
    """A share in percent.

    Example:
        >>> percent(0.9876)
        '98.8 %'
    """
    return f"{100 * share:.1f} %"


def _visible(letter: str) -> str:
    """The letter, or a mark where XML and HTML allow none."""
    number = ord(letter)
    control = (number < 32 and letter not in "\t\n\r") or 0x7F <= number < 0xA0
    no_letter = 0xD800 <= number < 0xE000 or number & 0xFFFE == 0xFFFE
    return "\ufffd" if control or no_letter else letter


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two others: steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> ticks(0, 100)
        [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    span = (high - low) / max(count, 1)
    if not span > 0 or not math.isfinite(span):
        return [low]
    power = 10.0 ** math.floor(math.log10(span))
    step = next((m * power for m in (1, 2, 5) if m * power >= span * (1 - 1e-9)), 10 * power)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def curve_svg(points: Sequence[Point], *, share: bool, label: str) -> str:
    """The learning curve with its band of intervals.

    Args:
        points: at least one, by number of labels.
        share: whether the values are shares, shown in percent, or errors, shown as they are.
        label: what a screen reader says.
    """
    scale = 100.0 if share else 1.0
    unit = " %" if share else ""
    lows = [scale * (p.value if p.low is None else p.low) for p in points]
    highs = [scale * (p.value if p.high is None else p.high) for p in points]
    bottom, top = _range(min(lows), max(highs), (0.0, 100.0) if share else (0.0, math.inf))
    axes = _Axes(_span([float(p.labels) for p in points]), (bottom, top))
    parts = [axes.grid("labels", unit)]
    if any(p.low is not None for p in points):
        band = [axes.at(p.labels, v) for p, v in zip(points, highs, strict=True)]
        band += [axes.at(p.labels, v) for p, v in zip(points[::-1], lows[::-1], strict=True)]
        if len(points) > 1:
            parts.append(f'<polygon class="band" points="{_pairs(band)}"/>')
        else:
            (x, y), (_, end) = band
            parts.append(f'<path class="whisker" d="M{x:.1f} {y:.1f}V{end:.1f}"/>')
    line = [axes.at(p.labels, scale * p.value) for p in points]
    parts.append(f'<polyline class="line" points="{_pairs(line)}"/>')
    for point, (x, y) in zip(points, line, strict=True):
        said = f"{point.labels:,} labels: {_number(scale * point.value)}{unit}"
        if point.low is not None and point.high is not None:
            said += f" ({_number(scale * point.low)} to {_number(scale * point.high)}{unit})"
        dot = f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{text(said)}</title>'
        parts.append(f"{dot}</circle>")
    return _svg(parts, WIDTH, _HEIGHT, label)


def steps_svg(times: Sequence[float], counts: Sequence[int], *, label: str) -> str:
    """How the number of labels grew: a step at every time.

    Args:
        times: seconds since the epoch, growing; at least one.
        counts: the labels there were from then on.
        label: what a screen reader says.
    """
    axes = _Axes(_span(list(times)), (0.0, _range(0.0, float(max(counts)), (0, math.inf))[1]))
    x, y = axes.at(times[0], 0)
    path = [f"M{x:.1f} {y:.1f}"]
    for time, count in zip(times, counts, strict=True):
        x, y = axes.at(time, count)
        path.append(f"H{x:.1f}V{y:.1f}")
    end = _LEFT + (WIDTH - _LEFT - _RIGHT)
    path.append(f"H{end:.1f}")
    area = "".join(path) + f"V{axes.at(0, 0)[1]:.1f}Z"
    parts = [axes.grid("", "", times=True), f'<path class="band" d="{area}"/>']
    parts.append(f'<path class="line" d="{"".join(path)}"/>')
    return _svg(parts, WIDTH, _HEIGHT, label)


def bars_svg(bars: Sequence[Bar], *, label: str) -> str:
    """Bars side by side, longest name cut, each with its note behind it.

    Args:
        bars: at least one; in the order shown.
        label: what a screen reader says.
    """
    names = [_cut(bar.name) for bar in bars]
    left = _LETTER * max(len(name) for name in names) + 12
    room = WIDTH - left - 8 - _LETTER * min(max(len(bar.note) for bar in bars) + 1, 21)
    longest = max(max(bar.amount for bar in bars), 1e-12)
    parts = []
    for place, (bar, name) in enumerate(zip(bars, names, strict=True)):
        y = place * _ROW
        length = max(room * bar.amount / longest, 1)
        middle = y + _ROW / 2 + 4.5
        parts.append(
            f"<g><title>{text(bar.name)}: {text(bar.note)}</title>"
            f'<text x="{left - 8:g}" y="{middle}" text-anchor="end">{text(name)}</text>'
            f'<rect class="bar" x="{left:g}" y="{y + 4}" width="{length:.1f}" '
            f'height="{_ROW - 8}" rx="3"/>'
            f'<text class="soft" x="{left + length + 7:.1f}" y="{middle}">'
            f"{text(bar.note)}</text></g>"
        )
    return _svg(parts, WIDTH, _ROW * len(bars), label)


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


class _Axes:
    """Where values lie on the picture."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        self.across, self.up = across, up

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a pair of values."""
        (left, right), (bottom, top) = self.across, self.up
        place = _LEFT + (WIDTH - _LEFT - _RIGHT) * (x - left) / (right - left)
        height = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (top - y) / (top - bottom)
        return place, height

    def grid(self, name: str, unit: str, *, times: bool = False) -> str:
        """Lines, numbers and the name under the axis."""
        parts = []
        for value in ticks(*self.up, count=4):
            y = self.at(self.across[0], value)[1]
            parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
            words = f"{_number(value)}{unit}"
            parts.append(
                f'<text class="soft" x="{_LEFT - 7}" y="{y + 4.5:.1f}" text-anchor="end">'
                f"{words}</text>"
            )
        base = _HEIGHT - _BOTTOM + 19
        if times:
            for value, anchor in zip(self.across, ("start", "end"), strict=True):
                x = self.at(value, self.up[0])[0]
                parts.append(
                    f'<text class="soft" x="{x:.1f}" y="{base}" text-anchor="{anchor}">'
                    f"{moment(value)}</text>"
                )
            return "".join(parts)
        for value in ticks(*self.across):
            if value != int(value):
                continue
            x = self.at(value, self.up[0])[0]
            parts.append(
                f'<text class="soft" x="{x:.1f}" y="{base}" text-anchor="middle">'
                f"{_number(value)}</text>"
            )
        middle = _LEFT + (WIDTH - _LEFT - _RIGHT) / 2
        parts.append(
            f'<text class="soft" x="{middle}" y="{_HEIGHT - 5}" text-anchor="middle">{name}</text>'
        )
        return "".join(parts)


def moment(at: float) -> str:
    """A time as text, in UTC.

    Example:
        >>> moment(0)
        '1970-01-01 00:00'
    """
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def _range(low: float, high: float, limits: tuple[float, float]) -> tuple[float, float]:
    """A range with some air around the values, within limits."""
    air = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return max(limits[0], low - air), min(limits[1], high + air)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 1, high + 1)


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _pairs(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _svg(parts: Sequence[str], width: float, height: float, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{text(label)}">'
        f"{''.join(parts)}</svg>"
    )
