"""Compare two models value by value: where do they part first, and which node is at fault?

Read `side_by_side`, `setting` and `walk`, then the folders: `align` (what stands for what), `run`,
`reference` (the side that is right), `weigh` (weights), `explain` (the first divergence), `layers`
(models beyond memory).
"""

from torchferry.comparer.comparison import Comparison, Row, Side, Stage, Vertex, WeightDifference
from torchferry.comparer.explain.histogram import Histogram
from torchferry.comparer.side_by_side import compare

__all__ = [
    "Comparison",
    "Histogram",
    "Row",
    "Side",
    "Stage",
    "Vertex",
    "WeightDifference",
    "compare",
]
