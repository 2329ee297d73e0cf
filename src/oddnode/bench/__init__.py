"""A benchmark of chosen methods on chosen tasks, as tables and a report.

May import: runner and below.
"""
