"""Runs trainings for `bench` and `paper`, here or in several processes, each distinct one once.

A `work.Training` is the unit of work; `detectors` says which methods share one. `groups` puts trainings together that
one process does at a time, an `engine` spreads groups over processes, and `execute` fits and scores them.

May import: evaluation, protocols, detector and below, tasks.
"""
