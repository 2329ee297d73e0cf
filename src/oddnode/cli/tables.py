"""The commands for users' own tables: fit, score, report, sample-to-check, calibrate and prepare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
import typer

from oddnode._utils.plugins import load_plugins
from oddnode.cli.ranks import check_graph
from oddnode.cli.shared import (
    Device,
    Json,
    Plugins,
    SetOptions,
    add_command,
    as_options,
    check_device,
    checked_backbone,
    column_names,
    parse_settings,
    print_facts,
    print_note,
    progress_bar,
    visible,
)
from oddnode.detector import RECIPES, check_target, default_method
from oddnode.tables.formats import main_suffixes

if TYPE_CHECKING:
    from oddnode.tables import ColumnSummary, DatabaseTable, TableModel, TableOptions
    from oddnode.tables.reader import TableSource
    from oddnode.tables.reports import Report


# The number of findings that are printed; the file has all.
_MOST_FINDINGS = 10
# More columns than this are folded into one line for each way of reading; JSON lists all.
_FEW_COLUMNS = 20
_FOLDED = {
    "number": "numbers",
    "count": "counts",
    "category": "categories",
    "constant": "constant, left out",
    "other id": "other ids, left out",
    "dates": "dates, left out",
}
_SUFFIXES = " or ".join(main_suffixes())

NodeTables = Annotated[
    list[str] | None,
    typer.Option(help="Table of nodes with the columns the model was fitted on. Several are read as one."),
]
EdgeTables = Annotated[list[str] | None, typer.Option(help="Table of edges. Several are read as one.")]
Graph = Annotated[
    Path | None, typer.Option(help="Folder that `oddnode prepare` wrote, in place of --nodes and --edges.")
]
Db = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Database: postgresql://host/name, sqlite:///file or duckdb:///file, without a password. Tables can then "
        "be queries (select ...) or table:NAME.",
    ),
]
Encoding = Annotated[
    str | None, typer.Option(help="Encoding of CSV files, for example latin-1.", show_default="as when fitting")
]
IgnoreUnknownEdges = Annotated[
    bool, typer.Option("--ignore-unknown-edges", help="Leave out edges of nodes that are in no table of nodes.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing model in --out.")]

# The fields of `TableOptions`: the type of the option, its help text, and in some cases what the default does.
_TABLE_OPTIONS: dict[str, tuple[Any, str] | tuple[Any, str, str]] = {
    "id_column": (str, "Column with the ids of the nodes, text or integers."),
    "label_column": (str, "Column with the labels; empty = not labelled.", "no labels"),
    "type_column": (str, "Column with the types of the nodes, each with columns of its own: accounts, cards."),
    "unlabelled": (list[str], "Label that stands for 'not labelled'. Can be repeated."),
    "feature_columns": (str, "Columns with features, separated by commas.", "all other columns"),
    "drop_columns": (str, "Columns to exclude from the features, separated by commas."),
    "category_columns": (str, "Columns of codes: every number is a separate category."),
    "number_columns": (str, "Columns of numbers: any other text in them counts as missing."),
    "decimal_comma": (bool, "Read 3,5 as a number."),
    "encoding": (str, "Encoding of CSV files, for example latin-1.", "UTF-8"),
    "source_column": (str, "Column with the sources of edges.", "source, or the first column"),
    "target_column": (str, "Column with the targets of edges.", "target, or the second column"),
    "directed": (bool, "Use edges in their direction only."),
    "weight_column": (str, "Column with the weights of the edges, 0 or more.", "weight, if there is one"),
    "unweighted": (bool, "Ignore edge weights, even if there is a column weight."),
    "ignore_unknown_edges": (bool, "Leave out edges of nodes that are in no table of nodes."),
    "split_column": (
        str,
        "Column with train, validation or calibration.",
        "40, 20 and 40 % of every label at random",
    ),
    "exposure_column": (str, "Column of true and false that marks the nodes known to be OOD."),
    "time_column": (str, "Column with the times of the nodes: numbers, or dates. Needs --train-until."),
    "train_until": (str, "Last time to train on; nothing is learnt from later nodes (arrivals)."),
}
# Tables that oddnode wrote itself, in UTF-8.
_OWN_TABLES = ("scores", "checked")
_NOT_ON_DISK = ("exposure_column", "time_column", "train_until")
# Options that take several names, separated by commas.
_NAMES = ("feature_columns", "drop_columns", "category_columns", "number_columns")


def _with_table_options(without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `_TABLE_OPTIONS`; those that the user sets are passed as ``columns``."""
    names = [name for name in _TABLE_OPTIONS if name not in without]

    def parameter(name: str) -> inspect.Parameter:
        kind, text, *default = _TABLE_OPTIONS[name]
        is_flag = kind is bool
        flag = ["--" + name.replace("_", "-")] if is_flag else []
        option = typer.Option(*flag, help=text, show_default=default[0] if default else True)
        annotation: Any = Annotated[kind if is_flag else kind | None, option]
        default_value = False if is_flag else None
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default_value, annotation=annotation)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints, parameters = get_type_hints(command, include_extras=True), list[inspect.Parameter]()
        for own in inspect.signature(command).parameters.values():
            plain = own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[own.name])
            parameters += map(parameter, names) if own.name == "columns" else [plain]

        @wraps(command)
        def run(**given: Any) -> None:
            columns = {name: value for name in names if (value := given.pop(name)) or value == ""}
            command(**given, columns=columns)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {own.name: own.annotation for own in parameters}
        return run

    return decorate


