"""Trained models by name: from a folder, a study, and a Hub that is a server on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from tl_dyck import UnknownNameError, load_pretrained
from tl_dyck.files import CorruptFileError
from tl_dyck.models import load_model
from tl_dyck.report.cards import write_zoo
from tl_dyck.runs.pretrained import HubError
from tl_dyck.studies import Study

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def zoo(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_zoo(tiny_study, tmp_path_factory.mktemp("zoo") / "models")


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    one, other = weights(first), weights(second)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("which", ["zoo", "study"])
def test_every_model_of_a_study_by_its_name(which, zoo, tiny_study):
    source = zoo if which == "zoo" else tiny_study.folder
    for family in tiny_study.config.families:
        for seed in tiny_study.config.seeds:
            found = load_pretrained(f"{family}/seed-{seed}", source, device="cpu")
            assert same(found, load_model(tiny_study.run_folder(family, seed), device="cpu"))
    assert not same(found, load_pretrained("minimal-onehot/seed-0", source, device="cpu"))


def test_without_a_source_the_name_is_an_address(zoo, tiny_study):
    wanted = load_model(tiny_study.run_folder("gpt", 1), device="cpu")
    for address in (f"{tiny_study.folder}:gpt/seed-1", f"{zoo}:gpt/seed-1", zoo / "gpt" / "seed-1"):
        assert same(load_pretrained(address, device="cpu"), wanted)
    with pytest.raises(ValueError, match="a revision is of a repository"):
        load_pretrained(f"{zoo}:gpt/seed-1", revision="main")
    with pytest.raises(CorruptFileError, match=r"models are named by their folder, or as in"):
        load_pretrained("gpt/seed-1")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../gpt",
        "gpt/../../etc",
        "gpt/..",
        "/etc/passwd",
        "gpt//seed-0",
        "gpt/",
        "g\n",
        "a b",
        3,
    ],
)
def test_names_that_lead_elsewhere_are_refused_before_anything_is_read(name, zoo):
    with pytest.raises(ValueError, match="is no name of a model; they look like 'gpt/seed-3'"):
        load_pretrained(name, zoo)


@pytest.mark.parametrize("which", ["zoo", "study", "bare"])
def test_a_name_that_is_not_there(which, zoo, tiny_study, tmp_path):
    source = {"zoo": zoo, "study": tiny_study.folder, "bare": tmp_path / "bare"}[which]
    if which == "bare":  # without a list
        shutil.copytree(zoo, source)
        (source / "zoo.json").unlink()
    with pytest.raises(
        UnknownNameError, match=r"unknown model 'gpt/seed-9'.* 'gpt/seed-4'\? "
    ) as told:
        load_pretrained("gpt/seed-9", source)
    assert "minimal-onehot/seed-1" in str(told.value)


@pytest.mark.parametrize(
    "junk", [b"", b"[]", b"{", b'{"format": "other/1", "models": []}', b'{"models": 3}']
)
def test_a_list_that_is_none(junk, zoo, tmp_path):
    folder = Path(shutil.copytree(zoo, tmp_path / "zoo"))
    (folder / "zoo.json").write_bytes(junk)
    assert load_pretrained("gpt/seed-0", folder, device="cpu").cfg.n_layers == 2
    with pytest.raises(CorruptFileError, match=r"zoo\.json"):
        load_pretrained("gpt/seed-9", folder)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_damaged_files_and_links_out_are_refused(file, zoo, tmp_path):
    folder = Path(shutil.copytree(zoo, tmp_path / "zoo"))
    damaged = folder / "gpt" / "seed-0" / file
    damaged.write_bytes(damaged.read_bytes()[:-7])
    with pytest.raises(CorruptFileError, match="gpt/seed-0") as told:
        load_pretrained("gpt/seed-0", folder)
    assert "\n" not in str(told.value)
    (folder / "gpt" / "seed-7").symlink_to(zoo / "gpt" / "seed-0")
    with pytest.raises(CorruptFileError, match="is a link that leads out of that folder"):
        load_pretrained("gpt/seed-7", folder)


def test_what_is_no_source(zoo, tmp_path):
    for source in (
        tmp_path / "nowhere",
        str(tmp_path / "nowhere"),
        "../zoo",
        "zoo",
        "a/b/c",
        "a/..",
    ):
        with pytest.raises(
            CorruptFileError, match=r"there is no folder .* and it is no name of a Hub"
        ):
            load_pretrained("gpt/seed-0", source)
    with pytest.raises(ValueError, match="is a folder, which has no revisions"):
        load_pretrained("gpt/seed-0", zoo, revision="main")


# --- a Hub ----------------------------------------------------------------------------------------


@pytest.fixture
def hub(zoo: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that answers as the Hub does for ``me/dyck``, and what was asked."""
    asked: list[str] = []
    names = sorted(path.relative_to(zoo).as_posix() for path in zoo.rglob("*") if path.is_file())

    class Hub(BaseHTTPRequestHandler):
        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            kind = {"Content_Type": "application/json"}
            if not path.removeprefix("/api/models").startswith("/me/dyck/"):
                error = {"X_Error_Code": "RepoNotFound", "X_Error_Message": "Repository not found"}
                return self.answer(404, b"{}", **error)
            if path.startswith("/api/models/me/dyck/tree/"):
                tree = [
                    {
                        "type": "file",
                        "path": name,
                        "size": (zoo / name).stat().st_size,
                        "oid": hashlib.sha1((zoo / name).read_bytes()).hexdigest(),
                    }
                    for name in names
                ]
                return self.answer(200, json.dumps(tree).encode(), **kind)
            if path.startswith("/api/models/me/dyck/revision/"):
                if path.rpartition("/")[2] not in ("main", COMMIT):
                    return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
                siblings = [{"rfilename": name} for name in names]
                info = {"id": "me/dyck", "sha": COMMIT, "siblings": siblings, "tags": []}
                return self.answer(200, json.dumps(info | {"private": False}).encode(), **kind)
            name = path.partition(f"/resolve/{COMMIT}/")[2]
            if name not in names:
                return self.answer(404, b"", X_Error_Code="EntryNotFound")
            body = (zoo / name).read_bytes()
            tag = f'"{hashlib.sha1(body).hexdigest()}"'
            return self.answer(200, body, ETag=tag, X_Repo_Commit=COMMIT)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()
    thread.join()


