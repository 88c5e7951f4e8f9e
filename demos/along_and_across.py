"""Why a long string goes wrong: do pairs move the answer along the axis between types, or across?

What matched pairs add to the attention output of a closing bracket is taken apart on long prefixes:
its part along the axis that tells two types of the bracket on top of the stack apart, and the rest.
The model then answers with one of the two alone. `pair_drift` predicts what happens along the axis;
where the other part counts as well, its prediction cannot be good, and that of `accuracy_at_length`
can, which takes all directions into account. Models that stop at a target and models whose learning
rate has come down to nothing differ in that:

    python demos/along_and_across.py
    python demos/along_and_across.py --steps 2000
"""

import argparse

import numpy as np
import torch

from tl_dyck import TrainConfig, accuracy_at_length, pair_drift, run_study
from tl_dyck.intervals import correlation, mean
from tl_dyck.probes.balance import state_contributions
from tl_dyck.reading.states import StateIndex
from tl_dyck.studies import Measurement, StudyConfig


class Prefixes:
    """Prefixes that end with a closing bracket which does not close the last open one.

    For each: how often it holds every state, how often its stack alone does, and a short prefix
    that ends in the same state.
    """

    def __init__(self, distribution, n, length, seed=0):
        language = self.language = distribution.language
        self.index = StateIndex(language)
        source = torch.Generator().manual_seed(seed)
        tokens = distribution.sample(n, length, mode="prefix", generator=source)
        bos = torch.full((n, 1), language.bos_token)
        tokens = torch.cat([bos, tokens], dim=1)
        depths = language.depth(tokens)
        asked = language.is_close(tokens[:, -1]) & (depths[:, -1] > 0)
        tokens, depths = tokens[asked], depths[asked]
        states = tokens * self.index.depths + depths
        n_states = (language.bos_token + 1) * self.index.depths
        held = torch.nn.functional.one_hot(states, n_states).double()
        self.all = held.sum(1)
        unmatched = language.matching(tokens) < 0  # BOS and what is on the stack
        self.stack = (held * unmatched[..., None]).sum(1)
        self.query, self.depth = states[:, -1], depths[:, -1]
        self.top = language.right_bracket(tokens)[:, -1] // 2
        self.other = (self.top + 1) % language.n_types
        self.last = tokens[:, -1]

    def __len__(self):
        return len(self.last)

    def short(self, depth):
        """Where this depth is asked for, and strings of that many open brackets and a pair."""
        rows = (self.depth == depth).nonzero()[:, 0]
        last = self.last[rows]
        opened = torch.zeros(len(rows), depth, dtype=torch.long)
        bos = torch.full((len(rows), 1), self.language.bos_token)
        return rows, torch.cat([bos, opened, last[:, None] - 1, last[:, None]], dim=1)

    @torch.no_grad()
    def right(self, model, outputs):
        """How often the right type beats the other, for given attention outputs of the query."""
        better = torch.zeros(len(self), dtype=torch.bool)
        block = model.blocks[0]
        for depth in self.depth.unique().tolist():
            rows, tokens = self.short(depth)

            def replaced(attn_out, hook, rows=rows):
                attn_out[:, -1] = block.ln1_post(outputs[rows][:, None])[:, 0]
                return attn_out

            hooks = [("blocks.0.hook_attn_out", replaced)]
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[:, -1]
            answers = [2 * each[rows, None] + 1 for each in (self.top, self.other)]
            better[rows] = (logits.gather(1, answers[0]) > logits.gather(1, answers[1]))[:, 0]
        return better.double().mean().item()

    def taken_apart(self, model):
        """Accuracies with all that pairs add, with the part along the axis, and with the rest."""
        u = state_contributions(model)
        of_types = []
        for types in (self.top, self.other):
            asked = zip(types.tolist(), self.depth.tolist(), strict=True)
            of_types.append(u[self.query, [self.index.open(*each) for each in asked]])
        axis = of_types[0] - of_types[1]
        asked = u[self.query]
        both, stack = (
            torch.einsum("nk,nkd->nd", counts, asked) for counts in (self.all, self.stack)
        )
        pairs = both - stack
        along = (pairs * axis).sum(1, keepdim=True) / axis.square().sum(1, keepdim=True) * axis
        return {
            "all that pairs add": self.right(model, both),
            "along the axis alone": self.right(model, stack + along),
            "across it alone": self.right(model, both - along),
        }


def taken_apart(model, prefixes):
    """The same over prefixes of several lengths."""
    found = [each.taken_apart(model) for each in prefixes]
    sizes = [len(each) for each in prefixes]
    return {name: np.average([each[name] for each in found], weights=sizes) for name in found[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="minimal-onehot", help="a family with blocks of Eq. 6")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--steps", type=int, help="by default until 99 %% are right, as in a study")
    parser.add_argument("--length", type=int, default=450, help="and one more: of both parities")
    parser.add_argument("--prefixes", type=int, default=6000, help="of which a quarter are asked")
    parser.add_argument("--out", default="results/along-and-across")
    parser.add_argument("--jobs", type=int, help="worker processes; by default one per core")
    options = parser.parse_args()

    training, said = StudyConfig().training, "trained to the target"
    if options.steps is not None:
        training, said = TrainConfig(steps=options.steps, target=None), f"{options.steps} steps"
    config = StudyConfig(
        families=(options.family,),
        seeds=tuple(range(options.seeds)),
        training=training,
        measurement=Measurement(n_certified=0, decided_length=0),
    )
    folder = f"{options.out}/{options.family}-{options.steps or 'target'}"
    study = run_study(config, folder, n_jobs=options.jobs)
    law, lengths = study.task.distribution, [options.length, options.length + 1]
    prefixes = [Prefixes(law, options.prefixes // 2, length) for length in lengths]
    rows = []
    for seed in config.seeds:
        model = study.run(options.family, seed).model.double()
        forecast = accuracy_at_length(model, [length + 1 for length in lengths], law)
        rows.append(
            {
                **taken_apart(model, prefixes),
                "by pair_drift": pair_drift(model, law).accuracy(options.length),
                "by accuracy_at_length": forecast.closing_only,
            }
        )
    measured = np.array([row["all that pairs add"] for row in rows])
    print(f"\n{options.family}, {said}, {options.seeds} seeds")
    asked = sum(map(len, prefixes))
    print(f"{asked} prefixes of {lengths[0]} or {lengths[1]} brackets: accuracy between two types,")
    print("and its rank correlation with the first row over seeds")
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        found, tie = mean(values), correlation(values, measured, 2000)
        print(
            f"  {name:<24} {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]   "
            f"{tie.value:+.2f} [{tie.low:+.2f}, {tie.high:+.2f}]"
        )


if __name__ == "__main__":
    main()
