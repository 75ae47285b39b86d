"""What MODEL may be: each kind of source gives a module, inputs that fit it, and what is known.

Read `kinds` first, the table of kinds; then `source`, which makes of one of them what the other
rooms take. The kinds are in modules of their own, named for what they read.
"""

from __future__ import annotations

from torchferry.sources.source import DTYPES, Source, load_source

__all__ = ["DTYPES", "Source", "load_source"]
