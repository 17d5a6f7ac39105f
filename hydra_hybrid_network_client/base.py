"""Common base of the API's documents, on the client's side."""

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A body of a request or of an answer. The controller checks names, limits and rates.

    Unknown fields, from a later release of the controller, are ignored.
    """

    # few models are used
    model_config = ConfigDict(frozen=True, defer_build=True, populate_by_name=True)
