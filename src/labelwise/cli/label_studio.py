"""``labelwise label-studio``: select the tasks that annotators in Label Studio label next."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from labelwise.cli.app import (
    AllowHostOption,
    BatchOption,
    CampaignOption,
    HostOption,
    PortOption,
    SkipBrokenOption,
    StrategyOption,
    TokenOption,
    app,
    complete_command_hints,
    open_project,
    set_campaign_folder,
)
from labelwise.cli.console import print_columns, show_progress
from labelwise.display import escape_text, format_count, format_duration
from labelwise.errors import require_extra

if TYPE_CHECKING:
    from labelwise.label_studio.sync import SyncResult

label_studio_group = typer.Typer(
    no_args_is_help=True, help="Select the tasks that annotators in Label Studio label next."
)
app.add_typer(label_studio_group, name="label-studio")

TokenEnv = Annotated[
    str, Option("--token-env", help="Environment variable with the token of Label Studio.")
]
GuessesOption = Annotated[
    bool, Option("--guesses", help="Show annotators the model's guesses; people follow them.")
]


@label_studio_group.command("sync")
def sync_with_label_studio(
    url: Annotated[str, Argument(help="Address of Label Studio.", metavar="URL")],
    project: Annotated[int, Option("--project", "-p", help="Number of the project.", min=1)],
    token_env: TokenEnv = "LABEL_STUDIO_TOKEN",
    strategy: StrategyOption = None,
    batch: BatchOption = None,
    campaign: Annotated[
        Path | None,
        Option("--campaign", "-c", help="Campaign folder (default: label-studio-N.labelwise)."),
    ] = None,
    guesses: GuessesOption = False,
    skip_broken: SkipBrokenOption = False,
) -> None:
    """Synchronize a project of Label Studio and a campaign.

    Examples:
        export LABEL_STUDIO_TOKEN=...   (Label Studio: Account & Settings)
        labelwise label-studio sync http://localhost:8080 --project 5
        labelwise label-studio sync http://localhost:8080 --project 5 --strategy margin --batch 20

    Imports tasks and annotations (with skips and times), trains when a batch is nearly done,
    selects the next one, and writes its order into the project as predictions, so that the queue
    "Uncertainty sampling" serves it. Call it as often as you like: without news it changes nothing.
    The first call creates the campaign folder; then all other commands work on it too.
    """
    from labelwise.label_studio.client import LabelStudioClient, read_label_studio_token
    from labelwise.label_studio.sync import SyncOptions, sync_project

    client = LabelStudioClient(url, read_label_studio_token(token_env), source=token_env)
    options = SyncOptions(strategy, batch, guesses, skip_broken)
    with show_progress() as progress:
        result = sync_project(client, project, home=campaign, options=options, progress=progress)
    where = f"project {project} of {client.url}"
    print(f"{escape_text(result.title, 60)} ({result.kind}, {where}) in {result.home}")
    set_campaign_folder(result.home)
    print_columns(_format_sync_result(result))
    if result.failure is not None:
        raise result.failure


def _format_sync_result(result: "SyncResult") -> list[tuple[str, str]]:
    from labelwise.campaign.evaluation import ModelEvaluation

    lines = []
    tasks = [f"{result.new:,} new"] if result.new else []
    tasks += [f"{result.gone:,} deleted"] if result.gone else []
    tasks += [f"{result.left_out:,} left out, as they cannot be used"] if result.left_out else []
    lines += [("tasks", ", ".join(tasks))] if tasks else []
    names = ("new", "changed", "withdrawn", "skipped")
    words = [f"{result.words[name]:,} {name}" for name in names if result.words[name]]
    lines += [("labels", ", ".join(words))] if words else []
    for trained in result.trained:
        found = ModelEvaluation.from_training(trained).describe()
        lines.append((f"model {trained.number}", f"{found} ({format_duration(trained.seconds)})"))
    lines += [("chosen", f"batch {number:,}") for number in result.asked]
    if result.waiting:
        how = "written" if result.written else "as before"
        count = format_count(result.waiting, "task")
        lines.append(("order", f"{count} to label, {how} ({result.version})"))
        lines.append(("next", "label in Label Studio (Label All Tasks), then sync again"))
    else:
        commands = complete_command_hints("labelwise status, labelwise export --out labels.csv")
        lines.append(("next", f"nothing is left to label: {commands}"))
    return lines if result.changed else [*lines, ("", "nothing new")]


@label_studio_group.command("serve")
def serve_label_studio(
    campaign: CampaignOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 9090,
    token: TokenOption = None,
    token_env: TokenEnv = "LABEL_STUDIO_TOKEN",
    allow_host: AllowHostOption = None,
    connect: Annotated[
        bool, Option("--connect", help="Register the backend in the project of Label Studio.")
    ] = False,
    address: Annotated[
        str, Option(help="Address for Label Studio (default: where it listens).", metavar="URL")
    ] = "",
    guesses: GuessesOption = False,
) -> None:
    """Serve an ML backend, which keeps a project of Label Studio up to date automatically.

    Examples:
        labelwise label-studio sync http://localhost:8080 --project 5
        labelwise label-studio serve -c label-studio-5 --connect
        labelwise label-studio serve --host 0.0.0.0 --token ... --connect --address http://ml.example:9090

    Create the campaign with sync first. Label Studio then reports every annotation to the backend;
    a background process trains, selects and writes the order. Only this machine can reach the
    backend, unless --host says otherwise: then Label Studio needs the token, as the password of
    Basic authentication. --connect registers the backend in the project, with its token.
    """
    with require_extra("the backend needs fastapi and uvicorn", "web"):
        from labelwise.label_studio.backend import serve_backend
    found = open_project(campaign)

    def announce_ml_backend(at: str) -> None:
        print(f"ML backend of {escape_text(found.name)} at {at}", flush=True)
        if not connect:
            print("Connect it in Label Studio (Settings > Model), or with --connect.", flush=True)
        print("Ctrl-C stops it; nothing is lost.", flush=True)

    with suppress(KeyboardInterrupt):  # none is raised where the shell ignores signals
        serve_backend(
            found.home,
            host=host,
            port=port,
            token=token,
            variable=token_env,
            allow_hosts=allow_host or (),
            guesses=guesses,
            public_address=address if connect else None,
            on_ready=announce_ml_backend,
            on_connected=lambda words: print(f"Label Studio: {words}", flush=True),
        )
    print(complete_command_hints("Stopped. labelwise label-studio serve continues from here."))
