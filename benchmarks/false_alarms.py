"""How often known nodes are flagged, against the rate asked for, on digits, Cora and Twitch.

For each seed the nodes that were held out from training and validation are cut in two at random: one half calibrates,
the other half is counted. For digits and Cora the unknown nodes (classes left out) lie in the graph that is scored;
for Twitch they are other graphs.

    ODDNODE_DATA=... python benchmarks/false_alarms.py --seeds 5
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev

import torch
from torch import Tensor

from oddnode import Detector, load_task
from oddnode.functional import CalibrationError

TASKS = ("digits/label", "cora/label", "twitch")
RATES = (0.01, 0.05, 0.1)


def halves(mask: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    nodes = mask.nonzero().squeeze(1)
    nodes = nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))]
    first, second = torch.zeros_like(mask), torch.zeros_like(mask)
    first[nodes[::2]], second[nodes[1::2]] = True, True
    return first, second


def run(name: str, seed: int, method: str) -> dict[str, float]:
    """Shares flagged, in percent: of held-out known nodes, and of unknown nodes."""
    task = load_task(name, seed=seed)
    detector = Detector.from_recipe(method, seed=seed).fit(task.train)
    calibration, counted = halves(task.id_test.mask, seed)
    graph = task.id_test.data.clone()
    outputs = detector.outputs(graph)
    tests = [(detector.outputs(data), data.ood_mask) for data in task.tests.values()]
    result: dict[str, float] = {"n": int(calibration.sum())}
    for mask in ("train_mask", "val_mask"):
        if mask in graph:
            del graph[mask]
    for rate in RATES:
        try:
            detector.calibrate(graph, rate, calibration)
        except CalibrationError:
            continue
        result[f"known {rate}"] = 100 * detector.detect(outputs)[counted].double().mean().item()
        caught = [detector.detect(o)[mask].double().mean().item() for o, mask in tests]
        result[f"unknown {rate}"] = 100 * fmean(caught)
        result[f"per class {rate}"] = (
            100 * (detector.p_values(outputs, per_class=True)[counted] <= rate).double().mean().item()
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--method", default="nodesafe")
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    print("| task | calibration nodes | rate asked | false alarms | per class | unknown nodes flagged |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in options.tasks.split(","):
        runs = [run(name, seed, options.method) for seed in range(options.seeds)]
        for rate in RATES:
            shown = [
                f"{fmean(v):.1f} ± {stdev(v) if len(v) > 1 else 0.0:.1f} %"
                for key in ("known", "per class", "unknown")
                if (v := [r[f"{key} {rate}"] for r in runs if f"{key} {rate}" in r])
            ]
            print(
                f"| {name} | {runs[0]['n']:.0f} | {100 * rate:g} % | {' | '.join(shown) or 'too few nodes'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
