"""Write the tables of docs/performance.md from the results in benchmarks/results.

python benchmarks/performance.py          # rewrites the page
python benchmarks/performance.py --print  # prints the tables
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
RESULTS = Path(__file__).parent / "results"
START, END = "<!-- tables: made by benchmarks/performance.py -->", "<!-- end of tables -->"


def tables(folder: Path = RESULTS) -> str:
    """Every result that is there, as a section of its own."""
    parts = []
    for name, make in SECTIONS.items():
        for device in ("cpu", "cuda"):
            path = folder / f"{name}-{device}.json"
            if path.is_file():
                stored = json.loads(path.read_text())
                parts.append(f"{make(stored['rows'], device)}\n\n*{_machine(stored)}*")
    return "\n\n".join(parts)


def _machine(stored: dict[str, Any]) -> str:
    machine = stored["machine"]
    where = machine.get("gpu") if stored["device"] == "cuda" else None
    where = where or f"{machine['cpu']}, {machine['cores']} cores"
    return f"{where}; torch {machine['torch']}, PyG {machine['torch_geometric']}; {stored['date']}"


def _train(rows: list[dict[str, Any]], device: str) -> str:
    body = []
    for row in rows:
        ways = row["reference by way s"]
        others = "; ".join(f"{way}: {value:.0f} s, {value / row['oddnode s']:.1f} x" for way, value in ways.items())
        body.append(
            [
                row["task"],
                f"{len(row['methods'])} x {row['seeds']}",
                _short(row["oddnode s"]) + _first_time(row),
                others,
                f"**{min(ways.values()) / row['oddnode s']:.1f}**",
            ]
        )
    timed = {row["reference, timed epochs per method"] for row in rows}
    loop = f"reference-style loop, extrapolated from {', '.join(map(str, sorted(timed)))} epochs a method"
    head = ["task", "methods x seeds", "oddnode, s", loop, "times faster, at least"]
    return f"### Whole cells, {_word(device)}\n\n{_table(head, body)}"


def _first_time(row: dict[str, Any]) -> str:
    first = row.get("oddnode s, first time in the process")
    return "" if first is None else f" ({_short(first)} the first time in a process)"


def _step(rows: list[dict[str, Any]], device: str) -> str:
    names = [key for key in rows[0] if key != "graph"]
    body = [[row["graph"], *(_short(row[name]) for name in names)] for row in rows]
    return f"### One step of NODESAFE, ms, {_word(device)}\n\n{_table(['graph', *names], body)}"


def _attention(rows: list[dict[str, Any]], device: str) -> str:
    body = [[_short(value) for value in row.values()] for row in rows]
    return f"### An epoch of a GAT, ms, {_word(device)}\n\n{_table(list(rows[0]), body)}"


def _propagate(rows: list[dict[str, Any]], device: str) -> str:
    names = [key for key in rows[0] if key not in ("nodes", "edges", "edges per second") and _is_number(rows[0][key])]
    head = ["nodes", "edges", *names]
    body = [[f"{row['nodes']:.0e}", f"{row['edges']:.0e}", *(_short(row[name]) for name in names)] for row in rows]
    text = f"### One hop of propagation, {_word(device)}\n\n{_table(head, body)}"
    blocked = [row for row in rows if row.get("in blocks")]
    if blocked:
        counts = list(blocked[0]["in blocks"])
        body = [
            [
                f"{row['edges']:.0e}",
                *(f"{_short(row['in blocks'][c]['ms'])} ({_short(row['in blocks'][c]['peak GB'])})" for c in counts),
            ]
            for row in blocked
        ]
        text += "\n\nIn blocks of sources, ms (and GB in all):\n\n" + _table(
            ["edges", *(f"{c} blocks" for c in counts)], body
        )
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _scaling(rows: list[dict[str, Any]], device: str) -> str:
    sizes = [row for row in rows if "edges" in row]
    body = [[f"{row['nodes']:,}", f"{row['edges']:,}", *(_short(row[n]) for n in list(row)[2:])] for row in sizes]
    slope = next((row for row in rows if "edges" not in row), {})
    said = "".join(f"\n\nSlope of log time against log edges from 100,000 edges on: **{v}**." for v in slope.values())
    return f"### Growth, {_word(device)}\n\n{_table(list(sizes[0]), body)}{said}"


def hand_written_table(rows: list[dict[str, Any]]) -> str:
    """One line for each way to do a thing, oddnode's first."""
    tried = [key for key in ("vmap", "CUDA graph") if any(key in row for row in rows)]
    body = []
    for row in rows:
        for place, (way, value) in enumerate(row["ms"].items()):
            answers = [row.get(key, {}).get(way) for key in tried]
            said = ["-" if answer is None else "yes" if answer else "no" for answer in answers]
            what = [row["part"], row["graph"]] if place == 0 else ["", ""]
            body.append([*what, way, _short(value), _short(row["times ours"][way]), *said])
    return _table(["part", "graph", "way", "ms", "times oddnode's", *tried], body)


def _hand_written(rows: list[dict[str, Any]], device: str) -> str:
    return f"### Parts that are written by hand, {_word(device)}\n\n{hand_written_table(rows)}"


SECTIONS: dict[str, Callable[[list[dict[str, Any]], str], str]] = {
    "train": _train,
    "step": _step,
    "attention": _attention,
    "propagate": _propagate,
    "scaling": _scaling,
    "hand_written": _hand_written,
}


def _table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(value: Any) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _word(device: str) -> str:
    return "GPU" if device == "cuda" else "CPU"


def with_tables(page: str, made: str) -> str:
    """The page with its tables replaced."""
    before, rest = page.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n\n{made}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="print the tables and change nothing")
    options = parser.parse_args()
    if options.print:
        print(tables())
        return
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
