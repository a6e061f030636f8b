"""The server behind `kws-edge serve`: REST, WebSocket streams and a page that listens, on the public API of kws_edge.

from kws_edge.server.app import create_app
from kws_edge.server.settings import ServerSettings

app = create_app(ServerSettings())
"""
