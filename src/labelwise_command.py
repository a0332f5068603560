"""What the ``labelwise`` command runs first: it imports nothing that takes time.

`labelwise` imports NumPy, and that takes a good part of the time before the command answers. An
interruption in the middle of it has nothing to clean up, and an exception there would not do:
Python prints and forgets one that comes while it tidies up after an import. So until all commands
are imported, Ctrl-C leaves at once; after that it is an exception as usual, for the command to end
in good order.
"""

import os
import signal


def main() -> None:
    """Run the command line and leave with its exit code."""
    usual = signal.getsignal(signal.SIGINT)
    try:
        if usual is signal.default_int_handler:  # else it is ignored, as in the background
            signal.signal(signal.SIGINT, _leave)
        import labelwise.cli
        import labelwise.cli.commands

        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, usual)
        labelwise.cli.main()
    except KeyboardInterrupt:
        _leave()


def _leave(*_: object) -> None:
    os.write(2, b"labelwise: interrupted\n")
    os._exit(130)
