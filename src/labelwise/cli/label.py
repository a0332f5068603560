"""``labelwise label``: open the labelling page."""

import os
import sys
from contextlib import suppress
from typing import Annotated

from typer import Option

from labelwise.cli.app import (
    AllowHostOption,
    CampaignOption,
    HostOption,
    PortOption,
    TokenOption,
    app,
    complete_command_hints,
    open_project,
)
from labelwise.errors import require_extra


@app.command("label")
def open_labelling_page(
    campaign: CampaignOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8600,
    token: TokenOption = None,
    allow_host: AllowHostOption = None,
    no_open: Annotated[bool, Option("--no-open", help="Do not open the browser.")] = False,
    no_training: Annotated[
        bool, Option("--no-training", help="Leave training and selection to other commands.")
    ] = False,
) -> None:
    """Open the labelling page of a campaign in the browser.

    Examples:
        labelwise label
        labelwise label -c photos.labelwise --no-open
        labelwise label --host 0.0.0.0 --token $(openssl rand -hex 12)

    Only this machine can open the page, unless --host says otherwise: then everyone needs the
    token. Models are trained in the background; Ctrl-C stops the server. The page keeps every label
    until the server has saved it.
    """
    with require_extra("the page needs fastapi and uvicorn", "web"):
        from labelwise.web.serve import serve
    project = open_project(campaign)

    def announce_labelling_page(address: str, owner: str) -> None:
        print(f"Labelling {project.name} at {address}", flush=True)
        if token is not None:
            print("Share this address with everyone who labels; it contains the token.", flush=True)
            print(f"Only for you, to change settings and remove people: {owner}", flush=True)
        print("Ctrl-C stops the server; every label is saved already.", flush=True)
        if not no_open:
            _open_browser(owner)

    with suppress(KeyboardInterrupt):  # none is raised where the shell ignores signals
        serve(
            project,
            host=host,
            port=port,
            token=token,
            allow_hosts=allow_host or (),
            trains=not no_training,
            ready=announce_labelling_page,
        )
    words = "labelwise label continues from here; labelwise status shows the progress."
    print(f"Stopped. {complete_command_hints(words)}")


def _open_browser(address: str) -> None:
    """Open the browser if there is a screen; otherwise the printed address is enough."""
    screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if screen:
        import threading
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
