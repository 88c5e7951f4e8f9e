"""Who is asked and what: one claim about one model or two, by profiles or by running them.

Knows: which models are counted, which are run, and why.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex, final

import numpy as np
import torch

from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.exact.lower_layer import Below
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.language.asking import along
from tl_dyck.certify.language.automata import Answers, Margins
from tl_dyck.certify.language.claims import (
    Allowed,
    NextToken,
    PrefixClaim,
    Signs,
    plain_margins,
    read_claim,
    said_to_follow,
    valid_tokens,
)
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.evaluator import Evaluator
from tl_dyck.certify.language.lengths import refuse_long
from tl_dyck.certify.language.predictions import Predictions
from tl_dyck.certify.language.profiles import Ending, Profiles
from tl_dyck.certify.language.runner import Runner, Tokens
from tl_dyck.certify.language.tally import JudgedPrefixes, PrefixFound
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.certify.questions import Asker
from tl_dyck.kit.check import check_integer
from tl_dyck.language import DyckLanguage, Language
from tl_dyck.language.symbols import needs_stack
from tl_dyck.reading.decoder import HIDDEN_BOS, departures
from tl_dyck.reading.inputs import check_predicts, hides_bos, logit_name, looks_ahead, named_logits
from tl_dyck.rnn import TwoLayerRNN, UnsupportedModelError
from tl_dyck.rnn.config import RNNWeightError
from tl_dyck.rnn.export import export_last, export_layers
from tl_dyck.rnn.unsupported import refuse_foreign, refuse_weights
from tl_dyck.tasks import DyckTask, load_task

_MOST_STACKS = 10_000
"""Stacks are the states of a graph."""

Head = SupportsIndex | tuple[SupportsIndex, SupportsIndex]
"""The index of a head of one layer; or layer and index."""


@final
@dataclass(frozen=True)
class Asked:
    """A claim about models, with all that it takes to judge a prefix.

    Attributes:
        task: gives language and distribution.
        name: of the claim.
        claim: the claim.
        profiles: of the language.
        readers: the models themselves, which a wrong prefix is run through.
        evaluator: judges profiles; None if the models are run on each prefix.
        paths: decides longer prefixes than can be run, of one layer with positions or two layers
            without; or None.
        epsilon: of the claim, if it has one.
        how: how they are run: in which precision; empty if they are counted.
        why: why they are run; empty if they are counted.
    """

    task: DyckTask
    name: str
    claim: PrefixClaim
    profiles: Profiles
    readers: Sequence[Asker | Runner]
    evaluator: Evaluator | None
    epsilon: float | None
    how: str = ""
    why: str = ""
    paths: Margins | Predictions | None = None

    def judged(self, strings: Tokens) -> Iterator[JudgedPrefixes]:
        """What becomes of the claim on prefixes of one length, without BOS, in groups."""
        if self.evaluator is not None:
            yield from self.evaluator.judged_strings(strings)
            return
        runners = [each for each in self.readers if isinstance(each, Runner)]
        log_prob = self.task.distribution.log_prob(torch.from_numpy(strings)).numpy()
        for ending, at in _by_ending(self.profiles, strings):
            rows = strings[at]
            margins = plain_margins(self.claim, ending, [each.batch(rows) for each in runners])
            if margins is not None:
                yield _ran(ending, rows, log_prob[at], *margins)

    def spoken(self, longest: int) -> list[int]:
        """How many prefixes of each length up to `longest` the claim speaks of."""
        said = [self.claim.speaks_of(depth) for depth in range(self.task.language.max_depth + 1)]
        numbers = [
            sum(number for number, asked in zip(ways, said, strict=False) if asked)
            for ways in self.task.language.prefixes_by_depth(longest)
        ]
        # a string without BOS has nothing after which its first bracket could follow
        if self.is_bare:
            numbers[0] = 0
        return numbers

    @property
    def is_bare(self) -> bool:
        """Whether the first model reads no BOS, and so nothing before the first bracket."""
        if self.evaluator is not None:
            return not self.evaluator.has_bos
        first = self.readers[0]
        bare: bool = isinstance(first, Runner) and first.bos is None
        return bare or hides_bos(first.model_or_rnn)

    def run(self, found: PrefixFound) -> tuple[PrefixFound, float]:
        """A prefix with what the first model makes of it, and the margin that all give it."""
        language, tokens = self.profiles.language, found.tokens
        if found.pairs:
            tokens = self.profiles.string(found.ending, found.pairs)
        logits = [np.array(reader.logits(tokens)) for reader in self.readers]
        margins = plain_margins(self.claim, found.ending, [each[None] for each in logits])
        assert margins is not None
        best, named = int(logits[0].argmax()), named_logits(self.readers[0].model_or_rnn)
        shown = replace(
            found,
            tokens=tokens,
            text=language.to_string(torch.tensor(tokens, dtype=torch.int64)),
            logits=tuple(logits[0].tolist()),
            may_follow=tuple(
                language.alphabet[token] for token in valid_tokens(language, found.ending)
            ),
            predicted=logit_name(language, named, best),
        )
        if isinstance(self.claim, Allowed):
            said = said_to_follow(language, logits[0], self.claim.threshold)
            shown = replace(shown, predicted=said)
        return shown, float(margins[0][0])


def _ran(ending: Ending, rows: Tokens, nats: Array, margin: Array, error: Array) -> JudgedPrefixes:
    def weigh(at: IntArray) -> tuple[IntArray, Array, Array]:
        return np.full(len(at), rows.shape[1]), nats[at], np.zeros(len(at))

    return JudgedPrefixes(ending, margin, error, rows, "tokens", weigh)


def _by_ending(profiles: Profiles, strings: Tokens) -> Iterator[tuple[Ending, IntArray]]:
    """Strings of one length sorted by what a claim asks of them: the depth and the top's type."""
    language, tokens = profiles.language, torch.from_numpy(strings)
    if strings.shape[1] == 0:
        yield Ending((), None), np.arange(len(strings))
        return
    depth = language.depth(tokens)[:, -1].numpy()
    kind = language.right_bracket(tokens)[:, -1].clamp(min=0).numpy() // 2
    for d, a in sorted(set(zip(depth.tolist(), kind.tolist(), strict=True))):
        ending = Ending((*(0,) * (d - 1), a) if d else (), None)
        yield ending, np.flatnonzero((depth == d) & (kind == a))


