"""What the server answers where something is wrong."""

import httpx


def problem(response: httpx.Response, status: int, code: str) -> str:
    """The detail of what must be a problem."""
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/problem+json"
    members = response.json()
    assert members["type"] == f"urn:kws-edge:problem:{code}"
    assert members["status"] == status
    assert members["title"]
    assert "\n" not in members["detail"]
    return members["detail"]
