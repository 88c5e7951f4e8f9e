"""The identity of a model's weights."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def weights_digest(model: Any) -> str:
    """The identity of a model: SHA-256, in hexadecimal, over its parameters."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(f"{name} {parameter.dtype} {list(parameter.shape)}".encode())
        digest.update(
            parameter.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()
