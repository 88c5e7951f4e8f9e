"""Is a direction that tells the depth read? Ablate it, all that tells it, and all but it.

A linear probe of the depth gives the *direction*. *All* that tells the depth linearly is erased in
closed form (LEACE, Belrose et al. 2023, arXiv 2306.03819): then no linear classifier of the depth
does better than a constant. The *rest* is erased if the direction is put back afterwards. Where
ablating costs accuracy:

| direction | rest | all | the direction is |
|---|---|---|---|
| yes | no | yes | read, and nothing else that tells the depth |
| yes | yes | yes | read, together with the rest |
| no | no | yes | redundant: either it or the rest is enough |
| no | yes | yes | not read, or not enough: the rest is read |
| no | no | no | decodable, and nothing that tells the depth linearly is read |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.models import DyckTransformer
from tl_dyck.reading.hook_points import record
from tl_dyck.reading.interventions import Change, Eraser, change_activation, run
from tl_dyck.tasks import DyckTask
from tl_dyck_papers.stack_use.masks import FarAnswers, hit

#: What is ablated.
ABLATED = ("direction", "covariance", "rest", "all", "random", "random_all")
#: What follows from which ablation costs accuracy: direction, rest, all.
READINGS = {
    (True, False, True): "read alone",
    (True, True, True): "read with the rest",
    (False, False, True): "redundant",
    (False, True, True): "not read",
    (False, False, False): "unused",
}

#: Places in the residual stream: what the last layer reads, and what is unembedded.
SITES = ("middle", "end")

_RIDGE = 1e-6  # of the mean variance


@final
@dataclass(frozen=True)
class DepthCode:
    """How the residual stream at a site tells the depth linearly.

    Attributes:
        eraser: of the depth.
        direction: u, of unit length: the weights of the linear probe.
        along: covariance of the stream with the depth.
        ridge: of the probe, in units of variance.
    """

    eraser: Eraser
    direction: Float[Tensor, " d_model"]
    along: Float[Tensor, " d_model"]
    ridge: float

    def changes(self, generator: torch.Generator) -> dict[str, Change]:
        """The ablations, a key of `ABLATED` each.

        "covariance": the direction in which the stream varies with the depth, which is that of a
        probe with an infinite ridge; "random": a direction drawn as the stream varies (Gaussian,
        with its covariance); "random_all": as many such directions as the eraser has dimensions.
        """
        erase, u = self.eraser, self.direction[:, None]
        root = _root(erase.covariance)
        noise = torch.randn(len(root), 1 + erase.rank, generator=generator, dtype=root.dtype)
        drawn = root @ noise

        def rest(x: Tensor) -> Tensor:
            wide = x.to(u)
            erased = erase(wide)
            return (erased + (wide - erased) @ u @ u.T).to(x)

        return {
            "direction": lambda x: erase.project_out(x, u @ u.T),
            "covariance": lambda x: erase.project_out(x, _projection(self.along[:, None])),
            "rest": rest,
            "all": erase,
            "random": lambda x: erase.project_out(x, _projection(drawn[:, :1])),
            "random_all": lambda x: erase.project_out(x, _projection(drawn[:, 1:])),
        }


def _projection(columns: Tensor) -> Tensor:
    basis: Tensor = torch.linalg.qr(columns).Q
    return basis @ basis.T


def _root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = vectors * values.clamp_min(0).sqrt()
    return root


def depth_code(
    stream: Float[Tensor, "n d_model"], depth: Int[Tensor, " n"], n_depths: int
) -> DepthCode:
    """Fit the probe (ridge regression of the depth) and the eraser (of the one-hot depth)."""
    eraser = Eraser.fit(stream, depth, n_depths)
    along = eraser.cross_covariance @ torch.arange(n_depths, dtype=torch.float64)
    ridge = _RIDGE * float(eraser.covariance.diagonal().mean())
    identity = torch.eye(len(along), dtype=torch.float64)
    direction = torch.linalg.solve(eraser.covariance + ridge * identity, along)
    return DepthCode(eraser, direction / direction.norm(), along, ridge)


def decodable(
    stream: Float[Tensor, "n d_model"],
    depth: Int[Tensor, " n"],
    test_stream: Float[Tensor, "m d_model"],
    test_depth: Int[Tensor, " m"],
    ridge: float,
) -> float:
    """R² of the depth on held-out positions, by ridge regression; below 0 is worse than the mean.

    The ridge is in units of variance: what varies much less is as good as erased.
    """
    x, y = stream.double(), depth.double()
    mean, level = x.mean(0), y.mean()
    covariance = (x - mean).T @ (x - mean) / len(x)
    weights = torch.linalg.solve(
        covariance + ridge * torch.eye(len(mean), dtype=torch.float64),
        (x - mean).T @ (y - level) / len(x),
    )
    said = (test_stream.double() - mean) @ weights + level
    wanted = test_depth.double()
    return float(1 - (said - wanted).square().sum() / (wanted - wanted.mean()).square().sum())


def sequence_accuracy(
    logits: Float[Tensor, "n pos d_vocab"], tokens: Int[Tensor, "n pos"], task: DyckTask
) -> float:
    """Share of strings of which, at every position, the likeliest next token can follow.

    Judged is every position whose next token is a bracket.
    """
    language = task.language
    likeliest = logits[:, :-1].argmax(-1)
    depth, top = language.depth(tokens), language.top_of_stack(tokens)
    partner = tokens.gather(1, top.clamp_min(0)) + 1
    can_close = (likeliest == partner[:, :-1]) & (top[:, :-1] >= 0)
    opens = (likeliest % 2 == 0) & (likeliest < language.bos_token)
    fine = can_close | (opens & (depth[:, :-1] < language.max_depth))
    judged = tokens[:, 1:] != language.bos_token
    return float((fine | ~judged).all(1).double().mean())


def site_name(model: DyckTransformer, site: str) -> str:
    """The hook point of a site."""
    kind = {"middle": "hook_resid_pre", "end": "hook_resid_post"}[site]
    return f"blocks.{model.cfg.n_layers - 1}.{kind}"


def streams(
    model: DyckTransformer, tokens: Int[Tensor, "n pos"], site: str
) -> Float[Tensor, "n pos d_model"]:
    """The residual stream at a site."""
    name = site_name(model, site)
    return record(model, tokens, [name])[name].cpu()


def depth_effects(
    model: DyckTransformer,
    task: DyckTask,
    far: FarAnswers | None,
    n: int,
    generator: torch.Generator,
    untrained: DyckTransformer | None = None,
) -> dict[str, float]:
    """Decodability of the depth at each site, and accuracies with each ablation there.

    The probe is fitted on n strings, tested on n others; ablated are n more, at all positions, and
    the far answers.

    Returns:
        ``sequence`` without ablation; for each site ``r2_<site>``, ``untrained_r2_<site>``,
        ``rank_<site>`` (dimensions of the eraser), and for each ablation
        ``<ablation>_<site>_sequence``, ``…_far``, ``…_far_type``, and ``…_r2``, what is decodable
        after it.
    """
    language = task.language
    fitted, tested, ablated = (task.sample(n, generator=generator) for _ in range(3))
    seen, depth = _places(fitted, language.bos_token), language.depth(fitted)
    test_seen, test_depth = _places(tested, language.bos_token), language.depth(tested)
    found = {"sequence": sequence_accuracy(run(model, ablated), ablated, task)}
    for site in SITES:
        stream, test = streams(model, fitted, site)[seen], streams(model, tested, site)[test_seen]
        levels, test_levels = depth[seen], test_depth[test_seen]
        code = depth_code(stream, levels, language.max_depth + 1)
        found[f"r2_{site}"] = decodable(stream, levels, test, test_levels, code.ridge)
        found[f"rank_{site}"] = float(code.eraser.rank)
        if untrained is not None:
            raw, raw_test = (streams(untrained, each, site) for each in (fitted, tested))
            raw = raw[seen]
            ridge = _RIDGE * float(raw.var(0).mean())
            found[f"untrained_r2_{site}"] = decodable(
                raw, levels, raw_test[test_seen], test_levels, ridge
            )
        for kind, change in code.changes(generator).items():
            hooks = change_activation(site_name(model, site), change)
            name = f"{kind}_{site}"
            found[f"{name}_sequence"] = sequence_accuracy(run(model, ablated, hooks), ablated, task)
            found[f"{name}_r2"] = decodable(
                change(stream), levels, change(test), test_levels, code.ridge
            )
            if far is not None:
                for end, right in zip(("far", "far_type"), hit(model, far, hooks), strict=True):
                    found[f"{name}_{end}"] = float(right.double().mean())
    return found


def _places(tokens: Int[Tensor, "n pos"], bos: int) -> Bool[Tensor, "n pos"]:
    """BOS at the beginning, and brackets."""
    seen = tokens != bos
    seen[:, 0] = True
    return seen


def reading_of(before: float, direction: float, rest: float, all_: float, least: float) -> str:
    """What three ablations say of a direction, a value of `READINGS`, or "unclear".

    Args:
        before: accuracy without ablation.
        direction: with the direction ablated.
        rest: with all but the direction erased.
        all_: with all erased.
        least: an ablation costs something if accuracy falls by more.
    """
    costs = (before - direction > least, before - rest > least, before - all_ > least)
    return READINGS.get(costs, "unclear")
