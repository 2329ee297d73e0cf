"""The HTML report: `render` turns plain data (`Page`) into one self-contained file.

May import: bench.paper_numbers, evaluation, paper.layout, paper.names and, only when a page is rendered, protocols.
"""

from oddnode.paper.webpage.html import render, write_html
from oddnode.paper.webpage.model import Cell, Grid, Method, Nodes, Number, Page, Scores, Table
from oddnode.paper.webpage.picture import KNOWN, OTHER, UNKNOWN, Picture, Source, draw_picture

__all__ = [
    "KNOWN",
    "OTHER",
    "UNKNOWN",
    "Cell",
    "Grid",
    "Method",
    "Nodes",
    "Number",
    "Page",
    "Picture",
    "Scores",
    "Source",
    "Table",
    "draw_picture",
    "render",
    "write_html",
]
