"""What all routes share: the models, the threads, the limits, the metrics, and who is calling."""

import asyncio
import hashlib
import hmac
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from starlette.requests import HTTPConnection

from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.shipped import DEFAULT_MODEL, shipped_models
from kws_edge.server.http.connections import client_of
from kws_edge.server.http.limits import Pace, Places, RateLimiter
from kws_edge.server.http.problems import ProblemError
from kws_edge.server.inference import InferencePool
from kws_edge.server.observe import Metrics
from kws_edge.server.settings import ServerSettings
from kws_edge.stream.incremental import keep_steps
from kws_edge.stream.settings import StreamSettings
from kws_edge.text import shortened

_MOST_MESSAGES: Final = 2_500
"""Of one client's streams in a second: 50 that send every 20 ms; more wait for the next."""

KEY_SUBPROTOCOL: Final = "kws-edge.key."
"""A browser cannot set headers on a WebSocket: it offers a subprotocol, this with the key after it."""


@dataclass(slots=True)
class Service:
    """One server's state; `of` finds it from a request.

    Attributes
    ----------
    models : by name, the first of them by default.
    instance : a name that no other process has, for those that run behind one address.
    draining : the server was told to stop, and says that requests should go elsewhere; those that come are answered.
    stopping : set when it stops, after that.
    open_streams : the tasks that serve them.
    """

    settings: ServerSettings
    models: Mapping[str, KeywordModel]
    pool: InferencePool
    metrics: Metrics
    rate: RateLimiter
    uploads: Places
    upload_bytes: Places
    streams: Places
    instance: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    draining: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open_streams: set[asyncio.Task[Any]] = field(default_factory=set)
    _paces: WeakValueDictionary[str, Pace] = field(default_factory=WeakValueDictionary)

    @classmethod
    def start(cls, settings: ServerSettings, metrics: Metrics) -> "Service":
        """Load the models and start the threads, which count in `metrics`.

        Raises
        ------
        ModelError, SettingError, ProviderError : a model cannot be loaded, or two have one name.
        """
        pool = InferencePool(
            workers=settings.threads,
            max_queue=settings.max_queue,
            max_client_queue=settings.max_client_queue,
            max_batch=settings.max_batch,
            timeout=settings.inference_timeout,
            max_seconds=settings.max_clip_seconds,
            max_samples=settings.max_clip_samples,
            max_body=settings.max_body,
            batch_sizes=metrics.batch.observe,
            report_waiting=metrics.waiting.set,
        )
        try:
            models = models_of(settings)
        except BaseException:
            pool.close()
            raise
        pool.ready()
        return cls(
            settings=settings,
            models=models,
            pool=pool,
            metrics=metrics,
            rate=RateLimiter(settings.client_rate, settings.client_burst),
            uploads=Places("requests", settings.max_uploads, settings.max_client_uploads),
            upload_bytes=Places("bytes", settings.max_upload_bytes, settings.max_client_upload_bytes),
            streams=Places("streams", settings.max_streams, settings.max_client_streams),
        )

    @classmethod
    def of(cls, connection: HTTPConnection) -> "Service":
        """That of the app which handles a request or WebSocket."""
        service = connection.app.state.service
        assert isinstance(service, cls)
        return service

    def pace(self, client: str) -> Pace:
        """The pace that all streams of a client share, for as long as there are any."""
        found = self._paces.get(client)
        if found is None:
            found = self._paces[client] = Pace(_MOST_MESSAGES)
        return found

    @property
    def default_model(self) -> KeywordModel:
        """What answers where no model is named."""
        return next(iter(self.models.values()))

    def model(self, name: str) -> KeywordModel:
        """A model by its name.

        Raises
        ------
        SettingError : it is not served.
        """
        if name not in self.models:
            raise SettingError(f"model {shortened(name)!r}; expected one of {', '.join(self.models)}")
        return self.models[name]

    def browser_file(self, model: KeywordModel) -> Path | None:
        """The model with its front end, NAME.audio.onnx beside its own file; None where the page cannot run it."""
        file = model.path.with_suffix(".audio.onnx")
        return file if self.settings.browser and file.is_file() else None

    def admit(self, connection: HTTPConnection) -> str:
        """Check a caller's key and rate, and give the name under which its limits are counted.

        Raises
        ------
        ProblemError : unauthorized, or too-many-requests.
        """
        client = client_of(connection.client.host) if connection.client else "unknown"
        if self.settings.api_keys:
            key = _key(connection)
            given = (key or "").encode()
            # All keys are compared, each in constant time, so that the time says nothing about any of them.
            known = [hmac.compare_digest(given, k.get_secret_value().encode()) for k in self.settings.api_keys]
            if not any(known):
                what = "a key that is not known" if key else "no key"
                raise ProblemError(
                    "unauthorized",
                    f"{what}; expected `Authorization: Bearer KEY` or `X-API-Key: KEY`",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            client = hashlib.sha256(given).hexdigest()[:16]
        self.rate.take(client)
        return client


def _key(connection: HTTPConnection) -> str | None:
    scheme, _, token = connection.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(KEY_SUBPROTOCOL):
            return offered.removeprefix(KEY_SUBPROTOCOL)
    return connection.headers.get("X-API-Key")


def models_of(settings: ServerSettings) -> dict[str, KeywordModel]:
    """Load the models that settings name, or all that ship; the parameters and errors are those of `Service.start`."""
    shipped = shipped_models()
    names = settings.models or tuple(sorted(shipped, key=lambda name: name != DEFAULT_MODEL)) or (DEFAULT_MODEL,)
    models: dict[str, KeywordModel] = {}
    for name in names:
        model = KeywordModel.load(name, provider=settings.provider, strict=settings.strict)
        if model.name in models:
            raise SettingError(f"models {', '.join(names)}: two are called {model.name!r}; expected different names")
        with suppress(SettingError):  # it has no thresholds for streams
            StreamSettings.of(model.metadata)
        keep_steps(model)
        models[model.name] = model
    return models
