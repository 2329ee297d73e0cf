"""Benchmarks: methods on tasks over seeds, on equal terms; plan -> run -> tables."""

from oddnode.bench.results import Result
from oddnode.bench.run import DEFAULT_METHODS, benchmark, expand_methods

__all__ = ["DEFAULT_METHODS", "Result", "benchmark", "expand_methods"]
