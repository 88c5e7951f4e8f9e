"""Attribution by captum: any of its methods, of heads and of brackets, from three baselines.

A method of captum gets what all heads of a layer put out, or all embeddings, for its inputs, and
the logit difference of the right bracket for its forward function. It says how much of that each
input is responsible for, beside a baseline; what it says of a head or a bracket is summed up.

Knows: how an activation becomes an input of captum, what its baselines are, and which of its
methods take steps or samples, and so have to converge.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from captum.attr import (
    FeatureAblation,
    GradientShap,
    InputXGradient,
    IntegratedGradients,
    ShapleyValueSampling,
)
from torch import Tensor

from tl_dyck.judge import Case, Method, WithError, combine_methods, score_brackets, score_heads
from tl_dyck.judge.asked import partners, right_answers
from tl_dyck.judge.convergence import averaged, integrated
from tl_dyck_hooks.methods.packages import named
from tl_dyck_hooks.methods.shared import activations, z_names

Baseline = Literal["zero", "mean", "exchanged"]

_after = named("captum")
_STRINGS = 16  # of a case that are looked at: captum runs the model many times
_ABOVE = 0.1  # logits for each answer: what a head must be responsible for, and errors are beside
# of an integral: four seconds a layer; behind the steepest readers more would be needed
_MOST_STEPS = 2560
_LEAST_DRAWS, _MOST_DRAWS = 8, 64  # times what `n_samples` says
_AT_ONCE = 2048  # strings with activations of their own: 1,280 steps of 16 strings take 2 GB else


def from_captum(
    method: Callable[[Callable[..., Tensor]], Any],
    baseline: Baseline | None = "zero",
    *,
    masked: bool = False,
    paper: str = "Kokhlikyan et al. 2020",
    said: str | None = None,
    **options: Any,
) -> Method:
    """A judged method, of heads and brackets, by a class of captum's.

    Examples:
        >>> from captum.attr import IntegratedGradients
        >>> from tl_dyck.judge import judge_method
        >>> mine = from_captum(IntegratedGradients, "exchanged", n_steps=10)
        >>> float(judge_method(mine, [("balanced", 1)]).loc["needed", "cases"])
        1.0

    Args:
        method: a class of `captum.attr` that takes a forward function.
        baseline: what an input is held against: zeros, its mean over strings and positions, or what
            it is on the string with all types exchanged. None for a method that has none.
        masked: whether it takes a ``feature_mask``; a head, or a bracket, is then one feature.
        paper: whom the method is after.
        said: a key of `_SAID`, if not the baseline: what the method holds an input against.
        **options: of its ``attribute``. With ``n_steps`` or ``n_samples`` it begins: where the
            method takes steps or samples, it gets more until it has converged.
    """

    def attribute(case: Case, name: str, tokens: Tensor, right: Tensor, unit: int) -> Any:
        """What it says of each unit (that axis: head, of all strings; or position, of each).

        Of the logit differences at all positions of ``right``, or at the last.
        """
        inputs = activations(case.model, tokens, [name])[0]
        how = dict(options)
        if baseline is not None:
            how["baselines"] = _baselines(case, name, tokens, inputs, baseline)
        if masked:
            shape = [-1 if axis == unit else 1 for axis in range(inputs.ndim)]
            units = torch.arange(inputs.shape[unit]).view(shape)
            how["feature_mask"] = units.expand(1, *inputs.shape[1:]).contiguous()

        def forward(values: Tensor, tokens: Tensor, right: Tensor) -> Tensor:
            hooks = [(name, lambda found, hook: values)]
            logits = case.model.run_with_hooks(tokens, fwd_hooks=hooks)
            asked = logits[:, -right.shape[1] :]
            return case.difference(asked, right).sum(-1)

        def told(**more: Any) -> Any:
            with torch.enable_grad():
                found = method(forward).attribute(
                    inputs.requires_grad_(), additional_forward_args=(tokens, right), **how | more
                )
            found, *delta = found if isinstance(found, tuple) else (found,)
            over = [axis for axis in range(1, inputs.ndim) if axis != unit]
            values = (found.mean(over) if masked else found.sum(over)).detach()
            return (values, *delta) if delta else values

        with torch.no_grad():
            # captum's own baseline is zero
            other = how.get("baselines", torch.zeros_like(inputs))
            ends = [forward(each, tokens, right) for each in (inputs, other)]
        whole = unit == 2  # heads, of which strings are added up
        return _converged(method, told, ends[0] - ends[1], (right >= 0).sum(-1), how, whole)

    judged = _declared(attribute, _after(paper))
    judged.__doc__ = f"captum's {method.__name__}, held against {_SAID[said or baseline]}."
    return judged


def _declared(attribute: Callable[..., Any], paper: str) -> Method:
    """A method of heads and brackets, by what is said of the units of a hook point."""

    def heads(case: Case) -> Any:
        tokens = case.tokens[:_STRINGS]
        right = right_answers(case.task, tokens)
        asked = (right >= 0).sum()
        found = [attribute(case, name, tokens, right, unit=2) for name in z_names(case)]
        if not isinstance(found[0], WithError):
            return [each.abs() / asked for each in found]
        errors = torch.stack([each.error.expand(case.model.cfg.n_heads) for each in found])
        return WithError([each.values.abs() / asked for each in found], errors)

    def brackets(case: Case, tokens: Tensor, answers: Tensor) -> Any:
        found = attribute(case, "hook_embed", tokens, answers[:, None], unit=1)
        if isinstance(found, WithError):
            return WithError(found.values.abs(), found.error)
        return found.abs()

    return combine_methods(
        score_heads(above=_ABOVE, unit="logits", paper=paper)(heads),
        score_brackets(paper)(brackets),
    )


def _baselines(case: Case, name: str, tokens: Tensor, inputs: Tensor, baseline: Baseline) -> Tensor:
    """What inputs are held against, as many."""
    if baseline == "zero":
        return torch.zeros_like(inputs)
    if baseline == "mean":
        return inputs.mean((0, 1), keepdim=True).expand_as(inputs).clone()
    other = partners(case.task, tokens)
    return activations(case.model, other, [name])[0]


def _converged(
    method: Callable[..., Any],
    told: Callable[..., Any],
    change: Tensor,
    asked: Tensor,
    how: Mapping[str, Any],
    whole: bool,
) -> Tensor | WithError:
    """What a method says, of as many steps or samples as it takes; exactly, if it takes none.

    Args:
        method: of captum.
        told: what it says, ``[n, unit]``, with more options; and what is missing, if asked for.
        change: of each string, what all its units are responsible for together.
        asked: of each string, how many answers: an error of a hundredth of the threshold is small.
        how: options.
        whole: whether strings are added up.
    """
    takes = inspect.signature(method.attribute).parameters  # type: ignore[attr-defined]
    scale = torch.maximum(change.abs(), _ABOVE * asked)
    if "n_steps" in takes:
        more = {"method": "riemann_middle", "internal_batch_size": _AT_ONCE}  # of equal steps
        more = {name: value for name, value in more.items() if name in takes} | dict(how)

        def run(n: int) -> tuple[Tensor, Tensor]:
            found = told(**more | {"n_steps": n})
            gap = (found.sum(1) - change).abs()
            return (found.sum(0), gap.sum()) if whole else (found, gap)

        beside = scale.sum() if whole else scale
        return integrated(run, beside, how.get("n_steps", 5), _MOST_STEPS)
    if "n_samples" in takes:
        # a gradient that is zero wherever it was drawn does not differ, but does not add up either
        sums = "return_convergence_delta" in takes

        def draw() -> Tensor:
            found: Tensor
            if sums:
                values, delta = told(return_convergence_delta=True)
                found = torch.cat([values, delta.detach().view(len(values), -1).mean(1, True)], 1)
            else:
                found = told()
            return found.sum(0) if whole else found

        beside = scale.sum() if whole else scale[:, None]
        found = averaged(
            draw, beside, _LEAST_DRAWS, _MOST_DRAWS, (lambda mean: mean[..., -1:]) if sums else None
        )
        values = found.values[..., :-1] if sums else found.values
        return WithError(values, found.error.amax(-1))
    exact: Tensor = told()
    return exact.sum(0) if whole else exact


_SAID = {
    None: "nothing",
    "zero": "zeros",
    "mean": "its mean",
    "exchanged": "the string with types exchanged",
    "others": "other strings of the case with types exchanged, drawn at random",
}

feature_ablation_zero, feature_ablation_mean, feature_ablation_exchanged = (
    from_captum(FeatureAblation, baseline, masked=True, paper="Zeiler and Fergus 2014")
    for baseline in ("zero", "mean", "exchanged")
)
integrated_gradients_zero, integrated_gradients_mean, integrated_gradients_exchanged = (
    from_captum(IntegratedGradients, baseline, paper="Sundararajan et al. 2017")
    for baseline in ("zero", "mean", "exchanged")
)
shapley_values = from_captum(
    ShapleyValueSampling,
    "exchanged",
    masked=True,
    n_samples=10,
    perturbations_per_eval=16,
    paper="Castro et al. 2009",
)
# captum draws the baseline of each sample from all of those that it is given
gradient_shap = from_captum(
    GradientShap, "exchanged", said="others", n_samples=10, paper="Lundberg and Lee 2017"
)
input_x_gradient = from_captum(InputXGradient, None, paper="Shrikumar et al. 2016")
