"""The report's page: one HTML file that needs nothing else, in light and dark."""

import html
import math
import re
from collections.abc import Sequence
from datetime import datetime

from labelwise.arrays import Floats
from labelwise.benchmark.report.figures import (
    DARK,
    LIGHT,
    PAGE,
    curves_figure,
    differences_figure,
    gains_figure,
    panel_figure,
    ranks_figure,
    svg,
    variables,
)
from labelwise.benchmark.report.findings import Findings, Overall
from labelwise.benchmark.report.papers import paper_curves
from labelwise.benchmark.report.style import DEFINITIONS, FRAME, STYLE
from labelwise.benchmark.report.tables import (
    Cell,
    Table,
    area_table,
    balance_table,
    costs_table,
    differences_table,
    labels_table,
)
from labelwise.benchmark.report.words import (
    Unit,
    caveats,
    lede,
    mixed_text,
    ranks_text,
    sentence,
    untested_text,
)
from labelwise.benchmark.results import Round


def page(
    findings: Sequence[Findings],
    together: Overall,
    *,
    title: str,
    commands: Sequence[str] = (),
) -> str:
    """The whole page as text.

    Args:
        findings: one per experiment.
        together: what they show together; told where there are several.
        title: of the page.
        commands: that repeat the runs and the report.
    """
    several = len(findings) > 1
    parts = [f"<h1>{_text(title)}</h1>"]
    if several:
        parts += [_contents(findings), _together(findings, together)]
    parts += [_section(entry, titled=several) for entry in findings]
    parts += [DEFINITIONS]
    if commands:
        lines = "".join(f"<p><code>{_text(command)}</code></p>" for command in commands)
        parts.append(f"<h2>To repeat it</h2>{lines}")
    style = STYLE.replace("LIGHT", variables(LIGHT)).replace("DARK", variables(DARK))
    return FRAME.format(title=_text(title), style=style, body="\n".join(parts))


def _contents(findings: Sequence[Findings]) -> str:
    lines = [
        f'<li><a href="#{_anchor(entry)}">{_text(_name(entry))}</a>: {_text(lede(entry))}</li>'
        for entry in findings
    ]
    return f"<nav><ul>{''.join(lines)}</ul></nav>"


def _together(findings: Sequence[Findings], together: Overall) -> str:
    parts = [
        "<section><h2>All experiments together</h2>",
        f"<p>{_text(ranks_text(together))}</p>",
    ]
    if together.ranks is not None:
        label = "critical-difference plot: mean ranks of the strategies"
        figure = svg(ranks_figure(together.ranks, PAGE), label)
        parts.append(f'<figure class="wide">{figure}</figure>')
    if together.left_out:
        names = _text(", ".join(together.left_out))
        parts.append(f'<p class="note">Not ranked, as not in every experiment: {names}.</p>')
    parts.append("<h3>Gain in area over the first baseline</h3>")
    parts.append(_table(_gains(findings, together.names)))
    parts.append(
        '<p class="note">In each metric’s unit; above zero is better. * is borne out by a test, '
        "corrected for the comparisons of its experiment.</p>"
    )
    parts += ["<h3>Wins over all experiments</h3>", _wins(together.names, together.wins)]
    return "\n".join([*parts, "</section>"])


def _gains(findings: Sequence[Findings], names: Sequence[str]) -> Table:
    """Strategies by experiments; a star marks what a test bears out."""
    rows = []
    for name in names:
        row: list[Cell] = [name]
        for entry in findings:
            unit = Unit(entry.experiment.metric)
            found = [c for c in entry.contrasts.get(_first(entry), ()) if c.strategy == name]
            star = "*" if found and found[0].verdict not in ("unclear", "one seed") else ""
            row.append(f"{unit.text(found[0].area.gain.value, '+')}{star}" if found else "–")
        rows.append(tuple(row))
    return Table(("strategy", *(_name(entry) for entry in findings)), tuple(rows))