def ask(
    model_or_rnn: Any,
    task: DyckTask | str,
    name: str,
    longest: int,
    *,
    epsilon: Any = None,
    other: Any = None,
    head: Head | None = None,
    threshold: float | None = None,
) -> Asked:
    """Settle who is asked and what; a model is exported once.

    Arguments and errors are those of `certify_language`; the longest prefix has `longest` brackets.
    """
    task = load_task(task) if isinstance(task, str) else task
    language = needs_stack(task.language, "certify_language is")
    given = [model_or_rnn] if other is None else [model_or_rnn, other]
    models = [each.model_or_rnn if isinstance(each, Asker) else each for each in given]
    for each in models:
        if not isinstance(each, TwoLayerRNN):
            refuse_foreign(each)
            refuse_weights(each)
            refuse_long(each.cfg.n_ctx, longest)
        check_predicts(each, language)
    n_models = len(given) + (head is not None)
    claim = read_claim(name, task.distribution, epsilon, n_models, threshold)
    refuse_unlike(models, language)
    profiles = Profiles(task.distribution)
    if head is not None:
        models = [models[0], make_uniform(models[0], head)]
        given = [given[0], models[1]]
    askers, why = _exported(given)
    if why:
        runners = [Runner(each, start_of(each, language)) for each in models]
        kinds = sorted({str(each.dtype).removeprefix("torch.") for each in runners})
        how = f"as computed in {' and '.join(kinds)}"
        paths = _paths(models, runners, claim, language, longest)
        return Asked(task, name, claim, profiles, runners, None, epsilon, how, why, paths)
    symbols = [NetworkSymbols(asker.rnn, language) for asker in askers]
    evaluator = Evaluator(symbols, claim, profiles)
    return Asked(task, name, claim, profiles, askers, evaluator, epsilon)


def _exported(models: Sequence[Any]) -> tuple[list[Asker], str]:
    """The models, if all can be counted; or why one cannot."""
    askers = []
    for each in models:
        n_layers = 1 if isinstance(each, Asker | TwoLayerRNN) else each.cfg.n_layers
        if n_layers > 1:
            return [], _layered(each, n_layers)
        try:
            asker = Asker.of(each)
        except UnsupportedModelError as error:
            return [], str(error).rstrip(".")
        config = asker.rnn.config
        if config.has_position:
            return [], (
                f"{config.model_name} has positions, so its prediction does not follow from how "
                "often each symbol occurs"
            )
        askers.append(asker)
    return askers, ""


def _layered(model: Any, n_layers: int) -> str:
    """Why the prefixes of a model of several layers are not counted."""
    why = f"the model has {n_layers} layers"
    if n_layers > 2:
        return f"{why}, and what more than two compute is only known by running them"
    try:
        export_layers(model)
    except (UnsupportedModelError, RNNWeightError) as error:
        return f"{why}; {str(error).rstrip('.')}"
    return f"{why}, so its prediction does not follow from how often each symbol occurs"


