"""The labelwise command: one module per subject, brought together by `commands`.

The commands are imported inside `run`, so that Ctrl-C during the import is one line too.
`labelwise_command` protects the import of ``labelwise`` itself in the same way.
"""

import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # during the import of the commands
        print("labelwise: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; an error is one line on stderr.

    Returns:
        0 after success, 1 after an error, 2 after wrong usage, 130 after an interruption.
    """
    from labelwise.cli import commands

    return commands.run(arguments)
