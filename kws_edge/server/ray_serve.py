"""The same app as replicas of Ray Serve, for more than one process or machine.

    pip install '.[ray-serve]'  # in a checkout of kws-edge
    serve run kws_edge.server.ray_serve:build replicas=2

Settings come from the environment (`KWS_EDGE_MODELS`, ...) where this is started. Every replica loads the models and
has the limits to itself; the address, TLS and proxies are Ray's.
"""

import os

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from kws_edge.errors import missing_package
from kws_edge.server.app import create_app
from kws_edge.server.log import warn_of_mistyped_variables
from kws_edge.server.serving import prepare_process
from kws_edge.server.settings import ServerSettings

# What listens to people reports to nobody: this must be set before Ray starts. Whoever wants the reports sets it to 1.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    from ray import serve
except ImportError as error:
    raise missing_package("Ray Serve", error.name, "ray-serve") from None

_HEALTH = 100
"""Requests besides uploads and streams that a replica takes at once: health, metrics, the page."""


class Deployment(BaseModel):
    """What `serve run` takes after the name of `build`, as `replicas=2`."""

    model_config = ConfigDict(extra="forbid")

    replicas: int = Field(1, ge=1, description="Processes, each with the models in its memory.")
    cpus: float = Field(1.0, ge=0, description="Cores that Ray reckons with for each.")


def build(deployment: Deployment) -> serve.Application:
    """The application that Ray Serve runs; `serve run` calls it.

    Raises
    ------
    SettingError : a setting in the environment cannot be used.
    """
    settings = ServerSettings.load()

    def replica() -> FastAPI:
        prepare_process(settings)
        warn_of_mistyped_variables()
        return create_app(settings)

    configured = serve.deployment(
        name="kws-edge",
        num_replicas=deployment.replicas,
        ray_actor_options={"num_cpus": deployment.cpus},
        # The app refuses by itself what is too much, and says why; Ray would let it wait.
        max_ongoing_requests=settings.max_uploads + settings.max_streams + _HEALTH,
        graceful_shutdown_timeout_s=settings.shutdown_grace,
    )
    return configured(serve.ingress(replica)()).bind()