def _paths(
    models: Sequence[Any],
    runners: Sequence[Runner],
    claim: PrefixClaim,
    language: DyckLanguage,
    longest: int,
) -> Margins | Predictions | None:
    """What decides prefixes of any length, if the claim is about which logits are the largest."""
    n_stacks = sum(language.n_types**depth for depth in range(language.max_depth + 1))
    if isinstance(claim, NextToken) or not claim.speaks_of(1) or n_stacks > _MOST_STACKS:
        return None
    try:
        networks = [network_of(each, start_of(each, language)) for each in models]
    except (UnsupportedModelError, RNNWeightError):
        return None
    answers = Answers.of_brackets(language, longest)
    if not claim.closing and not isinstance(claim, Allowed):
        valid = isinstance(claim, Signs)
        return Predictions(networks, [each.batch for each in runners], answers, valid)

    return along(networks[0], claim, answers)


def start_of(model: Any, language: Language) -> int | None:
    """What strings start with that a model is given: BOS, but of an RNN that says it reads none."""
    config = getattr(model, "config", None)
    if isinstance(model, TwoLayerRNN) and config is not None and config.alphabet is not None:
        bos: int | None = config.bos_token
        return bos
    return language.bos_token


def network_of(model: Any, bos: int | None) -> Network:
    """Of one layer, or of two without positions.

    Args:
        model: a model or RNN.
        bos: what strings start with; None if they start bare.

    Raises:
        UnsupportedModelError: of neither.
    """
    below = None
    if hides_bos(model):
        bos = None
    if isinstance(model, TwoLayerRNN):
        rnn = model
    elif model.cfg.n_layers == 2:
        first, rnn = export_layers(model)
        below = Below(Network(first))
    else:
        rnn = export_last(model, bos_token=bos)
    if rnn.config.bos_token != bos:
        rnn = TwoLayerRNN(replace(rnn.config, bos_token=bos), rnn.weights)
    return Network(rnn, below, ahead=looks_ahead(model))


def make_uniform(model: Any, head: Any) -> Any:
    """The same model, but a head attends uniformly: its queries are 0.

    Args:
        model: a model or RNN; it is not changed.
        head: its index, of a model of one layer; or (layer, index).

    Raises:
        CertifyError: there is no such head.
        UnsupportedModelError: its scores are not only of queries and keys.
    """
    is_rnn = isinstance(model, TwoLayerRNN)
    n_layers, n_heads = (
        (1, model.config.n_heads) if is_rnn else (model.cfg.n_layers, model.cfg.n_heads)
    )
    layer, index = head if isinstance(head, tuple) and len(head) == 2 else (0, head)
    layer, index = check_integer("layer", layer), check_integer("head", index)
    if not isinstance(head, tuple) and n_layers > 1:
        raise CertifyError(f"the model has {n_layers} layers: give head=(layer, head), not {head}")
    for name, given, most in (("layer", layer, n_layers - 1), ("head", index, n_heads - 1)):
        if not 0 <= given <= most:
            raise CertifyError(f"{name} must be one of 0..{most}, not {given}")
    if is_rnn:
        weights = {name: weight.clone() for name, weight in model.weights.items()}
        weights["W_Q"][index], weights["b_Q"][index] = 0.0, 0.0
        return TwoLayerRNN(model.config, weights)
    odd = next((each for each in departures(model) if each.what != HIDDEN_BOS), None)
    if odd is not None:
        raise UnsupportedModelError(f"{odd.where}: {odd.what}; no head of it can be made uniform.")
    flat = copy.deepcopy(model)
    with torch.no_grad():
        attn = flat.blocks[layer].attn
        attn.W_Q[index], attn.b_Q[index] = 0.0, 0.0
    return flat


def refuse_unlike(models: Sequence[Any], language: DyckLanguage) -> None:
    """Refuse two models whose logits may be of other things, so that they cannot be compared.

    Raises:
        CertifyError: the numbers of logits differ; or, beyond the language's, what they are of.
    """
    if len(models) < 2:
        return
    configs: list[Any] = [getattr(each, "cfg", getattr(each, "config", None)) for each in models]
    sizes = [each.d_vocab_out for each in configs]
    known = [named_logits(each) for each in models]
    words = [getattr(each, "vocabulary", None) for each in models]
    alike = sizes[0] == sizes[1] and known[0] == known[1]
    alike &= sizes[0] <= language.d_vocab or words[0] == words[1]
    if not alike:
        raise CertifyError(
            f"the {sizes[0]} logits of one model and the {sizes[1]} of the other are not known to "
            "be of the same tokens; adopt both with one vocabulary and outputs"
        )
