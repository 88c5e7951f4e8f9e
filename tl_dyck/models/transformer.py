"""A HookedTransformer whose embedding and blocks may be those of Wen et al. 2023."""

from __future__ import annotations

import copy
import warnings
from typing import Any, SupportsIndex, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import trange
from transformer_lens.utilities import USE_DEFAULT_VALUE, sample_logits

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_number
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import build_tokenizer
from tl_dyck.language.symbols import needs_stack
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.embeddings import FIXED_POSITIONS, DepthEmbed
from tl_dyck.models.hooked.own import HookedTransformer

# More than rounding in float32, which TransformerLens computes in: nats.
_PROCESSED = 1e-2


@final
@checked
class DyckTransformer(HookedTransformer):
    """A HookedTransformer for a language, with its tokenizer.

    On TransformerLens 3 it is a subclass of TransformerLens' own; on both, methods, hook points and
    cache entries have the names and numbers of `tl_dyck.models.hooked.own`, which are those of 3:
    `run_with_cache`, `run_with_hooks`, `to_tokens`, `to_str_tokens`, `generate`, `loss_fn`,
    `blocks.0.attn.hook_pattern`, … What differs:

    - a minimal first layer ("onehot", "split", "yao") is a `DepthEmbed` in place of `embed`: it has
      a `table`, no `W_E`, and needs whole strings;
    - there is no key-value cache: `generate` re-reads the whole string for each new token;
    - strings and tokens that are longer than `n_ctx` are refused, never cut.

    Build it with `build_model`.
    """

    cfg: DyckTransformerConfig
    tokenizer: Any

    def __init__(self, cfg: DyckTransformerConfig) -> None:
        super().__init__(cfg, tokenizer=build_tokenizer(cfg.language), move_to_device=False)
        self.language = cfg.language
        if cfg.embedding != "token":
            embed = DepthEmbed(cfg.embedding, cfg.language, cfg.d_model, cfg.dtype)
            self._modules["embed"] = embed.eval()
            self.setup()  # mod_dict knows what was swapped in
        self.to(str(cfg.device), print_details=False)

    def __getattr__(self, name: str) -> Any:
        """Say why a model with a minimal first layer has no ``W_E``."""
        if name == "W_E" and self.cfg.embedding != "token":
            raise AttributeError(
                f"{self.cfg.model_name!r} has no W_E: its minimal first layer is a fixed table of "
                "tokens and depths, model.embed.table [d_vocab, max_depth + 1, d_model]"
            )
        return super().__getattr__(name)

    @checked
    def process_weights_(self, *args: Any, **kwargs: Any) -> None:
        """As `HookedTransformer.process_weights_`, with a warning if it changes predictions.

        Releases of TransformerLens fold the weights of LayerNorms wrongly;
        ``process_weights_(fold_ln=False)`` centres and changes none.
        """
        tokens = self.to_tokens(self.language.probe_string, truncate=True)
        with torch.no_grad():
            before = self(tokens).log_softmax(-1)
            super().process_weights_(*args, **kwargs)
            change = float((self(tokens).log_softmax(-1) - before).abs().max())
        if change > _PROCESSED:
            warnings.warn(
                f"process_weights_ of this TransformerLens changed log-probabilities by "
                f"{change:.2g}: it folds LayerNorms with weights of their own wrongly; load the "
                "model again, and call process_weights_(fold_ln=False)",
                stacklevel=2,
            )

    @checked
    def to_tokens(self, input: str | list[str], *args: Any, **kwargs: Any) -> Tensor:
        """As `HookedTransformer.to_tokens`, but too long a string is an error.

        Unless, that is, `truncate=True`.
        """
        if isinstance(input, (list, tuple)) and not input:
            raise ValueError("input must be a text or a list of them, got an empty list")
        kwargs.setdefault("truncate", False)
        tokens: Tensor = super().to_tokens(input, *args, **kwargs)
        self._check_length(tokens)
        return tokens

    def _check(self, tokens: Tensor) -> None:
        self.language.check_tokens(tokens)  # an index of -1 would pass in silence
        self._check_length(tokens)

    @checked
    @torch.inference_mode()
    def generate(
        self,
        input: str | list[str] | Tensor = "",
        max_new_tokens: SupportsIndex = 10,
        stop_at_eos: bool = True,
        eos_token_id: int | list[int] | None = None,
        do_sample: bool = True,
        top_k: int | None = None,
        top_p: float | None = None,
        temperature: float = 1.0,
        freq_penalty: float = 0.0,
        use_past_kv_cache: bool = True,
        prepend_bos: bool | None = USE_DEFAULT_VALUE,
        padding_side: str | None = USE_DEFAULT_VALUE,
        return_type: str = "input",
        verbose: bool = False,
        stop: str | None = None,
    ) -> Any:
        """Continue strings, as `HookedTransformer.generate` does, with these differences.

        Each new token is predicted from the whole string, exactly as ``model(string)`` predicts it,
        for the embedding of a bracket may depend on its depth. So there is no key-value cache, nor
        padding for the model to see. Prompts are strings or tokens, not embeddings.

        Args:
            input: a string, a list of strings, or tokens ``[batch, pos]`` (BOS first).
            max_new_tokens: number of tokens to add, at least one.
            stop_at_eos: stop when every string has ended, which the token `eos_token_id` shows; the
                rest is filled up.
            eos_token_id: one or several tokens; None for the tokenizer's, which is BOS.
            do_sample: draw from the model's distribution, with torch's global generator; False for
                the likeliest.
            top_k: draw from the k likeliest only.
            top_p: draw from the likeliest that hold this probability only.
            temperature: divides the logits; 0 for the likeliest token.
            freq_penalty: subtracted from a token's logit for each time that it occurs.
            use_past_kv_cache: TransformerLens' argument; there is none, so it changes nothing.
            prepend_bos: whether to put BOS in front of strings; the default is the configuration's.
            padding_side: "left", or the default: what is written follows its prompt.
            return_type: "str", "tokens", or "input" for what the input was. Tokens of a list are
                padded on the left.
            verbose: whether to show a progress bar.
            stop: "balanced" ends each string with the token that closes its last open bracket; the
                rest is filled up. None for no other end than `eos_token_id`.

        Raises:
            ValueError: prompt and new tokens together exceed `n_ctx`, or an argument is out of
                range.
            NoStackError: `stop` of a language without brackets.
        """
        if return_type not in ("input", "str", "tokens"):
            raise unknown_name("return_type", return_type, ("input", "str", "tokens"))
        max_new_tokens = check_integer("max_new_tokens", max_new_tokens, least=1)
        check_drawing(top_k, top_p, temperature, freq_penalty)
        check_ends(eos_token_id, self.cfg.d_vocab)
        self._check_way(stop, padding_side)
        tokens, mask = self._prompts(input, prepend_bos)
        self._check_length(tokens, max_new_tokens)
        bos = self.language.bos_token
        ends = torch.tensor(bos if eos_token_id is None else eos_token_id, device=tokens.device)
        filling = eos_token_id if isinstance(eos_token_id, int) else bos
        finished = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        for _ in trange(max_new_tokens, disable=not verbose):
            logits = self(tokens, attention_mask=mask)[:, -1]
            if do_sample:
                new = sample_logits(
                    logits,
                    top_k=top_k,
                    top_p=top_p,
                    temperature=temperature,
                    freq_penalty=freq_penalty,
                    tokens=tokens,
                )
            else:
                new = logits.argmax(-1)
            if stop_at_eos or stop:
                new = new.masked_fill(finished, filling)
            if stop_at_eos:
                finished |= torch.isin(new, ends)
            tokens = torch.cat([tokens, new[:, None]], dim=1)
            mask = None if mask is None else torch.cat([mask, torch.ones_like(new)[:, None]], dim=1)
            if stop:
                closes = (new < bos) & (new % 2 == 1)
                finished |= closes & (self.language.depth(tokens)[:, -1] <= 0)
            if finished.all():
                break
        if return_type == "tokens" or (return_type == "input" and isinstance(input, Tensor)):
            return tokens
        texts = [self.language.to_string(row.cpu()) for row in tokens]
        return texts[0] if len(texts) == 1 else texts

    def _check_way(self, stop: str | None, padding_side: str | None) -> None:
        if stop is not None:
            if stop != "balanced":
                raise unknown_name("stop", stop, ("balanced",))
            needs_stack(self.language, 'generate(stop="balanced") is')
        if padding_side not in (USE_DEFAULT_VALUE, None, "left"):
            raise ValueError(
                f"padding_side must be 'left', so that new tokens follow the prompt, "
                f"not {padding_side!r}"
            )

    def _prompts(self, input: Any, prepend_bos: bool | None) -> tuple[Tensor, Tensor | None]:
        """Tokens, padded on the left, and which of them are no padding (None if all are)."""
        if isinstance(input, Tensor):
            if input.ndim != 2:
                raise ValueError(
                    "give tokens as [batch, pos], for example tokens[None], "
                    f"not {list(input.shape)}"
                )
            return self.language.check_tokens(input).to(self.cfg.device), None
        if not input and not isinstance(input, str):
            raise ValueError("there is no prompt in the list; for the empty string, give ['']")
        rows = [
            self.to_tokens(text, prepend_bos=prepend_bos)[0]
            for text in ([input] if isinstance(input, str) else input)
        ]
        if not all(len(row) for row in rows):
            raise ValueError(
                "an empty prompt without BOS leaves the model nothing to read; "
                "give prepend_bos=True"
            )
        tokens = pad_sequence(
            # padding goes to the end, so rows are turned round before and after: to the left
            [row.flip(0) for row in rows],
            batch_first=True,
            padding_value=self.language.bos_token,
        ).flip(1)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).flip(1)
        return tokens, None if bool(mask.all()) else mask

    def _check_length(self, tokens: Tensor, extra: int = 0) -> None:
        # of embeddings [batch, pos, d_model] the positions are in the middle
        length = tokens.shape[1 if tokens.ndim == 3 else -1] + extra
        is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined]
        if not is_traced and length > self.cfg.n_ctx:  # when traced, sizes are tensors
            raise ValueError(
                f"{length} tokens (BOS included) exceed this model's n_ctx={self.cfg.n_ctx}; "
                f"shorten the string, or build the model with get_config(…, n_ctx={length})"
            )


