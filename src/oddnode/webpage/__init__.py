"""Self-contained HTML pages: one file with its styles, scripts, data and plotting library, which works from disk.

`render_page` fills a template that extends ``base.html`` (bar, theme, footer). The scripts run one after another in one
function: ``tools.js`` unpacks the data (as ``data``; arrays by ``array(number)``) and has what plots share,
``tables.js`` shows sortable tables (`oddnode._utils.result_tables`). A package that makes pages has its own
``templates`` and ``assets``; `oddnode.paper.webpage` is one.

May import: _utils.
"""

from oddnode.webpage.html import ArrayPool as ArrayPool
from oddnode.webpage.html import render_page as render_page
from oddnode.webpage.picture import KNOWN as KNOWN
from oddnode.webpage.picture import OTHER as OTHER
from oddnode.webpage.picture import UNKNOWN as UNKNOWN
from oddnode.webpage.picture import Picture as Picture
from oddnode.webpage.picture import Source as Source
from oddnode.webpage.picture import draw_picture as draw_picture
from oddnode.webpage.picture import spring_layout as spring_layout
