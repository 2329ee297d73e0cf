"""How many of the N oddest arrivals of a day a budget of N alerts catches, decided as they arrive.

    python benchmarks/alert_budget.py

Days are simulated: known nodes have uniform p-values, 2 % of the arrivals are unknown and have lower ones, p-values
come from 300 calibration nodes. Days are alike (``flat``), busier at noon (``noon``), or their number of arrivals
varies by a factor of two, with unknown ones on three days in ten only (``bursts``). "One threshold" is the p-value
that would have given N alerts a day over the last seven days, and stops after N. The first day, which has nothing to
compare with, is left out of the mean and shown apart.
"""

from __future__ import annotations

import argparse

import numpy as np

from oddnode.service.budget import DAY, DailyBudget

DAYS, CALIBRATION, UNKNOWN = 30, 300, 0.02
Day = list[tuple[float, float, float]]  # time, p-value and score of each arrival


def simulated(shape: str, per_day: int, rng: np.random.Generator) -> list[Day]:
    """Days of arrivals."""
    days = []
    for day in range(DAYS):
        mean = per_day * (rng.lognormal(0, 0.7) if shape == "bursts" else 1)
        unknown = UNKNOWN if shape != "bursts" else 3 * UNKNOWN * (rng.random() < 0.3)
        count = rng.poisson(mean)
        times = rng.random(count) if shape == "flat" else np.clip(rng.normal(0.55, 0.15, count), 0, 0.99999)
        share = np.where(rng.random(count) < unknown, rng.beta(0.15, 3, count), rng.random(count))
        p_values = (1 + np.floor(share * CALIBRATION)) / (CALIBRATION + 1)
        rows = zip((DAY * (day + np.sort(times))).tolist(), p_values.tolist(), np.log(share).tolist(), strict=True)
        days.append(list(rows))
    return days


def one_threshold(days: list[Day], budget: int) -> list[set[int]]:
    """Alerts below the p-value and score that gave N a day in the last seven days, until there are N."""
    chosen: list[set[int]] = []
    for number, day in enumerate(days):
        past = sorted(each[1:] for other in days[max(number - 7, 0) : number] for each in other)
        limit = (0.05, 0.0) if not past else past[min(budget * min(number, 7), len(past)) - 1]
        below = [place for place, each in enumerate(day) if each[1:] <= limit]
        chosen.append(set(below[:budget]))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    print("| days | arrivals | budget | alerts | caught | first day | one threshold: alerts | caught |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for shape in ("flat", "noon", "bursts"):
        for per_day, budget in ((100, 10), (1000, 5), (1000, 20), (3000, 20)):
            rows, most = [], 0
            for seed in range(seeds):
                days, rule = simulated(shape, per_day, np.random.default_rng(seed)), DailyBudget(budget)
                plain = one_threshold(days, budget)
                for number, day in enumerate(days):
                    alerts = {n for n, (time, p, score) in enumerate(day) if rule.offer(time, p, score, p <= 0.05)}
                    best = set(sorted(range(len(day)), key=lambda n: day[n][1:])[:budget])
                    share = [len(each & best) / max(len(best), 1) for each in (alerts, plain[number])]
                    rows.append((number == 0, len(alerts), share[0], len(plain[number]), share[1]))
                    most = max(most, len(alerts))
            assert most <= budget
            first, *table = np.array(rows).T
            alerts, caught, others, others_caught = (each[first == 0].mean() for each in table)
            shown = f"{alerts:.1f} | {100 * caught:.0f} % | {100 * table[1][first == 1].mean():.0f} %"
            print(f"| {shape} | {per_day} | {budget} | {shown} | {others:.1f} | {100 * others_caught:.0f} % |")


if __name__ == "__main__":
    main()
