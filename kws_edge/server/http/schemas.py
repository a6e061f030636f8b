"""The JSON that the server answers: types that OpenAPI describes and Pydantic checks."""

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

    label: str | None = Field(description="The word; null if the model abstained.")
    guess: str | None = Field(description="The most probable word, even if the model abstained.")
    probability: Fraction = Field(description="Probability of the guess.")
    abstained: bool = Field(description="Whether the label was withheld.")
    reason: Reason | None = Field(description="Why the label was withheld; null if it was not.")
    start: Seconds = Field(description="Start of the window that was decided on, in seconds of the clip.")
    end: Seconds = Field(description="End of that window.")
    score: Score = Field(description="The uncertainty that decided.")
    threshold: Number = Field(description="The label is withheld if the score is above it.")
    target: Fraction = Field(description="Accuracy of accepted clips for which the threshold was calibrated.")
    vacuity: Fraction = Field(description="How little evidence there is: K / (sum of evidence + K).")
    entropy: Fraction = Field(description="Entropy of the probabilities, normalised to 0 to 1.")
    alpha: list[Positive] = Field(description="Dirichlet parameters, in the order of the model's labels.")
    model: str = Field(description="Name of the model.")
    seconds: Seconds = Field(description="Length of the clip, in seconds.")
    warnings: list[str] = Field(description="Oddities of the file that did not prevent decoding it.")

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})


class WrongParameter(_Schema):
    """One wrong parameter."""

    parameter: str
    detail: str


class ProblemDetails(_Schema):
    """An error in the form of RFC 9457."""

    type: str = Field(description="`urn:kws-edge:problem:CODE`; the codes are a closed set.")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What was given and what was expected.")
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

    file: str = Field(description="Its file name in the form.")
    prediction: Classified | None = None
    problem: ProblemDetails | None = None


class Batch(_Schema):
    """The answers, in the order of the files."""

    results: list[BatchItem]


class ModelSummary(_Schema):
    """A model of this server."""

    name: str
    default: bool = Field(description="Whether it is used if a request names none.")
    labels: list[str] = Field(description="Its words, in the order of alpha.")
    variant: str = Field(description="Its evidential variant.")
    score: Score = Field(description="The uncertainty that decides by default.")
    targets: dict[str, list[Fraction]] = Field(description="The targets that a request may name, for each score.")
    provider: str = Field(description="The execution provider that runs it.")
    in_browser: bool = Field(description="Whether the page can run it in the browser.")


class Models(_Schema):
    """All models of this server."""

    models: list[ModelSummary]


class StreamDecision(_Schema):
    """How a stream decides: by the model's thresholds for streams or, without any, by those for clips."""

    thresholds: dict[Score, Number] = Field(
        description="The highest accepted uncertainty, for each score; all must hold."
    )
    labels: dict[str, dict[Score, Number]] = Field(description="Thresholds of single labels, in place of these.")
    probability: Fraction = Field(description="The lowest accepted probability.")
    smoothing: Seconds = Field(description="Time over which windows are averaged.")
    hysteresis: Fraction = Field(description="How far towards 1 a score must rise again before the next event.")
    rearm: Seconds = Field(description="How long it must stay there.")
    refractory: Seconds = Field(description="Shortest time between two events.")
    crowding: Number = Field(
        description="How much more certain a word must be amid sound as loud as it is; 0 for not at all."
    )


class ModelDescription(ModelSummary):
    """Everything that a model file says about the model."""

    padding: Padding = Field(description="Padding of the convolutions; `valid` networks have a form for streams.")
    window: Seconds = Field(description="Length of a window of a stream, in seconds.")
    decision: StreamDecision | None = Field(description="Null if the model is not calibrated.")
    front_end: dict[str, Any]
    thresholds: dict[str, list[dict[str, Any]]]
    calibration: dict[str, Any]
    training: dict[str, Any]
    accuracy: dict[str, dict[str, float]]
    stream: dict[str, Any] | None
    licence: str
    attribution: str


class Live(_Schema):
    """The process is alive."""

    status: Literal["live"] = "live"


class Ready(_Schema):
    """The server accepts requests."""

    status: Literal["ready"] = "ready"
    instance: str = Field(description="Identifies the process that answers, of several behind one address.")
    version: str = Field(description="Version of kws-edge.")
    onnxruntime: str = Field(description="Version of onnxruntime.")
    python: str = Field(description="Version of Python.")
    providers: dict[str, str] = Field(description="The execution provider that runs each model.")
    waiting: int = Field(ge=0, description="Clips waiting for a thread.")
    streams: int = Field(ge=0, description="Open streams.")
