"""The report page of a campaign: one HTML file, made from `templates/campaign_report.html`.

Texts of items and names of annotators come from outside; the template escapes all of them.
"""

import html
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from labelwise.campaign.evaluation import ModelScore
from labelwise.campaign.report.data import ReportData
from labelwise.display import format_percent
from labelwise.files import write_text
from labelwise.pages import inline_svg, render_page

_MAX_BARS = 24

# Figures are SVG with CSS classes that the page colours.
WIDTH = 480.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 16.0, 14.0, 44.0
_HEIGHT = 270.0
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def write_report(report: ReportData, path: Path) -> None:
    """Write the page atomically."""
    write_text(path, render_report(report))


def render_report(report: ReportData) -> str:
    """Render the page.

    Example:
        >>> "<h1>birds &amp; bees</h1>" in render_report(ReportData("birds & bees", items=1000))
        True
    """
    curve = growth = None
    if report.points:
        last = report.points[-1]
        value = f"{last.value:.4g}" if report.is_regression else format_percent(last.value)
        label = f"learning curve: {report.metric} {value} with {last.labels:,} labels in all"
        curve = inline_svg(draw_curve(report.points, is_share=not report.is_regression), label)
    if report.growth:
        times, counts = zip(*report.growth, strict=True)
        label = f"labels over time, {counts[-1]:,} at the end"
        growth = inline_svg(draw_growth(times, counts), label)
    page = render_page(
        "campaign_report.html",
        report=report,
        curve=curve,
        curve_caption=_caption_curve(report),
        growth=growth,
        balance=_list_balance_bars(report.balance),
        balance_caption=_caption_balance(report),
        made=format_time(report.made),
        percent=format_percent,
        sentence=_make_sentence,
    )
    return replace_unprintable(page)


def _caption_curve(report: ReportData) -> str:
    if not report.measured:
        return _make_sentence(report.metric)
    items = f"{report.measured:,} item{'' if report.measured == 1 else 's'}"
    return _make_sentence(
        f"{report.metric} on {items} drawn at random and not used for training; the band is the "
        "95 % interval"
    )


def _list_balance_bars(balance: Sequence[tuple[str, int]]) -> list[tuple[str, float, str]]:
    """Name, length in per cent and note of each bar; the last one stands for all further ones."""
    entries, rest = list(balance[:_MAX_BARS]), balance[_MAX_BARS:]
    if rest:
        entries.append((f"{len(rest):,} more", sum(count for _, count in rest)))
    counts = [count for _, count in entries]
    total, longest = sum(counts), max(counts, default=1)
    return [
        (name, 100 * count / longest, f"{count:,} · {format_percent(count / total)}")
        for name, count in entries
    ]


def _caption_balance(report: ReportData) -> str:
    if report.is_regression:
        return "Number of labelled items by range."
    caption = "Number of labelled items by class."
    counts = [count for _, count in report.balance]
    if len(counts) > 1 and not min(counts):
        return f"{caption} Some classes have no label yet."
    if len(counts) > 1:
        return (
            f"{caption} The largest class has {max(counts) / min(counts):.1f} times the smallest."
        )
    return caption