def _section(findings: Findings, *, titled: bool) -> str:
    experiment = findings.experiment
    unit = Unit(experiment.metric)
    parts = [f'<section id="{_anchor(findings)}">']
    parts += [f"<h2>{_text(_name(findings))}</h2>"] if titled else []
    parts += [f'<p class="lede">{_text(lede(findings))}</p>', _setting(findings)]
    level = "h3" if titled else "h2"
    parts += [f"<{level}>What beat what</{level}>", _sentences(findings)]
    if len(experiment.labels) > 1:
        parts += [f"<{level}>Learning curves</{level}>", _curves(findings)]
    areas = _table(area_table(findings)) + _paper_note(findings, ("area", "final"))
    parts += [f"<{level}>Area under the curve</{level}>", areas]
    for baseline, contrasts in findings.contrasts.items():
        if contrasts:
            figure = svg(
                differences_figure(contrasts, unit, PAGE), f"differences of areas to {baseline}"
            )
            parts += [
                f"<{level}>Paired differences to {_text(baseline)}</{level}>",
                f'<figure class="wide">{figure}</figure>',
                _table(differences_table(contrasts, unit)),
            ]
    if len(experiment.labels) > 1 and experiment.axis == "labels":
        parts += [f"<{level}>Labels needed</{level}>", _table(labels_table(findings))]
    if len(experiment.labels) > 1 and len(findings.names) > 1:
        parts += [f"<{level}>Wins, round by round</{level}>", _wins(findings.names, findings.wins)]
    costs = _table(costs_table(findings)) + _paper_note(findings, ("seconds",))
    parts += [f"<{level}>What a batch costs</{level}>", costs]
    balance = _table(balance_table(findings)) + _paper_note(findings, ("imbalance",))
    parts += [f"<{level}>Balance of the labelled set</{level}>", balance]
    parts += [f"<{level}>What was run</{level}>", _facts(findings)]
    return "\n".join([*parts, "</section>"])


def _setting(findings: Findings) -> str:
    experiment = findings.experiment
    reduced = {entry.reduced for entries in experiment.rounds.values() for entry in entries}
    reduced.discard("")
    facts = [experiment.dataset, experiment.network, f"scale {experiment.scale}"]
    facts.append(f"{len(experiment.seeds)} seed{'s' if len(experiment.seeds) > 1 else ''}")
    facts.append(f"{experiment.labels[0]:,} to {experiment.labels[-1]:,} {experiment.axis}")
    text = f'<p class="note">{_text(" · ".join(facts))}</p>'
    for what in sorted(reduced):
        text += f'<p class="warn"><b>Reduced against the paper:</b> {_text(what)}</p>'
    if mixed := mixed_text(experiment):
        text += f'<p class="warn"><b>Mixed:</b> {_text(mixed)}</p>'
    if experiment.notes:
        lines = "".join(f"<li>{_text(note)}</li>" for note in experiment.notes)
        text += f'<div class="warn"><b>Missing or odd in these results:</b><ul>{lines}</ul></div>'
    return text


def _sentences(findings: Findings) -> str:
    unit = Unit(findings.experiment.metric)
    text = ""
    for baseline, contrasts in findings.contrasts.items():
        if contrasts:
            lines = "".join(
                f'<li class="{entry.verdict.split()[-1]}">{_text(sentence(entry, unit))}</li>'
                for entry in contrasts
            )
            text += f"<h4>Against {_text(baseline)}</h4><ul class=says>{lines}</ul>"
    notes = caveats(findings.experiment, findings.contrasts.get(_first(findings), ()))
    notes += [note for name in findings.contrasts if (note := untested_text(findings, name))]
    text += "".join(f'<p class="note">{_text(note)}</p>' for note in notes)
    return text or '<p class="note">Nothing could be compared.</p>'


def _curves(findings: Findings) -> str:
    figures = [curves_figure(findings, PAGE), gains_figure(findings, PAGE)]
    wide = "".join(
        f"<figure>{svg(figure, label)}</figure>"
        for figure, label in zip(figures, ("mean curves", "gains over the baseline"), strict=True)
        if figure is not None
    )
    names = [name for name in findings.names if name != _first(findings)] or findings.names
    panels = "".join(
        f"<figure>{svg(panel_figure(findings, name, PAGE), f'{name} with its band')}</figure>"
        for name in names
    )
    note = "Above: means over seeds. Below: every strategy "
    note += f"beside {_first(findings)} (dashed grey), " if _first(findings) else ""
    note += "with the 95 % interval of each mean."
    printed = paper_curves(findings.experiment.name, findings.experiment.dataset)
    note += f" Circles are the paper’s ({printed.where})." if printed else ""
    return (
        f'<div class="pair">{wide}</div><p class="note">{_text(note)}</p>'
        f'<div class="panels">{panels}</div>'
    )


