"""The transformer of this folder in plain PyTorch: read it, change it, cut heads out of it.

from model import load
model = load()
logits, z, patterns = model.run(["[()", "[]("])
model.run(["[()"], heads={(0, 1): 0.0})  # head 1 of layer 0 puts out nothing
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file


def load(folder="."):
    """The model of a folder, in float64."""
    config = json.loads((Path(folder) / "config.json").read_text())
    return PlainModel(config, load_file(Path(folder) / "weights.safetensors"))


class PlainModel:
    """A decoder. `symbols` are its tokens in the order of the logits; strings begin with BOS."""

    def __init__(self, config, weights):
        self.config, self.weights = config, weights
        self.symbols = config["symbols"]

    def tokens(self, strings):
        """Strings of one length as [n, pos] token ids, BOS first."""
        names = {symbol: at for at, symbol in enumerate(self.symbols)}
        rows = [[names["BOS"], *(names[symbol] for symbol in string)] for string in strings]
        return torch.tensor(rows)

    def run(self, strings, heads=None):
        """Logits [n, pos, symbol], and per layer z and patterns.

        z is [n, pos, head, d_head], a pattern [n, head, query, key].

        heads: what (layer, head) puts out instead, before W_O: a number or [n, pos, d_head].
        """
        tokens = self.tokens(strings) if not isinstance(strings, torch.Tensor) else strings
        w, n_pos = self.weights, tokens.shape[1]
        # [n, pos]: the depth after each symbol; opening brackets have even numbers
        step = torch.where(tokens < len(self.symbols) - 1, 1 - 2 * (tokens % 2), 0)
        # every symbol is looked up with its depth
        x = w["embed.table"][tokens, step.cumsum(-1)] + w["pos_embed.W_pos"][:n_pos]
        found, patterns = [], []
        for layer in range(self.config["n_layers"]):
            block = f"blocks.{layer}."
            q, k, v = (
                torch.einsum(
                    "npm,hmd->nphd", self.norm(x, block + "ln1"), w[f"{block}attn.W_{each}"]
                )
                + w[f"{block}attn.b_{each}"]
                for each in "QKV"
            )
            scores = torch.einsum("nqhd,nkhd->nhqk", q, k) / self.config["d_head"] ** 0.5
            later = torch.ones(n_pos, n_pos).triu(1).bool()
            pattern = scores.masked_fill(later, -torch.inf).softmax(-1)
            z = torch.einsum("nhqk,nkhd->nqhd", pattern, v)
            for (at, head), instead in (heads or {}).items():
                if at == layer:
                    z[:, :, head] = instead
            out = torch.einsum("nphd,hdm->npm", z, w[f"{block}attn.W_O"]) + w[f"{block}attn.b_O"]
            x = x + (self.unit(out) if self.config["block"] == "eq6" else out)
            read = self.norm(x, block + "ln2") @ w[f"{block}mlp.W_in"] + w[f"{block}mlp.b_in"]
            x = x + read.relu() @ w[f"{block}mlp.W_out"] + w[f"{block}mlp.b_out"]
            found.append(z)
            patterns.append(pattern)
        return self.norm(x, "ln_final") @ w["unembed.W_U"] + w["unembed.b_U"], found, patterns

    def norm(self, x, name):
        """LayerNorm, where the model has one."""
        if name + ".w" not in self.weights:
            return x
        x = x - x.mean(-1, keepdim=True)
        scale = (x.square().mean(-1, keepdim=True) + self.config["eps"]).sqrt()
        return x / scale * self.weights[name + ".w"] + self.weights[name + ".b"]

    def unit(self, x):
        """Of "eq6": what attention adds, centred, and of length 1."""
        x = x - x.mean(-1, keepdim=True)
        return x / x.norm(dim=-1, keepdim=True).clamp(min=self.config["ln_c"])