def _table_options(columns: dict[str, Any]) -> TableOptions:
    from oddnode.tables import TableOptions

    named: dict[str, Any] = {name: column_names(columns[name]) for name in _NAMES if name in columns}
    return TableOptions(**columns | named)


def _opened(
    tables: Mapping[str, Sequence[str] | None], encoding: str | None, db: str | None, db_is_used: bool = False
) -> dict[str, list[TableSource] | None]:
    """Open files, and run queries in one transaction."""
    from oddnode.tables import Database, Table, is_query

    queries = [text for texts in tables.values() for text in texts or () if is_query(text)]
    if queries and db is None:
        raise ValueError(f"{queries[0][:60]!r} is in a database; name it with --db, for example sqlite:///file.db")
    for text in (text for texts in tables.values() for text in texts or () if db is not None and not is_query(text)):
        if not Path(text).suffix and not Path(text).exists():
            named = f", all rows of a table are table:{text}" if text.isidentifier() else ""
            start = "select, with, values, from or table"
            raise ValueError(f"{text[:60]!r} is neither a file nor a query, which starts with {start}{named}")
    if db is not None and not queries and not db_is_used:
        raise ValueError("--db is given, but no query: give one for a table, for example 'select * from t' or table:t")
    with ExitStack() as stack:
        database = stack.enter_context(Database(db)) if db is not None and queries else None

        def opened(text: str, name: str) -> TableSource:
            if database is not None and is_query(text):
                return database.query(text, name.replace("_", " "))
            return Table(text, None if name in _OWN_TABLES else encoding)

        return {name: [opened(text, name) for text in texts or ()] or None for name, texts in tables.items()}


def _target(out: Path, db: str | None, overwrite: bool | None) -> Path | DatabaseTable:
    """The file to write, or with ``table:NAME`` the table of the database."""
    if not str(out).startswith("table:"):
        return out
    if db is None:
        raise ValueError(f"--out {out} is a table; name its database with --db")
    from oddnode.tables import Database

    return Database(db).table(str(out).removeprefix("table:"), overwrite)


