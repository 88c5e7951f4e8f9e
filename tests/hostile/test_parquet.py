"""A table whose column says of what Python class it is: the class is not made, nor anything run.

pyarrow before 14.0.1 unpickled what such a column says (CVE-2023-47248).
"""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.records import read_table


class Runs:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path(self.path),)


# releases before 21 say that they do not unpickle it
@pytest.mark.filterwarnings("ignore:pickle-based deserialization:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:pyarrow.PyExtensionType is deprecated:FutureWarning")
def test_what_a_column_says_it_is_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "run"
    payload = pickle.dumps(Runs(mark))
    pickle.loads(payload)
    assert mark.exists()  # it does what it is to do
    mark.unlink()
    for name in (b"arrow.py_extension_type", b"pandas.class", b"own"):
        told = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": payload}
        schema = pa.schema([pa.field("x", pa.int64(), metadata=told)])
        path = tmp_path / "table.parquet"
        pq.write_table(pa.table([pa.array([1, 2])], schema=schema), path)
        with contextlib.suppress(CorruptFileError):  # or it is read as what it is
            assert read_table(path)["x"].tolist() == [1, 2]
        assert not mark.exists()
