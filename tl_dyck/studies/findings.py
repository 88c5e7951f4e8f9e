"""What a study found, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from tl_dyck.estimates import Estimate
from tl_dyck.kit.arguments import checked
from tl_dyck.studies.results import Study

#: Seeds from which on a tie between two measures is called clear: with eight, a correlation of
#: +0.86 [+0.34, +1.00] was found where forty seeds have +0.05.
FEWEST_FOR_A_TIE = 20


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found, in short and in full, and how surprising it is.

    Attributes:
        figure: the name of the report's figure that shows it, and whose reading it is.
        title: a few words.
        sentence: what the number is.
        number: the one that says most, with its interval or unit.
        text: the finding in full, with its numbers and intervals.
        interest: larger is more interesting; only the order matters.
        is_note: whether it says how far the others can be trusted, and so stands after them.
    """

    figure: str
    title: str
    sentence: str
    number: str
    text: str
    interest: float
    is_note: bool = False


@checked
def findings(study: Study) -> list[Finding]:
    """Everything that can be said about a study, the most interesting first, notes last."""
    found = [
        *_variation(study),
        *_stack(study),
        *_length(study),
        *_balance(study),
        *_proved(study),
        *_decided(study),
        *_failures(study),
    ]
    # False sorts before True: notes last
    return sorted(found, key=lambda finding: (finding.is_note, -finding.interest))


def is_clear(facts: Mapping[str, float]) -> bool:
    """Whether a correlation over seeds is one: its interval leaves out 0, and seeds are enough."""
    return facts["n"] >= FEWEST_FOR_A_TIE and (facts["low"] > 0 or facts["high"] < 0)


def against_theory(facts: Mapping[str, float], *, sign: int) -> bool:
    """Whether a correlation's interval lies wholly on the side where theory does not expect it.

    Args:
        facts: of the correlation.
        sign: the sign that theory expects.
    """
    return sign * facts["high"] < 0 and sign * facts["low"] < 0


def _failures(study: Study) -> Iterator[Finding]:
    """Which runs ended without the target accuracy; they stay part of every number."""
    models = study.models
    failed = models[~study.learned]
    target = study.config.training.target
    if failed.empty:
        return
    yield Finding(
        figure="training",
        title="Some runs did not reach the target accuracy",
        sentence="Some runs ended without it, and are part of every number here.",
        number=f"{len(failed)} of {len(models)} runs",
        text=f"{len(failed)} of {len(models)} runs ended without it: "
        + "; ".join(
            _failed_family(str(family), runs, int((models["family"] == family).sum()), target)
            for family, runs in failed.groupby("family", sort=False)
        )
        + ". They are part of every number here.",
        interest=len(failed) / len(models),
        is_note=True,
    )


def told_apart(share: float, other: float | None) -> str:
    """A percentage with the digits that tell it from another: 98.97 %, not 99.0 % beside 99 %."""
    if other is None or share == other:
        return f"{share:.1%}"
    # up to 12 digits: beyond them a float64 is the other one, up to rounding
    texts = [(f"{share:.{digits}%}", f"{other:.{digits}%}") for digits in range(1, 13)]
    return next((text for text, beside in texts if text != beside), texts[0][0])


def _of_all(share: float) -> str:
    """A percentage that is 100 only of all: 99.97 %, not 100.0 %."""
    return told_apart(share, 1.0)


def _failed_family(family: str, failed: pd.DataFrame, of: int, target: float | None) -> str:
    """The runs of one family that failed: how many, which, how bad."""
    ends = (failed["accuracy"].min(), failed["accuracy"].max())
    low, high = (told_apart(value, target) for value in ends)
    diverged = int((failed["status"] == "diverged").sum())
    seeds = ", ".join(map(str, failed["seed"]))
    return (
        f"{family} {len(failed)} of {of} (seed{'s' * (len(failed) > 1)} {seeds}; "
        f"measured afterwards on other strings: {low if low == high else f'{low} to {high}'}"
        f"{f'; {diverged} diverged' if diverged else ''})"
    )


def _variation(study: Study) -> Iterator[Finding]:
    """Same function, different attention; of each family the layer that varies most."""
    table = study.variation.dropna(subset=["variation"])
    if table.empty:
        return
    most = table.loc[table.groupby("family", sort=False)["variation"].idxmax()]
    most = most.sort_values("variation", ascending=False)
    random = float(most["random_baseline"].iloc[0])
    first = most.iloc[0]
    largest = float(first["variation"])
    said = [_one_variation(study, row) for _, row in most.iterrows()]
    text = f"Seeds differ in their attention: {'; '.join(said)}. "
    text += f"Two patterns drawn at random differ by {random:.2f}"
    text += f"; {MORE_THAN_RANDOM}." if largest > random else "."
    yield Finding(
        figure="variation",
        # 0.3 of what random patterns differ by: a word for the title, no test
        title=f"The same task, {'different' if largest > 0.3 * random else 'similar'} attention",
        sentence=f"Two seeds of {first['family']} differ most in the attention of layer "
        f"{int(first['layer'])}; two random patterns differ by {random:.2f}.",
        number=f"{largest:.2f}{_interval(first)}",
        text=text,
        # from 2 to 4; the most interesting findings of the other kinds lie between
        interest=2 + 2 * min(largest / random, 1.0),
    )


