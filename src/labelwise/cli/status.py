"""``labelwise status``: how far a campaign has come, and what to do next."""

import json
import time
from typing import Annotated, Any

import typer

from labelwise.cli.app import app
from labelwise.cli.hints import pasteable
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.cli.words import learned, many, measured, percent, person, print_lines, safe


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    campaign: CampaignOption = None,
) -> None:
    """Say how far the campaign has come, what it cost, and what to do next."""
    project = open_project(campaign)
    desk = project.desk()
    ledger = desk.ledger()
    settings = desk.settings_of(ledger)
    if as_json:
        print(json.dumps(as_dict(project, ledger, settings), allow_nan=False))
        return
    print(f"{safe(project.name)} ({project.kind}, {many(ledger.items, 'item')}) in {project.home}")
    print_lines(
        [
            *_work_lines(ledger),
            *_people_lines(ledger),
            *_cost_lines(ledger, settings),
            *_model_lines(ledger),
            *advice_lines(ledger, settings),
            ("next", next_step(ledger, settings)),
        ]
    )


Lines = list[tuple[str, str]]


def _work_lines(ledger: Any) -> Lines:
    from labelwise.campaign.folder.missing_items import closed_ids

    lines = [("labelled", f"{len(ledger.labels):,} of {ledger.items:,}")]
    for batch in ledger.open_batches:
        done = f"{batch.size - batch.open:,} of {batch.size:,} done, {batch.open:,} waiting"
        lines.append((f"batch {batch.number}", f"{done}; chosen by {safe(batch.asked.strategy)}"))
    if ledger.batches and not ledger.open_batches:
        lines.append((f"batch {len(ledger.batches)}", "complete"))
    if ledger.skipped:
        lines.append(("skipped", f"{len(ledger.skipped):,}"))
    gone = len(closed_ids(ledger))
    if gone:
        lines.append(("gone", f"{many(gone, 'item')}: files or rows that are not there any more"))
    return lines


def _people_lines(ledger: Any) -> Lines:
    from labelwise.campaign.folder.missing_items import annotators
    from labelwise.record.agreement import agreement

    work = sorted(annotators(ledger).items(), key=lambda entry: (-entry[1].labels, entry[0]))
    shown = [f"{person(by)} {done.labels:,}" for by, done in work if done.labels or done.skips]
    lines = [("people", ", ".join(shown[:12]) + (", ..." if shown[12:] else ""))] if shown else []
    if ledger.overlap > 1 or len(shown) > 1:
        found = agreement(ledger)
        if found.items:
            lines.append(("agreement", safe(found.says)))
    disputed = len(ledger.disagreements())
    if disputed:
        command = pasteable("labelwise disagreements")
        lines.append(("disputed", f"{many(disputed, 'item')}: {command}"))
    return lines


def _model_lines(ledger: Any) -> Lines:
    lines = []
    if ledger.trainings:
        last = ledger.trainings[-1]
        words = f"trained on {many(learned(last), 'label')}"
        found = measured(last.metrics)
        if found is not None:
            name, value = found
            interval = last.metrics.get("interval") or ()
            shown = [percent(n) if name == "accuracy" else f"{n:.4g}" for n in (value, *interval)]
            words += f", {name} {shown[0]}" + (f" ({' to '.join(shown[1:])})" if interval else "")
        lines.append((f"model {last.number}", words))
    if ledger.training is not None:
        state = "is running" if trains(ledger) else "was ended before it was done"
        lines.append(("training", f"number {ledger.training.number} {state}"))
    if ledger.failure is not None:
        lines.append(("failed", safe(ledger.failure.error, 200)))
    return lines


def _cost_lines(ledger: Any, settings: Any) -> Lines:
    from labelwise.campaign.costs import spent

    return [("cost", safe(spent(ledger, settings).says))]


def advice_lines(ledger: Any, settings: Any) -> Lines:
    """What the next batch should bring, and whether to go on, by each rule that could judge."""
    from labelwise.campaign.forecast import forecast
    from labelwise.campaign.stopping import advise, should_stop

    if not ledger.trainings:
        return []
    found = advise(ledger, settings)
    judged = [("", f"{said.rule}: {safe(said.says)}") for said in found if said.judged]
    verdict = "labelling can stop" if should_stop(found) else "go on"
    return [
        ("forecast", safe(forecast(ledger, settings).says)),
        ("advice", verdict if judged else f"{verdict}: it is too early to judge"),
        *judged,
    ]


def trains(ledger: Any) -> bool:
    """Whether a training is at work, as far as can be told: its process may be gone."""
    from labelwise.web.steps import is_lost

    return ledger.training is not None and not is_lost(ledger.training, time.time())


def next_step(ledger: Any, settings: Any) -> str:
    """The command to type next, for the campaign's folder that was given."""
    return pasteable(_next_command(ledger, settings))


def _next_command(ledger: Any, settings: Any) -> str:
    from labelwise.campaign.stopping import advise, should_stop

    if ledger.waiting:
        return "labelwise label (or labelwise ask --out batch.csv, then labelwise tell batch.csv)"
    if trains(ledger):
        return "labelwise status, once the training is done"
    if ledger.disagreements():
        return "labelwise disagreements"
    if not ledger.batches:
        return "labelwise label (or labelwise ask --out batch.csv)"
    newest = ledger.trainings[-1].number if ledger.trainings else None
    if newest is None or ledger.batches[-1].asked.model == newest:
        return "labelwise train"
    if should_stop(advise(ledger, settings)):
        return "labelwise export --out labels.csv"
    return "labelwise label (or labelwise ask --out batch.csv)"


def as_dict(project: Any, ledger: Any, settings: Any) -> dict[str, Any]:
    """The status as plain values."""
    from labelwise.campaign.costs import spent
    from labelwise.campaign.folder.missing_items import annotators, closed_ids
    from labelwise.campaign.forecast import curve, forecast
    from labelwise.campaign.stopping import advise, should_stop
    from labelwise.record.agreement import agreement

    advice = advise(ledger, settings)
    found, cost, ahead = agreement(ledger), spent(ledger, settings), forecast(ledger, settings)
    return {
        "campaign": project.name,
        "kind": project.kind,
        "items": ledger.items,
        "labelled": len(ledger.labels),
        "skipped": len(ledger.skipped),
        "gone": len(closed_ids(ledger)),
        "waiting": len(ledger.waiting),
        "disputed": len(ledger.disagreements()),
        "batches": [
            {"number": batch.number, "size": batch.size, "waiting": batch.open}
            for batch in ledger.batches
        ],
        "people": {
            by: {"labels": work.labels, "skips": work.skips, "seconds": work.seconds}
            for by, work in annotators(ledger).items()
        },
        "agreement": {"items": found.items, "disputed": found.disputed, "kappa": found.kappa},
        "cost": {"labels": cost.labels, "money": cost.money, "hours": cost.hours},
        "curve": [point._asdict() for point in curve(ledger)],
        "training": trains(ledger),
        "failure": None if ledger.failure is None else ledger.failure.error,
        "forecast": {"gain": ahead.gain, "low": ahead.low, "high": ahead.high, "says": ahead.says},
        "advice": [{"rule": a.rule, "stop": a.stop, "says": a.says} for a in advice],
        "stop": should_stop(advice),
        "next": next_step(ledger, settings),
    }
