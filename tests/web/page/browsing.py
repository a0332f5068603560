"""What the tests of the page do in the browser."""

import time
from typing import Any

from tests.web.conftest import PATIENCE


def shown(page: Any) -> int:
    """The id of the item that is shown, once there is one."""
    return int(page.locator(".stage[data-item]").get_attribute("data-item"))


def press_and_see(page: Any, key: str) -> int:
    """Press a key that ends the item shown; the id of the next."""
    before = shown(page)
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.querySelector('.stage').dataset.item !== before", arg=str(before)
    )
    return shown(page)


def wait_saved(page: Any) -> None:
    """Until the server has every label."""
    page.locator(".status.saved").wait_for()


def wait_told(page: Any, words: str) -> None:
    """Until the page has said something, which it hides again after some seconds."""
    page.wait_for_function(
        r"""words => ['notice', 'live'].some((name) =>
            document.getElementById(name).textContent.replace(/\s/g, ' ').includes(words))""",
        arg=words,
    )


def until(check: Any, seconds: float = PATIENCE) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
