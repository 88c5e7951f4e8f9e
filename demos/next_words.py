"""Does a small language model keep its next word when words before it are changed? Decided exactly.

Run it: ``python demos/next_words.py tinyshakespeare.txt`` (any text will do; ten minutes on 2 CPU
cores, nearly all of it training). A tokenizer of 4,096 tokens and a model of one layer are trained
on the text: d_model 256, eight heads, GELU, LayerNorm, learned positions, in plain TransformerLens.
Then prompts of 20 words or so from the last twentieth, which it has not seen: is its next token
the same on every text in which some words are replaced, doubled, dropped or mistyped?
"""

# %% What is asked.
import argparse
import re
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tl_dyck.certify import Asker, certify_edits, word_space
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

warnings.simplefilter("ignore", DeprecationWarning)
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", help="a text to train on")
parser.add_argument("--steps", type=int, default=1200, help="of training")
parser.add_argument("--vocabulary", type=int, default=4096)
parser.add_argument("--width", type=int, default=256, help="d_model")
parser.add_argument("--prompts", type=int, default=100)
parser.add_argument("--words", type=int, default=15, help="in a prompt")
parser.add_argument("--seconds", type=float, default=10.0, help="for each verdict")
parser.add_argument("--save", help="folder to keep the weights in, or to take them from")
said = parser.parse_args()
text = Path(said.file).read_text(encoding="utf-8")
CONTEXT = 64

# %% The tokenizer: byte-level BPE, as GPT-2's.
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.train_from_iterator(
    [text],
    trainers.BpeTrainer(
        vocab_size=said.vocabulary,
        special_tokens=["<bos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    ),
)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<bos>")
BOS = tokenizer.bos_token_id
cut = int(0.95 * len(text))
seen, unseen = (torch.tensor(bpe.encode(part).ids) for part in (text[:cut], text[cut:]))

# %% The model, as TransformerLens has it.
model = HookedTransformer(
    HookedTransformerConfig(
        n_layers=1, d_model=said.width, n_heads=8, d_head=said.width // 8, d_mlp=4 * said.width,
        n_ctx=CONTEXT, d_vocab=len(tokenizer), act_fn="gelu", normalization_type="LN", seed=0,
        device="cpu",
    )
)  # fmt: skip


def batch(tokens: torch.Tensor, n: int, generator: torch.Generator) -> torch.Tensor:
    at = torch.randint(len(tokens) - CONTEXT, (n, 1), generator=generator)
    rows = tokens[at + torch.arange(CONTEXT - 1)]
    return torch.cat([torch.full((n, 1), BOS), rows], dim=1)


def train(steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.1
    )
    for _ in range(steps):
        loss = model(batch(seen, 32, generator), return_type="loss")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


weights = Path(said.save or ".") / "next_words.pt"
if said.save and weights.exists():
    model.load_state_dict(torch.load(weights, weights_only=True))
else:
    train(said.steps)
    if said.save:
        weights.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), weights)
with torch.no_grad():
    rows = batch(unseen, 64, torch.Generator().manual_seed(1))
    logits = model(rows)
    right = (logits[:, :-1].argmax(-1) == rows[:, 1:]).float().mean()
    loss = model.loss_fn(logits, rows)
print(f"{len(tokenizer):,} tokens, {len(seen):,} to learn from; on unseen text: loss {loss:.2f}, "
      f"next token right {right:.1%}")  # fmt: skip

# %% Words that stand in for one another: those that the model embeds alike.
counts = Counter(word.lower() for word in re.findall(r"\w+", text[:cut]))
common = [word for word, count in counts.most_common() if count >= 20 and word.isalpha()]
with torch.no_grad():
    embedded = torch.stack(
        [
            model.W_E[tokenizer.encode(f" {word}", add_special_tokens=False)].mean(0)
            for word in common
        ]
    )
    alike = torch.nn.functional.normalize(embedded, dim=1)
    nearest = (alike @ alike.T).topk(9).indices[:, 1:].tolist()
substitutes = {word: [common[i] for i in near] for word, near in zip(common, nearest, strict=True)}

# %% Verdicts.
SPACES = {
    "1 word mistyped": {"typo": 1},
    "1 word doubled, 1 dropped": {"dup": 1, "drop": 1},
    "1 of 8 words for 1": {"sub": 1},
    "1 of 8 words for each of 2": {"sub": 2},
    "1 of 8 words for each of 3": {"sub": 3},
}
asker = Asker(model)
generator = np.random.default_rng(0)
starts = [match.start() for match in re.finditer(r"(?<=\n)\w", text[cut:])]
prompts = []
for start in generator.permutation(starts):
    words = list(re.finditer(r"\S+", text[cut + start :]))[: said.words]
    prompts.append(text[cut + start : cut + start + words[-1].end()])
    if len(prompts) == said.prompts:
        break
print(f"\n{len(prompts)} prompts of {said.words} words, {said.seconds:g} s each; seconds: median, "
      "95 %\n")  # fmt: skip
for name, budgets in SPACES.items():
    found, seconds, sizes = [], [], []
    for prompt in prompts:
        of = word_space(tokenizer, prompt, words=substitutes, before=[BOS], **budgets)
        sizes.append(of.space.size(of.tokens))
        began = time.perf_counter()
        verdict = certify_edits(asker, of.tokens, None, of.space, time_limit=said.seconds)
        seconds.append(time.perf_counter() - began)
        found.append(of.translate(verdict))
    told = Counter(verdict.status for verdict in found)
    print(f"{name:28} {np.median(sizes):9,.0f} texts: {told['proved']:3} proved, "
          f"{told['refuted']:3} refuted, {told['open']:3} open; "
          f"{np.median(seconds):.2f}, {np.quantile(seconds, 0.95):.2f} s")  # fmt: skip
    if name.startswith("1 word mistyped"):
        shown = next((v for v in found if v.status == "refuted"), found[0])
        print(f"    for example: {shown.marked()!r}")
