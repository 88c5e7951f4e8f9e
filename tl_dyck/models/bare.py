"""A model that reads no BOS, as one that does: the place of BOS is there, and nobody sees it.

All that measures here gives strings with BOS first. So such a model gets a token BOS and a position
before its own, whose key no later query sees; the rest computes what it did. Nothing was read
there, so logits at BOS are NaN.

Knows: how the two forms become one another.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, final

import torch
from torch import Tensor

from tl_dyck.language.symbols import token_ends
from tl_dyck.language.vocabulary import VocabularyError
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.models.hooked.own import HookedTransformer


@final
class BareTransformer(HookedTransformer):
    """A HookedTransformer of strings that start with a BOS of which it knows nothing."""

    def __init__(self, cfg: Any, **how: Any) -> None:
        super().__init__(cfg, **how)
        self.cfg.hides_bos = True

    def forward(
        self, input: Any, return_type: str | None = "logits", *args: Any, **how: Any
    ) -> Any:
        """As of any HookedTransformer; logits at the first position are NaN.

        Raises:
            VocabularyError: a string does not start with BOS.
        """
        found = super().forward(input, return_type, *args, **how)
        if return_type != "logits" or how.get("stop_at_layer") is not None:
            return found
        return torch.cat([torch.full_like(found[:, :1], torch.nan), found[:, 1:]], 1)

    def loss_fn(
        self,
        logits: Tensor,
        tokens: Tensor,
        attention_mask: Tensor | None = None,
        per_token: bool = False,
    ) -> Tensor:
        """The cross-entropy of each next token but the first, which nothing is read before."""
        mask = None if attention_mask is None else attention_mask[:, 1:]
        return super().loss_fn(logits[:, 1:], tokens[:, 1:], mask, per_token)

    def plain(self) -> HookedTransformer:
        """The model without the place of BOS; tokens keep their ids, and BOS is one of no use."""
        options = {each.name: getattr(self.cfg, each.name) for each in fields(self.cfg)}
        kind = type(self.cfg)
        cfg = kind(**{**_made(kind, options), "n_ctx": self.cfg.n_ctx - 1})
        found = HookedTransformer(cfg, move_to_device=False)
        with torch.no_grad():
            for name, weight in found.named_parameters():
                mine = self.get_parameter(name)
                weight.data = (mine[1:] if name == _POSITIONS else mine).detach().clone()
        found.cfg.predicts = self.cfg.predicts
        return found

    def _check(self, tokens: Tensor) -> None:
        bos = getattr(self.cfg, "language", None) and self.cfg.language.bos_token
        first = tokens[..., :1]
        if bos is not None and token_ends(first) not in (None, (bos, bos)):
            raise VocabularyError(
                f"a string starts with token {int(first[first != bos][0])}, not with BOS, {bos}: "
                "strings have it first here, of models that read none as well; it is hidden from "
                "them"
            )


_POSITIONS, _TOKENS = "pos_embed.W_pos", "embed.W_E"


def with_bos(model: Any) -> BareTransformer:
    """A copy of a HookedTransformer with one token more, the last, and one position before all."""
    options = {each.name: getattr(model.cfg, each.name) for each in fields(model.cfg)}
    more = {"n_ctx": model.cfg.n_ctx + 1, "d_vocab": model.cfg.d_vocab + 1}
    found = bare_of({**_made(HookedTransformerConfig, options), **more})
    with torch.no_grad():
        for name, weight in found.named_parameters():
            theirs = model.get_parameter(name).detach()
            row = torch.zeros_like(theirs[:1])
            if name == _POSITIONS:
                theirs = torch.cat([row, theirs])
            elif name == _TOKENS:
                theirs = torch.cat([theirs, row])
            weight.data = theirs.clone()
    return found.eval()


def bare_of(options: Mapping[str, Any]) -> BareTransformer:
    """Without its weights, of the options that it has with BOS."""
    cfg = HookedTransformerConfig(**options)
    return BareTransformer(cfg, move_to_device=False)


def _made(kind: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Of options those that one of this kind is made with, and nothing is drawn."""
    known = {each.name for each in fields(kind) if each.init}
    found = {name: copy.deepcopy(value) for name, value in options.items() if name in known}
    return {**found, "init_weights": False, "seed": None}
