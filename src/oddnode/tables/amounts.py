"""Strings as numbers: currencies, percentages, thousands separators and decimal commas, each form recognised by column.

Nothing is guessed value by value: a column has one form, which a model remembers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from oddnode.tables.values import missing_to_null, pa, pc

_NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)$"
_CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|TRY|BRL|MXN|ZAR|KRW|SGD|HKD"
# Currency signs are a category of Unicode.
_UNIT = rf"US\$|\p{{Sc}}|%|{_CODES}|kr"
_BLANK = r" \x{a0}\x{202f}"
_QUOTES = r"'\x{2019}"
_DIGITS = rf"[+-]?[\d.,{_QUOTES}{_BLANK}]*\d\.?"
_AMOUNT = rf"^[+-]?[{_BLANK}]*(?P<before>{_UNIT})?[{_BLANK}]*{_DIGITS}[{_BLANK}]*(?P<after>{_UNIT})?$"
_POINT_GROUPS = r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d*)?"


class Form(NamedTuple):
    """How the numbers of a column are written."""

    decimal_comma: bool = False  # Whether strings like `"3,5"` are numbers
    unit: str = ""  # A currency or `%` before or after a number
    point_groups: bool = False  # With decimal commas: whether `"1.234"` is 1234

    @classmethod
    def of(cls, strings: Iterable[str], decimal_comma: bool = False, only_amounts: bool = False) -> Self | None:
        """Recognise the form of strings; ``None`` if they are not numbers, or of several units.

        With ``only_amounts``, strings without a number, such as ``"n.a."``, do not matter.
        """
        texts, units, clash = amounts_in(strings)
        if not len(texts) or (len(texts) < len(set(strings)) and not only_amounts) or clash:
            return None
        unit = max(units)
        bare = cls(True, unit)._without_unit(texts).to_pylist()
        groups = all(re.fullmatch(_POINT_GROUPS, text) for text in bare if "." in text)
        forms = [cls(True, unit, groups)] if decimal_comma else [cls(False, unit), cls(True, unit, groups)]
        return next((form for form in forms if form.are_numbers(texts).all()), None)

    def numbers(self, array: Any, text_is_missing: bool = False) -> np.ndarray | None:
        """Convert values to numbers; ``None`` if a string is not a number."""
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        array = missing_to_null(array)
        if pa.types.is_string(array.type):
            plain = None if self.point_groups or self.unit else _as_floats(self._with_points(array))
            if plain is not None:
                return plain
            array = self._normalised(array)
            if text_is_missing:
                array = pc.if_else(pc.match_substring_regex(array, _NUMBER), array, pa.scalar(None, pa.string()))
        return _as_floats(array)

    def are_numbers(self, array: Any) -> np.ndarray:
        """Whether each string is a number."""
        strings = self._normalised(missing_to_null(array).cast(pa.string()))
        return pc.match_substring_regex(strings, _NUMBER).fill_null(True).to_numpy(zero_copy_only=False)

    def first_grouped(self, strings: Iterable[str]) -> str | None:
        """The first of some numbers whose thousands are separated."""
        if not set("".join(strings)) & set(",.' \u2019\u00a0\u202f"):
            return None
        texts = pa.array(sorted(strings), pa.string())
        grouped = pc.match_substring_regex(self._without_unit(texts), self._grouped)
        return next(iter(texts.filter(grouped).to_pylist()), None)

    def __str__(self) -> str:
        parts = {"decimal commas": self.decimal_comma, f"the unit {self.unit}": bool(self.unit)}
        return " and ".join(name for name, holds in parts.items() if holds)

    @property
    def _separators(self) -> str:
        mark = "" if self.decimal_comma and not self.point_groups else "." if self.decimal_comma else ","
        return f"[{mark}{_QUOTES}{_BLANK}]"

    @property
    def _grouped(self) -> str:
        decimals = r",\d*" if self.decimal_comma else r"\.\d*"
        return rf"^[+-]?[1-9]\d{{0,2}}({self._separators}\d{{3}})+({decimals})?$"

    def _without_unit(self, strings: Any) -> Any:
        if not self.unit:
            return strings
        unit, blank = re.escape(self.unit), f"[{_BLANK}]*"
        strings = pc.replace_substring_regex(strings, rf"^([+-]?){blank}{unit}{blank}", r"\1")
        return pc.replace_substring_regex(strings, rf"{blank}{unit}$", "")

    def _with_points(self, strings: Any) -> Any:
        return pc.replace_substring(strings, ",", ".") if self.decimal_comma else strings

    def _normalised(self, strings: Any) -> Any:
        strings = self._without_unit(strings)
        grouped = pc.match_substring_regex(strings, self._grouped)
        plain = pc.replace_substring_regex(strings, self._separators, "")
        return self._with_points(pc.if_else(grouped, plain, strings))


def amounts_in(strings: Iterable[str]) -> tuple[Any, dict[str, str], bool]:
    """The strings that are amounts, one of each unit, and whether units clash; 0.1 and 12% are two scales, too."""
    every = pa.array(sorted(strings), pa.string())
    found = pc.extract_regex(every, _AMOUNT)
    texts, ends = every.filter(found.is_valid()), found.drop_null()
    each = zip(ends.field(0).to_pylist(), ends.field(1).to_pylist(), texts.to_pylist(), strict=True)
    units = {before or after or "": text for before, after, text in each}
    return texts, units, len(units.keys() - {""}) > 1 or units.keys() == {"", "%"}


#: Decimal points, without a unit.
PLAIN = Form()


def _as_floats(array: Any) -> np.ndarray | None:
    try:
        numbers = array.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return None
    return numbers.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
