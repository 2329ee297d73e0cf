"""The column of a table of edges that holds their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from oddnode.tables.columns import are_numbers, to_numbers
from oddnode.tables.reader import Batch, TableSource
from oddnode.tables.values import TableError, pyarrow, quoted

__all__ = ["WEIGHT", "WeightColumn", "weight_column_of"]

#: A column of this name holds weights unless the user says otherwise.
WEIGHT = "weight"


class WeightColumn(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of edge weights: finite numbers of 0 or more, none missing.

    Parameters
    ----------
    name : str
        The column.
    decimal_comma : bool
        Whether texts like ``"3,5"`` are numbers.
    """

    name: str
    decimal_comma: bool = False

    def read(self, array: Any, batch: Batch) -> np.ndarray:
        """Read the weights of a batch of edges.

        Parameters
        ----------
        array : pyarrow.Array
            The column's values in n rows.
        batch : Batch
            The batch they come from, for messages.

        Returns
        -------
        numpy.ndarray
            Weights ``[n]``, in double precision.
        """
        try:
            values = to_numbers(array, self.decimal_comma)
        except pyarrow().ArrowException:  # dates, lists and the like
            raise self._wrong(array, batch, 0) from None
        if values is None:
            raise self._wrong(array, batch, int(np.argmin(are_numbers(array, self.decimal_comma))))
        wrong = ~((values >= 0) & (values < np.inf))  # NaN compares as neither
        if wrong.any():
            raise self._wrong(array, batch, int(wrong.argmax()))
        return values

    def _wrong(self, array: Any, batch: Batch, row: int) -> TableError:
        return TableError(
            f"{batch.table}: column {self.name!r} has {quoted(array[row].as_py())} in {batch.place(row)}, expected the "
            "weight of an edge, a number of 0 or more; correct it, name another column when fitting with "
            "`weight_column`, or fit with `unweighted`"
        )


def weight_column_of(
    table: TableSource, ends: tuple[str, str], name: str | None, unweighted: bool, decimal_comma: bool
) -> tuple[WeightColumn | None, list[str]]:
    """Choose the column of weights: the named one, or else ``weight`` if there is one.

    Parameters
    ----------
    table : TableSource
        The table of edges.
    ends : tuple of str
        The columns with the ends of its edges.
    name : str or None
        The column that the user named.
    unweighted : bool
        Whether all edges count the same, whatever the columns.
    decimal_comma : bool
        As for `WeightColumn`.

    Returns
    -------
    WeightColumn or None
        The column; ``None`` if edges have no weights.
    list of str
        Notes for the user.
    """
    if name is not None and unweighted:
        raise TableError("give either `weight_column` or `unweighted`, not both")
    if name in ends:
        raise TableError(f"`weight_column` is {name!r}, which holds ids")
    if unweighted or (name is None and (WEIGHT not in table.columns or WEIGHT in ends)):
        return None, []
    column = WeightColumn(WEIGHT if name is None else name, decimal_comma)
    if name is not None:
        return column, []
    return column, [f"the column {WEIGHT!r} of the edges holds their weights; `unweighted` leaves it out"]
