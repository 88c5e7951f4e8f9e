"""Models whose weights are the proof: the theorems of Wen et al. 2023 as HookedTransformers.

Knows: theorems, and weights that carry them out.
Does not know: training, and what is drawn to test a model (`tl_dyck.training`, `tl_dyck.tasks`).

They are built and not trained.

    from tl_dyck import DyckLanguage, construct
    model = construct.uniform_attention(DyckLanguage(2, 4))

- Corollary 1: `uniform_attention`, exact on bounded Dyck strings of any length.
- Theorem 1: `balanced`, random attention that satisfies Eq. 11, and as exact; `satisfies_balance`
  checks Eq. 11.
- Yao et al. 2021: `stack`, which attends to the top of the stack: the interpretable solution.
- Proposition 1: `decoy_head`, one more head with a pattern of your choice and no effect.
- `counter`: Dyck(1, D) by depth alone, read from a known place.
- Theorem 3, Corollary 3: `prune_to`, a random network pruned to a target; `twins`, two targets in
  one random network.

Notation: k bracket types, depth at most D, n tokens in a string (BOS included).
"""

from tl_dyck.models.construct.balance import balance_residual, satisfies_balance
from tl_dyck.models.construct.counters import counter
from tl_dyck.models.construct.decoy import decoy_head
from tl_dyck.models.construct.fit import NetworkTooNarrowError
from tl_dyck.models.construct.plan import random_network
from tl_dyck.models.construct.pruning import Pruning, prune_to
from tl_dyck.models.construct.solutions import balanced, stack, uniform_attention
from tl_dyck.models.construct.twins import Twins, twins

__all__ = [
    "NetworkTooNarrowError",
    "Pruning",
    "Twins",
    "balance_residual",
    "balanced",
    "counter",
    "decoy_head",
    "prune_to",
    "random_network",
    "satisfies_balance",
    "stack",
    "twins",
    "uniform_attention",
]