def _make_sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def replace_unprintable(text: str) -> str:
    """Replace characters that XML and HTML do not allow by the replacement character."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escape_svg(value: object) -> str:
    """Escape a value for SVG.

    Example:
        >>> escape_svg("<b>&")
        '&lt;b&gt;&amp;'
    """
    return html.escape(replace_unprintable(str(value)))


def choose_axis_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers in a range: steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> choose_axis_ticks(0, 100)
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


def draw_curve(points: Sequence[ModelScore], *, is_share: bool) -> str:
    """Draw the learning curve with its band of intervals."""
    scale = 100.0 if is_share else 1.0
    unit = " %" if is_share else ""
    lows = [scale * (p.value if p.low is None else p.low) for p in points]
    highs = [scale * (p.value if p.high is None else p.high) for p in points]
    bottom, top = _pad_axis_range(
        min(lows), max(highs), (0.0, 100.0) if is_share else (0.0, math.inf)
    )
    axes = _Axes(_find_axis_extent([float(p.labels) for p in points]), (bottom, top))
    parts = [axes.draw_grid("labels", unit)]
    if any(p.low is not None for p in points):
        band = [axes.locate(p.labels, v) for p, v in zip(points, highs, strict=True)]
        band += [axes.locate(p.labels, v) for p, v in zip(points[::-1], lows[::-1], strict=True)]
        if len(points) > 1:
            parts.append(f'<polygon class="band" points="{_format_svg_points(band)}"/>')
        else:
            (x, y), (_, end) = band
            parts.append(f'<path class="whisker" d="M{x:.1f} {y:.1f}V{end:.1f}"/>')
    line = [axes.locate(p.labels, scale * p.value) for p in points]
    parts.append(f'<polyline class="curve" points="{_format_svg_points(line)}"/>')
    for point, (x, y) in zip(points, line, strict=True):
        said = f"{point.labels:,} labels: {_format_number(scale * point.value)}{unit}"
        if point.low is not None and point.high is not None:
            low, high = _format_number(scale * point.low), _format_number(scale * point.high)
            said += f" ({low} to {high}{unit})"
        circle = f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">'
        parts.append(f"{circle}<title>{escape_svg(said)}</title></circle>")
    return _make_svg(parts, _HEIGHT)


def draw_growth(times: Sequence[float], counts: Sequence[int]) -> str:
    """Draw the number of labels over time: a step at every time."""
    axes = _Axes(
        _find_axis_extent(list(times)),
        (0.0, _pad_axis_range(0.0, float(max(counts)), (0, math.inf))[1]),
    )
    x, y = axes.locate(times[0], 0)
    path = [f"M{x:.1f} {y:.1f}"]
    for time, count in zip(times, counts, strict=True):
        x, y = axes.locate(time, count)
        path.append(f"H{x:.1f}V{y:.1f}")
    end = _LEFT + (WIDTH - _LEFT - _RIGHT)
    path.append(f"H{end:.1f}")
    area = "".join(path) + f"V{axes.locate(0, 0)[1]:.1f}Z"
    parts = [axes.draw_grid("", "", times=True), f'<path class="band" d="{area}"/>']
    parts.append(f'<path class="curve" d="{"".join(path)}"/>')
    return _make_svg(parts, _HEIGHT)


class _Axes:
    """Positions of values in the figure."""

    def __init__(self, across: tuple[float, float], up: tuple[float, float]) -> None:
        self.across, self.up = across, up

    def locate(self, x: float, y: float) -> tuple[float, float]:
        """The position of a pair of values."""
        (left, right), (bottom, top) = self.across, self.up
        place = _LEFT + (WIDTH - _LEFT - _RIGHT) * (x - left) / (right - left)
        height = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (top - y) / (top - bottom)
        return place, height

    def draw_grid(self, name: str, unit: str, *, times: bool = False) -> str:
        """Draw grid lines, numbers and the name of the axis."""
        parts = []
        for value in choose_axis_ticks(*self.up, count=4):
            y = self.locate(self.across[0], value)[1]
            parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
            words = f"{_format_number(value)}{unit}"
            parts.append(
                f'<text class="soft" x="{_LEFT - 7}" y="{y + 4.5:.1f}" text-anchor="end">'
                f"{words}</text>"
            )
        base = _HEIGHT - _BOTTOM + 19
        if times:
            for value, anchor in zip(self.across, ("start", "end"), strict=True):
                x = self.locate(value, self.up[0])[0]
                parts.append(
                    f'<text class="soft" x="{x:.1f}" y="{base}" text-anchor="{anchor}">'
                    f"{format_time(value)}</text>"
                )
            return "".join(parts)
        for value in choose_axis_ticks(*self.across):
            if value != int(value):
                continue
            x = self.locate(value, self.up[0])[0]
            parts.append(
                f'<text class="soft" x="{x:.1f}" y="{base}" text-anchor="middle">'
                f"{_format_number(value)}</text>"
            )
        middle = _LEFT + (WIDTH - _LEFT - _RIGHT) / 2
        parts.append(
            f'<text class="soft" x="{middle}" y="{_HEIGHT - 5}" text-anchor="middle">{name}</text>'
        )
        return "".join(parts)


def format_time(at: float) -> str:
    """Format a time in UTC.

    Example:
        >>> format_time(0)
        '1970-01-01 00:00'
    """
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return f"{at:g}"


def _pad_axis_range(low: float, high: float, limits: tuple[float, float]) -> tuple[float, float]:
    """Add a margin to a range, within limits."""
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return max(limits[0], low - margin), min(limits[1], high + margin)


def _find_axis_extent(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 1, high + 1)


def _format_number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _format_svg_points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _make_svg(parts: Sequence[str], height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH:g} {height:g}">{"".join(parts)}</svg>'
