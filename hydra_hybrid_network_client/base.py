"""Common base of the API's documents, on the client's side."""

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A body of a request or of an answer. The controller checks names, limits and rates.

    Unknown fields, from a later release of the controller, are ignored.
    """

    model_config = ConfigDict(
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,  # few models are used
        populate_by_name=True,
    )
