"""The store of runs: one SQLite file in which every finished training is one row.

A record has a checksum and is written in one transaction, so it is either complete or absent. To read a store::

    from oddnode.paper.store import Store

    with Store(folder) as store:                      # folder/runs.sqlite
        for record in store.records(task="cora/label", protocol="clean", seed=0):
            record.training                           # task, protocol, backbone, seed, settings, epochs, methods
            record.metrics("nodesafe")                # {"auroc": 93.1, ..., "tests": {"label": {...}}}
            record.scores("nodesafe")                 # {"id": float32[N], "label": float32[N]}, every node of a graph
            record.predicted()                        # {"id": int16[N], "label": int16[N]}, the most likely ID class
            record.facts["history"]["val_loss"]       # one number per epoch
            graphs = store.graphs(record.training)    # which nodes count, their classes and degrees
            graphs.id_mask, graphs.ood_mask["label"], graphs.y["label"], graphs.degree["label"]

Scores are float32, as they were computed, so recomputing a metric from them gives the same number. ``"id"`` is the
graph of the ID test nodes (``graphs.id_mask``); every other name is a test graph of the task, whose OOD nodes are in
its ``ood_mask``. In label leave-out both are the same graph, which is stored once. If a run kept the scores of some
seeds only, `StoreError` is raised for the others.

The file can be opened with any SQLite tool: the view ``results`` has one row per training and method. Arrays are in
NumPy's ``.npz`` form.

May import: paper.record and runner.work.
"""

from oddnode.paper.store.reader import StoreReader
from oddnode.paper.store.recovery import recover
from oddnode.paper.store.writer import Store

__all__ = ["Store", "StoreReader", "recover"]
