"""Tools without knowledge of graphs: atomic files, suggestions, random streams, devices, registries, plugins.

May import: nothing of oddnode. It exports nothing itself, so that some of its modules work without torch.
"""
