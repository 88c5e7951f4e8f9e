"""Write proofs that `check_automaton` checks: the strings of an automaton, length by length.

Knows: how an automaton is written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tl_dyck.certify.check_automaton import FORMAT, Automaton
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language.automaton_certificate import read_automaton
from tl_dyck.certify.path_proofs import network_facts, prove_paths, refuse_others, weights_of
from tl_dyck.certify.proof import NoProofError, Proof
from tl_dyck.certify.questions import Asker
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import RNNConfig
from tl_dyck.tasks import AutomatonTask
from tl_dyck.tasks.places import PlacePrefixes, prefixes_at


def prove_task(
    model: Any,
    task: AutomatonTask,
    longest: int,
    time_limit: float | None,
    threshold: float | None = None,
) -> Proof:
    """A proof that a model answers every string of an automaton as its state asks.

    Or, with a threshold, that its logits say which symbols may follow.

    Raises:
        NoProofError: see `tl_dyck.certify.language_proofs.prove_language`.
        CertifyError: the model reads other tokens or shorter strings.
    """
    network, _ = read_automaton(model, task, longest, allowed=threshold is not None)
    if network.below is not None:
        raise NoProofError("automata have proofs of one-layer models only; this one has two")
    if network.ahead:
        raise NoProofError(
            "automata have proofs of causal models only, and this one looks ahead; "
            "certify_language decides it"
        )
    asker = Asker(network.rnn)
    if task.asked is None:
        answers = Answers.of(task, longest, follows=threshold is not None)
        return _prove(asker, answers, task.name, longest, time_limit, threshold)
    prefixes = [prefixes_at(task, place) for place in task.asked if place < longest]
    return _prove_places(asker, prefixes, task.name, time_limit, threshold)


def prove_brackets(
    asker: Asker,
    language: DyckLanguage,
    longest: int,
    time_limit: float | None,
    threshold: float | None = None,
) -> Proof:
    """A proof that the bracket that closes wins after every prefix, of models with positions, too.

    Or, with a threshold, that logits say which brackets may follow.

    Raises:
        NoProofError: see `tl_dyck.certify.language_proofs.prove_language`.
    """
    answers = Answers.of_brackets(language, longest)
    return _prove(asker, answers, f"prefixes of {language}", longest, time_limit, threshold)


def _prove(
    asker: Asker,
    answers: Answers,
    name: str,
    longest: int,
    time_limit: float | None,
    threshold: float | None = None,
) -> Proof:
    config = asker.rnn.config
    refuse_others(config)
    facts = _facts(config, range(answers.after.shape[1]), name) | _moves(answers)
    facts["states"] = list(answers.states)
    facts["lengths"] = list(range(int(config.bos_token is None), longest + 1))
    if threshold is not None:  # what may follow, `after` says
        facts["answers"] = None
    facts["threshold"] = threshold
    weights = weights_of(asker, facts["tokens"])
    return prove_paths(facts, weights, asker, Automaton, time_limit)


def _prove_places(
    asker: Asker,
    prefixes: Sequence[PlacePrefixes],
    name: str,
    time_limit: float | None,
    threshold: float | None = None,
) -> Proof:
    """A proof of several automata, each of which reads the places of one length in its order."""
    config = asker.rnn.config
    refuse_others(config)
    if not prefixes:
        raise NoProofError(f"nothing is asked: {name} has no place that short")
    facts = _facts(config, range(prefixes[0].after.shape[1]), name)
    facts["threshold"], facts["parts"] = threshold, []
    for each in prefixes:
        part = _moves(Answers.of_prefixes(each))
        if threshold is not None:  # by state the tokens that may follow, if any may
            part["answers"] = [np.flatnonzero(row).tolist() or None for row in each.may]
        part |= {"lengths": [len(each.order)], "order": each.order.tolist()}
        facts["parts"].append(part)
    return prove_paths(facts, weights_of(asker, facts["tokens"]), asker, Automaton, time_limit)


def _facts(config: RNNConfig, written: range, name: str) -> dict[str, Any]:
    """What `check_automaton` knows of a question, but for the automaton."""
    return {
        "format": FORMAT,
        **network_facts(config, {*written}),
        "name": name,
        "written": [*written],
        "threshold": None,
    }


def _moves(answers: Answers) -> dict[str, Any]:
    """An automaton as `check_automaton` knows it."""
    asked = [None if each == NOTHING else each for each in answers.answer.tolist()]
    return {"after": answers.after.tolist(), "answers": asked}
