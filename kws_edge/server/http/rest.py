"""The REST routes."""

import json
import platform
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import onnxruntime
from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import FileResponse, Response

from kws_edge.audio.channels import Channel
from kws_edge.errors import SettingError
from kws_edge.model.keyword_model import KeywordModel
from kws_edge.model.metadata import Metadata
from kws_edge.model.score import Score
from kws_edge.model.selection import DEFAULT_TARGET
from kws_edge.server.http import schemas
from kws_edge.server.http.limits import read_chunks, read_files, read_form
from kws_edge.server.http.problems import CODES, MEDIA_TYPE, ProblemError, about, refuse_repeated
from kws_edge.server.http.wording import CHANNELS, TARGET
from kws_edge.server.inference import ClipAnswer, ClipOutcome, ClipRequest
from kws_edge.server.service import Service
from kws_edge.stream.framing import window_seconds
from kws_edge.stream.settings import StreamSettings
from kws_edge.text import one_line, shortened
from kws_edge.version import installed_version

FORM: Final = "multipart/form-data"
AUDIO: Final = ("audio/*", "application/octet-stream")


def _problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's description of the problems that a route can answer with."""
    by_status: dict[int | str, list[str]] = {}
    for code in codes:
        by_status.setdefault(CODES[code][0], []).append(code)
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    return {
        status: {
            "description": "; ".join(f"`{code}`: {CODES[code][1]}" for code in group),
            "content": {MEDIA_TYPE: {"schema": schema}},
        }
        for status, group in by_status.items()
    }


def _file_body(description: str, schema: dict[str, Any], *, raw: bool) -> dict[str, Any]:
    content: dict[str, Any] = {FORM: {"schema": schema}}
    if raw:
        content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in AUDIO}
    return {"requestBody": {"required": True, "description": description, "content": content}}


_FILE: Final = {"type": "string", "format": "binary"}
_ONE_FILE: Final = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": _FILE},
    "additionalProperties": False,
}
_FILES: Final = {
    "type": "object",
    "required": ["files"],
    "properties": {"files": {"type": "array", "items": _FILE, "minItems": 1}},
    "additionalProperties": False,
}


async def wrong_query(_: Request, error: Exception) -> Response:
    """Exception handler of the app for what FastAPI finds wrong with `ClipParameters`."""
    assert isinstance(error, RequestValidationError)
    return ProblemError.of_query(error.errors(), ClipParameters.model_fields).response()


async def admitted(request: Request) -> str:
    """The caller, whose key and rate are in order, under the name by which its limits are counted."""
    return Service.of(request).admit(request)


Client = Annotated[str, Depends(admitted)]
router = APIRouter()
v1 = APIRouter(
    prefix="/v1",
    tags=["v1"],
    responses=_problems("unauthorized", "forbidden", "misdirected", "too-many-requests", "internal"),
)


