"""The HTML page for scores of one's own tables: `write_page` makes one self-contained file.

May import: tables, webpage and, through the model, detector and below.
"""

from oddnode.tables.webpage.html import write_page as write_page
from oddnode.tables.webpage.model import ColumnChange as ColumnChange
from oddnode.tables.webpage.model import ScorePage as ScorePage
from oddnode.tables.webpage.model import make_page as make_page