SCRIPT = """
import sys, torch
from tl_dyck import load_pretrained
def told(*words, **options):
    try:
        load_pretrained(*words, **options)
    except Exception as error:
        print(type(error).__name__, error)
model = load_pretrained("minimal-onehot/seed-4", "me/dyck", device="cpu")
torch.save(dict(model.named_parameters()), sys.argv[1])
told("minimal-onehot/seed-5", "me/dyck")
told("gpt/seed-0", "me/nothing")
told("gpt/seed-0", "me/dyck", revision="v9")
"""


def test_from_a_hub_once_and_then_without_it(hub, zoo, tmp_path, monkeypatch):
    address, asked = hub
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    clean |= {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": address, "OMP_NUM_THREADS": "1"}
    clean |= {"NO_PROXY": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "weights.pt")],
        env=clean,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    unknown, nothing, revision = done.stdout.splitlines()
    wanted = load_model(zoo / "minimal-onehot" / "seed-4", device="cpu")
    got = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert {name: value.tolist() for name, value in got.items()} == {
        name: value.tolist() for name, value in weights(wanted).items()
    }
    assert unknown.startswith(
        "UnknownNameError unknown model 'minimal-onehot/seed-5'. Did you mean"
    )
    assert nothing.startswith("HubError there is no folder 'me/nothing', and the Hub has no reposi")
    assert revision == "HubError the repository 'me/dyck' has no revision 'v9'"
    files = {path.partition(f"{COMMIT}/")[2] for path in asked if "/resolve/" in path}
    place = "minimal-onehot/seed-4"
    assert files == {"zoo.json", f"{place}/config.json", f"{place}/model.safetensors"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    assert same(load_pretrained(place, "me/dyck", device="cpu"), wanted)
    with pytest.raises(UnknownNameError, match="unknown model 'minimal-onehot/seed-5'"):
        load_pretrained("minimal-onehot/seed-5", "me/dyck")
    with pytest.raises(HubError, match="the Hub cannot be reached, nor was that repository"):
        load_pretrained(place, "me/other")
