"""The labelwise command. Each file holds one command; `commands` brings them together.

Commands are imported after `main` stands guard, so that an early Ctrl-C is one line too. Before
that `labelwise` itself is imported; who starts with `labelwise_command` is guarded then, too.
"""

import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the commands were imported
        print("labelwise: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; an error is one line on stderr.

    Returns:
        0 if all went well, 1 after an error, 2 after misuse, 130 after an interruption.
    """
    from labelwise.cli import commands

    return commands.run(arguments)
