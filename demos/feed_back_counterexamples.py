"""How many counterexamples does it take until a model is proved?

A trained model with a minimal first layer is decided on every prefix up to a length. If a prefix is
wrong, it joins a pool, with the shortest and the likeliest wrong one; the model is trained on usual
strings and on the pool for some steps, and is decided again, until every prefix is proved or the
rounds are used up. Beside it: as many more steps without the pool.

    python demos/feed_back_counterexamples.py --seeds 40
"""

import argparse
import copy

import numpy as np
import torch
import torch.nn.functional as F

from tl_dyck import certify_language, get_config, load_task, train_seeds
from tl_dyck.certify.deadline import by_work
from tl_dyck.intervals import mean
from tl_dyck.kit.environment import one_thread
from tl_dyck.models import lean_logits
from tl_dyck.training import TrainConfig


def closing_loss(model, prefixes, language):
    """Cross-entropy of the right closing bracket after each prefix; 0 without any."""
    losses = []
    for prefix in prefixes:
        tokens = torch.tensor([[language.bos_token, *prefix]])
        right = tokens[0, int(language.top_of_stack(tokens)[0, -1])] + 1
        losses.append(F.cross_entropy(lean_logits(model, tokens)[0, -1], right))
    return torch.stack(losses).mean() if losses else torch.zeros(())


def more_training(model, task, pool, steps, rate, seed):
    """Train on usual strings, and as much on the pool."""
    language, generator = task.language, torch.Generator().manual_seed(seed)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=rate)
    for _ in range(steps):
        tokens = task.sample(32, generator=generator)
        logits = lean_logits(model, tokens[:, :-1]).transpose(1, 2)
        loss = F.cross_entropy(logits, tokens[:, 1:], ignore_index=language.bos_token)
        loss = loss + closing_loss(model, pool[-32:], language)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@by_work()
def decide(model, task, options):
    """Up to which length every prefix is proved, and wrong prefixes if there are any."""
    found = certify_language(
        model, task, options.length, until="refuted", time_limit=options.seconds
    )
    wrong = (found.likeliest, found.shortest, found.tightest)
    return found.proved_to, [each.tokens for each in wrong if each is not None]


@one_thread()
def feed_back(model, task, options, seed):
    """The provable length before, then after each round, and how many prefixes were fed back."""
    pool, lengths = [], []
    for step in range(options.rounds + 1):
        proved_to, wrong = decide(model, task, options)
        lengths.append(proved_to)
        if proved_to == options.length or step == options.rounds:
            break
        pool += [tokens for tokens in wrong if tokens not in pool]
        more_training(model, task, pool, options.steps, options.rate, seed * 1000 + step)
    return lengths, len(pool)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", default="minimal-onehot")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--length", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50, help="of training in a round")
    parser.add_argument("--first", type=int, default=1000, help="steps of the first training")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=20, help="at most, per decision")
    parser.add_argument("--jobs", type=int, help="worker processes; by default one per core")
    options = parser.parse_args()

    task = load_task("dyck-2-4")
    results = train_seeds(
        get_config(options.family, task),
        task,
        seeds=range(options.seeds),
        options=TrainConfig(steps=options.first, target=None),
        n_jobs=options.jobs,
    )
    before, after, control, fed = [], [], [], []
    for result in results:
        plain = copy.deepcopy(result.model)
        lengths, n = feed_back(result.model, task, options, result.seed)
        rounds = len(lengths) - 1
        with one_thread():
            more_training(plain, task, [], options.steps * rounds, options.rate, result.seed)
            without, _ = decide(plain, task, options)
        said = ", ".join(map(str, lengths))
        print(
            f"seed {result.seed}: proved up to {said}; {n} prefixes fed back in {rounds} rounds; "
            f"as many steps without them: {without}",
            flush=True,
        )
        before.append(lengths[0])
        after.append(lengths[-1])
        control.append(without)
        fed.append(n)
    print(f"\n{options.family}, {options.seeds} seeds; means [95 % intervals over seeds]")
    for name, values in (("before", before), ("fed back", after), ("as many steps", control)):
        done = sum(value == options.length for value in values)
        found = mean(np.array(values, dtype=float)).text(".1f")
        print(f"  proved up to, {name:<14} {found}; {done} models up to {options.length}")
    found = mean(np.array(after, dtype=float) - np.array(control, dtype=float))
    print(f"  fed back less as many steps  {found.text('+.1f')}; {np.mean(fed):.0f} prefixes")


if __name__ == "__main__":
    main()
