"""The REST interface: routes, schemas, limits and the errors that clients see."""