def _wins(names: Sequence[str], wins: Floats) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    rows = []
    for row, name in enumerate(names):
        cells = "".join(_win(float(wins[row, column])) for column in range(len(names)))
        rows.append(f"<tr><td>{_text(name)}</td>{cells}</tr>")
    return (
        f'<div class="scroll"><table class="wins"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        '<p class="note">% of the rounds in which the row’s strategy was significantly better '
        "than the column’s (paired t, 5 %, without correction).</p>"
    )


def _win(share: float) -> str:
    if math.isnan(share):
        return "<td></td>"
    return f'<td style="--share:{70 * share:.0f}%">{100 * share:.0f}</td>'


def _facts(findings: Findings) -> str:
    rounds = [entry for entries in findings.experiment.rounds.values() for entry in entries]
    first = rounds[0]
    facts = [
        f"{len(rounds):,} rounds of {len({entry.key for entry in rounds})} runs; seeds "
        + ", ".join(str(seed) for seed in findings.experiment.seeds)
        + ".",
        f"Devices: {'; '.join(sorted({entry.device for entry in rounds}))}. Versions: "
        + "; ".join(sorted({_versions(entry) for entry in rounds}))
        + ".",
        f"Code: {'; '.join(sorted({entry.code or 'not noted' for entry in rounds}))}.",
    ]
    times = sorted(entry.started for entry in rounds if entry.started)
    if times:
        facts.append(f"Run from {_time(times[0])} to {_time(times[-1])}.")
    validation = {entry.validation_labels for entry in rounds}
    if validation != {0}:
        most = max(validation)
        facts.append(
            f"Up to {most:,} validation labels are used beside those on the axes, uncounted there."
        )
    for name, entries in findings.experiment.rounds.items():
        if entries[0].options:
            options = ", ".join(f"{key}={value}" for key, value in entries[0].options.items())
            facts.append(f"Options of {name}: {options}.")
    if first.values and len(first.values) > 1:
        facts.append(f"A measurement is the mean over {len(first.values)} models.")
    return "<ul>" + "".join(f"<li>{_text(fact)}</li>" for fact in facts) + "</ul>"


def _versions(entry: Round) -> str:
    return ", ".join(f"{name} {version}" for name, version in entry.versions.items()) or "not noted"


def _time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text


def _paper_note(findings: Findings, quantities: Sequence[str]) -> str:
    tables = [table for table in map(findings.printed, quantities) if table]
    notes = dict.fromkeys(f"{table.where}: {table.note}" for table in tables if table.note)
    text = "".join(f'<p class="note">{_text(note)}.</p>' for note in notes)
    if tables and findings.experiment.scale != "full":
        text += (
            f'<p class="note">Our run is at scale {_text(findings.experiment.scale)}, so the '
            "paper’s numbers stand here for orientation only.</p>"
        )
    return text


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in table.head)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{_text(cell)}</td>"
    return f"<td>{_text(cell[0])} <small>{_text(cell[1])}</small></td>"


def _first(findings: Findings) -> str:
    return findings.baselines[0] if findings.baselines else ""


def _name(findings: Findings) -> str:
    experiment = findings.experiment
    extra = "" if experiment.dataset in experiment.name else f", {experiment.dataset}"
    return f"{experiment.name}{extra}"


def _anchor(findings: Findings) -> str:
    experiment = findings.experiment
    text = "-".join((experiment.name, experiment.scale, experiment.dataset, experiment.network))
    return re.sub(r"[^A-Za-z0-9]+", "-", f"{text}-{experiment.metric}")


def _text(text: str) -> str:
    return html.escape(text)
