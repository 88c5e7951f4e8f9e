"""What the two measures that fine-tune share: metric, data, time limit, a folder to go on from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

from torch import Tensor

from tl_dyck.ablation.metrics import Metric, log_likelihood
from tl_dyck.ablation.resume import load_state, save_state
from tl_dyck.ablation.tuning import Data, FinetuneConfig, Source, metric_numbers, rounding
from tl_dyck.files import ensure_folder
from tl_dyck.models.digest import weights_digest

__all__ = ["Job"]


@final
class Job:
    """One measure of one model.

    Attributes:
        metric: to be raised.
        source: of batches.
        saved: facts and tensors of where an earlier call stopped, if there was one.
    """

    def __init__(
        self,
        what: str,
        model: Any,
        data: Data,
        metric: Metric | None,
        *,
        options: FinetuneConfig | None,
        labels: Tensor | None,
        ignore: int | None,
        seed: int,
        seconds: float | int | None,
        folder: str | Path | None,
        unused: Sequence[str] = (),
    ) -> None:
        """Check everything, and find out where to go on.

        Args:
            what: the measure; names its file in the folder.
            model: any HookedTransformer.
            data: see `finetuned_importance`, as all that follows.
            metric: likewise.
            options: likewise.
            labels: likewise.
            ignore: likewise.
            seed: likewise.
            seconds: likewise.
            folder: likewise.
            unused: options that play no part, and so do not belong to the identity of the run.
        """
        options = options or FinetuneConfig()
        if ignore is None and hasattr(data, "language"):
            ignore = data.language.bos_token
        self.metric: Metric = metric or partial(log_likelihood, ignore=ignore)
        self.source = Source(model, data, labels, ignore, options, seed)
        self._name, self._folder = (
            what.replace(" ", "-"),
            None if folder is None else ensure_folder(folder),
        )
        self.saved: tuple[dict[str, Any], dict[str, Tensor]] | None = None
        if self._folder is not None:
            self._identity = {
                "what": what,
                "options": {**options.to_dict(), **dict.fromkeys(unused)},
                "seed": seed,
                "model": weights_digest(model),
                "data": self.source.identity(),
                "ignore": ignore,
            }
            self._numbers = metric_numbers(model, self.metric, self.source)
            self.saved = load_state(
                self._folder,
                self._name,
                self._identity,
                numbers=self._numbers,
                tolerance=rounding(model),
            )
        self._deadline = None if seconds is None else time.monotonic() + seconds

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def save(self, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Keep how far it has come, if there is a folder; "step" must be among the facts."""
        if self._folder is not None:
            save_state(
                self._folder, self._name, self._identity, facts, tensors, numbers=self._numbers
            )
