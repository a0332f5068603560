"""The report page of a campaign: one HTML file, made from `templates/campaign_report.html`.

Texts of items and names of annotators come from outside; the template escapes all of them.
"""

from collections.abc import Sequence
from pathlib import Path

from labelwise.campaign.report.data import ReportData
from labelwise.campaign.report.figures import (
    draw_curve,
    draw_growth,
    format_time,
    replace_unprintable,
)
from labelwise.display import format_percent
from labelwise.files import write_text
from labelwise.pages import inline_svg, render_page

_MAX_BARS = 24


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
