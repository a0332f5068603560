"""A campaign's report: one HTML page that needs nothing else, in light and dark.

Texts of items and names of people come from outside: all of them are escaped, the page has no
script, and its policy forbids the browser to run or to load any.
"""

from collections.abc import Sequence
from pathlib import Path

from labelwise.campaign.export import whole_file
from labelwise.campaign.report.facts import Facts, Person, Pick
from labelwise.campaign.report.figures import (
    Bar,
    bars_svg,
    curve_svg,
    moment,
    percent,
    steps_svg,
    text,
)

_MOST_BARS = 24


def write_report(facts: Facts, path: Path) -> None:
    """Write the page; the file appears whole or not at all."""
    with whole_file(path) as part:
        part.write_text(page(facts), encoding="utf-8")


def page(facts: Facts) -> str:
    """The whole page as text.

    Example:
        >>> from labelwise.campaign.report.facts import Facts
        >>> "<h1>birds &amp; bees</h1>" in page(Facts("birds & bees", items=1000))
        True
    """
    parts = [
        f"<header><h1>{text(facts.name)}</h1>{_lede(facts)}</header>",
        _tiles(facts),
        _curve(facts),
        _balance(facts),
        _people(facts),
        _picks(facts),
        _costs(facts),
        _settings(facts),
    ]
    body = "\n".join(part for part in parts if part)
    made = f"Made by labelwise {text(facts.version)} on {moment(facts.made)} UTC."
    return _FRAME.format(title=text(facts.name), style=_STYLE, body=body, made=made)


def _lede(facts: Facts) -> str:
    lines = [f"{facts.labels:,} of {facts.items:,} items have a label"]
    if facts.batches:
        lines[0] += f", in {_many(facts.batches, 'batch', 'batches')}"
    lede = f'<p class="lede">{text(lines[0])}.</p>'
    return lede + "".join(f'<p class="said">{text(_sentence(said))}</p>' for said in facts.advice)


def _tiles(facts: Facts) -> str:
    cells = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd>"
        + (f'<dd class="note">{text(note)}</dd>' if note else "")
        + "</div>"
        for name, value, note in facts.tiles
    )
    return f'<dl class="tiles">{cells}</dl>' if cells else ""


def _curve(facts: Facts) -> str:
    figures, note = "", ""
    if facts.points:
        last = facts.points[-1]
        value = percent(last.value) if facts.share else f"{last.value:.4g}"
        label = f"learning curve: {facts.metric} {value} with {last.labels:,} labels"
        figure = curve_svg(facts.points, share=facts.share, label=label)
        words = f"{_capital(facts.metric)}."
        if facts.measured:
            words = (
                f"{_capital(facts.metric)} on {_many(facts.measured, 'item', 'items')} set aside "
            )
            words += "for measuring, drawn at random; the band is the 95 % interval."
        figures = _figure(figure, words)
    else:
        note = '<p class="note">No model has been measured yet.</p>'
    if facts.growth:
        times, counts = zip(*facts.growth, strict=True)
        steps = steps_svg(times, counts, label=f"labels over time, {counts[-1]:,} in the end")
        figures += _figure(steps, "How the number of labels grew; times in UTC.")
    head = ("model", "labels", facts.metric, "95 % interval", "trained in")
    rows = _table(head, facts.trainings)
    return _section("Learning curve", f'{note}<div class="pair">{figures}</div>{rows}')


def _balance(facts: Facts) -> str:
    if not facts.balance:
        return ""
    total = sum(count for _, count in facts.balance)
    shown = facts.balance[:_MOST_BARS]
    bars = [Bar(name, count, f"{count:,} · {percent(count / total)}") for name, count in shown]
    rest = facts.balance[_MOST_BARS:]
    if rest:
        count = sum(count for _, count in rest)
        name = _many(len(rest), "other", "others")
        bars.append(Bar(name, count, f"{count:,} · {percent(count / total)}"))
    title = "Spread of the labels" if facts.ranges else "Class balance"
    figure = bars_svg(bars, label=f"{title.lower()}: how many items have each")
    note = f"How many items have a label in each {'range' if facts.ranges else 'class'}."
    amounts = [count for _, count in facts.balance]
    if len(amounts) > 1 and not facts.ranges:
        ratio = max(amounts) / min(amounts) if min(amounts) else 0.0
        note += (
            f" The largest class has {ratio:.1f} times as many as the smallest."
            if ratio
            else " Some classes have no label yet."
        )
    return _section(title, _figure(figure, note, wide=True))


def _people(facts: Facts) -> str:
    if not facts.people:
        return ""
    bars = [
        Bar(person.name, person.labels, _many(person.labels, "label", "labels"))
        for person in facts.people[:_MOST_BARS]
    ]
    figure = bars_svg(bars, label="labels per person")
    parts = [_figure(figure, "Labels that each person gave and that stand.", wide=True)]
    head = ("who", "labels", "skipped", "seconds per label", "hours", "estimated right")
    rated = any(person.reliability is not None for person in facts.people)
    shown = len(head) if rated else len(head) - 1
    parts.append(_table(head[:shown], [_person(person)[:shown] for person in facts.people]))
    if facts.agreement:
        parts.append(f"<p>{text(_sentence(facts.agreement))}</p>")
    parts.append(_table(("two people", "items in common", "agreed", "kappa"), facts.pairs))
    return _section("Who labelled", "".join(parts))