#: Why learned patterns can differ by more than random ones.
MORE_THAN_RANDOM = (
    "learned ones can differ by more, because they put most of their weight on few tokens, and "
    "random ones spread it"
)


def _one_variation(study: Study, row: pd.Series[Any]) -> str:
    """The variation of one family in one layer, beside the accuracy of its models."""
    facts = study.summary["families"][row["family"]]["accuracy"]
    return (
        f"{row['family']} in layer {int(row['layer'])} by {row['variation']:.2f}{_interval(row)} "
        f"({int(row['n_models'])} seeds, {_of_all(facts['mean'])} accurate)"
    )


def _interval(row: pd.Series[Any]) -> str:
    """The interval of a variation, if it has one."""
    return f" [{row['low']:.2f}, {row['high']:.2f}]" if pd.notna(row["low"]) else ""


def _stack(study: Study) -> Iterator[Finding]:
    """Do accurate models look at the top of the stack?"""
    heads, chance = (
        study.heads.dropna(subset=["mass_at_closing"]),
        study.summary["stack_chance"]["chance_at_closing"],
    )
    if heads.empty:
        return
    # "at least nine times in ten", as the text says
    stack_like = int((heads["argmax_at_closing"] > 0.9).sum())
    best = heads.loc[heads["mass_at_closing"].idxmax()]
    title = (
        "Hardly any head is stack-like"
        # one in ten: a word for the title, no test
        if stack_like < 0.1 * len(heads)
        else "Some heads are stack-like"
    )
    yield Finding(
        figure="stack",
        title=title,
        sentence="A head is stack-like if its largest weight is on the top of the stack at nine "
        "closing brackets in ten.",
        number=f"{stack_like} of {len(heads)} heads",
        text=f"At closing brackets, {stack_like} of {len(heads)} heads put their largest "
        "weight on the top of the stack at least nine times in ten. The mean weight there is "
        f"{heads['mass_at_closing'].mean():.2f} (chance: {chance:.2f}); the most stack-like "
        f"head ({best['family']} seed {int(best['seed'])}, layer {int(best['layer'])}) reaches "
        f"{best['mass_at_closing']:.2f}. A head without positions behind a minimal first layer "
        "cannot tell equal brackets of equal depth apart, and on these strings can reach "
        f"{study.summary['stack_chance']['ceiling_at_closing']:.2f} at most in either measure.",
        # that no head is stack-like is the surprise: 2.5; that all are is what one expects: 0.5
        interest=2.5 - 2 * stack_like / len(heads),
    )


def _length(study: Study) -> Iterator[Finding]:
    """Report the loss of accuracy at long lengths, where it takes a stack."""
    families = study.summary["families"]
    near, far = "accuracy_after_close", "long_accuracy_after_close"
    loss = {
        name: facts[near]["mean"] - facts[far]["mean"]
        for name, facts in families.items()
        if near in facts and far in facts
    }
    if not loss:
        return  # depth 1: nothing closes after a close
    worst, best = max(loss, key=lambda name: loss[name]), min(loss, key=lambda name: loss[name])

    def said(name: str) -> str:
        facts = families[name]
        return (
            f"{name} from {_of_all(facts[near]['mean'])} to {Estimate.of(facts[far]).text(_of_all)}"
        )

    chance = study.task.closing_chance(long=True)
    text = (
        f"From the training lengths to lengths {study.long_lengths}, accuracy on closing brackets "
        f"after a closing one (a guess is right {chance.constant:.0%} of the time) "
        f"{'falls most for' if loss[worst] > 0 else 'falls for no family:'} {said(worst)}"
    )
    if best != worst:
        text += f", and {'falls least' if loss[best] > 0 else 'does not fall'} for {said(best)}"
    text += ". "
    text += (
        "On all closing brackets it can look better, for after an opening one the last token tells "
        f"the answer: {worst} has {_of_all(families[worst]['long_accuracy']['mean'])}, and a "
        f"copier {_of_all(chance.copier)}."
    )
    yield Finding(
        figure="after-close",
        # a point of a hundred: a word for the title, no test
        title="Accurate in distribution is not accurate at length"
        if loss[worst] > 0.01
        else "As accurate at length as in distribution",
        sentence=f"Of all families {worst} loses most: accuracy after a closing bracket, at the "
        f"training lengths and at lengths {study.long_lengths}."
        if loss[worst] > 0.01
        else "After a closing bracket, no family loses more than a point of a hundred at lengths "
        f"{study.long_lengths}.",
        number=said(worst).removeprefix(f"{worst} from "),
        text=text,
        # findings are ordered by interest: between 1.5 and 2.5, by how much is lost
        interest=1.5 + loss[worst],
    )


