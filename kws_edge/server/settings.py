"""Every setting of the server, once: its name is the flag (`--max-body`) and the variable (`KWS_EDGE_MAX_BODY`)."""

import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from kws_edge.errors import SettingError
from kws_edge.server.http.wording import BYTES, SECONDS, wrong

ENV_PREFIX: Final = "KWS_EDGE_"

OTHER_VARIABLES: Final = ("KWS_EDGE_API_KEY", "KWS_EDGE_DATA", "KWS_EDGE_ORT_WEB")
"""What other parts are told by the environment: the client's key, where the tests find recordings and a runtime."""

RUNTIME: Final = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""The files of onnxruntime-web that the page loads."""


def _split(value: Any) -> Any:
    """A text as it comes from the environment, "a, b", as a list."""
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _check_key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[A-Za-z0-9._~-]{16,256}", key.get_secret_value()):
        raise ValueError("a key of 16 to 256 letters, digits and ._~- is expected, so that a subprotocol can carry it")
    return key


def _split_keys(value: Any) -> Any:
    """The same, where nothing must not mean that everybody may call: somebody meant to name keys."""
    keys = _split(value)
    if isinstance(value, str) and not keys:
        raise ValueError("no key in it; expected KEY,KEY, or the variable unset to let everybody in")
    return keys


def _check_origin(origin: str) -> str:
    """As browsers send it, which is what it is compared with."""
    if origin != "*" and (
        not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+", origin)
        or re.fullmatch(r"http://.*:80|https://.*:443", origin)
    ):
        raise ValueError(
            f"{origin!r}; expected an origin as browsers send it, https://example.org or http://localhost:3000: "
            "in small letters, with nothing after the host but a port that is not the usual one"
        )
    return origin


def _check_proxy(address: str) -> str:
    try:
        if address != "*":
            ipaddress.ip_network(address)
    except ValueError:
        raise ValueError(
            f"{address!r}; expected an address, 192.0.2.1, a network without bits after its prefix, 10.0.0.0/8, "
            "or * for everybody"
        ) from None
    return address


def _check_runtime(folder: Path) -> Path:
    missing = [name for name in RUNTIME if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{str(folder)!r} lacks {', '.join(missing)}; expected a folder with files of onnxruntime-web")
    return folder


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Origins = Annotated[tuple[Annotated[str, AfterValidator(_check_origin)], ...], NoDecode, BeforeValidator(_split)]
Proxies = Annotated[tuple[Annotated[str, AfterValidator(_check_proxy)], ...], NoDecode, BeforeValidator(_split)]
Keys = Annotated[tuple[Annotated[SecretStr, AfterValidator(_check_key)], ...], NoDecode, BeforeValidator(_split_keys)]
Bytes = Annotated[int, BYTES]
Seconds = Annotated[float, SECONDS]


class ServerSettings(BaseSettings):
    """What the server does, and how much of it. A value that is given outranks the environment, which outranks these.

    Sizes are in bytes, times in seconds. Lists are given as "a,b". `load` makes one with errors in one line.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every network this machine is in.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    models: Texts = Field((), description="Shipped names or .onnx paths, the first by default; none is all shipped.")
    provider: str = Field("cpu", description="Execution provider to run on.")
    strict: bool = Field(False, description="Refuse to start on another execution provider than that.")

    browser: Annotated[Path, AfterValidator(_check_runtime)] | None = Field(
        None, description="Folder with onnxruntime-web, for the page to run the models that have a NAME.audio.onnx."
    )

    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that share the port; each has its own models, threads and limits, so that all limits "
        "(queue, uploads, streams, rate) are per process.",
    )
    hang_timeout: Seconds = Field(
        30, ge=2, le=3600, description="Time without a sign of life after which one of several processes is replaced."
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Threads in each process that decode and run the network; unless given, one fewer than its share "
        "of the cores, 1 to 4.",
    )
    max_queue: int = Field(64, ge=1, le=10_000, description="Clips that may wait for a thread; more get a 503.")
    max_client_queue: int = Field(32, ge=1, le=10_000, description="Clips of one client that may; more get a 429.")
    max_batch: int = Field(16, ge=1, le=64, description="Waiting clips that one run of the network takes together.")
    inference_timeout: Seconds = Field(10, gt=0, le=600, description="Time for a request, then a 503.")

    max_body: Bytes = Field(8 * 2**20, ge=1, le=2**30, description="Body of a request.")
    max_clip_seconds: Seconds = Field(60, gt=0, le=600, description="Length of a clip once decoded.")
    max_clip_samples: int = Field(
        2**24, ge=16_000, le=2**32, description="Samples of a clip as it was recorded: rate x channels x seconds."
    )
    max_clips: int = Field(32, ge=1, le=1000, description="Clips in one batch request.")
    max_uploads: int = Field(64, ge=1, le=10_000, description="Requests being read or answered at once.")
    max_client_uploads: int = Field(16, ge=1, le=10_000, description="Those of one client.")
    max_upload_bytes: Bytes = Field(2**26, ge=1, le=2**40, description="Bodies held in memory at once, in all.")
    max_client_upload_bytes: Bytes = Field(2**25, ge=1, le=2**40, description="Those of one client.")
    max_connections: int = Field(1000, ge=1, le=100_000, description="Open connections.")
    max_client_connections: int = Field(
        250, ge=1, le=100_000, description="Open connections of one address; trusted proxies may have them all."
    )
    head_timeout: Seconds = Field(10, gt=0, le=600, description="Time for the head of a request to arrive.")
    body_timeout: Seconds = Field(30, gt=0, le=3600, description="Time for a body to arrive.")
    send_timeout: Seconds = Field(30, gt=0, le=3600, description="Time for a client to take what is sent to it.")

    max_streams: int = Field(200, ge=0, le=10_000, description="WebSocket streams at once.")
    max_client_streams: int = Field(50, ge=0, le=10_000, description="WebSocket streams at once of one client.")
    max_message: Bytes = Field(2**18, ge=1024, le=2**24, description="One WebSocket message.")
    idle_timeout: Seconds = Field(30, gt=0, le=3600, description="Time without audio before a stream is closed.")

    client_rate: float = Field(0, ge=0, description="Requests a second of one client, averaged; 0 is no limit.")
    client_burst: int = Field(20, ge=1, description="Requests that a client may make at once before its rate counts.")
    api_keys: Keys = Field((), description="Keys of which a caller must give one; none lets everybody in.")
    allowed_hosts: Texts = Field(
        (),
        description="Names by which it is called, besides addresses in digits, localhost and this machine's own; "
        "*.example.org is all below, * any.",
    )
    cors_origins: Origins = Field((), description="Web origins other than this one whose pages may call.")
    trusted_proxies: Proxies = Field(
        (), description="Addresses, or networks as 10.0.0.0/8, whose X-Forwarded-For names the client."
    )

    drain_seconds: Seconds = Field(
        0, ge=0, le=3600, description="Time to go on once told to stop, while /health/ready says so to a balancer."
    )
    shutdown_grace: Annotated[int, SECONDS] = Field(
        10, ge=0, le=3600, description="Time for what is in progress after that."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")

    @model_validator(mode="after")
    def _fit(self) -> "ServerSettings":
        for less, more in (("max_clips", "max_queue"), ("max_clips", "max_client_queue")):
            self._check_fits(less, more, "no batch of it would fit")
        for more in ("max_upload_bytes", "max_client_upload_bytes"):
            self._check_fits("max_body", more, "no such body would fit")
        return self

    def _check_fits(self, less: str, more: str, why: str) -> None:
        given, most = getattr(self, less), getattr(self, more)
        if given > most:
            names = (f"--{name.replace('_', '-')}" for name in (less, more))
            raise ValueError(f"{next(names)} {given} is over {next(names)} {most}: {why}")

    @property
    def threads(self) -> int:
        """How many decode and run the network in one process, of which the event loop keeps another core busy."""
        return self.workers or max(1, min(4, (os.cpu_count() or 1) // self.processes - 1))

    @classmethod
    def load(cls, **given: Any) -> "ServerSettings":
        """Make one from the values given and the environment; a SettingError names what is wrong, without secrets."""
        try:
            return cls(**given)
        except ValidationError as error:
            said = [
                ": ".join([*map(_names, e["loc"][:1]), wrong({**e, "loc": e["loc"][:1]}, cls.model_fields, "setting")])
                for e in error.errors()
            ]
            raise SettingError("; ".join(said)) from None


def _names(field: str | int) -> str:
    """How a setting can be given."""
    names = [f"--{str(field).replace('_', '-')}", f"{ENV_PREFIX}{str(field).upper()}"]
    return " / ".join(names[field == "api_keys" :])


def mistyped_variables(environment: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """The variables that begin as this program's and are none of its, each with the setting that may be meant."""
    settings = [f"{ENV_PREFIX}{field.upper()}" for field in ServerSettings.model_fields]
    for name in sorted(environment):
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in (*settings, *OTHER_VARIABLES):
            yield name, next(iter(difflib.get_close_matches(name.upper(), settings, 1)), None)
