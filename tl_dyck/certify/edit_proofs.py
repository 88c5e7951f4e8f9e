"""Write proofs that `check_edits` checks: a space of edits, parted until bounds settle each part.

Knows: where a part is parted, and near which string its bound is taken.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

from tl_dyck.certify.check_edits import FORMAT, Edits
from tl_dyck.certify.lattice import KEEP
from tl_dyck.certify.path_proofs import network_facts, prove_paths, refuse_others, weights_of
from tl_dyck.certify.proof import Proof
from tl_dyck.certify.questions import Asker
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import Tokens
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.environment import one_thread
from tl_dyck.rnn import RNNConfig


@checked
@one_thread()
def prove_edits(
    model_or_rnn: Any,
    tokens: Tokens | str,
    target: int | str | None,
    space: PerturbationSpace | str,
    *,
    time_limit: float | None = None,
) -> Proof:
    """Prove that a prediction survives every edit of a string, so that anyone can check it.

    `certify_edits` is quicker and decides more; of what is wrong it shows the worst string.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> model = construct.uniform_attention(load_task("dyck-2-4").language)
        >>> prove_edits(model, "([", None, "pairs:1").says[:29]
        "logit 1 (']') is the largest "

    Args:
        model_or_rnn: what `certify_edits` takes: one layer, an MLP with ReLU, GELU (with erf or
            tanh) or SiLU, or none. With more than eight heads all strings are listed, at most
            10,000.
        tokens: the string, with BOS or without, or its text.
        target: the logit that must stay largest, or its text; None for what is predicted.
        space: the edits, or their text, such as "pairs:2".
        time_limit: seconds; None for no limit.

    Raises:
        NoProofError: a string is wrong or within rounding, the time is over, or the model is of
            another kind.
        SpaceTooLargeError: the budgets cannot be laid out.
    """
    asker = Asker.of(model_or_rnn)
    question = asker.question(space, time_limit=time_limit)
    c, string = asker.rnn.config, asker.without_bos(tokens)
    refuse_others(c, heads=math.inf)  # beyond `HEADS` strings are listed
    facts = _facts(c, string, question.space, asker.target(string, target))
    weights = weights_of(asker, facts["tokens"])
    return prove_paths(facts, weights, asker, Edits, question.time_limit)


def _facts(
    config: RNNConfig, string: tuple[int, ...], space: PerturbationSpace, target: int
) -> dict[str, Any]:
    """What `check_edits` knows of a question."""
    lattice, named = space.lattice(string), target < config.named_logits
    edits = [option for option in lattice.options if option.kind != KEEP]
    tokens = {*string, *chain.from_iterable(option.emits for option in edits)}
    return {
        "format": FORMAT,
        **network_facts(config, tokens | ({target} if named else set())),
        "names_logits": named,
        "string": list(string),
        "target": target,
        "names": list(space.names),
        "budgets": list(lattice.budgets),
        "rewrites": [[o.kind, o.start, o.end - o.start, list(o.emits)] for o in edits],
    }
