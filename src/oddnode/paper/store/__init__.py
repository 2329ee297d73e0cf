"""The store of runs: one SQLite file in which every finished training is one row.

A record is written in one transaction, so that it is there whole or not at all, and carries a checksum. Reading a
store needs nothing but this module::

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

Scores are float32, as they were computed: a metric computed from them anew is the same number. ``"id"`` is the graph of
the ID test nodes (``graphs.id_mask``); every other name is one of the task's test graphs, whose OOD nodes are in its
``ood_mask``. In label leave-out both are one graph, which is stored once. A run may keep the scores of its first seeds
only; asking for others raises `StoreError`.

The file can be opened with any SQLite tool: the view ``results`` has one row per training and method. Arrays are in
NumPy's ``.npz`` form.
"""

from oddnode.paper.store.reader import StoreReader
from oddnode.paper.store.recovery import recover
from oddnode.paper.store.writer import Store

__all__ = ["Store", "StoreReader", "recover"]
