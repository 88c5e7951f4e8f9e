"""The same bits whoever is trained beside a seed, however often interrupted, on any processor.

A processor that shows no difference proves little about the next one, so most tests here run on a
made-up one, whose products of matrices depend on everything that a library's may depend on:
addresses, strides, how many there are.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cases import thinned
from tl_dyck.kit.processes import FolderLock
from tl_dyck.models import get_config
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, load_result, train
from tl_dyck.training.group import _grain, _layout
from tl_dyck.training.loop import train_together
from tl_dyck.training.operations import BOUNDARY, GRAIN
from tl_dyck.training.run import RunState

pytestmark = pytest.mark.usefixtures("hasty_ends")

TASK = load_task("dyck-2-4")
OPTIONS = TrainConfig(
    steps=6, batch_size=8, check_every=3, check_size=20, checkpoint_every=2, target=None
)
FEW = replace(OPTIONS, steps=3)  # a bit that differs in the first step stays different

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_mm", "addbmm"}
CURVES = {
    "gelu",
    "gelu_backward",
    "silu",
    "silu_backward",
    "tanh",
    "tanh_backward",
    "exp",
    "sigmoid",
    "erf",
}


class Fickle(TorchDispatchMode):
    """A processor whose rounding depends on layout (products) and on place in a tensor (curves).

    Attributes:
        products: how many were made.
    """

    def __init__(self):
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        found = function(*args, **kwargs)
        name = function.overloadpacket.__name__
        if name in PRODUCTS:
            self.products += 1
            operands = [each for each in (*args, found) if isinstance(each, torch.Tensor)]
            found.mul_(1 + found.abs().max().clamp(1e-3, 1) * 1e-5 * self._taste(operands))
        elif name in CURVES and (rest := found.numel() % GRAIN):
            found.view(-1)[-rest:].mul_(1 + 1e-5)
        return found

    @staticmethod
    def _taste(operands):
        """Between 0 and 1: of sizes, strides and places, but for strides that are never taken."""
        described = [
            (
                each.data_ptr() % BOUNDARY,
                each.shape,
                [each.stride(i) for i, n in enumerate(each.shape) if n > 1],
            )
            for each in operands
        ]
        return int.from_bytes(hashlib.sha256(repr(described).encode()).digest()[:4], "big") / 2**32


def bits(result) -> str:
    """A fingerprint of the weights and of the history."""
    digest = hashlib.sha256(result.history.to_json(double_precision=15).encode())
    for name, parameter in result.model.named_parameters():
        digest.update(name.encode() + parameter.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def groups(config, options, sizes, task=TASK):
    """The bits of each seed in groups of each size; every second group is in reverse order."""
    found = {}
    for number, size in enumerate(sizes):
        seeds = range(size) if number % 2 == 0 else range(size)[::-1]
        results = train_together(config, task, seeds, options=options, folders=[None] * size)
        for seed, result in results.items():
            found.setdefault(seed, []).append(bits(result))
    return found


def all_equal(found):
    return all(len(set(own)) == 1 for own in found.values())


@pytest.mark.parametrize(
    ("family", "overrides"),
    thinned(
        [
            ("gpt", {"d_model": 13, "n_heads": 3, "act_fn": "gelu"}),
            *((family, {}) for family in ("attn-only", "minimal-yao", "figure2-split")),
            ("gpt-learned", {"d_model": 9, "d_mlp": 7, "act_fn": "solu_ln"}),
            ("gpt-linear", {"n_layers": 1}),
            ("eq6", {"d_model": 10, "d_head": 1, "d_mlp": 1, "act_fn": "silu"}),
            ("eq49", {"n_layers": 1}),
        ]
    ),
)
def test_on_a_fickle_processor(family, overrides):
    with Fickle() as processor:
        assert all_equal(groups(get_config(family, TASK, **overrides), FEW, (1, 2)))
    assert processor.products > 50


@pytest.mark.parametrize("name", ["contrastive_weight", "drift_weight"])
def test_on_a_fickle_processor_with_a_regularisation(name):
    options = replace(FEW, **{name: 0.5})
    with Fickle():
        assert all_equal(groups(get_config("minimal-onehot", TASK), options, (1, 2)))


def test_on_a_fickle_processor_with_batches_set_apart(monkeypatch):
    usual = _layout(TASK, OPTIONS)
    monkeypatch.setattr(
        "tl_dyck.training.group._layout", lambda task, options: (usual[0], _grain(usual[0]))
    )
    with Fickle():
        assert all_equal(groups(get_config("gpt", TASK), FEW, (1, 3)))


def test_the_fickle_processor_is_fickle():
    """Else the tests above would prove nothing: it tells apart places and how many there are."""
    a, b = torch.ones(4, 5, 3), torch.ones(4, 3, 2)
    with Fickle():
        assert not torch.equal(torch.bmm(a, b)[:1], torch.bmm(a[:1], b[:1]))
        elsewhere = torch.cat([torch.ones(1), b[0].flatten()])[1:].view(3, 2)
        assert not torch.equal(torch.mm(a[0], b[0]), torch.mm(a[0], elsewhere))
        assert torch.equal(torch.mm(a[0], b[0]), torch.mm(a[0].clone(), b[0].clone()))
        assert torch.nn.functional.gelu(torch.ones(GRAIN + 1)).unique().numel() == 2


@pytest.mark.bits
@pytest.mark.parametrize("family", ["gpt-linear", "minimal-onehot", "eq49"])
def test_on_this_processor(family):
    """At the sizes that are used, in groups that `train_seeds` makes, and one larger."""
    options = TrainConfig(steps=1, check_every=1, check_size=50, target=None)
    assert all_equal(groups(get_config(family, TASK), options, (1, 3, 5)))


@pytest.mark.bits
@pytest.mark.parametrize("family", ["gpt", "minimal-onehot"])
def test_interrupted_in_a_group_and_resumed_in_others(family, tmp_path, monkeypatch):
    config, folders = get_config(family, TASK), [tmp_path / f"seed-{seed}" for seed in range(4)]
    record = RunState.record

    def killed(self, *args):
        if self.seed == 3 and self.step == 4:
            raise MemoryError
        return record(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(RunState, "record", killed)
        with pytest.raises(MemoryError):
            train_together(config, TASK, range(4), options=OPTIONS, folders=folders)
    train(config, TASK, seed=2, options=OPTIONS, folder=folders[2], progress=False)
    train_together(config, TASK, [3, 0], options=OPTIONS, folders=[folders[3], folders[0]])
    train_together(config, TASK, range(4), options=OPTIONS, folders=folders)
    for seed, folder in enumerate(folders):
        assert bits(load_result(folder)) == bits(
            train(config, TASK, seed=seed, options=OPTIONS, progress=False)
        )


@pytest.mark.bits
def test_the_number_of_threads_is_nobodys_business():
    before = torch.get_num_threads()
    found, seen = set(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            config = get_config("gpt", TASK)
            result = train(
                config,
                TASK,
                options=OPTIONS,
                progress=False,
                on_model=lambda step, model, folder: seen.append(torch.get_num_threads()),
            )
            found.add(bits(result))
            (together,) = train_together(
                config, TASK, [0], options=OPTIONS, folders=[None]
            ).values()
            found.add(bits(together))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
    assert len(found) == 1


@pytest.mark.parametrize("name", ["dyck-3-8", "dyck-2-4-prefix"])
@pytest.mark.parametrize("contrastive_weight", [0.0, 1.0])
@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_the_slots_of_a_model_fill_registers(name, contrastive_weight, batch_size):
    task = load_task(name)
    options = TrainConfig(batch_size=batch_size, contrastive_weight=contrastive_weight)
    width, rows = _layout(task, options)
    longest = max(task.train_lengths) + (
        1 + 2 * task.language.max_depth if contrastive_weight else 0
    )
    assert longest <= width < longest + GRAIN
    assert width * rows % GRAIN == 0


@pytest.mark.parametrize("alone", [True, False])
def test_a_run_that_another_process_trains_is_waited_for(tmp_path, monkeypatch, alone):
    folders = [tmp_path / f"seed-{seed}" for seed in range(2)]
    config, order, locks = get_config("minimal-onehot", TASK), [], []
    folders[0].mkdir()
    locks.append(FolderLock(folders[0]))

    def others_turn(interrupted):
        locks.pop().release()

    monkeypatch.setattr("tl_dyck.training.loop.wait_a_moment", others_turn)
    if alone:
        train(config, TASK, options=OPTIONS, folder=folders[0], progress=False)
    else:
        train_together(
            config,
            TASK,
            range(2),
            options=OPTIONS,
            folders=folders,
            on_result=lambda result, folder: order.append(result.seed),
        )
        assert order == [1, 0]
    assert locks == []
    assert (Path(folders[0]) / "result.json").exists()
    assert not (Path(folders[0]) / ".lock").exists()
