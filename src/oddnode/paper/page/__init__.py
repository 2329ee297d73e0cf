"""One HTML page to look at: plain data in (`Page`), a file that needs nothing else out (`render`)."""

from oddnode.paper.page.html import render, write_html
from oddnode.paper.page.model import Cell, Nodes, Page, Scores, Table
from oddnode.paper.page.picture import Picture, draw_picture

__all__ = ["Cell", "Nodes", "Page", "Picture", "Scores", "Table", "draw_picture", "render", "write_html"]
