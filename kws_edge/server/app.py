"""The app: routes, error answers, OpenAPI and the page put together."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from kws_edge.server import stream
from kws_edge.server.http import problems, rest
from kws_edge.server.http.guard import Guard
from kws_edge.server.http.limits import CloseUnread
from kws_edge.server.http.problems import ProblemError
from kws_edge.server.http.schemas import Classified, ProblemDetails
from kws_edge.server.observe import Metrics, Observer
from kws_edge.server.service import Service
from kws_edge.server.settings import RUNTIME, ServerSettings
from kws_edge.text import shortened
from kws_edge.version import installed_version

PAGE: Final = Path(__file__).parent / "page"

_SECURITY: Final = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "Where the server was started with API keys."},
    "Header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same, as its own header."},
}

_PAGE_HEADERS: Final = {
    # Everything is from this server; WebAssembly is for the mode that runs the model in the browser.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; frame-ancestors 'none'",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(settings: ServerSettings, metrics: Metrics | None = None) -> FastAPI:
    """Load the models and build the app, which counts in `metrics`, or else in its own.

    Raises
    ------
    ModelError, SettingError, ProviderError : the models cannot be served.
    """
    service = Service.start(settings, metrics or Metrics())

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.pool.close()

    app = FastAPI(
        title="kws-edge",
        version=installed_version(),
        description="Keyword spotting that can say that it is not sure. Live audio goes to the WebSocket `/v1/stream`.",
        lifespan=lifespan,
        openapi_url=None,  # it is a route as all others, which log and metrics know
        docs_url=None,  # its pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # to a host that the caller names
    )
    app.state.service = service
    for error in problems.HANDLED:
        app.add_exception_handler(error, problems.answer)
    app.add_exception_handler(RequestValidationError, rest.wrong_query)
    app.include_router(rest.v1)
    app.include_router(rest.router)
    app.include_router(stream.router)
    app.add_api_route("/", _index, methods=["GET", "HEAD"], include_in_schema=False)
    app.mount("/page", _Page(directory=PAGE))
    if settings.browser:
        runtime = _runtime(settings.browser)
        app.add_api_route("/browser/{name}", runtime, methods=["GET", "HEAD"], include_in_schema=False)
    _add_middleware(app, service)
    described = _openapi(app, settings)  # now, since it takes a while
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


class _Page(StaticFiles):
    """The page's files, with the headers that keep it to itself, and one name for them all in log and metrics."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path=f"{scope['root_path']}/*")
        await super().__call__(scope, receive, send)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


class WholeFiles:
    """ASGI middleware: files, which are small, come whole; Starlette's errors about ranges are no problem details."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an app."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, without its Range."""
        if scope["type"] == "http":
            scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await self._app(scope, receive, send)


def _runtime(folder: Path) -> Callable[[Request, str], Awaitable[Response]]:
    """The route of the runtime's files, and of no others in their folder; without a key, which no import can send."""
    files = _Page(directory=folder)

    async def file(request: Request, name: str) -> Response:
        if name not in RUNTIME:
            raise ProblemError("not-found", f"file {shortened(name)!r}; expected one of {', '.join(RUNTIME)}")
        return await files.get_response(name, request.scope)

    return file


async def _index(_: Request) -> FileResponse:
    return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)


def _add_middleware(app: FastAPI, service: Service) -> None:
    settings = service.settings
    app.add_middleware(Guard, settings=settings)  # inside of CORS, so that a page may read why
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
            expose_headers=["Retry-After", "X-Request-ID"],
        )
    app.add_middleware(WholeFiles)
    app.add_middleware(CloseUnread)
    app.add_middleware(Observer, metrics=service.metrics, stopping=service.stopping)


def _openapi(app: FastAPI, settings: ServerSettings) -> dict[str, Any]:
    """What FastAPI generates, put right.

    It drops null from examples, adds a 422 of its own where none can come, and knows nothing of the keys.
    """
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = schema["components"]["schemas"]
    for model in (Classified, ProblemDetails):
        described = model.model_json_schema(ref_template="#/components/schemas/{model}")
        components |= described.pop("$defs", {}) | {model.__name__: described}
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    if settings.api_keys:
        schema["components"]["securitySchemes"] = _SECURITY
    for path in schema["paths"].values():
        for operation in path.values():
            if settings.api_keys and "401" in operation["responses"]:
                operation["security"] = [{name: []} for name in _SECURITY]
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
    return schema
