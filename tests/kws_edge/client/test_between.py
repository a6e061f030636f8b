"""What stands between a client and its server: proxies of the environment, limits of others, answers without end."""

import asyncio
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from live_server import PATIENT, answering, live_server, taken_port
from made_audio import tone, wav
from tiny_model import TONES, save

from kws_edge.audio.sources import Block
from kws_edge.client import AsyncClient, Client, ServerError
from kws_edge.client.proxy import proxy_of
from kws_edge.errors import AudioError, SettingError

VARIABLES = [f"{kind}_proxy" for kind in ("http", "https", "all", "no", "ws", "wss", "socks")]
CLIP = wav(tone(TONES["mid"]))


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with live_server(save(tmp_path_factory.mktemp("models"))) as client:
        yield client


def block() -> list[Block]:
    return [Block(np.zeros(1600, np.float32))]


@pytest.mark.parametrize("command", [["classify", "clip.wav"], ["listen", "-"]])
def test_a_kind_of_proxy_that_cannot_be_used_is_one_line_that_names_it(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "clip.wav").write_bytes(CLIP)
    code = "from kws_edge.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--server", "http://127.0.0.1:9"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=PATIENT, input="",
        env={"all_proxy": "socks5://user:secret@127.0.0.1:9", "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "the proxy socks5://127.0.0.1:9 of the variable all_proxy" in line
    assert "no_proxy=127.0.0.1" in line
    assert "secret" not in line


@pytest.mark.parametrize(
    "proxy", ["http://me:secret@[::1", "http://h:abc", "h:abc", "http://h:99999", "http://", "\udcff", "http://h:1\n"]
)
def test_a_proxy_that_is_no_address_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(SettingError, match=r"^the proxy .* of the variable http_proxy is no address; ") as refused:
        Client("http://server.example")
    assert "secret" not in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_proxy_that_is_dead_is_named_and_not_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with taken_port() as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with Client("http://192.0.2.1:8765", timeout=5) as client:
            for call in (client.models, lambda: list(client.listen(block()))):
                with pytest.raises(ServerError, match=rf"the proxy http://127.0.0.1:{port} of the variable http_proxy"):
                    call()


def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        with (
            Client("http://192.0.2.1:8765") as client,
            pytest.raises(ServerError, match="502 from the proxy http://127"),
        ):
            client.models()


@pytest.mark.parametrize("exception", ["127.0.0.1", "*", "localhost,127.0.0.1"])
def test_an_address_that_is_excepted_is_asked_directly(
    server: httpx.Client, monkeypatch: pytest.MonkeyPatch, exception: str
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", exception)
    with Client(str(server.base_url)) as client:
        assert client.models()[0]["name"] == "tiny"
        assert list(client.listen(block())) == []


@pytest.mark.parametrize(
    ("variable", "value", "url", "expected"),
    [
        ("HTTP_PROXY", "http://p:1", "http://h", "http://p:1"),
        ("http_proxy", "p:1", "http://h", "http://p:1"),
        ("https_proxy", "http://p:1", "http://h", None),
        ("https_proxy", "http://p:1", "https://h", "http://p:1"),
        ("all_proxy", "http://p:1", "https://h", "http://p:1"),
    ],
)
def test_the_proxy_of_an_address_is_that_of_its_scheme_or_of_all(
    variable: str, value: str, url: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    found = proxy_of(url)
    assert (found and found.url) == expected


def test_another_kind_of_proxy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "gopher://p:1")
    with pytest.raises(SettingError, match="gopher://p:1 of the variable http_proxy, of a kind that is not supported"):
        Client("http://h")


def bomb(coding: str) -> bytes:
    """A success whose body becomes 100 MB, in few bytes or in as many."""
    zeros = bytes(10**8)
    body = gzip.compress(zeros) if coding == "gzip" else zeros
    return f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_an_answer_without_end_is_not_read(coding: str) -> None:
    import tracemalloc

    with answering(bomb(coding)) as url:
        tracemalloc.start()
        with Client(url) as client, pytest.raises(ServerError, match="expected a kws-edge server"):
            client.models()

        async def ask() -> None:
            async with AsyncClient(url) as client:
                with pytest.raises(ServerError, match="expected a kws-edge server"):
                    await client.models()

        asyncio.run(ask())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 60 * 2**20


def test_a_body_that_something_between_does_not_take_is_about_the_clip() -> None:
    page = b"<html>413 Request Entity Too Large"
    with (
        answering(b"HTTP/1.1 413 X\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page)) as url,
        Client(url) as client,
        pytest.raises(AudioError, match=r"something before the server .*client_max_body_size"),
    ):
        client.classify(CLIP)


def test_what_a_server_says_moves_no_cursor_and_ends_no_line() -> None:
    said = json.dumps({"models": [{"name": "a\x1b[2J\nb", "default": True, "score": "entropy", "x": ["\r"]}]}).encode()
    with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said)) as url,
        Client(url) as client,
    ):
        (model,) = client.models()
    assert model["name"] == r"a\x1b[2J\nb"
    assert model["x"] == [r"\r"]
