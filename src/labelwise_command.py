"""Entry point of the ``labelwise`` command; imports nothing that takes time.

Importing ``labelwise`` and NumPy takes most of the start-up time. An exception during an import can
be lost, because Python prints and ignores exceptions raised in its clean-up code. So until all
commands are imported, Ctrl-C exits at once: nothing needs cleaning up yet. After that it raises
KeyboardInterrupt as usual.
"""

import os
import signal


def main() -> None:
    """Run the command line and exit with its code."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        if handler is signal.default_int_handler:  # otherwise the signal is ignored (background)
            signal.signal(signal.SIGINT, _exit_at_once)
        import labelwise.cli
        import labelwise.cli.commands

        if handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, handler)
        labelwise.cli.main()
    except KeyboardInterrupt:
        _exit_at_once()


def _exit_at_once(*_: object) -> None:
    os.write(2, b"labelwise: interrupted\n")
    os._exit(130)
