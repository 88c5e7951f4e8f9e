"""Contrastive regularisation: a closed string put before should not change what follows.

Wen et al. 2023, Eq. 22: with p_{r,i} = r nested pairs of brackets of type i,

    R = E_{x,r,i} ‖T(p_{r,i} ⊕ x)|_x − T(x)‖²,   r uniform in 1..D, i uniform over the types.

A model whose attention is balanced has R = 0 with Eq. 6 (Theorem 1), so R pushes towards balance,
and with it towards accuracy at lengths that training never shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.language import DyckLanguage


@final
@checked
@dataclass(frozen=True)
class ContrastiveRegularizer:
    """R of Eq. 22, estimated on a batch with one fresh prefix per string.

    T(x) are the logits at the brackets of x, those at BOS not included. The paper calls R the mean
    squared error, so the squares are averaged over the brackets of the batch and over the
    vocabulary; its formula, as restored, sums them, which is the same but for a constant factor in
    the weight. Gradients flow through both terms.

    The prefix is closed before x begins, so the depth of no bracket of x changes, and a prefix of
    at most D pairs never exceeds the depth D of the language: nothing has to be cut or rejected.
    What changes is the position of every bracket of x, by 2r; with position encodings, R also asks
    for logits that do not depend on them.

    Attributes:
        language: whose brackets the prefixes are made of.
    """

    language: DyckLanguage

    @checked
    def prefixed(
        self, tokens: Int[Tensor, "batch pos"], *, generator: torch.Generator
    ) -> tuple[Int[Tensor, "batch longer"], Int[Tensor, " batch"]]:
        """Put r nested pairs of one type between BOS and each string.

        r and type are drawn anew for each.

        Args:
            tokens: BOS first; BOS at the end is filling.
            generator: on the CPU.

        Returns:
            the longer strings, and by how many positions each was shifted (2r).
        """
        batch, length = self.language.check_tokens(tokens).shape
        pairs = torch.randint(1, self.language.max_depth + 1, (batch,), generator=generator)
        kind = torch.randint(self.language.n_types, (batch,), generator=generator)
        pairs, kind = pairs.to(tokens.device), kind.to(tokens.device)
        here = torch.arange(length + 2 * int(pairs.max()), device=tokens.device)
        source = here - 2 * pairs[:, None]  # where a token of x comes from
        # places 1 to r open, r + 1 to 2r close
        prefix = 2 * kind[:, None] + (here > pairs[:, None]).long()
        moved = tokens.gather(1, source.clamp(0, length - 1))
        # source 0 is BOS of x, whose place the last bracket of the prefix takes
        longer = torch.where(source > 0, moved, prefix)
        filling = (here == 0) | (source >= length)
        return longer.masked_fill(filling, self.language.bos_token), 2 * pairs

    def __call__(
        self,
        model: Callable[[Tensor], Tensor],
        tokens: Int[Tensor, "batch pos"],
        *,
        generator: torch.Generator,
    ) -> Float[Tensor, ""]:
        """R on a batch, to be added to the loss with a weight of your choice.

        Args:
            model: maps tokens to logits; a `HookedTransformer` or ``partial(lean_logits, model)``.
                It must be able to read 2 D tokens more than there are.
            tokens: strings on the model's device, BOS first; BOS at the end is filling.
            generator: of the prefixes, on the CPU.

        Raises:
            ValueError: the tokens do not begin with BOS, or hold nothing else.
        """
        brackets = tokens[:, 1:] != self.language.bos_token
        if not (tokens[:, 0] == self.language.bos_token).all() or not brackets.any():
            raise ValueError(
                f"every string must begin with BOS ({self.language.bos_token}), "
                "and brackets must follow"
            )
        longer, shift = self.prefixed(tokens, generator=generator)
        logits, after = model(tokens), model(longer)
        # from 1: not at BOS
        where = torch.arange(1, tokens.shape[1], device=tokens.device) + shift[:, None]
        after = after.gather(1, where[:, :, None].expand(-1, -1, after.shape[-1]))
        return (after - logits[:, 1:]).square()[brackets].mean()
