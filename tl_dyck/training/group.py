"""Runs that differ in their seeds alone and have come equally far, trained together."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tl_dyck.training.config import TrainConfig
from tl_dyck.training.contrastive import ContrastiveRegularizer
from tl_dyck.training.drift import DriftRegularizer
from tl_dyck.training.operations import GRAIN
from tl_dyck.training.packing import Batch, pack
from tl_dyck.training.run import POOL, RunState, stream
from tl_dyck.training.stack import Stack


class SeedGroup:
    """Runs of one configuration, task and options, at the same step; one run is a group too.

    What a run reads in a step, its learning rate, its measurements, and the shapes of all that is
    computed for it do not depend on the others, nor do the calls that compute it
    (`tl_dyck.training.operations`). So on the CPU it is the same as alone, bit for bit; on a GPU,
    where products are batched, to rounding.

    Attributes:
        runs: those still in training; a run that has ended stays until it is taken out.
    """

    def __init__(self, runs: Sequence[RunState]) -> None:
        self.runs: list[RunState] = []
        self._pool: tuple[int, Batch, Tensor] | None = None
        self._join(list(runs))

    def advance(self) -> list[dict[str, Any] | None]:
        """Make one step of every run; returns the new row of each one's history, if any."""
        started = time.perf_counter()
        options, step = self.runs[0].options, self.runs[0].step
        # from 1 / (n + 1): the first step is not lost, and 0 steps of warm-up leave 1
        warmup = min(1.0, (step + 1) / (options.warmup_steps + 1))
        # linearly to 0, which the step after the last would have
        rate = options.learning_rate * warmup * (1 - step / options.steps)
        totals, losses = self.stack.step(
            self._batches(step), rate, options.contrastive_weight, options.drift_weight
        )
        steps = zip(self.runs, totals, losses, strict=True)
        rows = [run.record(total, loss, rate) for run, total, loss in steps]
        for run in self.runs:
            run.seconds += (time.perf_counter() - started) / len(self.runs)
        return rows

    def take_out(self, runs: Sequence[RunState]) -> None:
        """Go on without these; they keep what they are."""
        for run in runs:
            self.stack.release(self.runs.index(run))
        self._join([run for run in self.runs if run not in runs])

    def _join(self, runs: list[RunState]) -> None:
        self.runs, self._pool = runs, None
        if runs:
            options, step = runs[0].options, runs[0].step
            self._width, self._usual_rows = _layout(runs[0].task, options)
            self.stack = Stack(
                [run.model for run in runs],
                [run.moments for run in runs],
                step=step,
                weight_decay=options.weight_decay,
                drift=_drift(runs[0].task, options),
            )
            for index, run in enumerate(runs):
                run.moments = self.stack.moments(index)

    # --- data -------------------------------------------------------------------------------------

    def _batches(self, step: int) -> list[Batch]:
        """Almost always one, of `_usual_rows` rows; runs that need more are set apart.

        So how many rows a run has does not depend on the others, for the order in which sums are
        taken depends on it.
        """
        block, index = divmod(step, POOL)
        if self._pool is None or self._pool[0] != block:
            self._pool = (block, *self._packed(block))
        _, packed, used = self._pool
        first = index * len(self.runs)
        needed = used[first : first + len(self.runs)]
        grain = _grain(self._width)
        rows = (-(-needed // grain) * grain).clamp_min(self._usual_rows).tolist()
        batches, begin = [], 0
        for most, same in itertools.groupby(rows):
            members = slice(begin, begin := begin + len(list(same)))
            mine = slice(first + members.start, first + members.stop)
            batches.append(packed.part(mine, most, members))
        return batches

    def _packed(self, block: int) -> tuple[Batch, Tensor]:
        """The batches of `POOL` steps, step by step, run by run, and how many rows each uses."""
        task, options, cfg = self.runs[0].task, self.runs[0].options, self.runs[0].model.cfg
        language: Any = task.language
        bos = language.bos_token
        drawn = torch.stack([run.strings(block) for run in self.runs])
        drawn = drawn.view(len(self.runs), POOL, options.batch_size, -1)
        tokens = drawn.transpose(0, 1).flatten(0, 1)
        lengths = (tokens != bos).sum(-1)  # without BOS, or without the last bracket
        targets, shift = tokens[..., 1:], None
        if options.contrastive_weight:
            tokens, lengths, shift = self._with_prefixed(block, tokens, lengths)
            targets = torch.full_like(tokens, bos)
            targets[:, : options.batch_size, :-1] = tokens[:, : options.batch_size, 1:]
        else:
            tokens = tokens[..., :-1]
        if cfg.embedding == "token":
            depth = torch.zeros((), dtype=torch.int64).expand_as(tokens)
        else:
            depth = language.clipped_depth(tokens)
        packed, used, slots = pack(
            tokens,
            lengths,
            depth=depth,
            targets=targets,
            width=self._width,
            least=self._usual_rows,
            grain=_grain(self._width),
            filling=bos,
        )
        if shift is not None:
            pairs = _pairs(slots, lengths, shift, max(task.train_lengths) + 1)
            packed = replace(packed, pairs=pairs)
        return packed.to(cfg.device), used

    def _with_prefixed(
        self, block: int, tokens: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Strings, then the same with a prefix; lengths with BOS; each prefix's shift."""
        language: Any = self.runs[0].task.language
        regularizer, n_runs = ContrastiveRegularizer(language), len(self.runs)
        # a prefix is at most D pairs: 2 D brackets more
        longest = tokens.shape[2] + 2 * language.max_depth
        both = tokens.new_full((len(tokens), 2 * tokens.shape[1], longest), language.bos_token)
        both[:, : tokens.shape[1], : tokens.shape[2]] = tokens
        shift = torch.empty_like(lengths)
        for index in range(POOL):
            for number, run in enumerate(self.runs, start=index * n_runs):
                generator = torch.Generator().manual_seed(
                    stream(run.seed, "contrast", block * POOL + index)
                )
                longer, shift[number] = regularizer.prefixed(tokens[number], generator=generator)
                both[number, tokens.shape[1] :, : longer.shape[1]] = longer
        return both, torch.cat([lengths, lengths + shift], dim=1) + 1, shift


def _drift(task: Any, options: TrainConfig) -> DriftRegularizer | None:
    if not options.drift_weight:
        return None
    length = task.long_lengths[1]
    return DriftRegularizer(task.distribution, length, anywhere=options.drift_anywhere)


def _layout(task: Any, options: TrainConfig) -> tuple[int, int]:
    """Width of a row, and the number of rows that is enough for all but one in a hundred batches.

    Of the widths that fit the longest string, the one with the fewest slots; see `_grain`.
    """
    lengths = np.array(task.train_lengths, dtype=float)
    longest, copies = int(lengths.max()), 1
    if options.contrastive_weight:
        copies, pairs = 2, task.language.max_depth
        # contrasted strings keep their last bracket, and have a prefix of up to D pairs
        longest += 1 + 2 * pairs
        # of a string and its copy with r pairs before it, both with BOS; each r is as likely
        lengths = np.concatenate([2 * lengths + 2 + 2 * r for r in range(1, pairs + 1)])
    spread = math.sqrt(options.batch_size) * float(lengths.std())
    # two deviations of the sum, and a row more below: all but one in a hundred
    total = options.batch_size * float(lengths.mean()) + 2 * spread

    def enough(width: int) -> int:
        grain = _grain(width)
        # a row or two more, for strings do not fill rows to the end; never more rows than strings
        rows = min(math.ceil(total / width) + copies, copies * options.batch_size)
        return -(-rows // grain) * grain

    # the grain of a width repeats with a period of GRAIN: wider rows have nothing else to offer
    width = min(range(longest, longest + GRAIN), key=lambda width: width * enough(width))
    return width, enough(width)


def _grain(width: int) -> int:
    """Of so many rows, or a multiple, the slots are one of `GRAIN`, as `operations` wants it."""
    # the least number that makes number · width a multiple of GRAIN
    return GRAIN // math.gcd(width, GRAIN)


def _pairs(slots: Tensor, lengths: Tensor, shift: Tensor, longest: int) -> Tensor:
    """Slots of each bracket in its string and in the prefixed one; others are both 0.

    The shape is ``[2, group, string * pos]``.
    """
    count = shift.shape[1]
    # from 1: both have BOS at 0, about which there is nothing to compare
    here = torch.arange(1, longest, device=slots.device)
    before = slots[:, :count, 1:longest]
    after = slots[:, count:].gather(2, here + shift[:, :, None])
    beyond = here >= lengths[:, :count, None]
    return torch.stack([before, after]).masked_fill(beyond, 0).flatten(2)
