"""Messages show no password, nothing unprintable, and no more than a person reads."""

import sys

import pytest
from click.testing import CliRunner

from autogemm.cli import command_line, main
from autogemm.support.errors import StoreError
from autogemm.support.messages import masked, message

SECRET = "hunter2"
HOST = "postgresql://me@localhost:1/results"
URLS = [
    f"postgresql://me:{SECRET}@localhost:1/results",
    f"postgres://me:a@{SECRET}@localhost:1/results",
    f"{HOST}?password={SECRET}",
    f"{HOST}?PASSWORD={SECRET}",
    f"{HOST}?sslmode=disable&password={SECRET}",
    f"{HOST}?sslpassword={SECRET}&sslmode=disable",
    f"{HOST}?passfile=/home/{SECRET}",
    f"{HOST}?options=-cpassword%3D{SECRET}",
    f"{HOST}?unknown={SECRET}",
    f"postgresql://localhost:1/?dbname=host%3Dlocalhost%20password%3D{SECRET}",
    f"postgresql://host=localhost port=1 password={SECRET}",
    f"mysql://me:{SECRET}@localhost/results",
    f"nothing://me:{SECRET}@localhost/results",
    f"sqlite:///a.db?password={SECRET}",
    f"postgresql://me:{SECRET}@local host:port/results",
]


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("words", ["db best", "db path", "db merge", "tune --gpu recorded"])
def test_a_password_is_never_shown(url: str, words: str) -> None:
    place = [url, "--db", url] if words == "db merge" else ["--db", url]
    result = CliRunner().invoke(main, [*words.split(), *place])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.output
    assert SECRET not in result.output


@pytest.mark.parametrize("url", URLS[:6])
def test_nor_kept_with_the_command(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["autogemm", "tune", "--db", url, f"--db={url}"])
    assert "localhost" in command_line()
    assert SECRET not in command_line()


def test_nor_raised_by_the_library() -> None:
    from autogemm.store import open_store

    with pytest.raises(StoreError) as caught:
        open_store(URLS[2])
    assert SECRET not in str(caught.value)


def test_what_is_no_password_stays() -> None:
    for text in (
        "give a path, sqlite:///PATH or postgresql+psycopg://USER:PASSWORD@HOST/NAME",
        'unrecognized token: "x"',
        "postgresql://me@localhost:5432/results?sslmode=disable: connection failed",
        "at 12:30 see https://example.org/a@b",
    ):
        assert masked(text) == text


def test_a_message_is_one_short_printable_line() -> None:
    said = message(f"rule {'x' * 9000}\x1b[31m\n\n{'word ' * 9000} what to do")
    assert said.startswith("rule xxx")
    assert said.endswith("what to do")
    assert len(said) < 2200
    assert said.isprintable()
    assert message("short, as it is") == "short, as it is"
