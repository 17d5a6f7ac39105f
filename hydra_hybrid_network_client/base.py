"""What all documents of the API have in common, on the client's side."""

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A body of a request or of an answer. The controller checks names, limits and rates.

    Fields that only a later release of the controller knows are passed over.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)  # few of them are used
