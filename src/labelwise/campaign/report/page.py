"""The report page of a campaign: one HTML file, made from `templates/campaign_report.html`.

Texts of items and names of annotators come from outside; the template escapes all of them.
"""

from pathlib import Path

from labelwise.campaign.report.data import AnnotatorSummary, ReportData
from labelwise.campaign.report.figures import (
    Bar,
    draw_bars,
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
    curve = growth = balance = annotators = None
    if report.points:
        last = report.points[-1]
        value = f"{last.value:.4g}" if report.is_regression else format_percent(last.value)
        label = f"learning curve: {report.metric} {value} with {last.labels:,} labels in all"
        curve = inline_svg(draw_curve(report.points, is_share=not report.is_regression), label)
    if report.growth:
        times, counts = zip(*report.growth, strict=True)
        label = f"labels over time, {counts[-1]:,} at the end"
        growth = inline_svg(draw_growth(times, counts), label)
    if report.balance:
        balance = inline_svg(draw_bars(_balance_bars(report)), "number of items by label")
    if report.annotators:
        shown = report.annotators[:_MAX_BARS]
        bars = [Bar(one.name, one.labels, f"{one.labels:,}") for one in shown]
        annotators = inline_svg(draw_bars(bars), "labels by annotator")
    page = render_page(
        "campaign_report.html",
        report=report,
        curve=curve,
        curve_caption=_caption_curve(report),
        growth=growth,
        balance=balance,
        balance_caption=_caption_balance(report),
        annotators=annotators,
        annotator_rows=[_annotator_row(one) for one in report.annotators],
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


def _balance_bars(report: ReportData) -> list[Bar]:
    entries, rest = list(report.balance[:_MAX_BARS]), report.balance[_MAX_BARS:]
    if rest:
        entries.append((f"{len(rest):,} more", sum(count for _, count in rest)))
    total = sum(count for _, count in entries)
    return [
        Bar(name, count, f"{count:,} · {format_percent(count / total)}") for name, count in entries
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


def _annotator_row(one: AnnotatorSummary) -> tuple[str, ...]:
    return (
        one.name,
        f"{one.labels:,}",
        f"{one.skips:,}",
        "–" if one.seconds_per_label is None else f"{one.seconds_per_label:.1f}",
        f"{one.seconds / 3600:.2f}",
        "–" if one.reliability is None else format_percent(one.reliability),
    )


def _make_sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
