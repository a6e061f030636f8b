"""The WebSocket route: the handshake, and how a stream ends. What is said on it is in `stream_session`."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect

from kws_edge.server.http.guard import refuse
from kws_edge.server.http.problems import ProblemError
from kws_edge.server.service import Service
from kws_edge.server.stream_session import StreamParameters, StreamSession

SUBPROTOCOL: Final = "kws-edge"
CLOSE_CODES: Final[Mapping[str, int]] = {
    "malformed": 1003,
    "invalid-audio": 1007,
    "unauthorized": 1008,
    "too-large": 1009,
    "internal": 1011,
    "overloaded": 1013,
    "too-many-requests": 1013,
    "not-ready": 1012,
    "invalid-parameter": 4000,
    "idle": 4008,
}
"""Problem → close code. Besides these: 1000 after `end`. What is refused before the handshake gets an HTTP answer."""

router = APIRouter()
_log = logging.getLogger("kws_edge.server")


@router.websocket("/v1/stream")
async def stream(websocket: WebSocket) -> None:
    """Serve one stream, from the handshake to the close."""
    service = Service.of(websocket)
    offered = websocket.scope["subprotocols"]
    session: StreamSession | None = None
    code = 1000
    task = asyncio.current_task()
    assert task is not None
    service.open_streams.add(task)
    try:
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        client = service.admit(websocket)
        with service.streams.take(client), service.metrics.streams.track_inprogress():
            parameters = StreamParameters.of(websocket)
            session = StreamSession(websocket, service, parameters, client)
            await _until(service.stopping, session.run())
        await websocket.close(1000)
    except WebSocketDisconnect as gone:
        code = gone.code
    except Exception as error:
        problem = ProblemError.of(error)
        if problem.code == "internal":
            _log.exception("stream failed")
        code = CLOSE_CODES[problem.code]
        await _refuse(websocket, problem, code)
    finally:
        fields = {"code": code, "seconds": round(session.spotter.time, 2) if session else 0.0}
        _log.info("stream", extra={"fields": fields})
        service.open_streams.discard(task)


@router.get("/v1/stream", include_in_schema=False)
async def no_stream() -> None:
    """Say what is missing, to a browser's address bar or behind a proxy that leaves out the upgrade."""
    raise ProblemError(
        "upgrade-required",
        "a plain request; expected a WebSocket (ws:// or wss://), whose Upgrade and Connection a proxy must pass on",
        headers={"Upgrade": "websocket", "Connection": "Upgrade"},
    )


@router.websocket("/{path:path}")
async def nothing(websocket: WebSocket) -> None:
    """Refuse a handshake anywhere else."""
    problem = ProblemError("not-found", "no stream here; expected /v1/stream")
    await refuse(problem, websocket.scope, websocket.receive, websocket.send)


async def _until(stopping: asyncio.Event, talk: Coroutine[Any, Any, None]) -> None:
    """Talk, and raise its errors; a ProblemError, not-ready, where the server stops before it is over."""
    talking, stopped = asyncio.create_task(talk), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({talking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            raise ProblemError("not-ready", "the server is stopping; connect again")
        await talking
    finally:
        talking.cancel()
        stopped.cancel()


async def _refuse(websocket: WebSocket, problem: ProblemError, code: int) -> None:
    """Say why, then close; the client may be gone already."""
    try:
        async with asyncio.timeout(1):
            message: dict[str, Any] = {"type": "error", "problem": problem.to_dict()}
            if "Retry-After" in problem.headers:
                message["retry_after"] = int(problem.headers["Retry-After"])
            await websocket.send_text(json.dumps(message))
            await websocket.close(code, problem.title)
    except (WebSocketDisconnect, RuntimeError, TimeoutError):
        return
