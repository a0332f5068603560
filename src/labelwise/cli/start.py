"""``labelwise start`` and ``labelwise change``: create a campaign, and change its settings."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelwise.cli.app import (
    ByOption,
    CampaignOption,
    ColumnsOption,
    IdColumnOption,
    SkipBrokenOption,
    TextOption,
    WithoutOption,
    app,
    open_project,
    quote_shell_path,
)
from labelwise.cli.console import print_limited_lines, show_progress, split_names
from labelwise.cli.tell import import_labels, import_prelabels, read_label_table
from labelwise.display import escape_text, format_count
from labelwise.errors import BadInput, LabelwiseError
from labelwise.files import JsonObject

if TYPE_CHECKING:
    from labelwise.campaign.folder.ingest import IngestResult
    from labelwise.campaign.project import Project
    from labelwise.campaign.settings import Settings


@app.command("start")
def start_campaign(
    source: Annotated[
        Path, Argument(help="Data to label.", metavar="DIR|FILE", show_default=False)
    ],
    classes: Annotated[
        str | None, Option(help="Names of the classes (can be added later).", metavar="A,B,C")
    ] = None,
    text: TextOption = None,
    columns: ColumnsOption = None,
    without: WithoutOption = None,
    id_column: IdColumnOption = None,
    strategy: Annotated[
        str | None,
        Option(
            "--strategy",
            "-s",
            help="Selection strategy (default: uherding, or mixed_lcmd for values).",
        ),
    ] = None,
    batch: Annotated[int, Option("--batch", "-b", help="Items per batch.")] = 50,
    regression: Annotated[bool, Option("--regression", help="Labels are numbers.")] = False,
    overlap: Annotated[int, Option(help="Annotators per item.")] = 1,
    validation: Annotated[float, Option(help="Random share of a batch to evaluate on.")] = 0.2,
    budget_labels: Annotated[int | None, Option(help="Maximum number of labels.")] = None,
    budget_money: Annotated[float | None, Option(help="Maximum cost.")] = None,
    budget_hours: Annotated[float | None, Option(help="Maximum hours of labelling.")] = None,
    price: Annotated[float | None, Option(help="Price per label.")] = None,
    hourly: Annotated[float | None, Option(help="Price per hour of labelling.")] = None,
    encoder: Annotated[
        list[str] | None,
        Option(
            help="Pretrained encoder of images and texts (default: auto; see labelwise encoders). "
            "Repeat it for several representations.",
            metavar="SPEC",
        ),
    ] = None,
    features: Annotated[
        list[Path] | None,
        Option(help="Features for the model, one row per item. Repeat it for several files."),
    ] = None,
    embedding: Annotated[str | None, Option(hidden=True)] = None,
    module: Annotated[
        str | None, Option(help="Function (shape, outputs) -> torch module.", metavar="package.m:f")
    ] = None,
    side: Annotated[int, Option(help="Size of the images without an encoder.")] = 32,
    seed: Annotated[int, Option(help="Random seed.")] = 0,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Campaign folder (default: NAME.labelwise).")
    ] = None,
    name: Annotated[str | None, Option(help="Name (default: that of the data).")] = None,
    storage: Annotated[str | None, Option(help="URL of the record (default: a file).")] = None,
    labels: Annotated[Path | None, Option(help="Labels you have, as for labelwise tell.")] = None,
    guesses: Annotated[Path | None, Option(help="Guesses, shown until there is a model.")] = None,
    test: Annotated[Path | None, Option(help="Labels of items only to evaluate on.")] = None,
    skip_broken: SkipBrokenOption = False,
    refresh: Annotated[bool, Option("--refresh", help="Add new items to the campaign.")] = False,
    moved: Annotated[bool, Option("--moved", help="Its data moved to DIR|FILE.")] = False,
) -> None:
    """Create a campaign to label a folder of images, a table, or a file of features.

    Examples:
        labelwise start photos --classes cat,dog,other
        labelwise start reviews.csv --text review --id review_id --classes good,bad --batch 20
        labelwise start houses.parquet --regression --without id,address
        labelwise start f.npy --strategy lewis --budget-labels 500
        labelwise start photos --encoder auto --encoder onnx:mine.onnx --strategy lewis

    Creates the folder NAME.labelwise for the campaign; your own files are only read. Images may be
    in subfolders. Files of labels are those of labelwise tell; models are evaluated on the items of
    --test and never trained on them. Then [bold]labelwise label[/bold] opens the page.
    """
    from labelwise.campaign.project import Project, default_folder

    for file in (labels, guesses, test):
        if file is not None:
            read_label_table(file)  # before hours of encoding
    if refresh or moved:
        if labels or guesses or test:
            raise BadInput(
                "--labels, --guesses and --test are for a new campaign; use labelwise tell"
            )
        if encoder or features or embedding:
            raise BadInput(
                "a campaign keeps its encoders and features; leave --encoder and --features out, "
                "or start another campaign"
            )
        project = Project.open(out or default_folder(source, name))
        if moved:
            _move_campaign_source(project, source)
        if refresh:
            _refresh_campaign_items(project, source, skip_broken)
        return
    if embedding is not None:  # the option of version 0.1
        encoder = [embedding if embedding == "tfidf" else f"st:{embedding}"]
    with show_progress(lines_after=10) as progress, _list_broken_items():
        project = Project.start(
            source,
            home=out,
            name=name,
            classes=split_names(classes) or None,
            text=split_names(text),
            columns=split_names(columns),
            without=split_names(without),
            id_column=id_column,
            strategy=strategy,
            batch=batch,
            storage=storage,
            encoder=encoder or "auto",
            features=features,
            module=module,
            side=side,
            skip_broken=skip_broken,
            progress=progress,
            regression=regression,
            overlap=overlap,
            validation=validation,
            budget_labels=budget_labels,
            budget_money=budget_money,
            budget_hours=budget_hours,
            price=price,
            hourly=hourly,
            seed=seed,
            rolling=not regression,
        )
    _print_campaign(project, storage)
    if guesses is not None:
        print(f"  {import_prelabels(project, guesses)}")
    for file, held in ((labels, False), (test, True)):
        if file is not None:
            print(f"  {import_labels(project, file, test=held)}{', held out' if held else ''}")


@contextmanager
def _list_broken_items() -> Iterator[None]:
    """Print each item that cannot be read before the error, and what an interruption leaves."""
    try:
        yield
    except KeyboardInterrupt:
        print("encoded items are kept: the same command continues with them", file=sys.stderr)
        raise
    except LabelwiseError as error:
        print_limited_lines(getattr(error, "__notes__", []))
        raise


def _print_campaign(project: "Project", storage: str | None) -> None:
    """Print the items found, the settings, and the next command."""
    ingested, settings = project.ingested, project.open_record().settings
    assert ingested is not None  # it is None only after opening an existing campaign
    print(f"{escape_text(project.source.name)}: {ingested.notes[0]}")
    for note in ingested.notes[1:]:
        print(f"  {escape_text(note)}")
    _print_broken_items(ingested)
    items = format_count(ingested.new, "item")
    print(f"Campaign {escape_text(project.name)} is in {project.home}: {items}.")
    if settings.classes is not None:
        print(f"  classes: {escape_text(', '.join(map(str, settings.classes)))}")
    elif settings.regression:
        print("  labels: numbers")
    else:
        print("  classes: none yet; add them on the page, or type")
        print(f"    labelwise change classes=a,b,c{_format_campaign_option(project)}")
    share = f", {100 * settings.validation:.0f} % of them drawn at random for evaluation"
    print(
        f"  {format_count(settings.batch, 'item')} per batch, chosen by {settings.strategy}"
        f"{share if settings.validation else ''}"
    )
    if storage is not None and project.description.storage != storage and "@" in storage:
        print("  the password is not stored: set LABELWISE_STORAGE for the other commands")
    print(f"Next: labelwise label{_format_campaign_option(project)}")


def _format_campaign_option(project: "Project") -> str:
    """Format ``-c FOLDER`` where other commands would not find the campaign by themselves."""
    from labelwise.campaign.project import Project

    try:
        if Project.open().home.resolve() == project.home.resolve():
            return ""
    except LabelwiseError:
        pass
    return f" -c {quote_shell_path(os.path.relpath(project.home))}"


def _print_broken_items(ingested: "IngestResult") -> None:
    if ingested.broken:
        print(f"  left out, because they cannot be used: {len(ingested.broken):,}")
        print_limited_lines([f"{name}: {reason}" for name, reason in ingested.broken.items()])


def _move_campaign_source(project: "Project", source: Path) -> None:
    missing = project.repoint(source)
    print(f"Campaign {escape_text(project.name)} now reads its items from {source}.")
    if missing:
        data, home = quote_shell_path(source), quote_shell_path(project.home)
        command = f"labelwise start {data} --refresh --out {home}"
        print(f"  {format_count(missing, 'item')} are missing; {command} records that")


def _refresh_campaign_items(project: "Project", source: Path, skip_broken: bool) -> None:
    if source.exists() and source.resolve() != project.source.resolve():
        raise BadInput(
            f"the campaign has its items from {project.source}, not {source}; if they were moved, "
            "add --moved"
        )
    with show_progress(lines_after=10) as progress, _list_broken_items():
        ingested = project.refresh(skip_broken=skip_broken, progress=progress)
    new = format_count(ingested.new, "new item")
    print(f"{escape_text(project.name)}: {new}, {len(project.items):,} in all")
    _print_broken_items(ingested)
    if ingested.missing:
        print(f"  missing, and no longer asked for: {format_count(len(ingested.missing), 'item')}")
        missing = [
            f"{project.items.key(item)}: {escape_text(project.describe_item(item), 60)}"
            for item in ingested.missing
        ]
        print_limited_lines(missing)
    if ingested.returned:
        print(f"  available again: {format_count(len(ingested.returned), 'item')}")


@app.command("change")
def change_settings(
    settings: Annotated[
        list[str] | None, Argument(help="Settings.", metavar="[NAME=VALUE]...")
    ] = None,
    by: ByOption = "",
    campaign: CampaignOption = None,
) -> None:
    """Change the settings of the campaign from now on.

    Examples:
        labelwise change
        labelwise change batch=20 strategy=margin
        labelwise change budget_money=200 price=0.05 overlap=2

    Without settings it lists them. none removes a setting; an option of the strategy is written
    options.p=1.5. Existing batches stay as they are.
    """
    record = open_project(campaign).open_record()
    if not settings:
        for name, value in record.settings.to_dict().items():
            print(f"{name}={escape_text(_format_setting_value(value))}")
        return
    before = record.settings
    after = record.change(by=by, **_parse_campaign_settings(settings, before))
    old, new = before.to_dict(), after.to_dict()
    for name in new:
        if new[name] != old[name]:
            old_text, new_text = _format_setting_value(old[name]), _format_setting_value(new[name])
            print(f"{name}: {escape_text(old_text)} -> {escape_text(new_text)}")
    if old == new:
        print("nothing changed: the settings have these values already")


def _parse_campaign_settings(texts: Sequence[str], settings: "Settings") -> JsonObject:
    """Parse ``name=value`` texts; the settings check the types of the values."""
    found: JsonObject = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise BadInput(f"write a setting and its value as batch=20; got {text!r}")
        if name.startswith("options."):
            own = found.setdefault("options", dict(settings.options))
            own[name.removeprefix("options.")] = _parse_setting_value(value)
        else:
            found[name] = _parse_setting_value(value)
            if name == "classes" and found[name] is not None:
                found[name] = split_names(value)
    return found


def _parse_setting_value(text: str) -> Any:
    """Parse a number, true, false or none; return other texts as they are."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    words = {"true": True, "yes": True, "false": False, "no": False, "none": None}
    return words.get(text.lower(), text)


def _format_setting_value(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(entry) for entry in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
