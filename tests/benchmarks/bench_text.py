"""What robust training costs: seconds an epoch of each objective, as multiples of a clean epoch.

Sentences are made up (6,920 of 2 to 50 words, from a vocabulary of 13,840, as many as SST2 has;
eight synonyms), Sentences are made up (6,920 of 2 to 50 words from a vocabulary of 13,840, as many
as SST2 has; eight synonyms each), The floor of "worst" is a second forward and backward pass, on
the worst strings: twice a clean epoch.

Run with ``python tests/benchmarks/bench_text.py --batches 20``.
"""

from __future__ import annotations

import argparse
import os
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import torch.nn.functional as F

from tl_dyck.models.text import TextConfig, build_text_model
from tl_dyck.text import Attack, IntervalBound, text_space
from tl_dyck.text.edits import BatchEdits, pad, random_strings
from tl_dyck.text.training import text_logits

SENTENCES, WORDS, BATCH = 6920, 13_840, 64
MODELS = {
    "attention, 1 head, d=32": {"d_model": 32},
    "ReLU MLP, 2 heads, d=64": {"d_model": 64, "n_heads": 2, "d_mlp": 64},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--space", default="dup:2,del:2,sub:2")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    words = ("<unk>", "<cls>", "a", "and", "the", "of", "to", *(f"w{i}" for i in range(WORDS - 7)))
    rng = np.random.default_rng(0)
    synonyms = {word: tuple(words[i] for i in rng.integers(7, WORDS, 8)) for word in words[7:]}
    frequency = 1 / np.arange(10, WORDS + 8)
    frequency /= frequency.sum()
    print(
        f"{SENTENCES:,} sentences an epoch; {arguments.space}, eight synonyms a word; "
        "processor time, median batch"
    )
    for name, fields in MODELS.items():
        config = TextConfig(words=words, **fields)
        model = build_text_model(config)
        edits = BatchEdits.of(text_space(arguments.space, config, synonyms, 8), config)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        attack, bound = Attack(model, edits, rounds=3), IntervalBound(model, edits)
        taken: dict[str, list[float]] = {"clean": [], "augment": [], "worst": [], "ibp": []}
        for _ in range(arguments.batches):
            length = int(rng.integers(4, 40))  # sentences of a batch are of similar length
            rows = [
                [
                    *rng.choice(np.arange(2, WORDS), size=int(n), p=frequency).tolist(),
                    config.cls_token,
                ]
                for n in rng.integers(max(2, length - 3), length + 4, size=BATCH)
            ]
            labels = torch.from_numpy(rng.integers(2, size=BATCH))
            for objective, times in taken.items():
                start = process_time()
                loss = F.cross_entropy(text_logits(model, rows), labels)
                if objective == "augment":
                    loss = loss + F.cross_entropy(
                        text_logits(model, random_strings(edits, rows, rng)), labels
                    )
                elif objective == "worst":
                    loss = loss + F.cross_entropy(
                        text_logits(model, attack(*pad(rows), labels)[0]), labels
                    )
                elif objective == "ibp":
                    loss = loss + F.cross_entropy(-bound(*pad(rows), labels), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                times.append(process_time() - start)
        clean = float(np.median(taken["clean"]))
        print(f"\n{name}: a clean epoch takes {clean * SENTENCES / BATCH:.1f} s")
        for objective, times in taken.items():
            print(f"  {objective:<8}{np.median(times) / clean:6.1f} times a clean epoch")


if __name__ == "__main__":
    main()
