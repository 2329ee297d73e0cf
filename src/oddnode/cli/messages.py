"""What commands print: facts, notes and errors, in the words of the command line. Imports no slow module."""

from __future__ import annotations

import json
import re
from typing import Any

import typer
from rich.markup import escape

from oddnode.cli.shared import err

__all__ = ["as_options", "print_facts", "print_note", "visible"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ARGUMENT = re.compile(r"`([a-z_]+)`")
_SETTING = re.compile(r"`([a-z_]+)='?([\w.-]+)'?`")


def as_options(text: str) -> str:
    """Name options where a message of the library names arguments and settings, which it puts in backticks.

    Examples
    --------
    >>> as_options("leave it out with `drop_columns` age")
    'leave it out with --drop-columns age'
    >>> as_options("`propagation='as-given'` keeps it")
    '--set propagation=as-given keeps it'
    """
    text = _SETTING.sub(r"--set \1=\2", text)
    return visible(_ARGUMENT.sub(lambda match: "--" + match.group(1).replace("_", "-"), text))


def visible(text: str) -> str:
    """Escape control characters, which a terminal would obey."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts by name, one a line or as JSON, and their ``"notes"`` on standard error."""
    if "notes" in facts:
        facts = facts | {"notes": [as_options(note) for note in facts["notes"]]}
    if as_json:
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        typer.echo(re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match.group()):04x}", text))
        return
    for name, value in facts.items():
        if value is not None and name not in ("notes", "columns"):
            typer.echo(f"{name.replace('_', ' ') + ':':<18} {visible(_shown(value))}")
    for note in facts.get("notes", []):
        print_note(note)


def print_note(note: str) -> None:
    """Print a note for the user on standard error."""
    err.print(f"[bold yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(str, value[:12])) + (f", ... ({len(value)})" if len(value) > 12 else "")
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
