"""Edges: does what one part of a model hands to another carry? On every prefix, exactly.

Sources are the embedding and heads, readers are later heads (query, key and value at once), MLPs
and the unembedding. An edge is exchanged where its reader reads the stream as it would be had the
source put out what it does on the string with all types exchanged; all else, other readers of the
same source too, reads what it did (path patching of one edge, Goldowsky-Dill et al. 2023, arXiv
2304.05969). Where a norm stands behind the heads (Eq. 6), the source is exchanged before it.

Knows: what edges a plain decoder has, and what each hands on.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.judge.asked import exchange_types
from tl_dyck.judge.facts import Enumeration
from tl_dyck.judge.protocol import Fact, JudgeError, Question
from tl_dyck.reading.interventions import Hook, run

_READ = 1e-9  # what is less is rounding


@final
@dataclass(frozen=True)
class Edge:
    """From a source to a reader.

    Attributes:
        source: (layer, head); None for the embedding.
        reader: (layer, head) for a head, (layer, None) for an MLP, None for the unembedding.
    """

    source: tuple[int, int] | None
    reader: tuple[int, int | None] | None

    @property
    def kind(self) -> str:
        """``head → MLP`` and the like."""
        source = "embedding" if self.source is None else "head"
        if self.reader is None:
            return f"{source} → logits"
        return f"{source} → {'MLP' if self.reader[1] is None else 'head'}"

    def __str__(self) -> str:
        source = "embedding" if self.source is None else "L{}H{}".format(*self.source)
        if self.reader is None:
            return f"{source} → logits"
        layer, head = self.reader
        return f"{source} → {f'MLP{layer}' if head is None else f'L{layer}H{head}'}"


def reading(model: Any, edge: Edge) -> Float[Tensor, "d_model n"]:
    """The weights by which the reader of an edge reads the stream."""
    if edge.reader is None:
        unembed: Tensor = model.unembed.W_U.detach()
        return unembed
    layer, head = edge.reader
    block = model.blocks[layer]
    if head is None:
        units: Tensor = block.mlp.W_in.detach()
        return units
    attn = block.attn
    # side by side: what none of the three lets through, the head does not read
    return torch.cat([each[head].detach() for each in (attn.W_Q, attn.W_K, attn.W_V)], 1)


@final
class Edges:
    """The edges of a model, and what they hand on from strings to others.

    Args:
        model: with blocks "gpt" or "eq6", so that what a layer adds is a term of the stream; a copy
            of it is run.
        tokens: strings.
        other: those that sources are exchanged with, of the same shape.

    Attributes:
        model: the copy, whose readers have hooks of their own.
        edges: all.

    Raises:
        JudgeError: the model is of another build.
    """

    def __init__(
        self, model: Any, tokens: Int[Tensor, "n pos"], other: Int[Tensor, "n pos"]
    ) -> None:
        kind = getattr(model.cfg, "block", "gpt")
        if kind not in ("gpt", "eq6") or model.cfg.attn_only:
            raise JudgeError(f"edges are known of blocks 'gpt' and 'eq6' with an MLP, not {kind!r}")
        self.model, self.tokens = copy.deepcopy(model), tokens
        self.model.set_use_attn_in(True)
        self.model.set_use_hook_mlp_in(True)
        with torch.no_grad():
            (_, self._clean), (_, self._other) = (
                self.model.run_with_cache(strings) for strings in (tokens, other)
            )
        layers, heads = range(model.cfg.n_layers), range(model.cfg.n_heads)
        every = [(layer, head) for layer in layers for head in heads]
        self.edges = [Edge(None, reader) for reader in every]
        for source in every:
            # heads of later layers
            later = [reader for reader in every if reader[0] > source[0]]
            # the MLP of a head's own layer comes behind it; heads of that layer read beside it
            mlps = [(layer, None) for layer in layers if layer >= source[0]]
            self.edges += [Edge(source, reader) for reader in (*later, *mlps, None)]

    def source_change(self, edge: Edge) -> Float[Tensor, "n pos d_model"]:
        """By how much what the source writes changes, before any norm: what EAP takes it to be."""
        if edge.source is None:
            name = "hook_embed"
            embedded: Tensor = self._other[name] - self._clean[name]
            return embedded
        (layer, head), name = edge.source, f"blocks.{edge.source[0]}.attn.hook_z"
        change = (self._other[name] - self._clean[name])[:, :, head]
        found: Tensor = change @ self.model.blocks[layer].attn.W_O[head].detach()
        return found

    def stream_change(self, edge: Edge) -> Float[Tensor, "n pos d_model"]:
        """By how much the stream changes, with the norm that is behind the heads."""
        change = self.source_change(edge)
        if edge.source is None:
            return change
        block = self.model.blocks[edge.source[0]]
        # "gpt": what heads add is added as it is; "eq6" has LN_C behind all
        # heads of a layer together
        if not self.model.cfg.use_normalization_before_and_after:
            return change
        z = self._clean[f"blocks.{edge.source[0]}.attn.hook_z"]
        with torch.no_grad():
            before = torch.einsum("bphd,hdm->bpm", z, block.attn.W_O) + block.attn.b_O
            found: Tensor = block.ln1_post(before + change) - block.ln1_post(before)
        return found

    def reads(self, edge: Edge) -> tuple[str, int | None]:
        """Hook name of what the reader reads, and the index of a head in it."""
        if edge.reader is None:
            return f"blocks.{self.model.cfg.n_layers - 1}.hook_resid_post", None
        layer, head = edge.reader
        return f"blocks.{layer}.hook_{'mlp' if head is None else 'attn'}_in", head

    def is_read(self, edge: Edge) -> bool:
        """Whether the reader's weights let anything of the change through."""
        read = self.source_change(edge) @ reading(self.model, edge)
        return bool(read.abs().max() > _READ)

    def logits(
        self, edge: Edge, change: Float[Tensor, "n pos d_model"]
    ) -> Float[Tensor, "n pos d_vocab"]:
        """Logits if the reader of an edge reads so much more, and nobody else does."""
        name, head = self.reads(edge)

        def add(found: Tensor, hook: Any) -> Tensor:
            if head is None:
                return found + change
            found = found.clone()
            found[:, :, head] += change
            return found

        hooks: list[Hook] = [(name, add)]
        return run(self.model, self.tokens, hooks)


def edge_facts(world: Enumeration) -> list[Fact]:
    """Of every edge whose reader reads something of what is exchanged, "edge", by enumeration.

    Where weights between the two are zero nothing is asked: anybody sees that.

    Examples:
        >>> from tl_dyck.judge import make_case
        >>> case, _ = make_case("uniform", 0)
        >>> law, read = case.task.distribution, case.task.language
        >>> facts = edge_facts(Enumeration(case.model, read, 4, law))
        >>> {fact.question.kind for fact in facts}
        {'edge'}

    Raises:
        JudgeError: as `Edges`.
    """
    edges = Edges(world.model, world.tokens, exchange_types(world.language, world.tokens))
    facts = [
        world.breaks(
            Question("edge", (edge.source, edge.reader)),
            edges.logits(edge, edges.stream_change(edge)),
        )
        for edge in edges.edges
        if edges.is_read(edge)
    ]
    return [fact for fact in facts if fact is not None]
