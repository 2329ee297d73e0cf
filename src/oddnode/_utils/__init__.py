"""Small tools that know nothing of graphs: files written whole, suggestions, random streams, devices, plugins.

Imports nothing of ours. Its modules are imported one by one: some must answer before torch is loaded.
"""