def _option_names(names: list[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _require(**options: Any) -> None:
    """Raise an error for options that are missing although there is no --graph."""
    missing = [name for name, value in options.items() if not value]
    if missing:
        raise ValueError(f"give {_option_names(missing)}, or a --graph that `oddnode prepare` wrote")


def _refuse(options: dict[str, Any], other: str) -> None:
    """Raise an error for options that cannot be combined with another."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ValueError(f"{_option_names(given)} cannot be combined with {other}")


def checked_tables(
    model: Path, nodes: Sequence[str] | None, edges: Sequence[str] | None, encoding: str | None, db: str | None
) -> tuple[list[TableSource] | None, list[TableSource] | None]:
    """Open tables of nodes and edges, and check that the model can read them, which needs no torch."""
    tables = _checked(model, nodes, edges, encoding, db)
    return tables["nodes"], tables["edges"]


def _checked(
    model: Path,
    nodes: Sequence[str] | None,
    edges: Sequence[str] | None,
    encoding: str | None,
    db: str | None,
    known_column: str | None = None,
    db_is_used: bool = False,
    **more: Sequence[str] | None,
) -> dict[str, list[TableSource] | None]:
    """Open tables by name, as `checked_tables` does."""
    from oddnode.tables import open_table, read_schema
    from oddnode.tables.reader import check_not_swapped

    schema = read_schema(model)
    tables = _opened({"nodes": nodes, "edges": edges, **more}, encoding or schema.encoding, db, db_is_used)
    if tables["nodes"] is not None:
        also = [] if known_column is None else [known_column]
        table = open_table(tables["nodes"], "nodes")
        check_not_swapped(table, open_table(tables["edges"], "edges"), [schema.id_column, *schema.features.names])
        table.require(also, "known")
        schema.check_columns(table, also)
    return tables


def _check_new(out: Path, overwrite: bool) -> None:
    check_target(out)
    if not overwrite and out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} has a model already; replace it with --overwrite, or give another --out")


def _save(model: TableModel, out: Path, graph: Path | None) -> None:
    if graph is None:
        model.save(out)
        return
    from oddnode.large.ranks import active_ranks

    active_ranks().on_rank_zero(lambda: model.save(out), None)


@_with_table_options()
def fit(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    nodes: Annotated[
        list[str] | None,
        typer.Option(help=f"Table of nodes, {_SUFFIXES}: an id, a label, features. Several are read as one."),
    ] = None,
    edges: Annotated[
        list[str] | None,
        typer.Option(help=f"Table of edges, {_SUFFIXES}: two columns with ids. Several are read as one."),
    ] = None,
    db: Db = None,
    graph: Graph = None,
    columns: dict[str, Any],
    exposure_nodes: Annotated[list[str] | None, typer.Option(help="Table of nodes known to be OOD.")] = None,
    exposure_edges: Annotated[
        list[str] | None, typer.Option(help="Table of the edges between them.", show_default="none")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="See `oddnode methods`.",
            show_default="nodesafe-evidence, with exposure followed by ++; evidence-unlabelled without labels",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="The network: gcn, mlp, gat, jknet, mixhop or one from a plugin.", show_default="the method's, or gcn"
        ),
    ] = None,
    false_alarm_rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of known nodes that may be flagged.")
    ] = 0.05,
    set_options: SetOptions = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of training.")] = 0,
    overwrite: Overwrite = False,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Fit a model on a table of nodes and a table of edges, and save it.

    Numbers are scaled and text columns become categories; unseen categories are treated as missing when scoring.
    """
    # Checks that do not need torch come first.
    check_graph(graph)
    load_plugins(plugin or ())
    check_device(device)
    _check_new(out, overwrite)
    has_exposure, has_labels = bool(exposure_nodes) or "exposure_column" in columns, "label_column" in columns
    method = method or default_method(has_exposure, has_labels or has_exposure or graph is not None)
    if graph is None and not has_labels and (method not in RECIPES or RECIPES[method].needs_labels):
        without = default_method(False, has_labels=False)
        raise ValueError(f"{method} learns from labels: give --label-column, or --method {without}, which needs none")
    settings = parse_settings(set_options, [method])
    if backbone is not None:
        settings["backbone"] = checked_backbone(backbone, method)
    settings |= {"method": method, "false_alarm_rate": false_alarm_rate, "seed": seed, "device": device}
    files = {"nodes": nodes, "edges": edges, "exposure_nodes": exposure_nodes, "exposure_edges": exposure_edges}
    source: TrainingTables | GraphFolder
    if graph is not None:
        reason = "they are options of `oddnode prepare`, or not supported for graphs on disk"
        _refuse(files | columns | {"db": db}, f"--graph; {reason}")
        from oddnode.large import GraphFolder

        source = GraphFolder(graph)
    else:
        _require(nodes=nodes, edges=edges, id_column=columns.get("id_column"))
        from oddnode.tables import TrainingTables

        source = TrainingTables(**_opened(files, columns.get("encoding"), db), options=_table_options(columns))
        source.check_columns()
    from oddnode.detector import Detector
    from oddnode.tables import fit_tables

    default = inspect.signature(Detector).parameters["epochs"].default
    epochs = settings.get("epochs") or RECIPES[method].settings.get("epochs", default)
    with progress_bar(terminal_only=True) as show:
        model, report = fit_tables(source, on_epoch=_show_epochs(show, epochs), **settings)
    _save(model, out, graph)
    if not as_json:
        _print_columns(report.columns)
    of_labels = () if report.labels else ("labels", "best_epoch", "homophily")
    hidden = ("rate_interval", "accuracy", "forecast", *of_labels)
    _print_report(report, {"model": str(out)}, as_json, without=hidden)


def _print_report(report: Report, more: dict[str, Any], as_json: bool, without: Sequence[str] = ()) -> None:
    """Print a report: facts by name, then its summary in sentences, then notes. JSON has all of it."""
    facts = report.as_dict() | more
    if as_json:
        print_facts(facts | {"summary": report.summary}, as_json)
        return
    print_facts({name: value for name, value in facts.items() if name not in (*without, "notes")}, as_json)
    for sentence in report.summary:
        typer.echo(sentence)
    for note in report.notes:
        print_note(as_options(note))


def _show_epochs(show: Callable[..., None], epochs: int) -> Callable[[int], None]:
    """Show epochs out of those of a network; several networks are counted."""

    def on_epoch(done: int) -> None:
        network, epoch = divmod(done - 1, epochs)
        show(epoch + 1, epochs, "training" if not network else f"training network {network + 1}")

    return on_epoch


def _print_columns(columns: list[ColumnSummary]) -> None:
    """Print a line for each column, or for all columns of a kind if there are many."""
    groups: dict[tuple[str, str], list[ColumnSummary]] = {}
    for column in columns:
        is_folded = len(columns) > _FEW_COLUMNS and column.read_as in _FOLDED
        groups.setdefault((column.read_as, "" if is_folded else column.name), []).append(column)
    for (read_as, _), group in groups.items():
        if len(group) == 1:
            typer.echo(visible(f"column {group[0].name}: {group[0]}"))
            continue
        names = ", ".join(column.name[:60] for column in group[:3]) + (", ..." if len(group) > 3 else "")
        lows, highs = ([x for c in group if (x := getattr(c, end)) is not None] for end in ("low", "high"))
        extent = f", {min(lows):g} to {max(highs):g}" if lows else ""
        missing = sum(column.num_missing for column in group)
        typer.echo(visible(f"{len(group)} columns {names}: {_FOLDED[read_as]}{extent}, {missing} values missing"))


def score(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    out: Annotated[Path, typer.Option(help=f"File to write, {_SUFFIXES}, or table:NAME, a table of --db.")],
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    db: Db = None,
    graph: Graph = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Add columns that explain the scores; the column why explains flagged nodes in words.",
        ),
    ] = False,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence", help="Add a column with the surprise of each kind of evidence, if the method combines them."
        ),
    ] = False,
    only_new: Annotated[
        bool, typer.Option("--only-new", help="Write only the rows that the model was not fitted on.")
    ] = False,
    fdr: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Flag new rows so that at most this share of the flagged ones should be false alarms.",
            show_default="the calibrated false-alarm rate decides",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(min=1, help="Flag this many new rows, the oddest; of each day if the model has a time column."),
    ] = None,
    no_batch: Annotated[
        bool,
        typer.Option("--no-batch", help="Judge every new row alone; else 100 or more are also compared as a batch."),
    ] = False,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    raw_text: Annotated[
        bool,
        typer.Option(
            "--raw-text", help="Write ids and labels to CSV as they are, even if a spreadsheet would run them."
        ),
    ] = False,
    encoding: Encoding = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing table of --db.")] = False,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Score the nodes of two tables and write one row per node.

    Columns: the id, predicted, confidence, score (higher = better known), p_value, is_ood, split, which says
    what a row was used for when the model was fitted, or arrival for one that came later, seen (whether the model was
    fitted on it), group, rank (1 = oddest of the new rows) and expected_precision.
    """
    from oddnode.tables import Rule, is_query
    from oddnode.tables import check_target as check_table_target

    rule: dict[str, Any] = {"only_new": only_new, "fdr": fdr, "budget": budget, "batch": not no_batch}
    Rule(**rule)
    check_graph(graph)
    load_plugins(plugin or ())
    check_device(device)
    target = _target(out, db, overwrite)
    if graph is not None:
        _refuse({"nodes": nodes, "edges": edges, "ignore_unknown_edges": ignore_unknown_edges}, "--graph")
        from oddnode.large import GraphFolder
        from oddnode.tables import TableModel, score_folder

        of = TableModel.load(model, device), GraphFolder(graph)
        report = score_folder(*of, target, explain, raw_text, evidence=evidence, **rule)
    else:
        _require(nodes=nodes, edges=edges)
        check_table_target(target, [Path(text) for text in [*(nodes or ()), *(edges or ())] if not is_query(text)])
        tables = _checked(model, nodes, edges, encoding, db, db_is_used=target is not out)
        from oddnode.tables import TableModel

        loaded = TableModel.load(model, device)
        how: dict[str, Any] = {"explain": explain, "evidence": evidence, "raw_text": raw_text}
        how["ignore_unknown_edges"] = ignore_unknown_edges
        report = loaded.score(tables["nodes"], tables["edges"], target, **how, **rule)
    findings = {} if as_json else {f"finding {each.number}": str(each) for each in report.findings[:_MOST_FINDINGS]}
    _print_report(report, findings | {"written": str(out)}, as_json, without=_IN_SUMMARY)


# What the summary of `score` says in words.
_IN_SUMMARY = ("rule", "num_days", "groups", "num_judged", "num_judged_flagged", "num_by_chance", "findings", "batch")


def sample_to_check(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    scores: Annotated[str, typer.Argument(help="Table that `oddnode score` wrote; with --db also table:NAME.")],
    out: Annotated[Path, typer.Option(help=f"File to write, {_SUFFIXES}; with --db also table:NAME.")],
    db: Db = None,
    n: Annotated[int, typer.Option("--n", min=2, help="Number of rows to draw.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw rows to look at, at random among the flagged and among the other new rows.

    Fill in the column known of the file (yes or no), and give it to `oddnode calibrate` as --checked: this estimates
    precision and recall, and sets the threshold.
    """
    from oddnode.tables import read_schema
    from oddnode.tables import sample_to_check as draw

    target = _target(out, db, overwrite=None)
    tables = _opened({"scores": [scores]}, None, db, db_is_used=target is not out)
    report = draw(tables["scores"], target, read_schema(model).id_column, n, seed)
    print_facts(report.as_dict() | {"written": str(out)}, as_json)


