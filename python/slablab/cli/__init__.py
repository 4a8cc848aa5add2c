"""The shell command: the library spelled for a shell. Each command prints the Python line that does the same.

Exit status: 0 done, 1 a run failed, was stopped, or regressions were found, 2 a bad request. A bad request is one line
that names the parameter, the value and what would be right; nothing has run by then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from slablab._core import ConfigError, SlabCorruption
from slablab._core import version as _version
from slablab.cli import out
from slablab.extras import MissingExtra

_ABOUT = "The Linux slab allocators SLAB, SLUB, SLOB and SLQB, on real and simulated machines."


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        _say(f"{self.prog}: error: {message}")
        sys.exit(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    try:
        status = _main(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has seen enough, as `head` has.
        _deaf()
        return 1
    except OSError as e:
        _deaf()
        where = e.filename if e.filename is not None else "stdout"
        _say(f"slablab: error: output = {where}: a place that takes what is written ({e.strerror})")
        return 1
    return status


def shell() -> NoReturn:
    """The entry point of the command: `main`, and out without taking the interpreter apart.

    What the interpreter would free piece by piece, the system frees at once; with pandas loaded that is a quarter of a
    second, which a stopped command has not got.
    """
    status = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _main(argv: Sequence[str] | None) -> int:
    try:
        given = parser().parse_args(argv)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0
    command: Callable[[argparse.Namespace], int] = given.command
    with warnings.catch_warnings():
        warnings.showwarning = _one_line  # type: ignore[assignment]
        try:
            return command(given)
        except ConfigError as e:
            _say(f"slablab: error: {e}")
            # A disk that became full is no bad request: there are runs already.
            return 1 if hasattr(e, "finished") else 2
        except MissingExtra as e:
            _say(f"slablab: error: {e}")
            return 2
        except SlabCorruption as e:
            _say(f"slablab: {'; '.join([str(e), *getattr(e, '__notes__', [])])}")
            return 1
        except KeyboardInterrupt:
            _say("slablab: stopped")
            return 1


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    from slablab.cli import benched, compared, completion, machines, reports, runs, shown, stores

    whole = _Parser(prog="slablab", description=_ABOUT)
    whole.add_argument("--version", action="version", version=_version())
    groups: dict[str, Any] = {"": whole.add_subparsers(title="commands", required=True, metavar="COMMAND")}

    def command(
        name: str, run: Callable[[argparse.Namespace], int], about: str, example: str
    ) -> argparse.ArgumentParser:
        group, _, own = name.rpartition(" ")
        if group not in groups:
            upper = groups[""].add_parser(group, help=f"{group} commands", description=f"{group} commands")
            groups[group] = upper.add_subparsers(title="commands", required=True, metavar="COMMAND")
        made: argparse.ArgumentParser = groups[group].add_parser(
            own,
            help=about,
            description=about,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(command=run)
        made.add_argument("--json", action="store_true", help="print the result as JSON")
        made.add_argument("--show-code", action="store_true", help="print the Python that does the same; run nothing")
        return made

    for module in (runs, shown, machines, reports, compared, benched, stores, completion):
        module.add(command)
    return whole


def _say(line: str) -> None:
    """One line to stderr, `error:` in red on a terminal."""
    if sys.stderr is not None:
        print(line.replace("error:", out.coloured("error:", 31, sys.stderr), 1), file=sys.stderr)


def _deaf() -> None:
    """Lets what is left for stdout go nowhere, so that the interpreter's own flush at exit is not a second error."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        # stdout is no file of the system.
        sys.stdout = None


def _one_line(message: Warning | str, *_: Any) -> None:
    print(f"slablab: warning: {message}", file=sys.stderr)
