"""Train two models that solve the same task, and look at how differently they attend.

Run it: ``python demos/train_and_look.py`` (half a minute on 2 CPU cores).
It writes ``attention.html``, which any browser opens, offline too.
"""

# %% Train a standard two-layer GPT twice; only the seed differs.
import sys
from pathlib import Path

import numpy as np
import plotly.express as px

from tl_dyck import attention_variation, get_config, load_task, stack_likeness, train
from tl_dyck.training import TrainConfig

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 800
out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path("attention.html")

task = load_task("dyck-2-4")
options = TrainConfig(steps=steps)
results = [train(get_config("gpt", task), task, seed=seed, options=options) for seed in (0, 1)]
for result in results:
    print(result)

# %% Both close brackets correctly. Do they look at the same places?
models = [result.model for result in results]
print(attention_variation(models))
for model in models:
    print(stack_likeness(model, task))

# %% See for yourself: the second layer of each, on the paper's string.
text = task.language.probe_string
patterns = []
for model in models:
    _, cache = model.run_with_cache(text)
    patterns.append(cache["pattern", 1][0, 0].numpy())
figure = px.imshow(
    np.stack(patterns),
    facet_col=0,
    color_continuous_scale="Cividis",
    labels={"x": "key", "y": "query", "color": "attention weight"},
    title="Two seeds, one task: attention of layer 1",
)
labels = [f"{position} {token}" for position, token in enumerate(models[0].to_str_tokens(text))]
figure.update_xaxes(tickvals=list(range(len(labels))), ticktext=labels)
figure.update_yaxes(tickvals=list(range(len(labels))), ticktext=labels)
figure.for_each_annotation(lambda note: note.update(text=f"seed {note.text.split('=')[-1]}"))
figure.write_html(out, include_plotlyjs=True)
print(f"wrote {out}")
