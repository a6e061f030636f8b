"""The server: REST, WebSocket streams, and a page that listens.

from kws_edge.server.app import create_app
from kws_edge.server.settings import ServerSettings

app = create_app(ServerSettings())
"""
