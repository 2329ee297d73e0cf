"""The page on clusters: its sums follow from the sizes that it names, and its options and names exist."""

from __future__ import annotations

import re
from pathlib import Path

import oddnode.large
import oddnode.runner

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text(encoding="utf-8")


def number(pattern: str) -> int:
    found = re.search(pattern, PAGE)
    assert found is not None, pattern
    return int(found[1].replace(",", ""))


def test_the_sums_of_papers100m_follow_from_its_sizes() -> None:
    sizes = {"node": number(r"(\d[\d,]+) nodes"), "edge": number(r"(\d[\d,]+) edges")}
    rows = re.findall(r"^\| .* \| (\d+) per (node|edge) \| ([\d.]+) \| ([\d.]*) ?\|$", PAGE, re.MULTILINE)
    assert len(rows) == 8
    for each, what, once, both in rows:
        gigabytes = int(each) * sizes[what] / 1e9
        assert float(once) == round(gigabytes, 1)
        if both:
            assert float(both) == round(gigabytes * (2 if what == "edge" else 1), 1)


def test_the_times_follow_from_the_rates() -> None:
    nodes, lookups = number(r"(\d[\d,]+) nodes"), 2 * number(r"(\d[\d,]+) edges")
    hop = [lookups * rate * 1e-9 for rate in (5, 7)]
    assert [round(seconds) for seconds in hop] == [16, 23]
    assert [round(32 * seconds / 60) for seconds in hop] == [9, 12]
    received = 4 * nodes * 3 / 4
    assert round(received / 1e9, 2) == 0.33
    exchange = received / (10e9 / 8)
    assert round(exchange, 2) == 0.27
    assert [round(seconds / 4, 1) for seconds in hop] == [4.0, 5.7]
    assert [round(100 * exchange / (seconds / 4)) for seconds in hop] == [7, 5]


def test_the_times_of_four_machines_follow_from_the_rates() -> None:
    nodes, lookups = number(r"(\d[\d,]+) nodes"), 2 * number(r"(\d[\d,]+) edges")
    received, rate = 4 * nodes * 3 / 4 / 1e9, 10 / 8  # GB for a vector, and GB a second
    hops = [32 * lookups * each * 1e-9 / 4 for each in (5, 7)]
    assert "32 hops of a score | {:.0f} to {:.0f} s".format(*(round(seconds, -1) for seconds in hops)) in PAGE
    assert f"| {32 * received:.1f} GB, {32 * received / rate:.1f} s |" in PAGE
    assert f"| {lookups * 173 * 1.5e-9 / 4:.0f} s for the edges | twice {173 * received:.1f} GB" in PAGE
    assert f"GB, {2 * 173 * received / rate:.0f} s |" in PAGE
    vectors = 64 * 32
    assert f"64 vectors, 32 hops | {vectors * lookups * 1.5e-9 / 4 / 60:.0f} min" in PAGE
    assert f"| {vectors * received:.0f} GB, {vectors * received / rate / 60:.1f} min |" in PAGE


def test_the_names_of_the_page_exist() -> None:
    names = re.findall(r"`oddnode\.runner\.(\w+)`", PAGE)
    assert names
    assert all(hasattr(oddnode.runner, name) for name in names)
    assert "with oddnode.large.joined():" in PAGE
    assert callable(oddnode.large.joined)
