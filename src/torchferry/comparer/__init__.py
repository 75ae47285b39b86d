"""Compare two models value by value: where do they part first, and which node is at fault?"""

from torchferry.comparer.comparison import Comparison, Row, Side, Stage, Vertex, WeightDifference
from torchferry.comparer.histogram import Histogram
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