def _person(person: Person) -> tuple[str, ...]:
    return (
        person.name,
        f"{person.labels:,}",
        f"{person.skips:,}",
        "–" if person.per_label is None else f"{person.per_label:.1f}",
        f"{person.seconds / 3600:.2f}",
        "–" if person.reliability is None else percent(person.reliability),
    )


def _picks(facts: Facts) -> str:
    parts = []
    if facts.surprises:
        parts.append("<h3>Where the model was most wrong</h3>")
        parts.append(
            '<p class="note">Picks whose label was another than the model’s guess when it picked '
            "them, the surest guesses first. Look at them: the model learns most from these, "
            "and so does a mistaken label harm most.</p>"
        )
        parts.append(_cards(facts.surprises))
    for batch in facts.picks:
        parts.append(f"<h3>First picks of batch {batch.number}, by {text(batch.strategy)}</h3>")
        parts.append(_cards(batch.picks))
    return _section("Most informative picks", "".join(parts)) if parts else ""


def _cards(picks: Sequence[Pick]) -> str:
    return f'<ul class="cards">{"".join(_card(pick) for pick in picks)}</ul>'


def _card(pick: Pick) -> str:
    shown = (
        f'<img src="{text(pick.picture)}" alt="item {pick.id}">'
        if pick.picture
        else f'<blockquote dir="auto">{text(pick.shown)}</blockquote>'
    )
    said = (
        f"<b>{text(pick.label)}</b>" if pick.label is not None else '<i class="note">no label</i>'
    )
    if pick.guess is not None:
        sure = "" if pick.confidence is None else f", {percent(pick.confidence)} sure"
        said += f' <span class="note">guess: {text(pick.guess)}{sure}</span>'
    why = f'<p class="note">{text(pick.why)}</p>' if pick.why else ""
    name = f'<p class="note name">{text(pick.shown)}</p>' if pick.picture else ""
    return f"<li>{shown}<p>{said}</p>{name}{why}</li>"


def _costs(facts: Facts) -> str:
    return _section("Costs", _table(("", ""), facts.costs, "costs")) if facts.costs else ""


def _settings(facts: Facts) -> str:
    if not facts.settings:
        return ""
    return _section("Settings", _table(("", ""), facts.settings, "costs"))


def _section(title: str, body: str) -> str:
    return f"<section><h2>{text(title)}</h2>{body}</section>"


def _figure(figure: str, note: str, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<figure{kind}>{figure}<figcaption>{text(note)}</figcaption></figure>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    if not rows:
        return ""
    top = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    top = f"<thead><tr>{top}</tr></thead>" if any(head) else ""
    lines = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>'
        + "".join(f"<td>{text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table class="{kind}">{top}<tbody>{lines}</tbody></table></div>'


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _sentence(words: str) -> str:
    return f"{_capital(words)}{'' if words.endswith('.') else '.'}"


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


_STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1d2228; --soft: #5d6670;
  --card: #f3f4f2; --rule: #dde1e4; --line: #1f5fd0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e8ea; --soft: #9aa4ad;
  --card: #1c2024; --rule: #30363c; --line: #7db0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 66rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p { max-width: 48rem; margin: .4rem 0; }
.lede { font-size: 1.1rem; }
.said { border-left: .25rem solid var(--line); padding-left: .8rem; }
.note, figcaption, footer { color: var(--soft); font-size: .9rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem;
  margin: 1.2rem 0; }
.tiles div { background: var(--card); border-radius: .5rem; padding: .6rem .8rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3; }
.tiles dd.note { font-size: .8rem; font-weight: 400; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0 0 .6rem; background: var(--card); border-radius: .5rem; padding: .8rem; }
figure.wide { max-width: 40rem; }
figcaption { margin-top: .4rem; }
svg { width: 100%; height: auto; display: block; overflow: visible; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .soft { fill: var(--soft); }
.grid { stroke: var(--rule); stroke-width: 1; fill: none; }
.band { fill: var(--line); opacity: .18; }
.line, .whisker { fill: none; stroke: var(--line); stroke-width: 2; stroke-linejoin: round; }
.whisker { opacity: .4; }
.dot { fill: var(--line); stroke: var(--card); stroke-width: 1.5; }
.bar { fill: var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { text-align: right; padding: .35rem .8rem; border-bottom: 1px solid var(--rule);
  font-weight: 400; white-space: nowrap; }
thead th { white-space: normal;  color: var(--soft); font-size: .85rem; vertical-align: bottom; }
th:first-child { text-align: left; padding-left: 0; white-space: normal; min-width: 5rem;
  max-width: 22rem; overflow-wrap: anywhere; }
tbody th { font-weight: 600; }
.costs td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.cards { list-style: none; margin: .4rem 0; padding: 0; display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(10.5rem, 100%), 1fr)); }
.cards li { background: var(--card); border-radius: .5rem; padding: .6rem; font-size: .9rem;
  overflow-wrap: anywhere; min-width: 0; }
.cards img { width: 100%; height: 9rem; object-fit: contain; display: block;
  border-radius: .3rem; }
.cards p { margin: .25rem 0; line-height: 1.35; }
.cards .note { font-size: .8rem; }
.cards blockquote { margin: 0; max-height: 9rem; overflow: auto; white-space: pre-wrap; }
footer { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: .6rem; }
@media (max-width: 30rem) { th, td { padding: .35rem .45rem; } svg text { font-size: 16px; } }
@media print { figure, tr, li { break-inside: avoid; } }
"""

_FRAME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: labels</title>
<style>{style}</style>
{body}
<footer>{made}</footer>
</html>
"""