def _balance(study: Study) -> Iterator[Finding]:
    """Is balance tied to length generalisation?"""
    at_length = f"accuracy after a closing bracket at lengths {study.long_lengths}"
    for family, facts in study.summary["balance_and_length"].items():
        yield Finding(
            figure="balance",
            title=f"{family}: balance and length",
            sentence=f"{at_length[0].upper()}{at_length[1:]} and balance violation "
            f"{_how(facts)}, over {facts['n']} seeds.",
            number=_spearman(facts),
            # theory: the larger β, the worse at length
            text=tie(family, facts, "balance violation", at_length, sign=-1),
            interest=2.2 if is_clear(facts) else 1.2,
            is_note=against_theory(facts, sign=-1) and not is_clear(facts),
        )


def tie(family: str, facts: Mapping[str, float], first: str, second: str, *, sign: int) -> str:
    """A rank correlation over the seeds of a family in words, with its interval."""
    text = f"Across {facts['n']} seeds of {family}, {first} and {second} "
    text += f"{_how(facts)} ({_spearman(facts)})."
    if against_theory(facts, sign=sign):
        text += " Theory expects the opposite sign."
        if not is_clear(facts):
            text += (
                f" {facts['n']} seeds are too few to hold that against it: run at least "
                f"{FEWEST_FOR_A_TIE}."
            )
    return text


def _how(facts: Mapping[str, float]) -> str:
    """What two measures do together."""
    if not is_clear(facts):
        return "show no clear tie"
    return "rise together" if facts["spearman"] > 0 else "go against each other"


def _spearman(facts: Mapping[str, float]) -> str:
    return f"Spearman {Estimate.of(facts, 'spearman').text('+.2f')}"


def _proved(study: Study) -> Iterator[Finding]:
    """Do predictions survive every insertion of matched pairs?"""
    for family, group in study.certificates.groupby("family", sort=False):
        proved, refuted = ((group["status"] == status) for status in ("proved", "refuted"))
        facts = study.summary["families"][family]["logit_change"]
        blocks = study.config.measurement.n_inserted
        text = (
            f"Of {len(group)} predictions of {family} after prefixes it could have been trained "
            f"on, {proved.sum()} provably survive every insertion of up to "
            f"{blocks} block{'s' * (blocks != 1)} of matched pairs, and {refuted.sum()} "
            "provably do not; a balanced model would not notice. The largest change of a logit is "
            f"{Estimate.of(facts).text()} on average over seeds."
        )
        share = "every" if proved.all() else "not every" if refuted.any() else "not provably every"
        title = f"{family}: {share} prediction survives inserted pairs"
        yield Finding(
            figure="certificates",
            title=title,
            sentence="Predictions that provably survive every insertion of up to "
            f"{blocks} block{'s' * (blocks != 1)} of matched pairs.",
            number=f"{proved.sum()} of {len(group)}",
            text=text,
            # a refuted prediction is the news
            interest=2.0 + 2 * float(refuted.mean()),
        )


def _decided(study: Study) -> Iterator[Finding]:
    """Are models right on every prefix that are right on all that were sampled?"""
    for family, group in study.languages.groupby("family", sort=False):
        models = study.models[study.models["family"] == family].set_index("seed")
        sampled = models.loc[group["seed"], "accuracy"].to_numpy(float)
        # right on every sampled bracket: of these it is news that they are wrong somewhere
        perfect = group[sampled == 1]
        length, proved = int(group["length"].iloc[0]), int((group["status"] == "proved").sum())
        wrong = int((perfect["status"] == "refuted").sum())
        low, high = int(group["proved_to"].min()), int(group["proved_to"].max())
        sampled_right = "None closes every sampled bracket right."
        if len(perfect):
            sampled_right = (
                f"{len(perfect)} close every sampled bracket right; {wrong} of these are proved "
                f"wrong on some prefix{_likeliest(perfect)}."
            )
        yield Finding(
            figure="languages",
            title=f"{family}: {proved} of {len(group)} models are right on every prefix",
            sentence=f"Of {len(group)} models, {len(perfect)} close every sampled bracket right, "
            f"and {wrong} of these are proved wrong on some prefix of at most {length} brackets.",
            number=f"{proved} of {len(group)} models",
            text=f"{proved} of {len(group)} models of {family} are right on every prefix up to "
            f"length {length}. {sampled_right} Models are right on "
            f"every prefix up to length {low if low == high else f'{low} to {high}'}.",
            # a proof that a sample misled is the first thing to say
            interest=2.4 + (wrong > 0) * 0.5,
        )


def _likeliest(decided: pd.DataFrame) -> str:
    """The most probable prefix on which one of these models is wrong."""
    wrong = decided.dropna(subset=["likeliest"])
    if wrong.empty:
        return ""
    row = wrong.loc[wrong["probability"].idxmax()]
    return f" (seed {int(row['seed'])}, for one, after “{row['likeliest']}”)"
