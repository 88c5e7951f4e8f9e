"""Fine-tuning with heads scaled or switched off: what gates and leave-one-out share."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsIndex, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.ablation.frozen import scaling_hooks
from tl_dyck.ablation.metrics import (
    Ignored,
    Metric,
    check_model,
    check_tokens,
    evaluate,
    ignored_tokens,
    real_positions,
    rows_per_pass,
)
from tl_dyck.ablation.patterns import pattern_drift
from tl_dyck.kit.check import (
    WrongTypeError,
    WrongValueError,
    check_instance,
    check_number,
    check_seed,
)
from tl_dyck.kit.configuration import Configuration, drawn, number, whole
from tl_dyck.kit.files import sha256
from tl_dyck.reading.inputs import check_reads, hides_bos
from tl_dyck.tasks.protocol import is_task

#: Tokens ``[batch, pos]``; a task, of which fresh strings are drawn; or
#: ``sample(n, generator) -> tokens``.
Data = Any

_DRAWS = 100  # of strings in place of those that are too short


@final
@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(Configuration):
    """Options of fine-tuning a model while heads are taken from it.

    Attributes:
        penalties: of the sweep, one stage after the other: what an open head costs, in units of the
            metric.
        steps: updates in each stage; of leave-one-out, for each head.
        batch_size: strings per step.
        learning_rate: of all weights, by Adam.
        gate_learning_rate: of the gates' log α, by Adam. A gate that nothing holds open closes
            within about ``(log_alpha + 2.4) / gate_learning_rate`` steps.
        log_alpha: of all gates at first, and at most; at 3 a gate is open with probability 0.99.
        n_eval: strings on which the metric and the patterns are measured.
        log_every: steps between two entries in the trajectories.

    Raises:
        TypeError: a number is no integer where it should be.
        ValueError: a value is out of range; the message names it.
    """

    penalties: Sequence[float] = (0.003, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
    steps: int = whole(100)
    batch_size: int = drawn(32)
    learning_rate: float = number(1e-3)
    gate_learning_rate: float = number(0.1)
    log_alpha: float = number(3.0, least=-math.inf)
    n_eval: int = drawn(200)
    log_every: int = whole(10)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.penalties
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise WrongTypeError(f"penalties must be numbers, at least one, not {given!r}")
        penalties = tuple(check_number("penalties", penalty, least=0) for penalty in given)
        object.__setattr__(self, "penalties", penalties)
        if not penalties:
            raise ValueError("penalties must be at least one number")
        if any(
            later <= earlier
            for earlier, later in zip(self.penalties, self.penalties[1:], strict=False)
        ):
            raise ValueError(
                "penalties must rise, so that heads are removed one after another, "
                f"not {self.penalties}"
            )


def check_options(name: str, options: FinetuneConfig | None) -> FinetuneConfig | None:
    """Options as they are."""
    if options is not None:
        check_instance(name, options, FinetuneConfig, "a FinetuneConfig")
    return options


@final
class Source:
    """Source of batches: the same for the same seed and step, whatever happened before.

    Attributes:
        tokens: on which is measured, ``[n_eval or fewer, pos]``.
        ignore: the tokens that are no symbols of a string: BOS and filling.
        where: the real positions of `tokens`, which are all others.
    """

    def __init__(
        self,
        model: Any,
        data: Data,
        ignore: Ignored,
        options: FinetuneConfig,
        seed: SupportsIndex,
    ) -> None:
        """Check the data; see `Data`."""
        check_model(model)
        self.model, self.options, self.seed = model, options, check_seed(seed)
        self.ignore = ignored_tokens(
            model, ignore, data, instead="ignore=…, a token or several, or ignore=() for none"
        )
        self._sample: Callable[[int, torch.Generator], Tensor] | None = None
        if is_task(data):
            check_reads(model, data.language)
            draw = _two_symbols if hides_bos(model) else _any
            self._sample = partial(draw, data)
        elif callable(data):
            self._sample = data
        else:
            check_tokens(model, data)
        self._data = data
        if self._sample is not None:
            drawn = self._sample(options.n_eval, stream(self.seed, "measure", 0))
            self.tokens = check_tokens(model, drawn)
        else:
            self.tokens = data[: options.n_eval]
        self.where: Bool[Tensor, "batch pos"] = real_positions(
            model, self.tokens, ~torch.isin(self.tokens, self.tokens.new_tensor(self.ignore))
        )

    def batch(self, step: int) -> Int[Tensor, "batch pos"]:
        """The strings of a training step."""
        size, device = self.options.batch_size, self.model.cfg.device
        generator = stream(self.seed, "batch", step)
        if self._sample is not None:
            return check_tokens(self.model, self._sample(size, generator)).to(device)
        chosen = torch.randint(len(self._data), (size,), generator=generator)
        rows: Tensor = self._data[chosen].to(device)
        return rows


def _any(task: Any, n: int, generator: torch.Generator) -> Tensor:
    drawn: Tensor = task.sample(n, generator=generator)
    return drawn


def _two_symbols(task: Any, n: int, generator: torch.Generator) -> Tensor:
    """Strings of two symbols at least: without BOS, nothing is predicted of a single one.

    Raises:
        ValueError: there are hardly any.
    """
    found: Tensor = task.sample(n, generator=generator)
    for _ in range(_DRAWS):
        short = (found != task.language.bos_token).sum(-1) < 2
        if not short.any():
            return found
        again = task.sample(int(short.sum()), generator=generator)
        width = max(found.shape[1], again.shape[1])
        found, again = (_filled(each, width, task.language.bos_token) for each in (found, again))
        found[short] = again
    raise WrongValueError(
        f"nearly all strings of {task.name} have one symbol, of which a model without BOS predicts "
        "nothing"
    )


def _filled(tokens: Tensor, width: int, bos: int) -> Tensor:
    return torch.nn.functional.pad(tokens, (0, width - tokens.shape[1]), value=bos)


@final
class Tuner:
    """A copy of a model, its optimiser, and steps that raise a metric.

    Attributes:
        model: the copy.
        optimizer: of its weights, and of `extra`.
    """

    def __init__(
        self, model: Any, metric: Metric, source: Source, extra: Tensor | None = None
    ) -> None:
        """Copy the model."""
        options = source.options
        self.model, self.metric, self.source = copy.deepcopy(model), metric, source
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained, "lr": options.learning_rate}]
        if extra is not None:
            groups.append({"params": [extra], "lr": options.gate_learning_rate})
        self.optimizer = torch.optim.Adam(groups)

    def step(
        self,
        index: int,
        factors: Float[Tensor, "layer #batch head"],
        penalty: Tensor | None = None,
    ) -> None:
        """One update."""
        tokens = self.source.batch(index)
        self.model.train()
        with torch.enable_grad():
            logits = self.model.run_with_hooks(
                tokens, return_type="logits", fwd_hooks=scaling_hooks(factors)
            )
            what = f"the model after {index} steps of fine-tuning"
            loss = -evaluate(self.metric, logits, tokens, what, differentiable=True).mean()
            if penalty is not None:
                loss = loss + penalty
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def measure(self, factors: Float[Tensor, "layer 1 head"]) -> float:
        """The mean of the metric on the strings for measuring."""
        tokens, total = self.source.tokens, 0.0
        self.model.eval()
        for rows in torch.arange(len(tokens)).split(rows_per_pass(self.model, tokens.shape[1])):
            batch = tokens[rows].to(self.model.cfg.device)
            logits = self.model.run_with_hooks(
                batch, return_type="logits", fwd_hooks=scaling_hooks(factors)
            )
            total += float(evaluate(self.metric, logits, batch, "the fine-tuned model").sum())
        return total / len(tokens)

    def drift(
        self, before: Any, factors: Float[Tensor, "layer 1 head"]
    ) -> Float[np.ndarray, "layer head"]:
        """How far the patterns moved on the strings for measuring."""
        tokens, where = self.source.tokens, self.source.where
        return pattern_drift(before, self.model, tokens, where=where, hooks=scaling_hooks(factors))


def stream(seed: int, purpose: str, index: int) -> torch.Generator:
    """A generator for one purpose of one step, whatever was drawn before."""
    # 15 digits of hexadecimal are 60 bits: any of them is a seed that torch takes
    return torch.Generator().manual_seed(int(sha256([seed, purpose, index])[:15], 16))
