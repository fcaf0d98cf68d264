"""Files that several write at the same time are one of theirs, whole."""

import threading
from pathlib import Path

from autogemm.support.files import write_atomically


def test_threads_that_write_one_file(tmp_path: Path) -> None:
    """As of compiled kernels: each has a temporary file to itself."""
    path = tmp_path / "kernel.cubin"
    contents = [bytes([number]) * 2**18 for number in range(8)]
    failures: list[Exception] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(10):
                write_atomically(path, content)
                assert path.read_bytes() in contents
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [found.name for found in tmp_path.iterdir()] == ["kernel.cubin"]


def test_a_name_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomically(path, b"whole")
    assert path.read_bytes() == b"whole"
