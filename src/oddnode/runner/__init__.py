"""Plans work, shares trainings between methods, and runs them here or in several processes.

May import: evaluation, protocols, detector and below, tasks.
"""
