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
        raise ValueError(
            "expected a key of 16 to 256 letters, digits and ._~-, which a WebSocket subprotocol can carry"
        )
    return key


def _split_keys(value: Any) -> Any:
    """The same, where nothing must not mean that everybody may call: somebody meant to name keys."""
    keys = _split(value)
    if isinstance(value, str) and not keys:
        raise ValueError("no key in it; expected KEY,KEY, or the variable unset, to require no key")
    return keys


def _check_origin(origin: str) -> str:
    """As browsers send it, which is what it is compared with."""
    if origin != "*" and (
        not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+", origin)
        or re.fullmatch(r"http://.*:80|https://.*:443", origin)
    ):
        raise ValueError(
            f"{origin!r}; expected an origin as browsers send it, https://example.org or http://localhost:3000: "
            "in lower case, with nothing after the host but a port other than the default"
        )
    return origin


def _check_host(name: str) -> str:
    """As it can be compared with a Host header, whose port does not count."""
    if name != "*" and not re.fullmatch(
        r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|[0-9a-fA-F:.]+:[0-9a-fA-F:.]+", name
    ):
        raise ValueError(
            f"{name!r}; expected a name as browsers send it, kws.example.org or xn--mnchen-3ya.de, without a scheme or "
            "port, *.example.org for its subdomains, or * for any"
        )
    return name


def _check_proxy(address: str) -> str:
    try:
        if address != "*":
            ipaddress.ip_network(address)
    except ValueError:
        raise ValueError(
            f"{address!r}; expected an address, 192.0.2.1, a network with no bits set after its prefix, 10.0.0.0/8, "
            "or * for any"
        ) from None
    return address


def _check_runtime(folder: Path) -> Path:
    missing = [name for name in RUNTIME if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{str(folder)!r} lacks {', '.join(missing)}; expected a folder with files of onnxruntime-web")
    return folder


Hosts = Annotated[tuple[Annotated[str, AfterValidator(_check_host)], ...], NoDecode, BeforeValidator(_split)]
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

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for all network interfaces.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 for any free one.")
    models: Texts = Field(
        (), description="Names of shipped models or .onnx paths; the first is the default. None: all shipped models."
    )
    provider: str = Field("cpu", description="Execution provider to run on.")
    strict: bool = Field(False, description="Fail if the provider is unavailable, instead of falling back to the CPU.")

    browser: Annotated[Path, AfterValidator(_check_runtime)] | None = Field(
        None, description="Folder with onnxruntime-web, so that the page can run models that have a NAME.audio.onnx."
    )

    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that share the port. Each loads the models, and all limits (queue, uploads, streams, "
        "rate) hold in each.",
    )
    hang_timeout: Seconds = Field(
        30, ge=2, le=3600, description="Replace one of several processes after this time without a sign of life."
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Threads in each process that decode and run the network. None: one fewer than its share of the "
        "cores, 1 to 4.",
    )
    max_queue: int = Field(64, ge=1, le=10_000, description="Clips that may wait for a thread; more get status 503.")
    max_client_queue: int = Field(
        32, ge=1, le=10_000, description="Clips of one client that may wait; more get status 429."
    )
    max_batch: int = Field(16, ge=1, le=64, description="Waiting clips to classify in one inference.")
    inference_timeout: Seconds = Field(
        10, gt=0, le=600, description="Time to answer a clip, after which it gets status 503."
    )

    max_body: Bytes = Field(8 * 2**20, ge=1, le=2**30, description="Largest body of a request.")
    max_clip_seconds: Seconds = Field(60, gt=0, le=600, description="Longest clip, in seconds of sound.")
    max_clip_samples: int = Field(
        2**24, ge=16_000, le=2**32, description="Most samples in a clip as it was recorded: rate x channels x seconds."
    )
    max_clips: int = Field(32, ge=1, le=1000, description="Most clips in one batch request.")
    max_uploads: int = Field(64, ge=1, le=10_000, description="Requests that may be read or answered at once.")
    max_client_uploads: int = Field(16, ge=1, le=10_000, description="Such requests of one client.")
    max_upload_bytes: Bytes = Field(
        2**26, ge=1, le=2**40, description="Bytes of request bodies that may be in memory at once."
    )
    max_client_upload_bytes: Bytes = Field(2**25, ge=1, le=2**40, description="Such bytes of one client.")
    max_connections: int = Field(1000, ge=1, le=100_000, description="Connections that may be open.")
    max_client_connections: int = Field(
        250, ge=1, le=100_000, description="Such connections of one address; trusted proxies are exempt."
    )
    head_timeout: Seconds = Field(10, gt=0, le=600, description="Time for the head of a request to arrive.")
    body_timeout: Seconds = Field(30, gt=0, le=3600, description="Time for the body of a request to arrive.")
    send_timeout: Seconds = Field(30, gt=0, le=3600, description="Time for a client to read what is sent to it.")

    max_streams: int = Field(200, ge=0, le=10_000, description="WebSocket streams that may be open.")
    max_client_streams: int = Field(50, ge=0, le=10_000, description="Such streams of one client.")
    max_message: Bytes = Field(2**18, ge=1024, le=2**24, description="Largest WebSocket message.")
    idle_timeout: Seconds = Field(30, gt=0, le=3600, description="Close a stream after this time without audio.")

    client_rate: float = Field(
        0, ge=0, le=1_000_000, description="Average requests per second that one client may make; 0 for no limit."
    )
    client_burst: int = Field(20, ge=1, description="Requests that one client may make at once beyond that rate.")
    api_keys: Keys = Field((), description="Keys of which a caller must give one. None: no key is needed.")
    allowed_hosts: Hosts = Field(
        (),
        description="Host names of this server, besides IP addresses, localhost and the machine's own name; "
        "*.example.org for subdomains, * for any.",
    )
    cors_origins: Origins = Field((), description="Other web origins whose pages may use the server.")
    trusted_proxies: Proxies = Field(
        (), description="Proxies whose X-Forwarded-For names the client: addresses, or networks such as 10.0.0.0/8."
    )

    drain_seconds: Seconds = Field(
        0, ge=0, le=3600, description="Time to go on serving after being told to stop; /health/ready fails already."
    )
    shutdown_grace: Annotated[int, SECONDS] = Field(
        10, ge=0, le=3600, description="Time to finish requests and streams after that."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level to log.")

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
            raise ValueError(f"{flag(less)} {given} is over {flag(more)} {most}: {why}")

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


def flag(field: str) -> str:
    """The command line's option for a setting, such as --max-body."""
    return f"--{field.replace('_', '-')}"


def variable(field: str) -> str:
    """The variable of the environment for a setting, such as KWS_EDGE_MAX_BODY."""
    return f"{ENV_PREFIX}{field.upper()}"


def _names(field: str | int) -> str:
    """How a setting can be given."""
    names = [flag(str(field)), variable(str(field))]
    return " / ".join(names[field == "api_keys" :])


def mistyped_variables(environment: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """The variables that begin as this program's and are none of its, each with the setting that may be meant."""
    settings = [variable(field) for field in ServerSettings.model_fields]
    for name in sorted(environment):
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in (*settings, *OTHER_VARIABLES):
            yield name, next(iter(difflib.get_close_matches(name.upper(), settings, 1)), None)
