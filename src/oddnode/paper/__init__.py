"""The reproduction of the paper: experiments, a plan, a store of trainings, tables, figures and a report.

May import: bench and below. It exports nothing itself, so that some of its modules work without torch.
"""
