"""What the server answers, as types: the JSON of each route, which OpenAPI describes and Pydantic checks."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from kws_edge.model.metadata import Padding
from kws_edge.model.prediction import Reason
from kws_edge.model.score import Score

Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]

_EXAMPLE: dict[str, JsonValue] = {
    "label": "yes",
    "guess": "yes",
    "probability": 0.998,
    "abstained": False,
    "reason": None,
    "start": 0.0,
    "end": 1.0,
    "score": "entropy",
    "threshold": 0.12,
    "target": 0.995,
    "vacuity": 0.021,
    "entropy": 0.008,
    "alpha": [1421.6, 1.3, 0.9],
    "model": "softmax",
    "seconds": 1.0,
    "warnings": [],
}


class _Schema(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Classified(_Schema):
    """What a model says about a clip: a word, or an abstention that says why."""

    label: str | None = Field(description="The word; null where the model abstained.")
    guess: str | None = Field(description="The most probable word, also where the model abstained.")
    probability: Fraction = Field(description="Of the guess.")
    abstained: bool = Field(description="Whether the label was withheld.")
    reason: Reason | None = Field(description="Why it was.")
    start: Seconds = Field(description="Where in the clip the window lies that was decided on, in seconds.")
    end: Seconds
    score: Score = Field(description="The uncertainty that decided.")
    threshold: Number = Field(description="The label is withheld where the score is above it.")
    target: Fraction = Field(description="Accuracy of accepted clips for which the threshold was calibrated.")
    vacuity: Fraction = Field(description="Lack of evidence.")
    entropy: Fraction = Field(description="Of the probabilities, normalised.")
    alpha: list[Positive] = Field(description="Dirichlet parameters, in the order of the model's labels.")
    model: str
    seconds: Seconds = Field(description="Length of the clip.")
    warnings: list[str] = Field(description="What was odd about the file and did not stop it from being decoded.")

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})


class WrongParameter(_Schema):
    """One wrong parameter."""

    parameter: str
    detail: str


class ProblemDetails(_Schema):
    """An error, as RFC 9457 has it."""

    type: str = Field(description="`urn:kws-edge:problem:CODE`; the codes are a closed set.")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What was given, what was expected.")
    errors: list[WrongParameter] | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:kws-edge:problem:invalid-audio",
                    "title": "The audio cannot be used",
                    "status": 422,
                    "detail": "clip.wav: no samples; expected at least one",
                }
            ]
        }
    )


class BatchItem(_Schema):
    """The answer about one file of a batch: a prediction or a problem."""

    file: str = Field(description="Its name in the form.")
    prediction: Classified | None = None
    problem: ProblemDetails | None = None


class Batch(_Schema):
    """The answers, in the order of the files."""

    results: list[BatchItem]


class ModelSummary(_Schema):
    """A model that is served."""

    name: str
    default: bool = Field(description="Whether it answers where none is named.")
    labels: list[str] = Field(description="The words it knows, in the order of alpha.")
    variant: str = Field(description="Which evidential head it has.")
    score: Score = Field(description="The uncertainty that decides unless another is asked for.")
    targets: dict[str, list[Fraction]] = Field(description="For each score, the targets that can be asked for.")
    provider: str = Field(description="The execution provider that runs.")
    in_browser: bool = Field(description="Whether the page can run it in the browser.")


class Models(_Schema):
    """All models that are served."""

    models: list[ModelSummary]


class StreamDecision(_Schema):
    """By what a stream decides: the model's own settings, or else what its clips were calibrated to."""

    thresholds: dict[Score, Number] = Field(description="The highest uncertainty that is accepted; all must hold.")
    labels: dict[str, dict[Score, Number]] = Field(description="Thresholds of single labels, instead of those.")
    probability: Fraction = Field(description="The least that is accepted.")
    smoothing: Seconds = Field(description="Over how long windows are averaged.")
    hysteresis: Fraction = Field(description="How far of the way to 1 a score must rise before a word can come again.")
    rearm: Seconds = Field(description="For how long it must stay there.")
    refractory: Seconds = Field(description="The least time between words.")
    crowding: Number = Field(description="How much surer a word must be within sound that is as loud; 0 for no surer.")


class ModelDescription(ModelSummary):
    """All that a model's file says of itself."""

    padding: Padding = Field(description="`valid` where the network looks at nothing but whole windows of a stream.")
    window: Seconds = Field(description="Length of a window of a stream.")
    decision: StreamDecision | None = Field(description="Null where the model was not calibrated.")
    front_end: dict[str, Any]
    thresholds: dict[str, list[dict[str, Any]]]
    calibration: dict[str, Any]
    training: dict[str, Any]
    accuracy: dict[str, dict[str, float]]
    stream: dict[str, Any] | None
    licence: str
    attribution: str


class Live(_Schema):
    """The process answers."""

    status: Literal["live"] = "live"


class Ready(_Schema):
    """Requests are taken."""

    status: Literal["ready"] = "ready"
    instance: str = Field(description="Which process answers, where several are behind one address.")
    version: str = Field(description="Of kws-edge.")
    onnxruntime: str = Field(description="Its version.")
    python: str = Field(description="Its version.")
    providers: dict[str, str] = Field(description="The execution provider that runs each model.")
    waiting: int = Field(ge=0, description="Clips that wait for a thread.")
    streams: int = Field(ge=0, description="Streams that are open.")
