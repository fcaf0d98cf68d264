"""Valid and invalid values of `--sizes`."""

from pathlib import Path

import pytest

from autogemm.bench.kernels import parse_sizes
from autogemm.support.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024", [1024]),
        ("128:8192:*2", [128, 256, 512, 1024, 2048, 4096, 8192]),
        ("128:1000", [128, 256, 512]),
        ("128:512:+128", [128, 256, 384, 512]),
        ("3:100:*5,15, 7", [3, 15, 75, 7]),
    ],
)
def test_squares(text: str, expected: list[int]) -> None:
    assert parse_sizes(text) == tuple((side, side, side) for side in expected)


def test_rectangles_and_files(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("# layers\n4096x256x1024  # up\n\n64, 128:256\n64\n")
    assert parse_sizes(f"16x4096x4096,@{path}") == (
        *((16, 4096, 4096), (4096, 256, 1024)),
        *((64, 64, 64), (128, 128, 128), (256, 256, 256)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no size"),
        (" , ", "no size"),
        ("big", "a size is one positive integer"),
        ("0", "from 1 to"),
        ("-4", "a size is"),
        ("512:128", "a range is"),
        ("0:128", "a range is"),
        ("128:8192:*1", "a range is"),
        ("128:8192:+0", "a range is"),
        ("1:2147483647:+1", "more than 1000"),
        ("1:99999999999", "a size is"),
        ("@absent", "cannot read the sizes in absent"),
    ],
)
def test_what_is_no_size_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_sizes(text)


def test_files_that_are_no_lists(tmp_path: Path) -> None:
    binary, itself, large = (tmp_path / name for name in ("binary", "itself", "large"))
    binary.write_bytes(b"\xff\xfe\x00")
    itself.write_text(f"64\n@{itself}\n")
    large.write_text("64\n" * 50_000)
    for path, message in ((binary, "not a text file"), (itself, "line 2"), (large, "larger")):
        with pytest.raises(UsageError, match=message):
            parse_sizes(f"@{path}")
