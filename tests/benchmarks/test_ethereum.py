"""What the benchmark on phishing knows at a time: transfers up to then, and nothing later."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import torch
from ethereum import DAY, Transfers

# Account 7 pays 9 and 3; 5 pays 7 later; then 3 pays 9, whom nobody knew at the first time.
ROWS = [(7, 9, 2.0, 1, 10), (7, 3, 6.0, 4, 12), (5, 7, 1.0, 1, 14), (3, 9, 5.0, 1, 30)]


def written(folder: Path, rows: list[tuple]) -> Transfers:
    with gzip.open(folder / "edges.csv.gz", "wt") as file:
        file.write("from,to,amount,n_transactions,timestamp\n")
        file.writelines(f"{a},{b},{amount},{n},{day * DAY}\n" for a, b, amount, n, day in rows)
    with gzip.open(folder / "nodes.csv.gz", "wt") as file:
        file.write("id,label,has_label\n3,1.0,True\n5,,False\n7,0.0,True\n9,,False\n")
    return Transfers.read(folder)


def test_features_come_from_transfers_up_to_the_time(tmp_path: Path) -> None:
    transfers = written(tmp_path, ROWS)
    assert transfers.phishing.tolist() == [0, -1, 1, -1]  # 7 and 9, then 3, then 5
    assert (transfers.first // DAY).tolist() == [10, 10, 12, 14]
    early = transfers.graph(13 * DAY)
    assert early.num_nodes == 3
    assert sorted(map(tuple, early.edge_index.t().tolist())) == [(0, 1), (0, 2), (1, 0), (2, 0)]
    sent = [2, 5, 8.0, 6.0, 4.0]  # counterparties, transactions, total, largest and mean amount of account 7
    times = [2.0, 2.0, 2.0]  # days of activity, longest and mean pause
    expected = [*(math.log1p(value) for value in [*sent, 0, 0, 0, 0, 0, *times]), 0.0]
    torch.testing.assert_close(early.x[0], torch.tensor(expected))
    assert float(early.x[1, -1]) == 1.0  # all counterparties of account 9 sent something
    late = transfers.graph(40 * DAY)
    assert float(late.x[0, -1]) == torch.tensor(1 / 3)
    again = written(tmp_path, ROWS[:2]).graph(13 * DAY)
    assert torch.equal(again.x, early.x)
    assert torch.equal(again.edge_index, early.edge_index)
