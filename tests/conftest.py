"""Skips ``gpu`` tests without a card, and says why; ``--update-golden`` rewrites golden files,
``--fuzz COUNT`` feeds readers more broken files.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*.cu")
    parser.addoption("--fuzz", type=int, default=0, help="broken files for each reader")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_card = [item for item in items if item.get_closest_marker("gpu")]
    if not on_card:
        return
    from autogemm.targets.cuda import why_no_device

    reason = why_no_device()
    if reason:
        for item in on_card:
            item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))
