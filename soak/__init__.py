"""The soak: hostile use of oddnode by chance, for as long as wanted.

`make soak MINUTES=30` runs thousands of trials: saved models, tables, graphs and stores that were changed at random,
processes that are killed or meet a full disk, threads, loops, and draws of calibration nodes. A trial that breaks a
promise of docs/reliability.md is a violation, and leaves its case as a file (`soak.cases`).
`make soak CANARY=1` puts old faults back, one after another, and checks that the soak finds each (`soak.canaries`).
"""
