"""What equal means, for every command: tolerance, rounding, chance and choice, and the verdict.

Read `verdict` first, then `reference`, which asks the others: `tolerance` (what passes),
`arithmetic` (the dtypes inside, and another rounding of everything), `rounding` (float64),
`choices` (ties, memory that nothing wrote) and `draws` (random numbers).
"""

from torchferry.judge.reference import Reference
from torchferry.judge.tolerance import Limits, Tolerance
from torchferry.judge.verdict import Kind, Verdict, worst_verdict

__all__ = ["Kind", "Limits", "Reference", "Tolerance", "Verdict", "worst_verdict"]
