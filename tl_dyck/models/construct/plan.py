"""How a target is laid out in a large random network, and such a network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.transformer import DyckTransformer, build_model

# coordinates to choose from for each token and each logit, so that its one random weight is not
# tiny
_CHOICES = 4

_MOST_ITEMS = 1000  # of which 2^-items is nothing
# spare layers: each is as large as all the rest needs, and pruned to the identity
_MOST_LAYERS = 100


@final
@dataclass(frozen=True)
class Plan:
    """Assignment of the random network's coordinates and blocks to those of the target.

    The first coordinates are the target's; then one per token (token embeddings only), one per
    hidden unit of each layer, one per logit. A layer of the target takes two blocks: attention and
    the first half of the MLP, then the second half. A block before them makes the embedding, one
    after them the logits. All other blocks are pruned to the identity.

    Attributes:
        n_layers: of the target, as are the next four.
        n_heads: see there.
        d_model: see there.
        d_mlp: see there.
        token_embedding: whether the embedding has weights; a depth embedding is a constant and
            stays as it is.
        d_vocab: number of tokens.
        idle: a block to be left out, or None.
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_mlp: int
    token_embedding: bool
    d_vocab: int
    idle: int | None = None

    @staticmethod
    def of(*targets: DyckTransformer, idle: int | None = None) -> Plan:
        """A plan that suits every one of some targets."""
        sizes = {
            name: max(getattr(target.cfg, name) for target in targets)
            for name in ("n_layers", "n_heads", "d_model", "d_mlp")
        }
        cfg = targets[0].cfg
        return Plan(
            **sizes, token_embedding=cfg.embedding == "token", d_vocab=cfg.d_vocab, idle=idle
        )

    @property
    def tokens(self) -> slice:
        """Coordinates that tokens are written to."""
        return slice(self.d_model, self.d_model + self._token_coordinates)

    def hidden(self, layer: int) -> slice:
        """Coordinates of the hidden units of a layer."""
        first = self.d_model + self._token_coordinates + layer * self.d_mlp
        return slice(first, first + self.d_mlp)

    @property
    def logits(self) -> slice:
        """Coordinates that logits are read from."""
        return slice(self.width - _CHOICES * self.d_vocab, self.width)

    @property
    def width(self) -> int:
        """Coordinates needed."""
        return (
            self.d_model
            + self._token_coordinates
            + self.n_layers * self.d_mlp
            + _CHOICES * self.d_vocab
        )

    @property
    def depth(self) -> int:
        """Blocks needed."""
        # two blocks a layer, one for the logits; one if the embedding has weights, one if idle
        return 2 * self.n_layers + 1 + self.token_embedding + (self.idle is not None)

    @property
    def embedding_block(self) -> int:
        """The block that makes the embedding (token embeddings only)."""
        return self._block(0)

    def layer_blocks(self, layer: int) -> tuple[int, int]:
        """The two blocks of a layer."""
        first = self.token_embedding + 2 * layer
        return self._block(first), self._block(first + 1)

    @property
    def logit_block(self) -> int:
        """The block that makes the logits."""
        return self._block(self.token_embedding + 2 * self.n_layers)

    def fixed_by_layout(self, block: int) -> tuple[str, ...]:
        """Parameters of a block that keep something, the same whatever the target's weights."""
        first, second = zip(
            *(self.layer_blocks(layer) for layer in range(self.n_layers)), strict=True
        )
        if block in first:
            return ("attn.W_Q", "attn.b_Q", "attn.W_V", "attn.b_V", "mlp.W_in", "mlp.b_in")
        if block in second or block == self.logit_block:
            return ("mlp.W_in", "mlp.b_in")
        return ("mlp.W_in",) if self.token_embedding and block == self.embedding_block else ()

    def _block(self, role: int) -> int:
        return role + (self.idle is not None and role >= self.idle)

    def d_head(self, items: int) -> int:
        """Head dimensions for so many items per weight."""
        return (self.d_model + 1) * items

    def hidden_units(self, items: int) -> int:
        """MLP width for so many items of each sign per weight, and a tenth to choose from.

        A relu lets one sign through.
        """
        # two signs and a tenth more: 2.2, in whole numbers, rounded up
        return -(-22 * items * self._groups // 10)

    @property
    def _token_coordinates(self) -> int:
        return _CHOICES * self.d_vocab if self.token_embedding else 0

    @property
    def _groups(self) -> int:
        return max(self.d_model + 1, self.d_mlp + 1, self.d_vocab * self.token_embedding)

    def items(self, d_head: int, d_mlp: int) -> int:
        """Items per weight that a network has room for."""
        # the inverse of both, rounded down
        return min(d_head // (self.d_model + 1), 10 * d_mlp // (22 * self._groups))


@checked
def random_network(
    *targets: DyckTransformer,
    items: int = 24,
    seed: int = 0,
    scale: float = 1.0,
    spare_layers: int = 0,
) -> DyckTransformer:
    """A random network that is large enough for every one of some targets, float64.

    Args:
        *targets: see `prune_to`.
        items: random products for each weight of a target to be put together from; the error is
            about 2^-items.
        seed: of the weights.
        scale: all weights, biases included, are uniform between −scale and scale; the theorem
            has 1. A larger scale reaches larger target weights.
        spare_layers: more layers than are needed; pruned, they are the identity. See `twins`.

    Raises:
        ValueError: no target, or a size that is not positive.
    """
    if not targets:
        raise ValueError("random_network needs at least one target to be large enough for")
    spare_layers = check_integer("spare_layers", spare_layers, least=0, most=_MOST_LAYERS)
    items = check_integer("items", items, most=_MOST_ITEMS)
    if items < 1 or not 0 < scale < math.inf:
        raise ValueError(f"items and scale must be positive, got {items} and {scale}")
    plan = Plan.of(*targets)
    cfg = targets[0].cfg
    config = DyckTransformerConfig(
        model_name="random",
        n_types=cfg.n_types,
        max_depth=cfg.max_depth,
        brackets=cfg.language.alphabet,
        embedding=cfg.embedding,
        block="eq6",
        ln_c=cfg.ln_c,
        act_fn="relu",
        n_layers=plan.depth + spare_layers,
        n_heads=plan.n_heads,
        d_model=plan.width,
        d_head=plan.d_head(items),
        d_mlp=plan.hidden_units(items),
        n_ctx=max(target.cfg.n_ctx for target in targets),
        dtype=torch.float64,
        device=cfg.device,
    )
    model = build_model(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                draw = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                # [0, 1) to [−scale, scale)
                parameter.copy_((2 * draw - 1) * scale)
    return model
