"""A judged case as a folder for an agent: weights, code, strings, and questions as JSON.

Knows: what an agent sees. That is what a judged method sees, in files which need torch alone; of
the answers, of the kind of model and of the seed there is nothing.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from safetensors.torch import load as load_safetensors
from safetensors.torch import save as dump_safetensors

from tl_dyck.judge import ABOUT_HEADS, Case, Fact
from tl_dyck.judge.cases import LONGEST, small_task
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.minimal import EveryAnswer, minimal_circuit
from tl_dyck.judge.protocol import KINDS, JudgeError, Question
from tl_dyck.models.storage import config_of, model_of
from tl_dyck_hooks.agents import plain_model

#: Kinds of models that agents are asked about. Which it is, is not asked: the sizes of weights tell
#: that, see `tests/agents`.
MODELS = ("uniform", "balanced", "stack", "backup", "trained")
INSTEAD = "zero"
"""What heads outside a circuit put out: what an agent can do without a word more."""
_MOST_HEADS = 8  # of models whose smallest circuit is asked for: 256 circuits take a second
_WORDS = """# What does this transformer do?

It reads a string of brackets, BOS first, and predicts the next symbol: {k} types of brackets, at
most {depth} open at a time. Each symbol is looked up together with its depth, so that the work is
to find the type. After a prefix with an open bracket exactly one closing bracket can follow, the
partner of the last one that is open. A prefix is *closed right* if the logit of that bracket is the
largest of all. The model closes nearly every prefix of at most {length} brackets right.

Files: `model.py` runs it (`weights.safetensors`, `config.json`), `strings.txt` has {n} prefixes of
{length} brackets. `questions.json` asks:

- `heads`: of each the question, the layer and the head. "Break": some prefix of at most {length}
  brackets that was closed right is not any more.
{kinds}
- `long`: does it close every prefix of at most {longest} brackets right?
- `circuit`: the fewest heads, as [layer, head], with which the model predicts the same closing
  bracket, that of the largest logit among closing ones, after every prefix of at most {length}
  brackets with an open one, while all other heads put out zero.

What is not in `questions.json` is not asked. Write `answers.json`:

    {{"heads": [0.9, 0.2], "long": {{"yes": 0.3, "prefix": "[[]"}},
     "circuit": [[0, 1]]}}

Probabilities are those of *yes*, one for each question in its order; `prefix` is one that the model
closes wrong, if it is not right to that length. Probabilities are scored by (p − truth)²; what is
said with 0.9 or more gains 1 if it is true and costs 9 if it is not. What is left out counts as
0.5. A circuit that answers otherwise anywhere scores 0, another one the least size divided by its.
"""


@final
@dataclass(frozen=True, eq=False)
class AgentCase:
    """A case, what an agent is asked about it, and the folder that it is given.

    Attributes:
        sealed: the case with its answers.
    """

    sealed: SealedCase

    @cached_property
    def case(self) -> Case:
        """A copy of the case."""
        return self.sealed.copy()

    @cached_property
    def heads(self) -> list[Fact]:
        """Facts of heads that are asked for, in the order of the questions."""
        return [fact for fact in self.sealed.facts if fact.question.kind in ABOUT_HEADS]

    @cached_property
    def long(self) -> Fact | None:
        """Whether it is right at any length, where that is known."""
        return next((fact for fact in self.sealed.facts if fact.question.kind == "stack"), None)

    @cached_property
    def circuits(self) -> EveryAnswer | None:
        """The answers of all circuits; None where the smallest is not asked for."""
        cfg = self.case.model.cfg
        if cfg.n_layers * cfg.n_heads > _MOST_HEADS:
            return None
        try:
            return EveryAnswer(self.case.model, self.case.task, self.case.length, instead=INSTEAD)
        except JudgeError:  # an answer hangs on rounding
            return None

    @cached_property
    def smallest(self) -> tuple[tuple[int, int], ...]:
        """A smallest circuit, see `minimal_circuit`."""
        case = self.case
        return minimal_circuit(case.model, case.task, case.length, instead=INSTEAD).heads

    @property
    def questions(self) -> dict[str, Any]:
        """What `questions.json` holds."""
        asked: dict[str, Any] = {
            "case": self.case.name,
            "heads": [
                {"question": fact.question.kind, "layer": layer, "head": head}
                for fact in self.heads
                for layer, head in [fact.question.target]
            ],
        }
        if self.long is not None:
            asked["long"] = self.long.question.target[0]
        if self.circuits is not None:
            asked["circuit"] = True
        return asked

    def files(self) -> dict[str, bytes]:
        """Names and contents of all that the folder holds."""
        case, language = self.case, self.case.task.language
        model = case.model
        # what is looked up is no parameter of a model of ours
        weights = {name: weight.detach() for name, weight in model.named_parameters()}
        weights["embed.table"] = model.embed.table
        config = config_of(model) | {"symbols": [*language.alphabet, "BOS"]}
        strings = [language.to_string(row) for row in case.tokens]
        return {
            "README.md": self._words().encode(),
            "model.py": inspect.getsource(plain_model).encode(),
            "config.json": json.dumps(config).encode(),
            "weights.safetensors": dump_safetensors(
                {name: weight.clone().contiguous() for name, weight in weights.items()}
            ),
            "strings.txt": "".join(f"{string}\n" for string in strings).encode(),
            "questions.json": json.dumps(self.questions, indent=1).encode(),
        }

    def _kinds(self) -> list[str]:
        asked = {fact.question.kind for fact in self.heads}
        return [kind for kind in ABOUT_HEADS if kind in asked]

    def _words(self) -> str:
        task, case = self.case.task, self.case
        return _WORDS.format(
            k=task.language.n_types,
            depth=task.language.max_depth,
            length=case.length,
            n=len(case.tokens),
            longest=LONGEST,
            kinds="\n".join(f"  - {kind}: {KINDS[kind]}" for kind in self._kinds()),
        )


def case_of_files(files: Mapping[str, bytes]) -> tuple[Case, list[Question]]:
    """What an agent that knows tl_dyck makes of its folder: the case of a judged method again.

    Args:
        files: the content of each.

    Returns:
        The case, and the questions about heads.
    """
    config = json.loads(files["config.json"])
    del config["symbols"]
    weights = load_safetensors(files["weights.safetensors"])
    del weights["embed.table"]
    model = model_of(config, weights, "the folder").eval()
    strings = files["strings.txt"].decode().split()
    tokens = model.to_tokens(strings)
    length = tokens.shape[1] - 1  # without BOS
    task = small_task(model.cfg.language.n_types, model.cfg.language.max_depth, length)
    asked = json.loads(files["questions.json"])
    questions = [
        Question(each["question"], (each["layer"], each["head"])) for each in asked["heads"]
    ]
    return Case(model, task, length, tokens, name=asked["case"]), questions
