"""A client of `kws-edge serve`: the same answers and errors, from a model that runs on a server.

with Client("http://127.0.0.1:8765") as client:
    p = client.classify("clip.wav")
    for event in client.listen(Microphone()):
        ...

`AsyncClient` has the same methods to await. Both can be used by several threads or tasks at once.
"""

from kws_edge.client.asynchronous import AsyncClient
from kws_edge.client.blocking import Client
from kws_edge.client.errors import ServerError
from kws_edge.client.streaming import Hello

__all__ = ["AsyncClient", "Client", "Hello", "ServerError"]
