"""`slablab completion`: words for TAB in bash, zsh and fish, from the parser and the catalog."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from slablab import config
from slablab.cli import out
from slablab.values import refused, shown

SCRIPTS = {
    "bash": """_slablab() {
    local IFS=$'\\n'
    COMPREPLY=($(slablab completion --words="${COMP_LINE:0:COMP_POINT}" --breaks="$COMP_WORDBREAKS" 2>/dev/null))
    [[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace
}
complete -o default -F _slablab slablab""",
    "zsh": """_slablab() {
    local -a found
    found=(${(f)"$(slablab completion --words="${(j: :)words[1,CURRENT]}" 2>/dev/null)"})
    (( $#found )) && compadd -- $found || _files
}
compdef _slablab slablab""",
    "fish": """complete -c slablab -a '(slablab completion --words=(commandline -cp) 2>/dev/null)'""",
}


def add(commands: Any) -> None:
    """Adds the command."""
    command = commands(
        "completion",
        run,
        "Print what completes commands, options, names and parameters with TAB.",
        'eval "$(slablab completion bash)"\n  slablab completion fish > ~/.config/fish/completions/slablab.fish',
    )
    command.add_argument("shell", nargs="?", metavar="SHELL", help=f"one of {', '.join(SCRIPTS)}")
    command.add_argument("--words", metavar="LINE", help="print the words that may end this command line")
    command.add_argument(
        "--breaks", metavar="CHARACTERS", default="", help="characters at which the shell splits words"
    )


def run(given: argparse.Namespace) -> int:
    """Prints the script of a shell, or the words for a line."""
    if given.words is not None:
        found = candidates(given.words)
        if given.show_code:
            line = f"print(*candidates({given.words!r}), sep='\\n')"
            return out.script("from slablab.cli.completion import candidates", line)
        if given.json:
            print(json.dumps(found))
            return 0
        last = given.words.split(" ")[-1]
        # A shell that splits at = or @ replaces only what stands behind it.
        cut = max((last.rfind(c) for c in given.breaks if c.strip()), default=-1) + 1
        print("\n".join(word[cut:] for word in found))
        return 0
    if given.shell not in SCRIPTS:
        raise refused("SHELL", shown(given.shell), f"one of {', '.join(SCRIPTS)}")
    if given.show_code:
        return out.script("from slablab.cli.completion import SCRIPTS", f"print(SCRIPTS[{given.shell!r}])")
    print(json.dumps({given.shell: SCRIPTS[given.shell]}) if given.json else SCRIPTS[given.shell])
    return 0


def candidates(line: str) -> list[str]:
    """The words that may stand at the end of a command line."""
    from slablab.cli import parser

    words = re.split(r"\s+", line.lstrip())[1:] or [""]
    at: argparse.ArgumentParser = parser()
    before = words[:-1]
    while (inner := _commands(at)) and before:
        name = before.pop(0)
        if name in inner:
            at = inner[name]
    last = words[-1]
    option, equals, typed = last.partition("=")
    if equals and option.startswith("--"):
        found = [f"{option}={v}" for v in _values(at, option, typed)]
    elif last.startswith("-"):
        found = [o for a in at._actions for o in a.option_strings if o.startswith("--")]
    elif before and before[-1].startswith("-") and (values := _values(at, before[-1], last)):
        found = values
    else:
        found = [*_commands(at), *(str(c) for a in at._actions if not a.option_strings for c in _positional(a))]
    return sorted(w for w in found if w.startswith(last))


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _positional(action: argparse.Action) -> list[str]:
    """Words for an argument without an option: names that are known."""
    if isinstance(action, argparse._SubParsersAction):
        return []
    if action.dest == "shell":
        return list(SCRIPTS)
    if action.dest == "preset":
        return [str(m["name"]) for m in config.catalog()["machines"] if m["simulated"]]
    if action.dest == "name":
        from slablab import published

        return [*published.ALL, "all"]
    return []


def _values(parser: argparse.ArgumentParser, option: str, typed: str) -> list[str]:
    """Words for the value of an option; those of a list go on behind its last comma."""
    action = next((a for a in parser._actions if option in a.option_strings), None)
    if action is None:
        return []
    if action.choices is not None:
        return [str(c) for c in action.choices]
    exists = config.catalog()
    done = typed.rpartition(",")[0]
    front = f"{done}," if done else ""
    if action.dest in ("machine", "workload"):
        return [front + str(e["name"]) for e in exists[f"{action.dest}s"]]
    if action.dest in ("allocator", "baseline"):
        return [front + f"{e['name']}@{era['era']}" for e in exists["allocators"] for era in e["eras"]]
    if action.dest in ("set", "over"):
        names = {
            f"{p}.{n}" for p in config.PARTS for e in exists[f"{p}s"] for n in config.parameters(p, str(e["name"]))
        }
        return sorted(f"{name}=" for name in names)
    return []
