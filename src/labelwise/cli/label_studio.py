"""``labelwise label-studio``: select the tasks that annotators in Label Studio label next."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from labelwise.cli.app import (
    CampaignOption,
    app,
    complete_commands,
    open_project,
    set_campaign_folder,
)
from labelwise.cli.console import (
    escape_text,
    find_metric,
    format_count,
    format_duration,
    format_percent,
    print_columns,
    show_progress,
)
from labelwise.errors import MissingDependency

label_studio_group = typer.Typer(
    no_args_is_help=True,
    help="Choose what annotators in Label Studio label next.",
)
app.add_typer(label_studio_group, name="label-studio")


TokenEnv = Annotated[
    str,
    Option("--token-env", help="The variable that holds Label Studio's token.", metavar="NAME"),
]

_SYNC = """Bring a project of Label Studio and a campaign up to date with each other.

[bold]Examples[/bold]

  export LABEL_STUDIO_TOKEN=...   (Label Studio: Account & Settings)

  labelwise label-studio sync http://localhost:8080 --project 5

  labelwise label-studio sync http://localhost:8080 --project 5 --strategy margin --batch 20

Brings in tasks and annotations (skips and times too), trains when a batch is nearly done, chooses \
the next one, and writes its order into the project as predictions, so that the queue \
"Uncertainty sampling" serves it. Call it as often as you like: without news it changes nothing. \
The first call makes the campaign's folder; then all other commands work on it too.
"""


@label_studio_group.command(help=_SYNC)
def sync(
    url: Annotated[str, Argument(help="Label Studio's address.", metavar="URL")],
    project: Annotated[
        int, Option("--project", "-p", help="The project's number.", metavar="N", min=1)
    ],
    token_env: TokenEnv = "LABEL_STUDIO_TOKEN",
    strategy: Annotated[
        str | None,
        Option("--strategy", "-s", help="What chooses, from now on.", metavar="NAME"),
    ] = None,
    batch: Annotated[
        int | None,
        Option("--batch", "-b", help="Tasks at a time, from now on. (50)", metavar="N", min=1),
    ] = None,
    campaign: Annotated[
        Path | None,
        Option(
            "--campaign",
            "-c",
            help="The campaign's folder. (label-studio-N.labelwise)",
            metavar="FOLDER",
        ),
    ] = None,
    guesses: Annotated[
        bool,
        Option("--guesses", help="Show annotators the model's guesses; people follow them."),
    ] = False,
    skip_broken: Annotated[
        bool, Option("--skip-broken", help="Leave out tasks that cannot be used.")
    ] = False,
) -> None:
    """Bring a project and a campaign up to date with each other."""
    from labelwise.label_studio import Client, Wishes, sync
    from labelwise.label_studio.http import token_from

    client = Client(url, token_from(token_env), source=token_env)
    wishes = Wishes(strategy, batch, guesses, skip_broken)
    with show_progress() as progress:
        done = sync(client, project, home=campaign, wishes=wishes, progress=progress)
    where = f"project {project} of {client.url}"
    print(f"{escape_text(done.title, 60)} ({done.kind}, {where}) in {done.home}")
    set_campaign_folder(done.home)
    print_columns(_lines(done))
    if done.failure is not None:
        raise done.failure


def _lines(done: Any) -> list[tuple[str, str]]:
    """What a sync found and did, in words."""
    lines = []
    tasks = [f"{done.new:,} new"] if done.new else []
    tasks += [f"{done.gone:,} deleted"] if done.gone else []
    tasks += [f"{done.left_out:,} left out, as they cannot be used"] if done.left_out else []
    lines += [("tasks", ", ".join(tasks))] if tasks else []
    names = ("new", "changed", "withdrawn", "skipped")
    words = [f"{done.words[name]:,} {name}" for name in names if done.words[name]]
    lines += [("labels", ", ".join(words))] if words else []
    for trained in done.trained:
        labels, seconds = format_count(trained.labels, "label"), format_duration(trained.seconds)
        found = find_metric(trained.metrics)
        metric = (
            f", accuracy {format_percent(found[1])}" if found and found[0] == "accuracy" else ""
        )
        lines.append((f"model {trained.number}", f"trained on {labels} in {seconds}{metric}"))
    lines += [("chosen", f"batch {number:,}") for number in done.asked]
    if done.waiting:
        how = "written" if done.written else "as before"
        lines.append(
            ("order", f"{format_count(done.waiting, 'task')} to label, {how} ({done.version})")
        )
        lines.append(("next", "label in Label Studio (Label All Tasks), then sync again"))
    else:
        commands = complete_commands("labelwise status, labelwise export --out labels.csv")
        lines.append(("next", f"nothing is left to label: {commands}"))
    return lines if done.changed else [*lines, ("", "nothing new")]


_SERVE = """Serve an ML backend, which keeps a project of Label Studio up to date by itself.

[bold]Examples[/bold]

  labelwise label-studio sync http://localhost:8080 --project 5

  labelwise label-studio serve -c label-studio-5 --connect

  labelwise label-studio serve --host 0.0.0.0 --token ... --connect --address http://ml.example:9090

Make the campaign with sync first. Label Studio then tells the backend of every annotation; a \
process in the background trains, chooses and writes the order. Only this machine can reach the \
backend unless --host says otherwise: then Label Studio needs the token, as the password of Basic \
authentication. --connect tells the project of the backend, its token included.
"""


@label_studio_group.command(help=_SERVE)
def serve(
    campaign: CampaignOption = None,
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="0 for any free port.", min=0, max=65535)] = 9090,
    token: Annotated[
        str | None,
        Option(help="What callers must know.", envvar="LABELWISE_TOKEN", show_envvar=True),
    ] = None,
    token_env: TokenEnv = "LABEL_STUDIO_TOKEN",
    allow_host: Annotated[
        list[str] | None,
        Option(help="A further name of this server, as in a container.", metavar="NAME"),
    ] = None,
    connect: Annotated[
        bool, Option("--connect", help="Tell the project in Label Studio of the backend.")
    ] = False,
    address: Annotated[
        str, Option(help="Where Label Studio reaches it. (as it listens)", metavar="URL")
    ] = "",
    guesses: Annotated[
        bool,
        Option("--guesses", help="Show annotators the model's guesses; people follow them."),
    ] = False,
) -> None:
    """Serve an ML backend."""
    try:
        from labelwise.label_studio.serve import serve as run
    except ImportError as error:
        raise MissingDependency(
            f"the backend needs fastapi and uvicorn ({error}); run pip install 'labelwise[web]'"
        ) from error
    found = open_project(campaign)

    def ready(at: str) -> None:
        print(f"ML backend of {escape_text(found.name)} at {at}", flush=True)
        if not connect:
            print("Connect it in Label Studio (Settings > Model), or with --connect.", flush=True)
        print("Ctrl-C ends it; nothing is lost.", flush=True)

    with suppress(KeyboardInterrupt):  # none comes where the shell had signals ignored
        run(
            found.home,
            host=host,
            port=port,
            token=token,
            variable=token_env,
            allow_hosts=allow_host or (),
            guesses=guesses,
            reach=address if connect else None,
            ready=ready,
            connected=lambda words: print(f"Label Studio: {words}", flush=True),
        )
    print(complete_commands("Stopped. labelwise label-studio serve goes on where it was."))
