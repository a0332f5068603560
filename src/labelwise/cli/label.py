"""``labelwise label``: the labelling page."""

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from labelwise.cli.app import app
from labelwise.cli.hints import pasteable
from labelwise.cli.project_option import CampaignOption, open_project
from labelwise.errors import MissingDependency

_LABEL = """Open the labelling page of a campaign in the browser.

[bold]Examples[/bold]

  labelwise label

  labelwise label -c photos.labelwise --no-open

  labelwise label --host 0.0.0.0 --token $(openssl rand -hex 12)

The page is for this machine alone, unless --host says otherwise: then everyone needs the token. \
Models are trained in the background; Ctrl-C ends all. The page keeps every label until the server \
has it on disk.
"""


@app.command(help=_LABEL)
def label(
    campaign: CampaignOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any free port.", min=0, max=65535)] = 8600,
    token: Annotated[
        str | None,
        typer.Option(
            help="What opens the page; needed beyond this machine.", envvar="LABELWISE_TOKEN"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name of this server, as behind a proxy.", metavar="NAME"),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    no_training: Annotated[
        bool,
        typer.Option("--no-training", help="Leave training and asking to the command line."),
    ] = False,
) -> None:
    """Open the labelling page."""
    try:
        from labelwise.web.serve import serve
    except ImportError as error:
        raise MissingDependency(
            f"the page needs fastapi and uvicorn ({error}); run pip install 'labelwise[web]'"
        ) from error
    project = open_project(campaign)

    def ready(address: str) -> None:
        print(f"Labelling {project.name} at {address}", flush=True)
        print("Ctrl-C ends the server; every label is in the record already.", flush=True)
        if not no_open:
            _open(address)

    with suppress(KeyboardInterrupt):  # none comes where the shell had signals ignored
        serve(
            project,
            host=host,
            port=port,
            token=token,
            allow_hosts=allow_host or (),
            trains=not no_training,
            ready=ready,
        )
    words = "labelwise label goes on where you left; labelwise status says how far it is."
    print(f"Stopped. {pasteable(words)}")


def _open(address: str) -> None:
    """Open the browser where there is a screen; elsewhere the printed address is enough."""
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if screen:
        import threading
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
