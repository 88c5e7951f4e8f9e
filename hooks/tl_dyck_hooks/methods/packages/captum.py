"""Attribution by captum: any of its methods, of heads and of brackets, from three baselines.

A method of captum gets what all heads of a layer put out, or all embeddings, for its inputs, and
the logit difference of the right bracket for its forward function. It says how much of that each
input is responsible for, beside a baseline; what it says of a head or a bracket is summed up.

Knows: how an activation becomes an input of captum, and what its baselines are.
"""

from __future__ import annotations

from collections.abc import Callable
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

from tl_dyck.judge import Case, Method, combine_methods, score_brackets, score_heads
from tl_dyck.judge.facts import exchange_types
from tl_dyck_hooks.methods.packages import named
from tl_dyck_hooks.methods.shared import activations, logit_difference, z_names

Baseline = Literal["zero", "mean", "exchanged"]

_after = named("captum")
_STRINGS = 16  # of a case that are looked at: captum runs the model many times


def from_captum(
    method: Callable[[Callable[..., Tensor]], Any],
    baseline: Baseline | None = "zero",
    *,
    masked: bool = False,
    paper: str = "Kokhlikyan et al. 2020",
    **options: Any,
) -> Method:
    """A judged method, of heads and brackets, by a class of captum's.

    Examples:
        >>> from captum.attr import IntegratedGradients
        >>> from tl_dyck.judge import judge_method
        >>> mine = from_captum(IntegratedGradients, "exchanged", n_steps=10)
        >>> float(judge_method(mine, [("uniform", 0)]).loc["needed", "cases"])
        1.0

    Args:
        method: a class of `captum.attr` that takes a forward function.
        baseline: what an input is held against: zeros, its mean over strings and positions, or what
            it is on the string with all types exchanged. None for a method that has none.
        masked: whether it takes a ``feature_mask``; a head, or a bracket, is then one feature.
        paper: whom the method is after.
        **options: of its ``attribute``, such as ``n_steps``.
    """

    def attribute(case: Case, name: str, tokens: Tensor, right: Tensor, unit: int) -> Tensor:
        """What it says of each string and each unit (that axis: head or position), ``[n, unit]``.

        Of the logit differences at all positions of ``right``, or at the last.
        """
        inputs = activations(case.model, tokens, [name])[0]
        how = dict(options)
        if baseline == "zero":
            how["baselines"] = torch.zeros_like(inputs)
        elif baseline == "mean":
            how["baselines"] = inputs.mean((0, 1), keepdim=True).expand_as(inputs).clone()
        elif baseline == "exchanged":
            other = exchange_types(case.task.language, tokens)
            how["baselines"] = activations(case.model, other, [name])[0]
        shape = [-1 if axis == unit else 1 for axis in range(inputs.ndim)]
        if masked:
            units = torch.arange(inputs.shape[unit]).view(shape)
            how["feature_mask"] = units.expand(1, *inputs.shape[1:]).contiguous()

        def forward(values: Tensor, tokens: Tensor, right: Tensor) -> Tensor:
            hooks = [(name, lambda found, hook: values)]
            logits = case.model.run_with_hooks(tokens, fwd_hooks=hooks)
            asked = logits[:, -right.shape[1] :]
            return logit_difference(case.task.language, asked, right).sum(-1)

        with torch.enable_grad():
            found: Tensor = method(forward).attribute(
                inputs.requires_grad_(), additional_forward_args=(tokens, right), **how
            )
        over = [axis for axis in range(1, inputs.ndim) if axis != unit]
        return found.mean(over) if masked else found.sum(over)

    def heads(case: Case) -> list[Tensor]:
        tokens = case.tokens[:_STRINGS]
        right = case.task.language.right_bracket(tokens)
        found = [attribute(case, name, tokens, right, unit=2) for name in z_names(case)]
        return [each.sum(0).abs() / (right >= 0).sum() for each in found]

    def brackets(case: Case, tokens: Tensor, answers: Tensor) -> Tensor:
        return attribute(case, "hook_embed", tokens, answers[:, None], unit=1).abs()

    after = _after(paper)
    judged = combine_methods(
        score_heads(above=0.1, unit="logits", paper=after)(heads), score_brackets(after)(brackets)
    )
    judged.__doc__ = f"captum's {method.__name__}, held against {_SAID[baseline]}."
    return judged


_SAID = {
    None: "nothing",
    "zero": "zeros",
    "mean": "its mean",
    "exchanged": "the string with types exchanged",
}

feature_ablation_zero, feature_ablation_mean, feature_ablation_exchanged = (
    from_captum(FeatureAblation, baseline, masked=True, paper="Zeiler and Fergus 2014")
    for baseline in ("zero", "mean", "exchanged")
)
integrated_gradients_zero, integrated_gradients_mean, integrated_gradients_exchanged = (
    from_captum(IntegratedGradients, baseline, n_steps=20, paper="Sundararajan et al. 2017")
    for baseline in ("zero", "mean", "exchanged")
)
shapley_values = from_captum(
    ShapleyValueSampling, "exchanged", masked=True, n_samples=5, paper="Castro et al. 2009"
)
gradient_shap = from_captum(GradientShap, "exchanged", n_samples=5, paper="Lundberg and Lee 2017")
input_x_gradient = from_captum(InputXGradient, None, paper="Shrikumar et al. 2016")
