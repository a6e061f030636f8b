"""Every setting of the server, once: its name is the flag (`--max-body`) and the variable (`KWS_EDGE_MAX_BODY`)."""

import os
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, DirectoryPath, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from kws_edge.errors import SettingError

ENV_PREFIX = "KWS_EDGE_"


def _split(value: Any) -> Any:
    """A text as it comes from the environment, "a, b", as a list."""
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def _check_key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[A-Za-z0-9._~-]{16,256}", key.get_secret_value()):
        raise ValueError("a key of 16 to 256 letters, digits and ._~- is expected, so that a subprotocol can carry it")
    return key


Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Keys = Annotated[tuple[Annotated[SecretStr, AfterValidator(_check_key)], ...], NoDecode, BeforeValidator(_split)]


class Settings(BaseSettings):
    """What the server does, and how much of it. A value that is given outranks the environment, which outranks these.

    Sizes are in bytes, times in seconds. Lists are given as "a,b". `load` makes one with errors in one line.
    """

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True)

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 is every network this machine is in.")
    port: int = Field(8765, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    models: Texts = Field((), description="Shipped names or .onnx paths, the first by default; none is all shipped.")
    provider: str = Field("cpu", description="Execution provider to run on.")
    strict: bool = Field(False, description="Refuse to start on another execution provider than that.")

    browser: DirectoryPath | None = Field(
        None, description="Folder with onnxruntime-web, for the page to run the models that have a NAME.audio.onnx."
    )

    workers: int = Field(
        max(1, min(4, (os.cpu_count() or 1) - 1)), ge=1, le=64, description="Threads that decode and run the network."
    )
    max_queue: int = Field(64, ge=1, le=10_000, description="Clips that may wait for a thread; more get a 503.")
    max_batch: int = Field(16, ge=1, le=64, description="Waiting clips that one run of the network takes together.")
    inference_timeout: float = Field(10, gt=0, le=600, description="Time for a request, waiting included, then a 503.")

    max_body: int = Field(8 * 2**20, ge=1, le=2**30, description="Body of a request.")
    max_clip_seconds: float = Field(60, gt=0, le=600, description="Length of a clip once decoded.")
    max_clips: int = Field(32, ge=1, le=1000, description="Clips in one batch request.")
    max_uploads: int = Field(64, ge=1, le=10_000, description="Requests being read or answered at once.")
    head_timeout: float = Field(10, gt=0, le=600, description="Time for the head of a request to arrive.")
    body_timeout: float = Field(30, gt=0, le=3600, description="Time for a body to arrive.")

    max_streams: int = Field(200, ge=0, le=10_000, description="WebSocket streams at once.")
    max_client_streams: int = Field(200, ge=0, le=10_000, description="WebSocket streams at once of one client.")
    max_message: int = Field(2**18, ge=1024, le=2**24, description="One WebSocket message.")
    idle_timeout: float = Field(30, gt=0, le=3600, description="Time without audio before a stream is closed.")

    client_rate: float = Field(0, ge=0, description="Requests a second of one client, averaged; 0 is no limit.")
    client_burst: int = Field(20, ge=1, description="Requests that a client may make at once before its rate counts.")
    api_keys: Keys = Field((), description="Keys of which a caller must give one; none lets everybody in.")
    cors_origins: Texts = Field((), description="Web origins other than this one whose pages may call.")
    trusted_proxies: Texts = Field((), description="Addresses whose X-Forwarded-For names the client.")

    shutdown_grace: int = Field(10, ge=0, le=3600, description="Time for what is in progress once told to stop.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")

    @model_validator(mode="after")
    def _fit(self) -> "Settings":
        if self.max_clips > self.max_queue:
            raise ValueError(f"max_clips {self.max_clips} is over max_queue {self.max_queue}: no batch of it would fit")
        return self

    @classmethod
    def load(cls, **given: Any) -> "Settings":
        """Make one from the values given and the environment; a SettingError names what is wrong, without secrets."""
        try:
            return cls(**given)
        except ValidationError as error:
            problems = [
                ": ".join([*(str(part) for part in e["loc"][:1]), e["msg"].removeprefix("Value error, ")])
                for e in error.errors(include_input=False)
            ]
            raise SettingError(f"server settings: {'; '.join(problems)}") from None
