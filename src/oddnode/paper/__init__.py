"""The whole paper by one command: items, a plan, trainings in a store, then tables, figures and a report.

May import: bench and below. Its modules are imported one by one: the command line asks some before torch is loaded.
"""