def check_drawing(
    top_k: int | None, top_p: float | None, temperature: float, freq_penalty: float
) -> None:
    """Refuse what `generate` cannot draw by; the names are its arguments'."""
    if top_k is not None:
        check_integer("top_k", top_k, least=1)
    if top_p is not None:
        check_number("top_p", top_p, least=0.0, most=1.0, above=True)
    check_number("temperature", temperature, least=0.0)
    check_number("freq_penalty", freq_penalty, least=0.0)


def check_ends(eos_token_id: int | list[int] | None, d_vocab: int) -> None:
    """Refuse tokens that no model of so many can write."""
    ends = [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
    if ends is not None and not ends:
        raise ValueError("eos_token_id must be a token or several, got an empty list")
    for token in ends or ():
        check_integer("eos_token_id", token, least=0, most=d_vocab - 1)


@checked
def build_model(config: DyckTransformerConfig, seed: SupportsIndex = 0) -> DyckTransformer:
    """Build a model with freshly initialised weights.

    Weights are drawn as TransformerLens' "gpt2" mode has it: normal with standard deviation
    `config.initializer_range` (0.8/√d_model by default), biases 0, LayerNorm scales 1; from a
    generator of their own, so the same seed gives the same weights whatever happened before, and
    global random state is neither read nor changed.

    Args:
        config: from `get_config`, or made by hand.
        seed: of the initialisation.

    Returns:
        A HookedTransformer, on `config.device`.

    Raises:
        TypeError: `config` is not a `DyckTransformerConfig`.
    """
    # TransformerLens changes a model's cfg, for example in to(device)
    model = DyckTransformer(copy.deepcopy(config))
    generator = torch.Generator().manual_seed(check_integer("seed", seed, -(2**63), 2**64 - 1))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            kind = name.rpartition(".")[2]
            if kind.startswith("W_"):
                values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(values * config.initializer_range)
            else:
                # scales of norms are called w; all else here is a bias
                parameter.fill_(1.0 if kind == "w" else 0.0)
        _fix_constants(model)
    return model


def _fix_constants(model: DyckTransformer) -> None:
    """Set and freeze what the configuration says is not trained."""
    cfg = model.cfg
    if cfg.position != "learned":
        table = FIXED_POSITIONS[cfg.position](cfg.n_ctx, cfg.d_model, cfg.t_max)
        model.pos_embed.W_pos.copy_(table)
        model.pos_embed.W_pos.requires_grad_(False)
    if cfg.attention == "uniform":
        for block in model.blocks:
            for parameter in (block.attn.W_Q, block.attn.W_K, block.attn.b_Q, block.attn.b_K):
                parameter.zero_().requires_grad_(False)
