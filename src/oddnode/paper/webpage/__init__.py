"""The HTML report: `render` turns plain data (`Page`) into one self-contained file.

May import: bench.paper_numbers, evaluation, paper.experiments, webpage and, only when a page is rendered, protocols.
"""

from oddnode.paper.webpage.html import render as render
from oddnode.paper.webpage.html import write_html as write_html
from oddnode.paper.webpage.model import Cell as Cell
from oddnode.paper.webpage.model import Method as Method
from oddnode.paper.webpage.model import Nodes as Nodes
from oddnode.paper.webpage.model import Page as Page
from oddnode.paper.webpage.model import Scores as Scores