def report(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    scores: Annotated[
        str, typer.Argument(help="Table that `oddnode score` wrote, best with --explain; with --db also table:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="File to write, .html.")],
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    db: Db = None,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    encoding: Encoding = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write a page about scores: what was found, why, and the graph around each row.

    Give the tables that were scored. The page is one file that works without a network and can be sent to anybody who
    may see the tables: it contains ids, labels, values and reasons of flagged rows.
    """
    load_plugins(plugin or ())
    if not nodes or not edges:
        raise ValueError("give --nodes and --edges: the tables that were scored")
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {out}: expected a name that ends in .html")
    tables = _checked(model, nodes, edges, encoding, db, scores=[scores])
    from oddnode.tables import TableModel
    from oddnode.tables.webpage import make_page, write_page

    page = make_page(TableModel.load(model, "cpu"), **tables, ignore_unknown_edges=ignore_unknown_edges)
    write_page(page, out)
    facts = {"num_rows": len(page.judged), "num_flagged": page.num_flagged, "num_findings": len(page.findings)}
    print_facts(facts | {"notes": page.notes, "written": str(out)}, as_json)


def calibrate(
    model: Annotated[Path, typer.Argument(help="Folder that `oddnode fit` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the model with the new threshold.")],
    nodes: NodeTables = None,
    edges: EdgeTables = None,
    db: Db = None,
    graph: Graph = None,
    known_column: Annotated[
        str | None,
        typer.Option(help="Column of true and false: true for nodes that are known, drawn at random."),
    ] = None,
    checked: Annotated[
        str | None,
        typer.Option(help="Rows that `oddnode sample-to-check` drew, with answers, in place of --known-column."),
    ] = None,
    false_alarm_rate: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of known nodes that may be flagged.", show_default="the model's"),
    ] = None,
    ignore_unknown_edges: IgnoreUnknownEdges = False,
    new_ids: Annotated[
        bool,
        typer.Option("--new-ids", help="Ids name different nodes than in the fitted table, so none was trained on."),
    ] = False,
    no_batch: Annotated[
        bool,
        typer.Option(
            "--no-batch", help="Judge every row alone, as `oddnode serve` does, which needs such a threshold."
        ),
    ] = False,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Recalibrate the threshold of a model on known nodes of another graph, or for another false-alarm rate.

    Known nodes must be drawn at random: calibrating on false alarms alone would switch detection off, and is refused.
    `oddnode sample-to-check` draws nodes to check. Without tables, the nodes that the model was calibrated on
    determine the threshold for the new rate. Nodes that it was trained on are left out. The network is not trained
    again. The old model is unchanged unless --out names it.
    """
    check_graph(graph)
    load_plugins(plugin or ())
    check_device(device)
    _check_new(out, overwrite)
    if known_column is not None and checked is not None:
        raise ValueError("--known-column and --checked are two ways to name known nodes; give one of them")
    given = [bool(nodes), bool(edges), known_column is not None or checked is not None]
    if any(given) and not all(given):
        raise ValueError("give --nodes, --edges and --known-column (or --checked) together, or none of them")
    if not any(given) and graph is None and false_alarm_rate is None:
        raise ValueError(
            "nothing to do: give a --false-alarm-rate, or --nodes, --edges and --known-column (or --checked), or both"
        )
    tables = _checked(model, nodes, edges, encoding, db, known_column, checked=[checked] if checked else None)
    from oddnode.tables import TableModel, calibrate_folder

    loaded = TableModel.load(model, device)
    if graph is not None:
        _refuse({"nodes": nodes, "edges": edges, "known_column": known_column, "checked": checked}, "--graph")
        _refuse({"new_ids": new_ids, "no_batch": no_batch}, "--graph")
        from oddnode.large import GraphFolder

        report = calibrate_folder(loaded, GraphFolder(graph), false_alarm_rate)
    elif nodes:
        given_known = known_column, false_alarm_rate, ignore_unknown_edges, new_ids
        more: dict[str, Any] = {"checked": tables["checked"], "batch": not no_batch}
        report = loaded.calibrate(tables["nodes"], tables["edges"], *given_known, **more)
    else:
        assert false_alarm_rate is not None
        report = loaded.set_false_alarm_rate(false_alarm_rate)
    _save(loaded, out, graph)
    _print_report(report, {"model": str(out)}, as_json, without=("rate_interval", "checked"))


@_with_table_options(without=_NOT_ON_DISK)
def prepare(
    nodes: Annotated[list[str], typer.Option(help=f"Table of nodes, {_SUFFIXES}, or a glob pattern. Can be repeated.")],
    edges: Annotated[list[str], typer.Option(help=f"Table of edges, {_SUFFIXES}, or a glob pattern. Can be repeated.")],
    out: Annotated[Path, typer.Option(help="Folder for the graph.")],
    columns: dict[str, Any],
    db: Db = None,
    model: Annotated[
        Path | None, typer.Option(help="Read the tables as this model does, to score the graph with it.")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write tables of any size as a graph on disk, with little memory.

    `fit`, `score` and `calibrate` take the folder as --graph. Repeat the command to resume an interrupted run.
    """
    from oddnode.tables import TrainingTables, files_matching, is_query, read_schema

    load_plugins(plugin or ())
    options: TableOptions
    if model is not None:
        own = {name: columns.pop(name) for name in list(columns) if name in _WITH_MODEL}
        _refuse(columns, "--model, which says how the tables are read")
        options = read_schema(model).with_labels(**own)
    elif not {"id_column", "label_column"} <= columns.keys():
        raise ValueError("give --id-column and --label-column, or a --model that says how the tables are read")
    else:
        options = _table_options(columns)
    found = {
        name: [each for text in texts for each in ([text] if is_query(text) else map(str, files_matching([text])))]
        for name, texts in {"nodes": nodes, "edges": edges}.items()
    }
    read = TrainingTables(**_opened(found, options.encoding, db), options=options)
    read.check_columns()  # checks that do not need torch come first
    with progress_bar(terminal_only=True) as show:
        folder = read.prepare(out, show)
        show(0, None, "averaging features over neighbours")
        _ = folder.as_graph().moments(smoothed=True)  # kept in the folder, for every training
    sizes = {name: getattr(folder, name) for name in ("num_nodes", "num_edges", "num_features")}
    sizes["num_edges"] //= 1 if options.directed else 2  # as fit and score count them
    facts = {"labels": folder.manifest.classes, "notes": folder.manifest.notes, "graph": str(out)}
    if not as_json:
        _print_columns(read.columns)
    print_facts(sizes | facts | {"columns": msgspec.to_builtins(read.columns)}, as_json)


# The options of `prepare` that can be given with --model.
_WITH_MODEL = ("label_column", "unlabelled", "ignore_unknown_edges", "encoding")
_COLUMNS = "--id-column id --label-column y"
_TABLES = "--nodes n.csv --edges e.csv"
_EXAMPLES: dict[Callable[..., None], list[str]] = {
    fit: [
        "--nodes nodes.csv --edges edges.csv --id-column id --label-column topic --out model",
        f"--nodes n.parquet --edges e.parquet {_COLUMNS} --feature-columns age,country --false-alarm-rate 0.01 "
        "--out model",
        "--db postgresql://host/shop --nodes 'select * from products' --edges 'select a, b from links' --id-column id "
        "--label-column category --out model",
        f"{_TABLES} {_COLUMNS} --exposure-column spam --out model",
        f"{_TABLES} {_COLUMNS} --unlabelled unknown --category-columns zip,major --drop-columns joined --out model",
        f"{_TABLES} {_COLUMNS} --time-column joined --train-until 2024-05-31 --out model",
        f"{_TABLES} {_COLUMNS} --method nodesafe --set num_hops=2 --set eta=0.5 --out model",
        "--graph graph --out model",
        "--graph graph --backbone gat --out model",
    ],
    score: [
        "model --nodes nodes.csv --edges edges.csv --out scores.csv",
        "model --nodes new.parquet --edges new_edges.parquet --out scores.parquet --explain",
        "model --nodes old.csv --nodes new.csv --edges old_edges.csv --edges new_edges.csv --out s.csv",
        "model --db sqlite:///shop.db --nodes 'select * from products' --edges 'select a, b from links' "
        "--out table:scores",
        "model --nodes old.csv --nodes new.csv --edges all_edges.csv --out s.csv --only-new --fdr 0.1",
        "model --nodes old.csv --nodes new.csv --edges all_edges.csv --out s.csv --only-new --budget 20",
        "model --graph graph --out scores.parquet",
    ],
    report: [
        "model scores.csv --nodes nodes.csv --edges edges.csv --out page.html",
        "model table:scores --db sqlite:///shop.db --nodes table:products --edges table:links --out page.html",
    ],
    sample_to_check: ["model scores.csv --n 100 --out check.csv"],
    calibrate: [
        "model --nodes old.csv --nodes may.csv --edges all_edges.csv --checked check.csv --out model-may",
        "model --nodes may.csv --edges may_edges.csv --known-column drawn --out model-may",
        "model --false-alarm-rate 0.01 --out strict",
    ],
    prepare: [
        "--nodes nodes.parquet --edges 'edges/*.parquet' --id-column id --label-column topic --out graph",
        "--nodes new.parquet --edges new_edges.parquet --model model --out new_graph",
    ],
}


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command, examples in _EXAMPLES.items():
        add_command(app, command, *examples, panel="Your tables")
