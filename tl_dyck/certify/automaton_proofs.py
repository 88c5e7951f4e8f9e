"""Write proofs that `check_automaton` checks: the strings of an automaton, length by length.

Knows: how an automaton is written down.
"""

from __future__ import annotations

from typing import Any

from tl_dyck.certify.check_automaton import FORMAT, Automaton
from tl_dyck.certify.language.automata import NOTHING, Answers
from tl_dyck.certify.language.automaton_certificate import read_automaton
from tl_dyck.certify.path_proofs import (
    Recorded,
    network_facts,
    prove_paths,
    refuse_others,
    weights_of,
)
from tl_dyck.certify.proof import NoProofError, Proof
from tl_dyck.certify.questions import Asker
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import RNNConfig
from tl_dyck.tasks import AutomatonTask


class _Automaton(Recorded, Automaton):
    """The strings of a question."""


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
    if task.places is not None:
        raise NoProofError(f"{task.name} has places=, of which there are no proofs yet; decide it")
    network, _ = read_automaton(model, task, longest, allowed=threshold is not None)
    if network.below is not None:
        raise NoProofError("automata have proofs of one-layer models only; this one has two")
    answers = Answers.of(task, longest)
    return _prove(Asker(network.rnn), answers, task.name, longest, time_limit, threshold)


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
    facts = _facts(config, answers, name, longest)
    if threshold is not None:  # what may follow, `after` says
        facts["answers"] = None
    facts["threshold"] = threshold
    weights = weights_of(asker, facts["tokens"])
    return prove_paths(facts, weights, asker, _Automaton, time_limit)


def _facts(config: RNNConfig, answers: Answers, name: str, longest: int) -> dict[str, Any]:
    """What `check_automaton` knows of a question."""
    written = list(range(answers.after.shape[1]))
    asked = [None if each == NOTHING else each for each in answers.answer.tolist()]
    return {
        "format": FORMAT,
        **network_facts(config, {*written}),
        "name": name,
        "written": written,
        "states": list(answers.states),
        "after": answers.after.tolist(),
        "answers": asked,
        "lengths": list(range(int(config.bos_token is None), longest + 1)),
    }
