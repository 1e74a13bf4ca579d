"""Where the command line enters: the parser of all commands, and how errors leave."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from semistream.errors import SemistreamError

try:
    from rich.console import Console
    from rich.markup import escape

    from semistream.cli import demo, master, reproduce, run, tune
except ModuleNotFoundError as error:
    if error.name != "rich":
        raise
    sys.exit("The semistream command needs rich. Install it with: pip install 'semistream[cli]'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it did what was asked, 1 if not, 2 if the words were wrong."""
    parser = argparse.ArgumentParser(
        prog="semistream",
        description="Join a fast stream with a master table far larger than memory, inside a fixed byte budget.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('semistream')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    master.add_commands(commands)
    tune.add_commands(commands)
    demo.add_command(commands)
    reproduce.add_command(commands)
    run.add_commands(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except SemistreamError as error:
        Console(stderr=True, highlight=False).print(
            f"[bold red]error[/] {escape(str(error))}", soft_wrap=True
        )
        return 1
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped")
        return 130