class ClipParameters(BaseModel):
    """The query of both ways to classify."""

    model_config = ConfigDict(extra="forbid")  # a misspelt target must not pass for the default one

    model: Annotated[
        str | None,
        Field(description="A name from `GET /v1/models`  [default: the default model]", max_length=200),
    ] = None
    target: Annotated[
        float,
        *TARGET,
        Field(
            description="Share of the given answers that should be right, one that the model is calibrated for: 0.995, "
            "99.5 or 99.5 %."
        ),
    ] = DEFAULT_TARGET
    score: Annotated[Score | None, Field(description="Uncertainty that decides  [default: the model's choice]")] = None
    channel: Annotated[
        str | None,
        CHANNELS,
        Field(
            pattern="^(mix|[1-9][0-9]?)$",
            description="One of several channels, from 1, or `mix` for their average  [default: their average, or the "
            "strongest if they cancel each other]",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about each file."""

    model: KeywordModel
    target: float
    score: Score | None
    channel: Channel | None

    @classmethod
    def of(cls, request: Request, given: ClipParameters) -> "Question":
        """Check it, before any of the body is read.

        Raises
        ------
        ProblemError : invalid-parameter: one is given twice; the model is not served, or not calibrated for this
            target.
        """
        refuse_repeated(request.query_params.multi_items())
        service = Service.of(request)
        with about("model"):
            model = service.default_model if given.model is None else service.model(given.model)
        with about("target"):
            model.metadata.threshold(given.score or model.metadata.score, given.target)
        number = int(given.channel) if given.channel not in (None, "mix") else None
        channel: Channel | None = "mix" if given.channel == "mix" else number
        return cls(model, given.target, given.score, channel)

    def about(self, name: str, body: bytes) -> ClipRequest:
        """The question about one file."""
        return ClipRequest(
            shortened(one_line(name)) or "audio", body, self.model, self.target, self.score, self.channel
        )


@v1.post(
    "/classify",
    responses=_problems(
        "malformed",
        "body-timeout",
        "too-large",
        "unsupported-media-type",
        "invalid-audio",
        "invalid-parameter",
        "overloaded",
    ),
    openapi_extra=_file_body("A form with one file, or the file itself with its content type.", _ONE_FILE, raw=True),
)
async def classify(request: Request, client: Client, given: Annotated[ClipParameters, Query()]) -> schemas.Classified:
    """Name the word in a clip, or abstain and say why.

    The clip is a WAV, FLAC, Ogg Vorbis, Opus, MP3, AIFF, AU or CAF file at any sample rate. In one longer than 1.3 s
    the word is searched for; `start` and `end` say where it is.
    """
    service = Service.of(request)
    question = Question.of(request, given)
    with service.uploads.take(client), service.upload_bytes.hold(client) as take:
        kind = _content_type(request)
        if kind == FORM:
            several = "one file; /v1/classify/batch takes several"
            name, body = (await _read_files(request, take, "file", most=1, expected=several))[0]
        elif kind.startswith("audio/") or kind == AUDIO[1]:
            name, body = "", await _read_body(request, take)
        else:
            raise ProblemError(
                "unsupported-media-type",
                f"Content-Type {kind!r}; expected {', '.join((FORM, *AUDIO))}, as curl -H 'Content-Type: audio/wav'",
            )
        outcome = (await service.pool.classify([question.about(name, body)], client))[0]
    if isinstance(outcome, Exception):
        raise outcome
    return _classified(service, outcome)


@v1.post(
    "/classify/batch",
    responses=_problems(
        "malformed", "body-timeout", "too-large", "unsupported-media-type", "invalid-parameter", "overloaded"
    ),
    openapi_extra=_file_body("A form with files, each in a field `files`.", _FILES, raw=False),
)
async def classify_batch(request: Request, client: Client, given: Annotated[ClipParameters, Query()]) -> schemas.Batch:
    """Classify several clips in one request; what is wrong with one of them does not stop the others."""
    service = Service.of(request)
    question = Question.of(request, given)
    with service.uploads.take(client), service.upload_bytes.hold(client) as take:
        kind = _content_type(request)
        if kind != FORM:
            raise ProblemError(
                "unsupported-media-type",
                f"Content-Type {kind!r}; expected {FORM}, as curl -F files=@clip.wav",
            )
        most = service.settings.max_clips
        files = await _read_files(request, take, "files", most=most, expected=f"up to {most}, the server's --max-clips")
        outcomes = await service.pool.classify([question.about(name, body) for name, body in files], client)
    return schemas.Batch(
        results=[_item(service, name, outcome) for (name, _), outcome in zip(files, outcomes, strict=True)]
    )


@v1.get("/models", dependencies=[Depends(admitted)])
async def list_models(request: Request) -> schemas.Models:
    """List the models that are served, the default first."""
    service = Service.of(request)
    return schemas.Models(models=[schemas.ModelSummary(**_summary(service, m)) for m in service.models.values()])


@v1.get("/models/{name}", dependencies=[Depends(admitted)], responses=_problems("not-found"))
async def describe_model(request: Request, name: str) -> schemas.ModelDescription:
    """All that a model's file says of itself: labels, front end, thresholds, accuracy, licence."""
    service = Service.of(request)
    if name not in service.models:
        raise ProblemError("not-found", f"model {shortened(name)!r}; expected one of {', '.join(service.models)}")
    model = service.models[name]
    metadata = json.loads(model.metadata.to_json())
    fields = schemas.ModelDescription.model_fields.keys() & metadata.keys()
    derived = {"window": window_seconds(model.metadata), "decision": _decision(model.metadata)}
    return schemas.ModelDescription(**{key: metadata[key] for key in fields} | derived | _summary(service, model))


@router.get("/browser/{name}.audio.onnx", dependencies=[Depends(admitted)], include_in_schema=False)
async def model_file(request: Request, name: str) -> FileResponse:
    """A model with its front end, for the page to run."""
    service = Service.of(request)
    file = service.browser_file(service.models[name]) if name in service.models else None
    if file is None:
        raise ProblemError("not-found", f"model {shortened(name)!r} with its front end; expected one with in_browser")
    return FileResponse(file, media_type="application/octet-stream")


@router.get("/openapi.json", include_in_schema=False)
async def description(request: Request) -> dict[str, Any]:
    """The description of the routes."""
    return dict(request.app.openapi())


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", tags=["operation"])
async def live() -> schemas.Live:
    """Whether the process answers at all; no key needed."""
    return schemas.Live()


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", tags=["operation"], responses=_problems("not-ready"))
async def ready(request: Request) -> schemas.Ready:
    """Whether requests should be sent here; no key needed."""
    service = Service.of(request)
    if service.draining:
        raise ProblemError("not-ready", "the server was told to stop; expected requests to go elsewhere")
    return schemas.Ready(
        instance=service.instance,
        version=installed_version(),
        onnxruntime=onnxruntime.__version__,
        python=platform.python_version(),
        providers={name: model.provider for name, model in service.models.items()},
        waiting=service.pool.waiting,
        streams=len(service.streams),
    )


@router.get(
    "/metrics",
    tags=["operation"],
    dependencies=[Depends(admitted)],
    response_class=Response,
    responses={
        200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **_problems("unauthorized", "forbidden", "misdirected", "too-many-requests"),
    },
)
async def metrics(request: Request) -> Response:
    """Counters and histograms in the text format of Prometheus."""
    return Response(generate_latest(Service.of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _content_type(request: Request) -> str:
    return shortened(request.headers.get("Content-Type", "").partition(";")[0].strip().lower())


def _chunks(request: Request, take: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
    settings = Service.of(request).settings
    return read_chunks(request, max_body=settings.max_body, timeout=settings.body_timeout, take=take)


async def _read_body(request: Request, take: Callable[[int], None]) -> bytes:
    body = bytearray()  # and not a list of chunks, of which there may be one for each byte
    async for chunk in _chunks(request, take):
        body += chunk
    return bytes(body)


async def _read_files(
    request: Request, take: Callable[[int], None], field: str, most: int, expected: str
) -> list[tuple[str, bytes]]:
    form = await read_form(request, _chunks(request, take), max_files=most, expected=expected)
    return await read_files(form, field)


def _classified(service: Service, answer: ClipAnswer) -> schemas.Classified:
    service.metrics.count(answer.prediction)
    return schemas.Classified(**answer.prediction.to_dict(), seconds=answer.seconds, warnings=list(answer.warnings))


def _item(service: Service, name: str, outcome: ClipOutcome) -> schemas.BatchItem:
    if isinstance(outcome, ClipAnswer):
        return schemas.BatchItem(file=name, prediction=_classified(service, outcome))
    problem = ProblemError.of(outcome)
    if problem.code == "internal":
        raise outcome
    return schemas.BatchItem(file=name, problem=schemas.ProblemDetails(**problem.to_dict()))


def _summary(service: Service, model: KeywordModel) -> dict[str, Any]:
    m = model.metadata
    return {
        "name": m.name,
        "default": model is service.default_model,
        "labels": list(m.labels),
        "variant": m.variant,
        "score": m.score,
        "targets": {score: [point.target for point in points] for score, points in m.thresholds.items()},
        "provider": model.provider,
        "in_browser": service.browser_file(model) is not None,
    }


def _decision(metadata: Metadata) -> dict[str, Any] | None:
    try:
        return StreamSettings.of(metadata).to_dict()
    except SettingError:  # it has no thresholds, or none at the default target
        return None
