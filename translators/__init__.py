"""Thunder's prims onto the fusion IR: one translation a prim, no knowledge of how anything runs.

Public: `translate` (a region -> a `Fusion`), `why_not` (why a prim cannot be translated), `flatten`.
"""

from thunder_fuser.translators.proxies import is_cpu_scalar
from thunder_fuser.translators.random import FROM_GENERATOR, FROM_SEED, normal_philox
from thunder_fuser.translators.region import flatten, translate
from thunder_fuser.translators.registry import TRANSLATIONS, is_cheap, is_view, results, why_not

__all__ = [
    "FROM_GENERATOR", "FROM_SEED", "TRANSLATIONS", "flatten", "is_cheap", "is_cpu_scalar", "is_view", "normal_philox", "results", "translate",
    "why_not",
]
